"""``ShardwiseSampler``: takes some shards after the other, in random order within them. Shards come into
the cache before they are needed."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from torch import distributed
from torch.utils.data import ConcatDataset, DistributedSampler, Subset

from fastloader._core.machine.limits import most_ranks_here
from fastloader._core.machine.torch_datasets import kind_of
from fastloader.datasets._remote.cache_folder import CacheFull, HeldFile
from fastloader.datasets._remote.remote_tar import RemoteTarShard, Shard
from fastloader.datasets._shard_order import (
    ORDERS,
    EpochOrder,
    Places,
    ShardTable,
    size_of_rank,
    usual_order,
)
from fastloader.datasets.tar import TarImages

# ---- Shards that come into the cache before they are wanted.


_SHARDS_AT_ONCE = 4


class FetchAhead:
    """Has threads fetch shards, and keeps those in the cache that the sampler still needs. One thread
    calls its methods. Shards that stay on this machine anyway count as fetched."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = {
            number: shard
            for number, shard in enumerate(shards)
            if isinstance(shard, RemoteTarShard) and not shard.local_file
        }
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(_SHARDS_AT_ONCE, "fastloader-ahead")
        self._begun: dict[int, Future[HeldFile]] = {}

    def begin(self, numbers: Collection[int]) -> None:
        """Begins to fetch these shards, and waits for none."""
        for number in numbers:
            shard = self._shards.get(number)
            if shard is not None and number not in self._begun:
                fetch = shard.cache.fetch
                self._begun[number] = self._pool.submit(fetch, shard.object, self._stop)

    def wait(self, numbers: Collection[int]) -> None:
        """Waits until these are in the cache. Raises what fetching them raised."""
        self.begin(numbers)
        for number in [each for each in numbers if each in self._begun]:
            try:
                self._begun[number].result()
            except CacheFull:  # which it was when this was begun, and need not be any more
                del self._begun[number]
                self.begin([number])
                self._begun[number].result()

    def keep(self, numbers: Collection[int]) -> None:
        """Releases all other shards, so that the cache may use their room."""
        for number in [each for each in self._begun if each not in numbers]:
            self._release(self._begun.pop(number))

    def end(self) -> None:
        """Fetches nothing more. What was kept last stays in the cache."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        self.end()
        self.keep(())

    def _release(self, begun: Future[HeldFile]) -> None:
        begun.cancel()
        begun.add_done_callback(_close)


def _close(begun: Future[HeldFile]) -> None:
    if not begun.cancelled() and begun.exception() is None:
        begun.result().close()


# ---- ``ShardwiseSampler``: some shards after the other, and a random order within them.


POLICIES = ("pad", "drop", "exact")
_GROUPS_HELD = (
    3  # in the cache: the one before, which workers may still read, this one and the next
)
_INDICES_AT_ONCE = 4096  # become Python's numbers, which take more room


class ShardwiseSampler(DistributedSampler[int]):
    """Gives the samples of some shards in random order, then those of the next ones.

    An epoch takes the shards in random order, ``buffer`` of them at a time, and the samples of these in
    random order. Shards that lie in an object store are fetched into their cache ahead of that, so
    that a rank fetches each of its shards once in an epoch, and workers read files. docs/remote.md says
    what this order costs in randomness.

    Each rank gets a run of that order of its own. So it shares few shards with other ranks, if there are
    at least as many groups of ``buffer`` shards as ranks. All ranks have the same order, by seed and
    epoch. An epoch that stops in the middle goes on with the same number of ranks or another one, if all
    ranks have received the same number of samples: `FastLoader.state_dict` has what is needed. Samples
    that were received do not come again.

    Every ``iter()`` begins the next epoch. ``set_epoch`` says which one. Iterating fetches shards;
    ``order(epoch)`` shows the order and fetches nothing. Also ``next(iter(loader))`` begins an epoch: on
    one rank alone it loses samples, because that rank is then an epoch ahead. To look at a batch use
    ``loader.show_batch()``, look on all ranks, or call ``set_epoch`` before each epoch.

    Args:
        dataset: A `TarImages`, or a Subset or ConcatDataset of such.
        num_replicas, rank: How many ranks there are, and which one this is. Default None: as
            torch.distributed has it, or one rank if that is not initialised.
        shuffle: False takes shards and samples in the dataset's order; default True.
        seed: The seed of the order; default 0. It must be the same on all ranks.
        buffer: How many shards are mixed; default 8. The cache must have room for three times as many,
            for each rank of the machine. LOCAL_WORLD_SIZE in the environment, or SLURM, says how many
            ranks these are. Without them, all ranks count.
        policy: How ranks share an uneven end, as `FastLoader`'s ``distributed`` has it. "pad"
            (default) repeats samples until all ranks have the same number. "drop" leaves the rest out.
            "exact" gives each sample once, so that some ranks have one more than others.

    Raises:
        TypeError: for another dataset.
        ValueError: if the cache has no room for three times the ``buffer`` beside what others use now,
            if WORLD_SIZE says that there are ranks and torch.distributed is not initialised, or for an
            unknown policy.
        RuntimeWarning: if there are fewer groups of shards than ranks.
    """

    elastic = True  # see `is_elastic`

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        *,
        buffer: int = 8,
        policy: str = "pad",
    ) -> None:
        if policy not in POLICIES:
            raise ValueError(f"policy={policy!r}: one of {', '.join(map(repr, POLICIES))}")
        if buffer < 1:
            raise ValueError(f"buffer={buffer}: at least one shard")
        world, own = _ranks(num_replicas, rank)
        super().__init__(dataset, world, own, shuffle, seed, drop_last=policy == "drop")
        self.buffer = buffer
        self.policy = policy
        self._table, self._shards = table_of(dataset)
        self._next_is(self.epoch)
        self._running: _Epoch | None = None  # the iterator's
        self._given = 0  # by the iterator
        # Holds the last shards of an epoch until the next one begins: workers may still read them when
        # all indices are drawn.
        self._behind: FetchAhead | None = None
        self._check_room()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_behind": None}

    def _check_room(self) -> None:
        fetched = [
            shard
            for shard in self._shards
            if isinstance(shard, RemoteTarShard) and not shard.local_file
        ]
        groups = -(-len(self._shards) // self.buffer)
        if fetched and groups < self.num_replicas:
            fits = len(self._shards) // self.num_replicas
            warnings.warn(
                f"buffer={self.buffer}: {len(self._shards)} shards are {groups} groups, fewer than the "
                f"{self.num_replicas} ranks, so that several ranks fetch the same shards. "
                + (f"Take buffer={fits}, or more shards" if fits else "Write more shards"),
                RuntimeWarning,
                stacklevel=3,
            )
        ranks = most_ranks_here(self.num_replicas)
        for cache in {id(shard.cache): shard.cache for shard in fetched}.values():
            objects = [shard.object for shard in fetched if shard.cache is cache]
            sizes = sorted((each.size for each in objects), reverse=True)
            largest = sizes[: self.buffer]
            needed = min(sum(sizes), _GROUPS_HELD * ranks * sum(largest))
            room = cache.room_for(objects)
            if needed > room:
                fits = room // (_GROUPS_HELD * ranks * largest[0])
                raise ValueError(
                    f"buffer={self.buffer}: {_GROUPS_HELD} times as many shards for each of {ranks} "
                    f"ranks on this machine take {needed} bytes, and the cache {cache.folder} has "
                    f"{room} of its {cache.max_bytes} for them: the rest is in use. "
                    + (f"Take buffer={fits}, or " if fits > 0 else "")
                    + "give ShardCache a larger max_bytes"
                    + (", or set LOCAL_WORLD_SIZE if fewer ranks are here" if ranks > 1 else "")
                )

    # --- the order ---------------------------------------------------------------------------------

    def order(self, epoch: int) -> list[int]:
        """Returns the indices of all ranks in that epoch: each rank gets a run of them."""
        order = self._ordered(epoch, usual_order(len(self._table)))
        runs = [run.tolist() for run, _shards in order.runs(Places([0], [len(order)]))]
        return [index for run in runs for index in run]

    def _ordered(self, epoch: int, order: int) -> EpochOrder:
        seed = self.seed + epoch if self.shuffle else None
        return EpochOrder(self._table, seed, self.buffer, order)

    def __len__(self) -> int:
        return size_of_rank(len(self._table), self.num_replicas, self.rank, self.policy)

    def __iter__(self) -> Iterator[int]:
        running = _Epoch(self.epoch, self._history, self._order)
        self._next_is(running.number + 1)
        self._running, self._given = running, 0
        return self._indices(running)

    def next_shares(self) -> list[Share]:
        """Returns what each rank is to get of the epoch that the next ``iter()`` begins."""
        epoch = _Epoch(self.epoch, self._history, self._order)
        left = self._left(epoch)
        places = [
            left.of_rank(self.num_replicas, rank, self.policy) for rank in range(self.num_replicas)
        ]
        order = functools.cache(functools.partial(self._ordered, epoch.number, epoch.order))
        return [Share(len(each), functools.partial(_runs_of, order, each)) for each in places]

    def _left(self, running: _Epoch) -> Places:
        left = Places([0], [len(self._table)])
        for world, received in running.history:
            left = left.without(world, received, self.policy)
        return left

    def _indices(self, running: _Epoch) -> Iterator[int]:
        left = self._left(running)
        places = left.of_rank(self.num_replicas, self.rank, self.policy)
        runs = _with_needed(self._ordered(running.number, running.order).runs(places))
        self._keep_behind(None)
        ahead = FetchAhead(self._shards)
        try:
            before, (run, needed), following = frozenset[int](), next(runs), next(runs)
            # Alone: shards that come ahead could have the room that these are waiting for.
            ahead.wait(needed)
            while len(run):
                ahead.keep(before | needed | following[1])
                ahead.begin(needed)
                ahead.begin(following[1])
                ahead.wait(needed)
                for first in range(0, len(run), _INDICES_AT_ONCE):
                    for index in run[first : first + _INDICES_AT_ONCE].tolist():
                        if self._running is running:
                            self._given += 1
                        yield index
                before, (run, needed), following = needed, following, next(runs)
        except BaseException:  # the loop is left, or a shard cannot be fetched
            ahead.close()
            raise
        ahead.end()
        self._keep_behind(ahead)
        if self._running is running:
            self._given = -(-len(left) // self.num_replicas)  # as of the rank that has the most

    def _keep_behind(self, ahead: FetchAhead | None) -> None:
        before, self._behind = self._behind, ahead
        if before is not None:
            before.close()

    # --- where it stands ---------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next ``iter()`` begins. An epoch that was loaded goes on if it is this
        one."""
        if epoch != self.epoch:
            self._next_is(epoch)

    def _next_is(self, epoch: int) -> None:
        """Makes the next epoch one that begins at its beginning."""
        self.epoch = epoch
        self._history: list[list[int]] = []  # see `_Epoch`
        self._order = usual_order(len(self._table))

    def state_dict(self) -> dict[str, Any]:
        """Returns what an epoch needs to go on: the same for all ranks. An epoch that is at its end has
        nothing left, and the next one comes after it."""
        state: dict[str, Any] = self._identity()
        epoch = self._running
        if epoch is None:
            epoch = _Epoch(self.epoch, self._history, self._order)
            received = []
        else:
            received = [[self.num_replicas, self._given]] if self._given else []
        history = [*epoch.history, *received]
        return {**state, "epoch": epoch.number, "history": history, "order": epoch.order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next ``iter()`` go on from that state, in the order in which its epoch began. The
        epochs after it have the order that the dataset has now.

        Raises:
            ValueError: if the state is of another order.
        """
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise ValueError(
                    f"the state is of another order: its {name} is {state.get(name)!r}, here it is "
                    f"{value!r}"
                )
        order = state.get("order", ORDERS[0])
        if order not in ORDERS:
            raise ValueError(
                f"the state is of order {order!r}, and this version of fastloader knows "
                f"{' and '.join(map(str, ORDERS))}: load it with the version that saved it"
            )
        self.epoch = state["epoch"]
        self._history = [list(each) for each in state["history"]]
        self._order = order
        self._running = None

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "shuffle": self.shuffle,
            "buffer": self.buffer,
            "policy": self.policy,
            "samples": len(self._table),
            "shards": len(self._shards),
        }


class _Epoch(NamedTuple):
    """An epoch: its number, what was received of it before, as (ranks, samples that each had received),
    and the number of its order."""

    number: int
    history: list[list[int]]
    order: int


class Share(NamedTuple):
    """What a rank is to get of an epoch: how many samples, and what yields their indices, run by run."""

    samples: int
    indices: Callable[[], Iterator[Any]]


def _runs_of(order: Callable[[], EpochOrder], places: Places) -> Iterator[Any]:
    for indices, _shards in order().runs(places):
        yield indices


_Run: TypeAlias = tuple[Any, frozenset[int]]


def _with_needed(runs: Iterator[tuple[Any, Any]]) -> Iterator[_Run]:
    """Yields each run of indices with the shards that it needs, and then empty runs without end."""
    for indices, shards in runs:
        yield indices, frozenset(np.unique(shards).tolist())
    while True:
        yield np.empty(0, np.int64), frozenset()


def table_of(dataset: Any) -> tuple[ShardTable, list[Shard]]:
    """Returns which samples lie in which shard, and the shards."""
    if isinstance(dataset, TarImages):
        return dataset.shard_table()
    kind = kind_of(dataset)
    if kind is Subset:
        table, shards = table_of(dataset.dataset)
        return table.picked(dataset.indices), shards
    if kind is ConcatDataset:
        tables, lists = zip(*map(table_of, dataset.datasets))
        return ShardTable.joined(tables), [shard for each in lists for shard in each]
    raise TypeError(
        f"a ShardwiseSampler is of TarImages, or a Subset or ConcatDataset of such, not of a "
        f"{type(dataset).__module__}.{type(dataset).__qualname__}"
    )


def _ranks(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    initialised = distributed.is_available() and distributed.is_initialized()
    if (num_replicas is None or rank is None) and not initialised:
        world_size = os.environ.get("WORLD_SIZE", "")
        if world_size.isdecimal() and int(world_size) > 1:
            raise ValueError(
                f"WORLD_SIZE is {world_size}, but torch.distributed is not initialised: call "
                "init_process_group() first, or give num_replicas and rank"
            )
    world = num_replicas or (distributed.get_world_size() if initialised else 1)
    own = rank if rank is not None else (distributed.get_rank() if initialised else 0)
    return world, own
