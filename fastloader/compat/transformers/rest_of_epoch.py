"""The rest of an epoch, in the shape in which the Trainer asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import Dataset


class RestOfEpoch(Dataset[Any]):
    """Stands in for a loader that goes on in the middle of an epoch, where the Trainer calls
    Accelerate's ``skip_first_batches``.

    That function makes a plain DataLoader of the attributes that it reads, with a batch sampler that
    leaves out the first ``skipped`` of this one's. This object is the batch sampler and the dataset as
    well. As a batch sampler it gives ``skipped`` places of batches that nobody wants, and takes a batch
    of ``rest`` for every further place. As a dataset it hands over that batch. So the plain DataLoader
    passes the batches of ``rest`` on, one by one and as they are.

    Args:
        rest: a prepared loader, whose next ``iter()`` gives the rest of the epoch.
        skipped: how many steps of the epoch are over.
    """

    sampler = None
    num_workers = 0
    prefetch_factor = None

    def __init__(self, rest: Any, skipped: int) -> None:
        self.rest = rest
        self.skipped = skipped
        self._taken: list[Any] = []

    @property
    def dataset(self) -> RestOfEpoch:
        return self

    @property
    def batch_sampler(self) -> RestOfEpoch:
        return self

    @staticmethod
    def collate_fn(batch: Any) -> Any:
        return batch

    def __len__(self) -> int:
        return self.skipped + len(self.rest)

    def __iter__(self) -> Iterator[list[int]]:
        for place in range(self.skipped):
            yield [place]
        for batch in self.rest:
            self._taken.append(batch)
            del batch  # so that only the training loop holds it
            yield [self.skipped]

    def __getitem__(self, place: int) -> Any:
        raise TypeError("a rest of an epoch gives batches, not samples")

    def __getitems__(self, places: list[int]) -> Any:
        return self._taken.pop()
