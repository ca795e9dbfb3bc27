"""timm's distributed samplers, which give the same indices on the same rank."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

import torch
import torch.distributed
from torch.utils.data import Sampler


class OrderedDistributedSampler(Sampler[int]):
    """Gives every ``num_replicas``-th index from ``rank`` on, in order, for evaluation. The last ranks
    wrap around to the first indices, so that all have the same number. Leave these out of a metric with
    ``num_valid_samples``.

    Args:
        dataset: Anything with a length.
        num_replicas, rank: Numbers of the ranks. None (default) takes those of torch.distributed, which
            must be initialised then.
    """

    def __init__(
        self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None
    ) -> None:
        self.dataset = dataset
        self.num_replicas, self.rank = _ranks(num_replicas, rank)
        self.num_samples = math.ceil(len(dataset) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        length = len(self.dataset)
        return iter([i % length for i in range(self.rank, self.total_size, self.num_replicas)])

    def __len__(self) -> int:
        return self.num_samples

    @property
    def num_valid_samples(self) -> int:
        """The number of this rank's samples that are no padding."""
        return max(0, (len(self.dataset) + self.num_replicas - 1 - self.rank) // self.num_replicas)


class RepeatAugSampler(Sampler[int]):
    """Gives each index ``num_repeats`` times in a row, dealt out to the ranks, so that every rank sees
    another augmentation of a picture. This is DeiT's repeated augmentation.

    Args:
        dataset: Anything with a length.
        num_replicas, rank: Numbers of the ranks. None (default) takes those of torch.distributed, which
            must be initialised then.
        shuffle: Whether to shuffle (default True), by a generator seeded with the epoch (`set_epoch`),
            which is the same on every rank.
        num_repeats: How often each index comes; default 3. A fraction repeats some indices once more
            than others.
        selected_round, selected_ratio: A rank's epoch has ``len(dataset) // selected_round *
            selected_round / selected_ratio`` samples. Ratio 0 (default) is ``num_replicas``, and round 0
            does not round (default 256).
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        num_repeats: float = 3,
        selected_round: int = 256,
        selected_ratio: float = 0,
    ) -> None:
        self.dataset = dataset
        self.num_replicas, self.rank = _ranks(num_replicas, rank)
        self.shuffle = shuffle
        self.num_repeats = num_repeats
        self.epoch = 0
        length = len(dataset)
        self.num_samples = math.ceil(length * num_repeats / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        ratio = selected_ratio or self.num_replicas
        if selected_round and length >= selected_round:
            selected = math.floor(length // selected_round * selected_round / ratio)
        else:
            selected = math.ceil(length / ratio)
        self.num_selected_samples = min(selected, self.num_samples)

    def __iter__(self) -> Iterator[int]:
        length = len(self.dataset)
        if self.shuffle:
            order = torch.randperm(
                length, generator=torch.Generator().manual_seed(self.epoch), device="cpu"
            )
        else:
            order = torch.arange(length, device="cpu")
        if float(self.num_repeats).is_integer():
            repeated = length * int(self.num_repeats)
        else:
            repeated = math.ceil(self.num_repeats * length)
        # Only this rank's part of the repeated list is made, because the whole may be large.
        places = range(self.rank, self.total_size, self.num_replicas)[: self.num_selected_samples]
        return iter([int(order[int(i % repeated // self.num_repeats)]) for i in places])

    def __len__(self) -> int:
        return self.num_selected_samples

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that decides the order of the next pass."""
        self.epoch = epoch


def _ranks(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    if num_replicas is None or rank is None:
        if not torch.distributed.is_available() or not torch.distributed.is_initialized():
            raise RuntimeError(
                "num_replicas and rank come from torch.distributed, which is not initialised: call "
                "init_process_group first, or give both"
            )
        num_replicas = torch.distributed.get_world_size() if num_replicas is None else num_replicas
        rank = torch.distributed.get_rank() if rank is None else rank
    return num_replicas, rank
