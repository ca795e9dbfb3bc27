"""``MultiEpochsDataLoader``, which has one iterator for life."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastloader.loader import FastLoader


class MultiEpochsDataLoader(FastLoader[Any]):
    """timm's loader whose workers, and the batches under way, live on from one epoch to the next, so
    that an epoch begins with batches that are ready. The next epoch's order is drawn before this epoch
    has ended. A sampler with ``set_epoch`` is advanced by one for each epoch, from the number that was
    set last before the first epoch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.iterator: Iterator[Any] | None = None  # made late, so that set_epoch() counts
        # Cleared for a moment, because torch forbids another sampler once it is initialised.
        self._DataLoader__initialized = False
        if self.batch_sampler is None:
            self.sampler = _Forever(self.sampler)
        else:
            self.batch_sampler = _Forever(self.batch_sampler)
        self._DataLoader__initialized = True

    def __len__(self) -> int:
        forever: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
        return len(forever)

    def __iter__(self) -> Any:
        length = len(self)
        if length and self.iterator is None:  # without batches there is no endless sequence
            self.iterator = super().__iter__()
        for _ in range(length):
            assert self.iterator is not None
            yield next(self.iterator)

    def close(self) -> None:
        """Does as `FastLoader.close`. The next epoch starts anew."""
        super().close()
        self.iterator = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "iterator": None}


class _Forever:
    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        drawn = getattr(self.sampler, "sampler", self.sampler)  # a batch sampler's own
        epoch = getattr(drawn, "epoch", None) if hasattr(drawn, "set_epoch") else None
        while True:
            if epoch is not None:
                drawn.set_epoch(epoch)
                epoch += 1
            yield from iter(self.sampler)
