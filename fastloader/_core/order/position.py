"""Where a loader stands: which epoch, how much of it the training loop has received, and how to go on
from there.

`Position` stands in for the loader's index sampler, so that every path draws its index batches from
it by ``iter()``. What the paths owe in return is a call for each batch that reaches
the user: see `progress.Progress`.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    dataloader,
)

from fastloader._core.machine import default_device
from fastloader._core.machine.process import ProcessLock
from fastloader._core.order import generators as generator_states
from fastloader._core.order.distributed import agreement, shards
from fastloader._core.order.distributed.shards import ShardSampler
from fastloader._core.order.index_batches import Indices, plain
from fastloader._core.order.progress import MissingFirst, Progress
from fastloader._core.order.stateful import is_stateful, state_of
from fastloader.errors import Error

if TYPE_CHECKING:
    from fastloader._core.batch.augmentation.augmentation import Augmentation, EpochDraws

VERSION = 1
# torch's samplers whose iterators have ended when they have raised.
_ENDED_BY_ERRORS = (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    dataloader._InfiniteConstantSampler,
)


class Position:
    """The loader's index sampler, with a memory. It knows samplers and dataset but not the loader:
    torch's iterators hold it, and a persistent one belongs to the loader."""

    def __init__(self, loader: Any) -> None:
        # Guards everything here while an epoch begins: a second thread that calls iter() meanwhile, or
        # loads a state, waits, or it would be given the indices of the first one's epoch. Reentrant,
        # because samplers and datasets, which are called then, may ask the loader for its state.
        self._lock = ProcessLock()
        self.dataset = loader.dataset
        self.iterable = loader._dataset_kind != 0
        self.follow(loader)
        self.epoch = 0  # of the next iter()
        self.announces = self.shard is not None  # calls the dataset's set_epoch
        self.current: Progress | None = None
        self.run_seed: int | None = None  # with a ShardSampler: all ranks' crops come from it
        self.last_seed: int | None = None  # of the crops of the epoch begun last
        self._agreed = False
        self._passes: weakref.WeakSet[Progress] = weakref.WeakSet()
        self._saved: dict[str, Any] | None = None  # loaded, for the next iter()
        self._ahead_of_fabric = 0
        self._texts = generator_states.Texts()
        self.asked = False  # for a state, or one was loaded: workers are to send theirs
        self.read_here = False  # the dataset, in this process
        self.beginning = False  # iter() is making the epoch's iterator
        self._wished: int | None = None  # the number of the next epoch, if that was set meanwhile
        # The global one's state as iter() is to leave it, while it goes on in the middle of an epoch.
        self.users_generator: torch.Tensor | None = None
        self.sampler_reloaded = False  # for the epoch that begins
        self._generators: list[torch.Generator] = []
        self._draws: EpochDraws | None = None  # of erasing and mixing, for the epoch that begins
        self._undrawn: list[
            torch.Tensor | None
        ] = []  # their states before a seed was drawn in vain

    @property
    def lock(self) -> threading.RLock:
        return self._lock.lock

    def follow(self, loader: Any) -> None:
        """Takes the loader's samplers as they are now: subclasses replace them after construction (timm,
        ultralytics), and frameworks replace what a BatchSampler groups (accelerate)."""
        # Asked of the loader, because a subclass may have a property of its own.
        self.sampler = loader._index_sampler
        # A BatchSampler only groups: beneath it samples can be counted and skipped one by one.
        grouping = self.sampler is loader.batch_sampler and type(self.sampler) is BatchSampler
        self.batching = self.sampler if grouping else None
        self.inner: Any = self.sampler if self.batching is None else self.batching.sampler
        names = [type(self.sampler).__qualname__, type(self.inner).__qualname__]
        self._sampler_name = names[0] if self.inner is self.sampler else f"{names[0]} of {names[1]}"
        # Whose shares can be computed for any world size, and whose epochs we count ourselves.
        self.shared = type(self.inner) in (ShardSampler, DistributedSampler)
        self.shard = self.inner if type(self.inner) is ShardSampler else None
        self.stateful: Any = next((s for s in (self.sampler, self.inner) if is_stateful(s)), None)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        return self.iterate(iter)

    def iterate(self, draw: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """As ``iter()``, for a path that has a way of its own to draw index batches from a sampler: the
        same indices by the same draws, each batch a list or of one dimension. Batches of shares, and
        after a state, come as lists all the same."""
        if not self.beginning:  # somebody wants to see indices
            return draw(self.sampler)
        generator_states.put_back(self._generators, self._undrawn)
        saved = self._saved
        mid_epoch = saved if saved is not None and saved["begun"] else None
        self.current = Progress(self.epoch, mid_epoch, self.iterable)
        self.current.augment(self._draws)
        if saved is not None:
            self.current.base_seed = saved["base_seed"]
        self._passes.add(self.current)
        indices = Indices(self, self.current, self._generators, draw)
        quick = self.stateful is None and type(self.sampler) in _ENDED_BY_ERRORS
        drawn = indices.quickly() if quick else indices
        return MissingFirst(self.current, drawn) if self.current.missing else drawn

    # --- an epoch ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def begin(self, loader: Any) -> Iterator[None]:
        """Around the making of an epoch's iterator."""
        if self.beginning:
            raise _within_iter("iter()")
        with contextlib.ExitStack() as stack:
            stack.callback(self._reset_beginning)
            before = self.current, self.last_seed
            try:
                self._prepare(loader, stack)
                yield
            except BaseException:
                # The epoch has not begun: a state is still of the one before.
                self.current, self.last_seed = before
                raise
            self._saved = None
            self._count_epoch(self.epoch + 1)

    def _reset_beginning(self) -> None:
        self.beginning = False
        self._undrawn = []
        self._draws = None
        self.sampler_reloaded = False
        wished, self._wished = self._wished, None
        if wished is not None:
            self.set_epoch(wished)

    def _prepare(self, loader: Any, stack: contextlib.ExitStack) -> None:
        """``stack`` is left when the iterator is made, or has failed to be."""
        self.follow(loader)
        untouched = self.current.untouched() if self.current is not None else None
        if self._saved is None and untouched is not None:
            # The rest of the epoch that a state is of, which nobody wanted: what drew its order then
            # was not drawn again.
            self._saved = self._at_end(untouched, loader)
        saved = self._saved
        if self.shard is not None:
            self.epoch = self.shard.epoch
        if saved is not None and saved["begun"] and saved["epoch"] != self.epoch:
            raise ValueError(
                f"the state that was loaded is from the middle of epoch {saved['epoch']}, but then "
                f"set_epoch({self.epoch}) was called: go on with that epoch, or load no state"
            )
        if self.shard is not None and not self._agreed:
            self._agree(loader)
        self._generators = self._all_generators(loader)
        if saved is not None and not saved["begun"]:
            states = generator_states.decoded(saved["generators"])
            generator_states.put_back(self._generators[1:], states)
            if saved["base_seed"] is not None:
                # Persistent workers lived on then and have to be started now. torch draws a seed for
                # them, between two calls of iter() on the sampler, that was not drawn then.
                self._undrawn = [torch.get_rng_state(), *states]
            if self.stateful is not None and saved["sampler_state"] is not None:
                self.stateful.load_state_dict(saved["sampler_state"])
                self.sampler_reloaded = True
        if saved is not None and saved["dataset_state"] is not None:
            self.dataset.load_state_dict(saved["dataset_state"])
        if self.announces and hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(self.epoch)
        if saved is not None and saved["begun"]:
            # The epoch's seed is known: drawing one must not show in the user's generator.
            self.users_generator = torch.get_rng_state()
            stack.callback(self._put_users_generator_back)
        self.beginning = True

    def _put_users_generator_back(self) -> None:
        assert self.users_generator is not None
        torch.set_rng_state(self.users_generator)
        self.users_generator = None

    @contextlib.contextmanager
    def on_users_generator(self) -> Iterator[None]:
        """Around code of the dataset's that restores it: what it does to the global generator stays."""
        if self.users_generator is None:
            yield
            return
        torch.set_rng_state(self.users_generator)
        try:
            yield
        finally:
            self.users_generator = torch.get_rng_state()

    def _agree(self, loader: Any) -> None:
        assert self.shard is not None
        saved = self._saved if self._saved and self._saved["begun"] else None
        facts = {
            agreement.LENGTH: len(self.dataset),
            "the seed": self.shard.seed,
            "shuffle": self.shard.shuffle,
            agreement.POLICY: self.shard.policy,
            "batch_size": loader.batch_size,
            "drop_last": loader.drop_last,
            agreement.EPOCH: self.epoch,
            agreement.CONSUMED: saved["samples"] if saved else 0,
        }
        proposal = self.run_seed
        if proposal is None:  # drawing one would not be as DataLoader draws
            proposal = (loader.generator or torch.default_generator).initial_seed()
        self.run_seed = agreement.agree(facts, proposal)
        self._agreed = True

    def image_seed(self, loader: Any) -> int:
        """The seed of the epoch's crops. With a ShardSampler it is one for all ranks: who decodes a
        picture does not matter to its crop."""
        assert self.current is not None
        if loader.persistent_workers and self.last_seed is not None:
            # torch draws one in the first epoch only, and so must we, or the order of the later ones
            # would be another. Theirs follow from it.
            seed = generator_states.mixed(self.last_seed, 1)
        else:
            seed = int(
                torch.empty((), dtype=torch.int64, device=default_device.of(loader.generator))
                .random_(generator=loader.generator)
                .item()
            )
        if self.current.saved is not None and self.shard is None:
            seed = self.current.saved["base_seed"]
        self.current.base_seed = self.last_seed = seed
        if self.shard is None:
            return seed
        assert self.run_seed is not None
        return generator_states.mixed(self.run_seed, self.epoch)

    def begin_draws(self, augmentation: Augmentation) -> EpochDraws:
        """Of the epoch that begins. A state of an older version does not know of them."""
        saved = self._saved
        self._draws = augmentation.begin(None if saved is None else saved.get("augmentation"))
        return self._draws

    def _draws_state(self, loader: Any, progress: Progress | None) -> dict[str, Any] | None:
        """``progress``: of the epoch that is to go on; None between epochs."""
        draws = None if progress is None else progress.draws
        if progress is not None and draws is not None:
            # With a ShardSampler the state is every rank's.
            return draws.state(progress.next_draw) if self.shard is None else draws.state_of_any()
        augmentation = loader._runtime.delivery.augmentation
        return None if augmentation is None else augmentation.state()

    @property
    def resumes_mid_epoch(self) -> bool:
        """Whether the next iter() goes on in the middle of an epoch."""
        return self._saved is not None and bool(self._saved["begun"])

    def leave_out_rest(self, loader: Any) -> Progress:
        """The next iter() begins the epoch behind the one that the state which was loaded is from.
        Returns what goes stale when another state is loaded."""
        assert self._saved is not None
        self._saved = self._at_end(self._saved, loader)
        self._count_epoch(self._saved["epoch"])
        self.last_seed = self._saved["base_seed"]
        promised = Progress(self.epoch, None, self.iterable)
        self._passes.add(promised)
        return promised

    def _at_end(self, saved: dict[str, Any], loader: Any) -> dict[str, Any]:
        """The state that would have been saved, had the epoch of this one ended there."""
        lives_on = loader.persistent_workers
        augmentation = saved.get("augmentation")
        return {
            **saved,
            "augmentation": augmentation and {**augmentation, "seed": None, "batch": 0},
            "epoch": saved["epoch"] + 1,
            "begun": False,
            "base_seed": saved["base_seed"] if lives_on else None,
            "workers": saved["workers"] if lives_on else {},
            "order_epoch": None,
            "iterator_state": None,
            "ended": False,
            "read_again": False,
            "missing": [],
        }

    def samples_before(self) -> int:
        """Samples received in the epoch before this pass, for samplers that may repeat."""
        assert self.current is not None
        return 0 if self.shared else self.current.before

    def worker_states(self) -> tuple[dict[str, Any], bool]:
        """States of the workers' datasets to begin with, and whether in the middle of an epoch."""
        saved = self._saved
        if saved is None:
            return {}, False
        return dict(saved["workers"]), saved["begun"] and saved["batches"] > 0

    def first_worker(self) -> int:
        saved = self._saved
        return saved["next_worker"] if saved is not None and saved["begun"] else 0

    def uncounted(self) -> None:
        """The user has an iterator that does not tell what it hands over."""
        if self.current is None:
            self.current = Progress(self.epoch, None, self.iterable)
        self.current.counted = False

    def set_epoch(self, epoch: int) -> None:
        """By the user's wish: samplers and dataset that have a ``set_epoch`` are told as well."""
        if self.beginning:  # by the sampler, say: it is the next epoch that is meant
            self._wished = epoch
            return
        self._count_epoch(epoch)
        self.announces = True
        for each in {id(each): each for each in (self.sampler, self.inner)}.values():
            if each is not self.shard and hasattr(each, "set_epoch"):
                each.set_epoch(epoch)

    def follow_count(self, named: int | None) -> None:
        """Fabric tells the samplers its own number of the epoch that begins, ``named``, which counts
        from 0 in each process. After a state was loaded, that is so many behind."""
        if named is None or not self.shared:
            return
        if self._saved is not None:
            order = self._saved.get("order_epoch")
            self._ahead_of_fabric = (order if order is not None else self._saved["epoch"]) - named
        if self._ahead_of_fabric and self.shard is not None:
            self._count_epoch(named + self._ahead_of_fabric)
        elif self._ahead_of_fabric:
            self.inner.set_epoch(named + self._ahead_of_fabric)

    def _count_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        if self.shard is not None:
            self.shard.epoch = epoch

    def _all_generators(self, loader: Any) -> list[torch.Generator]:
        owners = (loader, self.sampler, self.inner)
        return generator_states.distinct(*[getattr(owner, "generator", None) for owner in owners])

    # --- the sampler -------------------------------------------------------------------------------

    def open(self, epoch: int, draw: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """Index batches from the beginning of an epoch."""
        if self.shard is not None:  # whose own __iter__ gives the next epoch
            return self.batched(shards.share(self.shard, epoch))
        return default_device.drawn(self.inner, draw(self.sampler))

    def batched(self, keys: Iterable[Any]) -> Iterator[Any]:
        if self.batching is None:
            return iter(keys)
        return iter(BatchSampler(keys, self.batching.batch_size, self.batching.drop_last))

    # --- copies of the loader ----------------------------------------------------------------------

    def carried(self) -> dict[str, Any]:
        """What a copy of the loader begins with: its next epoch, and the state that was loaded."""
        names = ("epoch", "announces", "run_seed", "asked", "read_here", "_saved")
        return {name: getattr(self, name) for name in names}

    def carry_on(self, carried: dict[str, Any]) -> None:
        self.__dict__.update(carried)
        if self._saved is not None and not self._saved["begun"]:
            self.last_seed = self._saved["base_seed"]

    # --- saving and loading ------------------------------------------------------------------------

    def _identity(self, loader: Any) -> dict[str, Any]:
        """What a state and the loader it is loaded into must have in common."""
        identity: dict[str, Any] = {"sampler": self._sampler_name}
        if self.iterable:
            return identity
        # Not contextlib.suppress, which takes longer than the rest: a state is made at every batch.
        try:
            identity["dataset_length"] = len(self.dataset)
        except TypeError:
            pass
        if self.shared:
            identity["sampler_seed"] = self.inner.seed
            identity["shuffle"] = self.inner.shuffle
        else:
            try:
                identity["sampler_length"] = len(self.inner)
            except TypeError:
                pass
        return identity

    def state_dict(self, loader: Any) -> dict[str, Any]:
        self.asked = True
        progress = self.current
        if self._saved is not None:
            return copy.deepcopy(self._saved)
        untouched = progress.untouched() if progress is not None else None
        if untouched is not None:
            return copy.deepcopy(untouched)
        begun = progress is not None and not progress.finished
        if begun and loader.worker_backend == "thread" and is_stateful(self.dataset):
            raise ValueError(
                "worker_backend='thread': the workers are ahead in a dataset that they share, so that "
                "its own state_dict() is not of what was received; use worker processes, or "
                "num_workers=0, or save between epochs"
            )
        state: dict[str, Any] = {
            "fastloader": VERSION,
            **self._identity(loader),
            "epoch": self.epoch if self.shard is None else self.shard.epoch,
            "begun": begun,
            "generators": self._texts.of_states(
                generator_states.states_of(self._all_generators(loader)[1:])
            ),
            "run_seed": self.run_seed,
            "base_seed": None,
            "num_workers": int(loader.num_workers),  # "auto" gives a kind of its own
            "batch_size": loader.batch_size,
            "workers": {},
            "sampler_state": None,
            "dataset_state": None,
            "iterator_state": None,  # of the dataset's
            "augmentation": self._draws_state(loader, progress if begun else None),
        }
        if progress is not None and begun:
            self._save_pass(progress, state)
        else:
            if self.stateful is not None:
                state["sampler_state"] = self.stateful.state_dict()
            if progress is not None and loader.persistent_workers:
                state["workers"] = self._worker_states(progress)
                state["base_seed"] = progress.base_seed
        # A dataset that is its own iterator is restored as the iterator.
        own = begun and progress is not None and progress.dataset_iterator is self.dataset
        if is_stateful(self.dataset) and not state["workers"] and not own:
            state["dataset_state"] = state_of(self.dataset, self.read_here)
        return state

    def _worker_states(self, progress: Progress) -> dict[str, Any]:
        """None of them if one is missing: together they are of one point of the epoch."""
        if not progress.unreported:
            return progress.worker_states()
        if not progress.workers_began:
            warnings.warn(
                "the dataset has a state_dict(), but its persistent workers were not asked for their "
                "states in this epoch, as nobody had asked the loader for one before: what is saved now "
                "has no states of theirs. If they matter, call state_dict() before the first epoch",
                stacklevel=4,
            )
        return {}

    def _save_pass(self, progress: Progress, state: dict[str, Any]) -> None:
        if not progress.counted:
            raise ValueError(
                "this loader's iterator is not one of FastLoader's (its class overrides _get_iterator), "
                "so that nobody counts the batches received: state_dict() only before the first iter()"
            )
        if not progress.in_order and (progress.outstanding is None or self.shared):
            raise ValueError(
                "with in_order=False the batches received are not the first of the epoch, and which "
                "they are is known for map datasets in worker processes, without a distributed "
                "sampler: state_dict() needs in_order=True here, or to be called between epochs"
            )
        if not progress.in_order and progress.unreported:
            raise ValueError(
                "with in_order=False the dataset cannot be read again up to here, and its workers were "
                "not asked for their states from the beginning: call state_dict() before the epoch"
            )
        randomness = progress.randomness
        behind = progress.received()
        state |= {
            "epoch": progress.epoch,
            **behind,
            "first": progress.first if behind["batches"] else None,
            "last": plain(behind["last"]),
            "base_seed": progress.base_seed,
            "randomness": None if randomness is None else randomness.to_json(self._texts),
            "workers": self._worker_states(progress),
            "next_worker": progress.next_worker,
        }
        if progress.unreported and progress.workers_began:
            # From where its workers' datasets began they come to the same states.
            state["read_again"] = True
            state["next_worker"] = 0
            state["sampler_state"] = progress.first_sampler_state
        if randomness is not None and randomness.at_next is None and self.stateful is not None:
            state["sampler_state"] = self.stateful.state_dict()
        if self.shared:
            # All ranks have received as much: what is left of the order can go to any number of them.
            # The last batch of one rank may be smaller than that of another, which then has more.
            size = 1 if self.batching is None else self.batching.batch_size
            received = -(-progress.samples // size) * size
            consumed = progress.before + received * self.inner.num_replicas
            state["samples"] = min(consumed, len(self.inner.dataset))
            state["order_epoch"] = progress.order_epoch
            if randomness is not None and randomness.at_next is None:  # nothing was drawn yet
                state["order_epoch"] = self.inner.epoch if self.shard is None else progress.epoch
            state["first"] = state["last"] = None  # they are this rank's
        if self.shard is not None:
            state["base_seed"] = None  # so are the seeds of its workers
        if progress.fetcher is not None:
            # The last batch, a smaller one, has run into the dataset's end.
            state["ended"] = progress.fetcher.ended
        if progress.dataset_iterator is not None:
            state["iterator_state"] = state_of(progress.dataset_iterator, progress.batches > 0)

    def load_state_dict(self, loader: Any, state: dict[str, Any]) -> None:
        if not isinstance(state, dict):
            raise TypeError(f"a state is a dict, got {type(state).__name__}")
        if not state:
            return
        if self.beginning:
            raise _within_iter("load_state_dict()")
        self.follow(loader)
        self._check(loader, state)
        self.asked = True
        self._saved = copy.deepcopy(state)
        self._end_passes(
            "load_state_dict() was called after this iterator began, so its batches are not those that "
            "follow the state: call iter() on the loader"
        )
        self.current = None
        self._count_epoch(state["epoch"])
        self.last_seed = None if state["begun"] else state["base_seed"]
        if state["run_seed"] is not None:
            self.run_seed = state["run_seed"]
        if self.shared and self.shard is None and state.get("order_epoch") is not None:
            self.inner.set_epoch(state["order_epoch"])

    def supersede(self) -> None:
        """There is one iterator for life, which the next epoch takes away from the one before."""
        self._end_passes(
            "iter() was called again on a loader with persistent_workers=True, whose workers serve one "
            "epoch at a time: finish an epoch before the next one, or use persistent_workers=False for "
            "two iterators at once"
        )

    def _end_passes(self, why: str) -> None:
        for each in list(self._passes):
            if not each.finished:
                each.stale = why

    def _check(self, loader: Any, state: dict[str, Any]) -> None:
        if "fastloader" not in state:
            raise ValueError(
                f"this is not a state of FastLoader: it has no 'fastloader' but {sorted(state)[:8]}"
            )
        if state["fastloader"] != VERSION:
            raise ValueError(
                f"the state is of version {state['fastloader']!r}, this fastloader reads {VERSION}: "
                "load it with the fastloader that saved it"
            )
        for name, value in self._identity(loader).items():
            if state.get(name) != value:
                raise ValueError(
                    f"the state is of another loader: its {name} is {state.get(name)!r}, this loader's "
                    f"is {value!r}"
                )
        generators = len(self._all_generators(loader)) - 1
        if len(state["generators"]) != generators:
            raise ValueError(
                f"the state was saved with {len(state['generators'])} generators in loader and sampler, "
                f"this loader has {generators}"
            )
        for name, thing in (("dataset_state", self.dataset), ("sampler_state", self.stateful)):
            if state[name] is not None and not is_stateful(thing):
                raise ValueError(
                    f"the state holds a {name}, and this loader's {name.partition('_')[0]} has no "
                    "load_state_dict()"
                )
        read = self.iterable and state["begun"] and state["batches"]
        if state["workers"] or read or state.get("read_again"):
            # Each worker has its part of the data.
            for name in ("num_workers", "batch_size"):
                if state[name] != getattr(loader, name):
                    automatic = name == "num_workers" and loader._runtime.tuner is not None
                    raise ValueError(
                        f"the state was saved with {name}={state[name]}, this loader has "
                        f"{getattr(loader, name)}{' (by auto)' if automatic else ''}: where workers "
                        "read the dataset themselves it must be the same"
                        + (f"; give num_workers={state[name]} here" if automatic else "")
                    )


def _within_iter(what: str) -> Error:
    return Error(
        f"{what} was called on a loader by its own sampler or dataset, while its iter() was beginning "
        "an epoch: call it before or after that"
    )
