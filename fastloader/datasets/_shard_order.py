"""The order of a `ShardwiseSampler`, made group by group: nothing is kept for each sample."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

# ---- Which samples lie in which shard.


@dataclasses.dataclass(frozen=True)
class ShardTable:
    """Says which samples of a dataset lie in which shard.

    Attributes:
        starts: an int64 array: how many samples lie in all shards before each, and at its end in all.
        members: the samples, those of one shard after those of the other. None: they are in their order,
            and nothing is kept for each.
    """

    starts: Any
    members: Any = None

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def shards(self) -> int:
        return len(self.starts) - 1

    def samples(self, shards: Any) -> tuple[Any, Any]:
        """Returns the samples of these shards, and for each the number of its shard."""
        spans = [(int(self.starts[each]), int(self.starts[each + 1])) for each in shards]
        numbers = np.repeat(shards, [end - begin for begin, end in spans])
        if self.members is None:
            runs = [np.arange(begin, end) for begin, end in spans]
        else:
            runs = [self.members[begin:end].astype(np.int64) for begin, end in spans]
        return np.concatenate(runs), numbers

    def picked(self, indices: Sequence[int]) -> ShardTable:
        """Returns the table of a Subset.

        Raises:
            IndexError: if an index is of no sample.
        """
        if self._is_whole(indices):
            return self
        wanted = np.asarray(indices, np.int64)
        if len(wanted) and not -len(self) <= wanted.min() <= wanted.max() < len(self):
            wrong = wanted[(wanted < -len(self)) | (wanted >= len(self))][0]
            raise IndexError(f"the Subset has the index {wrong}, of {len(self)} samples")
        if self.members is None:
            wanted = np.where(wanted < 0, wanted + len(self), wanted)
            numbers = np.searchsorted(self.starts, wanted, "right") - 1
        else:
            every = np.empty(len(self), np.int64)
            every[self.members] = np.repeat(np.arange(self.shards), np.diff(self.starts))
            numbers = every[wanted]
        starts = np.zeros(self.shards + 1, np.int64)
        np.cumsum(np.bincount(numbers, minlength=self.shards), out=starts[1:])
        if (numbers[1:] >= numbers[:-1]).all():
            return ShardTable(starts)
        members = np.argsort(numbers, kind="stable")
        return ShardTable(starts, _compact(members, len(wanted)))

    def _is_whole(self, indices: Sequence[int]) -> bool:
        return isinstance(indices, range) and indices == range(len(self))

    @classmethod
    def joined(cls, tables: Sequence[ShardTable]) -> ShardTable:
        """Returns the table of a ConcatDataset."""
        begins = np.cumsum([0, *map(len, tables)])
        starts = [each.starts[:-1] + begin for each, begin in zip(tables, begins)]
        members = None
        if any(each.members is not None for each in tables):
            parts = [
                begin + (np.arange(len(each)) if each.members is None else each.members)
                for each, begin in zip(tables, begins)
            ]
            members = _compact(np.concatenate(parts), int(begins[-1]))
        return cls(np.concatenate([*starts, begins[-1:]]), members)


def _compact(numbers: Any, count: int) -> Any:
    """Returns whole numbers below ``count`` in as few bytes as they need."""
    return numbers.astype(np.uint32) if count <= 1 << 32 else numbers


# ---- The order of an epoch.


# Orders have numbers, which stand in states. Order 1 draws one permutation of all samples: 8 bytes a
# sample, and seconds for a hundred million. Order 2 draws one for each group of shards. What order 1
# gave for a seed it gives for ever, so datasets that it is fast enough for stay with it.
_OF_ALL, _OF_GROUPS = 1, 2
ORDERS = (_OF_ALL, _OF_GROUPS)
_MOST_OF_ALL = 1 << 23  # samples


def usual_order(samples: int) -> int:
    """Returns the number of the order that an epoch of a dataset of so many samples has."""
    return _OF_ALL if samples <= _MOST_OF_ALL else _OF_GROUPS


class EpochOrder:
    """The order of all samples in an epoch: groups of ``buffer`` shards, one after the other, and the
    samples of each mixed. A place is a number in that order.

    Args:
        table: Which samples lie in which shard.
        seed: The seed of the epoch; None: shards and samples are in the dataset's order.
        buffer: How many shards are a group.
        order: The number of the order.
    """

    def __init__(self, table: ShardTable, seed: int | None, buffer: int, order: int) -> None:
        self._table, self._seed, self._buffer = table, seed, buffer
        self._within: Any = None
        if seed is None:
            self._shards: Any = np.arange(table.shards)
        else:
            generator = torch.Generator().manual_seed(seed)
            self._shards = _permutation(table.shards, generator)
            if order == _OF_ALL:
                self._within = _compact(_permutation(len(table), generator), len(table))
        counts = np.diff(table.starts)[self._shards]
        ends = np.cumsum(counts)[buffer - 1 :: buffer]
        whole = [] if len(counts) % buffer == 0 else [len(table)]
        self._starts = np.concatenate([[0], ends, whole]).astype(np.int64)  # of the groups

    def __len__(self) -> int:
        return len(self._table)

    def runs(self, places: Places) -> Iterator[tuple[Any, Any]]:
        """Yields the samples at these places, and for each the number of its shard: those that follow
        each other in one group at a time."""
        for group, spans in self._by_group(places):
            samples, shards = self._group(group)
            parts = [(samples[begin:end], shards[begin:end]) for begin, end in spans]
            yield tuple(np.concatenate(each) for each in zip(*parts))  # type: ignore[misc]

    def _by_group(self, places: Places) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Yields the number of a group, and which of its places are wanted."""
        number, spans = -1, list[tuple[int, int]]()
        for begin, end in places:
            while begin < end:
                group = int(np.searchsorted(self._starts, begin, "right")) - 1
                first, behind = (int(each) for each in self._starts[group : group + 2])
                if group != number:
                    if spans:
                        yield number, spans
                    number, spans = group, []
                spans.append((begin - first, min(end, behind) - first))
                begin = min(end, behind)
        if spans:
            yield number, spans

    def _group(self, number: int) -> tuple[Any, Any]:
        chosen = self._shards[number * self._buffer : (number + 1) * self._buffer]
        samples, shards = self._table.samples(chosen)
        if self._seed is None:
            order = np.argsort(samples, kind="stable")
        elif self._within is not None:
            order = np.argsort(self._within[samples])
        else:
            order = _permutation(len(samples), _generator(self._seed, number))
        return samples[order], shards[order]


def _permutation(count: int, generator: torch.Generator) -> Any:
    return torch.randperm(count, generator=generator, device="cpu").numpy()


def _generator(seed: int, group: int) -> torch.Generator:
    """Makes the generator of a group. Neighbouring seeds and groups get seeds that are far apart."""
    mixed = hashlib.blake2b(f"{seed} {group}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(mixed, "little"))


# ---- Which places are left, and which of these are a rank's.


class Places:
    """Places in an order, as few runs of neighbours. It iterates over the (begin, end) of the runs.

    Args:
        begins, ends: Of the runs, in the order in which they are taken.
    """

    def __init__(self, begins: Any, ends: Any) -> None:
        self._begins, self._ends = np.asarray(begins, np.int64), np.asarray(ends, np.int64)
        self._before = np.concatenate([[0], np.cumsum(self._ends - self._begins)])

    def __len__(self) -> int:
        return int(self._before[-1])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        yield from zip(self._begins.tolist(), self._ends.tolist())

    def cut(self, begins: Any, ends: Any) -> Places:
        """Returns the places from the ``begins[0]``-th to the ``ends[0]``-th of these, and so on. The
        pieces ascend and do not overlap."""
        there = begins < ends
        begins, ends = begins[there], ends[there]
        points = np.unique(np.concatenate([begins, ends, self._before]))
        first, last = points[:-1], points[1:]
        piece = np.searchsorted(begins, first, "right") - 1
        inside = piece >= 0
        inside[inside] = first[inside] < ends[piece[inside]]
        first, last = first[inside], last[inside]
        run = np.searchsorted(self._before, first, "right") - 1
        shift = self._begins[run] - self._before[run]
        return Places(first + shift, last + shift)

    def of_rank(self, world: int, rank: int, policy: str) -> Places:
        """Returns which of these a rank takes."""
        count = len(self)
        begin, end = count * rank // world, count * (rank + 1) // world
        if policy == "drop":
            end = begin + count // world
        own = self.cut(np.array([begin]), np.array([end]))
        if policy == "pad" and end - begin < -(-count // world):
            # At its end, so that an epoch that stops before has repeated nothing.
            again = begin if begin < end else 0
            more = self.cut(np.array([again]), np.array([again + 1]))
            return Places(*(np.concatenate(each) for each in zip(own._runs(), more._runs())))
        return own

    def without(self, world: int, received: int, policy: str) -> Places:
        """Returns which of these are left when each of ``world`` ranks has received so many."""
        count = len(self)
        ranks = np.arange(world + 1) * count // world
        if policy == "drop" and received >= count // world:
            return Places([], [])  # the rest was left out, for whatever number of ranks
        begins, ends = ranks[:-1], ranks[1:]
        return self.cut(np.minimum(begins + received, ends), ends)

    def _runs(self) -> tuple[Any, Any]:
        return self._begins, self._ends


def size_of_rank(count: int, world: int, rank: int, policy: str) -> int:
    """Returns how many of ``count`` places a rank takes."""
    sizes: dict[str, Callable[[], int]] = {
        "pad": lambda: -(-count // world),
        "drop": lambda: count // world,
        "exact": lambda: count * (rank + 1) // world - count * rank // world,
    }
    return sizes[policy]()
