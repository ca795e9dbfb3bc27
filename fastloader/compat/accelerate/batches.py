"""The index batches that Accelerate gives a process, with a place to go on from."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from accelerate.data_loader import SeedableRandomSampler
from torch.utils.data import Sampler


class PreparedBatches(Sampler[Any]):
    """The index batches of a prepared loader: those of Accelerate's own batch sampler, or of the rest of
    its epoch.

    The FastLoader inside draws from this sampler, and asks for its state after each index batch. The
    state says how many batches of the epoch this process has got. The number is the same on every
    process, so that one state serves all of them. No sample is read to go on from it.

    Args:
        batches: the batch sampler that Accelerate has made for this process.
        first: how many batches are left out at the beginning of an epoch; default 0.
    """

    regroups = True  # see `order.samplers.may_repeat`

    def __init__(self, batches: Iterable[Any], first: int = 0) -> None:
        self.batches = batches
        self.first = first
        self._start: int | None = None  # from the state that was loaded, for the next pass
        self._pass = _Pass(iter(()), first)

    @property
    def batch_sampler(self) -> Any:
        """The sampler beneath, under the name by which samplers are looked through."""
        return self.batches

    @property
    def generator(self) -> Any:
        """The generator from which the order is drawn, if the sampler has its own. FastLoader puts it
        back to go on in the middle of an epoch."""
        sampler = innermost(self.batches)
        # Accelerate's sampler is seeded anew in every epoch, and has no generator before the first one.
        if isinstance(sampler, SeedableRandomSampler):
            return None
        return getattr(sampler, "generator", None)

    def __iter__(self) -> Iterator[Any]:
        start = self.first if self._start is None else self._start
        self._start = None
        # Not when the first batch is asked for: a sampler may draw its order in __iter__.
        self._pass = _Pass(itertools.islice(iter(self.batches), start, None), start)
        return self._pass

    def __len__(self) -> int:
        return max(0, len(self.batches) - self.first)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, int]:
        return {"given": self._pass.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._start = state["given"]


class _Pass(Iterator[Any]):
    """Counts how many batches of an epoch were given, with those that were left out."""

    def __init__(self, batches: Iterator[Any], start: int) -> None:
        self._batches = batches
        self.given = start

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            self.given = 0  # of the next epoch
            raise
        self.given += 1
        return batch


def innermost(sampler: Any) -> Any:
    """The sampler of single indices beneath a batch sampler, and beneath Accelerate's shard of it."""
    for name in ("batch_sampler", "sampler"):
        inner = getattr(sampler, name, None)
        sampler = sampler if inner is None else inner
    return sampler
