"""An iterator over delivered batches, which stands in for torch's iterator."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from torch.utils.data.dataloader import _DatasetKind

from fastloader._core.observation.statistics import LoopIterator, Statistics


class DeliveryIterator(LoopIterator):
    """Takes batches from the source's iterator ``_batches``, which is None once this one is closed.
    Frameworks look at attributes of torch's iterator, such as ``_workers``: these are the source's."""

    def __init__(self, batches: Iterator[Any], statistics: Statistics) -> None:
        super().__init__(statistics)
        self._batches: Iterator[Any] | None = batches
        self._num_yielded = 0
        # The source would warn of a wrong length too early, because it is ahead, and on a thread of
        # ours. This iterator warns in its place.
        self._promised: int | None = None
        if getattr(batches, "_dataset_kind", None) == _DatasetKind.Iterable:
            self._promised = batches._IterableDataset_len_called  # type: ignore[attr-defined]
            batches._IterableDataset_len_called = None  # type: ignore[attr-defined]

    def __next__(self) -> Any:
        batch = super().__next__()
        self._num_yielded += 1
        if self._promised is not None and self._num_yielded > self._promised:
            self._warn_of_length()
        return batch

    def _warn_of_length(self) -> None:
        batches: Any = self._batches
        if batches is None:
            return
        # torch's words.
        text = (
            f"Length of IterableDataset {batches._dataset} was reported to be {self._promised}"
            f"(when accessing len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if batches._num_workers > 0:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly configuring "
                "the IterableDataset replica at each worker. Please see "
                "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for "
                "examples."
            )
        warnings.warn(text, stacklevel=3)

    def close(self) -> None:
        """Ends the epoch early, from any thread. Further calls of ``next()`` raise StopIteration, and a
        call that is under way raises Error."""
        self._closed = True
        batches, self._batches = self._batches, None
        # Wakes what is still in the source: another thread may wait for a worker in the source's next(),
        # and decode threads may be at its pictures.
        leave = getattr(type(batches), "leave", None)
        if leave is not None:
            leave(batches)

    def _shutdown_workers(self) -> None:
        """Ends the epoch and its workers; torch's worker iterator has a method of this name."""
        batches: Any = self._batches
        self.close()
        if batches is not None:
            batches._shutdown_workers()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_batches" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if self._batches is None:
            raise AttributeError(f"{name}: this iterator was closed and has no source any more")
        return getattr(self._batches, name)

    def __len__(self) -> int:
        if self._batches is None:
            raise TypeError("this iterator was closed and knows no length any more")
        return len(self._batches)  # type: ignore[arg-type]
