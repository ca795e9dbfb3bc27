"""Keeps where a loader stands: which epoch, how much of it the training loop has received, and how to go
on from there.

`Position` stands in for the loader's index sampler, so that every source draws its index batches from it
by ``iter()``. In return, the iterator that the loop holds makes a call for each batch: see
`progress.Progress`.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import operator
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
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

from fastloader._core.machine import devices, identity
from fastloader._core.machine.process import ProcessLock
from fastloader._core.order import distributed, generators
from fastloader._core.order import generators as generator_states
from fastloader._core.order.audit import Noted, begin_audit
from fastloader._core.order.distributed import Agreed, Look, Looks, Meeting, ShardSampler
from fastloader._core.order.generators import (
    GeneratorStates,
    begin_anew,
    is_stateful,
    restore,
    splitmix64,
)
from fastloader._core.order.loader import Loader
from fastloader._core.order.progress import LoaderState, MissingFirst, Progress, at_end
from fastloader.errors import Error

if TYPE_CHECKING:
    from fastloader._core.batch.augmentation import Augmentation, EpochDraws
    from fastloader._core.order.distributed import ShardSampler


# ---- The samplers that a loader has now.


# torch's samplers whose iterators end when they raise.
ENDED_BY_ERRORS = (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    dataloader._InfiniteConstantSampler,
)


def is_elastic(sampler: Any) -> bool:
    """Returns whether a sampler deals an epoch out to the ranks by itself, visits no index twice, and
    has a state that serves any number of ranks: a ShardwiseSampler. Its class says so. A subclass, which
    may give another order, has to say so itself."""
    return vars(type(sampler)).get("elastic") is True


def beneath(sampler: Any) -> Iterator[Any]:
    """Gives ``sampler``, and then the samplers that it asks, one through the other."""
    for _ in range(_DEEPEST):
        yield sampler
        inner = (getattr(sampler, name, None) for name in ("batch_sampler", "sampler"))
        sampler = next((each for each in inner if each is not None), None)
        if sampler is None:
            return


_DEEPEST = 16  # of samplers that ask each other, should they do so in a circle


def may_repeat(sampler: Any) -> bool:
    """Returns whether a sampler may give an index twice in an epoch; True if that is unknown, as of a
    class whose methods were replaced. The distributed ones, and Accelerate's, repeat a few at the end,
    which do not count."""
    accelerate: Any = sys.modules.get("accelerate.data_loader")
    foreign = tuple(
        getattr(accelerate, name, None)
        for name in ("BatchSamplerShard", "SkipBatchSampler", "SeedableRandomSampler")
    )
    with identity.one_look():
        for part in beneath(sampler):
            kind = type(part)
            known = kind in _REPEATS or kind is BatchSampler or kind in foreign
            if known and identity.change(kind, kind):
                return True  # it gives whatever it was made to give
            if kind is BatchSampler or kind in foreign[:2] or vars(kind).get("regroups") is True:
                continue  # it gives what the one beneath gives
            if kind is foreign[2]:
                kind = RandomSampler
            return _REPEATS[kind](part) if kind in _REPEATS else not is_elastic(part)
    return True


def holds_twice(indices: Any) -> bool:
    """Returns whether two of these indices are of one sample; True if that is unknown."""
    try:
        numbers = np.asarray(indices)
    except (TypeError, ValueError):
        return True
    if numbers.size == 0:
        return False
    # One that counts from the end may be of a sample that another one counts from the beginning.
    if numbers.dtype.kind not in "iu" or numbers.min() < 0:
        return True
    if numbers.max() < 8 * numbers.size:  # counting takes a hundredth of sorting
        return bool(np.bincount(numbers.ravel().astype(np.int64, copy=False)).max() > 1)
    ordered = np.sort(numbers, axis=None)
    return bool((ordered[1:] == ordered[:-1]).any())


def _never(_sampler: Any) -> bool:
    return False


# torch's samplers and ours, and whether one of them gives an index twice.
_REPEATS: dict[type, Callable[[Any], bool]] = {
    SequentialSampler: _never,
    DistributedSampler: _never,
    ShardSampler: _never,
    # Its own data, because the loader's dataset need not have a length.
    RandomSampler: lambda its: its.replacement or its.num_samples > len(its.data_source),
    WeightedRandomSampler: lambda its: its.replacement,
    SubsetRandomSampler: lambda its: holds_twice(its.indices),
}


class Samplers:
    """The sampler that gives a loader's index batches, and the sampler beneath it."""

    def __init__(self, loader: Loader) -> None:
        self.follow(loader)

    def follow(self, loader: Loader) -> None:
        """Takes the loader's samplers as they are now. Subclasses replace them after construction (timm,
        ultralytics), and frameworks replace what a BatchSampler groups (accelerate)."""
        # Asked of the loader, because a subclass may have its own property.
        self.sampler = loader._index_sampler
        # A BatchSampler only groups, so samples can be counted and skipped one by one beneath it.
        grouping = self.sampler is loader.batch_sampler and type(self.sampler) is BatchSampler
        self.batching = self.sampler if grouping else None
        self.inner: Any = self.sampler if self.batching is None else self.batching.sampler
        names = [type(self.sampler).__qualname__, type(self.inner).__qualname__]
        self.name = names[0] if self.inner is self.sampler else f"{names[0]} of {names[1]}"
        # The kinds whose shares we can compute for any world size, and the kind whose epochs we count.
        self.shared = type(self.inner) in (ShardSampler, DistributedSampler)
        self.shard = self.inner if type(self.inner) is ShardSampler else None
        # Its state serves any world size, and so its length is no mark of it.
        self.elastic = is_elastic(self.inner)
        # Whether it draws again by itself what was drawn before its state, and leaves the global
        # generator alone for that: it may draw something new from there right after.
        self.draws_again = vars(type(self.sampler)).get("draws_again") is True
        self.rank = _rank_of(self.sampler)
        self.stateful: Any = next((s for s in (self.sampler, self.inner) if is_stateful(s)), None)

    def generators(self, loader: Loader) -> list[torch.Generator]:
        owners = (loader, self.sampler, self.inner)
        return generators.distinct(*[getattr(owner, "generator", None) for owner in owners])

    def open(self, epoch: int, draw: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """Opens the index batches of an epoch, from its beginning."""
        if self.shard is not None:  # not by its own __iter__, which gives the next epoch
            return self.batched(distributed.share(self.shard, epoch))
        return devices.drawn(self.inner, draw(self.sampler))

    def batched(self, keys: Iterable[Any]) -> Iterator[Any]:
        if self.batching is None:
            return iter(keys)
        return iter(BatchSampler(keys, self.batching.batch_size, self.batching.drop_last))

    def ends_unevenly_at_once(self) -> bool:
        """Returns whether some rank has less than two batches of the ShardSampler's epoch, and another
        one has more than that rank, so that not all can be asked for a second batch."""
        if self.shard is None:
            return False
        size, drop_last = 1, False
        if self.batching is not None:
            size, drop_last = self.batching.batch_size, self.batching.drop_last
        most, fewest = (
            samples // size if drop_last else -(-samples // size)
            for samples in self.shard.extremes()
        )
        return fewest < min(2, most)

    def set_epoch(self, epoch: int) -> None:
        """Tells the epoch to samplers that have a ``set_epoch``, except a ShardSampler, which only keeps
        the number."""
        for each in {id(each): each for each in (self.sampler, self.inner)}.values():
            if each is not self.shard and hasattr(each, "set_epoch"):
                each.set_epoch(epoch)


def _rank_of(sampler: Any) -> int:
    """Returns the rank whose samples a sampler gives, or one that it asks; 0 if none has one."""
    ranks = (getattr(each, "rank", None) for each in beneath(sampler))
    return next((rank for rank in ranks if isinstance(rank, int)), 0)


# ---- The index batches of one pass over the sampler, from the beginning or from where a state
# says.


class Indices(Iterator[Any]):
    """Draws what torch would draw when torch would draw it, and notes in ``progress`` what is needed to
    draw it again. When it goes on from a state, it skips in the sampler and never in the dataset, and
    leaves torch's global generator alone."""

    def __init__(
        self,
        samplers: Samplers,
        progress: Progress,
        generators: list[torch.Generator],
        draw: Callable[[Any], Iterator[Any]],
        reloaded: bool,
        on_users_generator: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._samplers = samplers
        self._progress = progress
        self._generators = generators
        self._open = functools.partial(samplers.open, progress.epoch, draw)
        self._inner: Iterator[Any] | None = None  # the sampler's iterator, once it is begun
        self._began = False
        self._reloaded = reloaded
        self._on_users_generator = on_users_generator
        if progress.saved is None:
            before = generator_states.states_of(generators)
            self._inner = self._open()
            progress.randomness = GeneratorStates(
                generator_states.changed(before, generator_states.states_of(generators))
            )

    def __next__(self) -> Any:
        if self._began:
            return self._draw()
        self._began = True
        if self._progress.saved is None:
            return self._draw_first()
        return self._draw_again(self._progress.saved)

    def quickly(self) -> Iterator[Any]:
        """Gives the same without a call for each batch, for torch's samplers, whose iterators end when
        they raise."""
        progress = self._progress
        try:
            yield next(self)
        except StopIteration:
            return
        note = progress.drawn.append
        assert self._inner is not None
        try:
            # The sampler itself is looked at, because with batch_size=None a BatchSampler may stand in
            # its place.
            if type(self._samplers.sampler) is not BatchSampler:
                for key in self._inner:
                    note((1, key))
                    yield key
            else:
                for keys in self._inner:
                    # A tensor is noted as a whole: asking it for one element costs more than a small
                    # batch.
                    if type(keys) is torch.Tensor:
                        note((keys.numel(), keys))
                    else:
                        note((len(keys), keys[-1]))
                    yield keys
            progress.exhausted = True
        except Exception:
            progress.sampler_raised()
            progress.exhausted = True
            raise

    def _draw(self) -> Any:
        progress = self._progress
        assert self._inner is not None
        try:
            keys = next(self._inner)
        except StopIteration:
            progress.exhausted = True
            raise
        except Exception:
            progress.sampler_raised()
            raise
        samples, first, last = ends(keys)
        if progress.first is None:
            progress.first = plain(first)
        progress.drawn.append((samples, last))
        if self._samplers.stateful is not None:
            progress.sampler_states.append(self._samplers.stateful.state_dict())
        return keys

    def _draw_first(self) -> Any:
        samplers, progress = self._samplers, self._progress
        assert progress.randomness is not None
        if samplers.shard is not None:
            progress.order_epoch = progress.epoch
        elif samplers.shared:
            progress.order_epoch = samplers.inner.epoch
        if samplers.stateful is not None:
            progress.sampler_state = samplers.stateful.state_dict()
            progress.first_sampler_state = progress.sampler_state
        before = generator_states.states_of(self._generators)
        try:
            return self._draw()
        except StopIteration:
            if not self._reloaded:
                raise
            return self._draw_anew()
        finally:
            (drawn,) = generator_states.changed(before[:1], [torch.get_rng_state()])
            seed = None
            if drawn is not None and samplers.stateful is None:
                seed = generator_states.seed_drawn(samplers.inner, drawn)
            # The states of the other generators are always kept, because later epochs are drawn from
            # these generators.
            progress.randomness.first_drawn(
                [None if seed is not None else drawn, *before[1:]], seed
            )

    def _draw_again(self, saved: LoaderState) -> Any:
        samplers, progress = self._samplers, self._progress
        randomness = generator_states.from_json(saved["randomness"])
        progress.randomness = randomness
        self._inner = iter(())  # in case that what follows raises
        progress.order_epoch = saved.get("order_epoch")
        if randomness.at_next is None:
            return self._begin_again(saved, randomness)
        if samplers.draws_again:
            generator_states.put_back(self._generators[1:], randomness.at_next[1:])
            with self._on_users_generator():
                samplers.stateful.load_state_dict(saved["sampler_state"])
                self._inner = devices.drawn(samplers.inner, iter(samplers.sampler))
                return self._draw()
        source: Iterator[Any] = iter(())
        with generator_states.global_generator_kept():
            if samplers.batching is None:
                generator_states.put_back(self._generators, randomness.at_iter)
                source = self._restarted(saved, randomness)
            generator_states.put_back(self._generators, randomness.at_next)
            if samplers.batching is not None:  # which begins its sampler with the first batch
                source = self._restarted(saved, randomness)
            if not (
                samplers.stateful
                or samplers.shared
                or progress.endless
                or saved.get("read_again")  # which draws the whole pass again, too
            ):
                _skip(source, saved, "batches" if samplers.batching is None else "samples")
            self._inner = source if samplers.batching is None else samplers.batched(source)
            try:
                return self._draw()
            except StopIteration:
                if samplers.stateful is None or saved["batches"]:
                    raise
                generator_states.put_back(self._generators, randomness.at_next)
                return self._draw_anew()

    def _draw_anew(self) -> Any:
        """Draws from a new iterator, if a sampler's own state was loaded that is of the end of an epoch,
        if only because its iterator had not run yet in the next one. Samplers such as torchdata's
        distributed one skip all that they had given by then, and begin anew after that."""
        with contextlib.suppress(TypeError):
            if len(self._samplers.sampler) == 0:
                raise StopIteration
        self._progress.exhausted = False
        self._inner = self._open()
        return self._draw()

    def _begin_again(self, saved: LoaderState, randomness: GeneratorStates) -> Any:
        """Draws the first index batch after a state that was saved before any index was drawn. The draw
        is from the state that the user's generator has now."""
        samplers = self._samplers
        with generator_states.global_generator_kept():
            generator_states.put_back(self._generators, randomness.at_iter)
            if samplers.stateful is not None and saved["sampler_state"] is not None:
                samplers.stateful.load_state_dict(saved["sampler_state"])
                self._reloaded = True
            self._inner = self._open()
        generator_states.put_back(
            self._generators[1:], generator_states.decoded(saved["generators"])
        )
        # Workers get their first index batches within iter(), which has drawn their seed by now.
        with self._on_users_generator():
            return self._draw_first()

    def _restarted(self, saved: LoaderState, randomness: GeneratorStates) -> Iterator[Any]:
        """Begins the sampler's iterator that is skipped in. It gives batches, or single indices if a
        BatchSampler groups them."""
        samplers = self._samplers
        sampler: Any = samplers.inner
        if samplers.stateful is not None:
            if saved["sampler_state"] is not None:
                samplers.stateful.load_state_dict(saved["sampler_state"])
        elif samplers.shared:
            if samplers.shard is None and sampler.epoch != saved["order_epoch"]:
                raise Error(
                    f"the state that was loaded is from the middle of an epoch that its sampler calls "
                    f"{saved['order_epoch']}, but then set_epoch({sampler.epoch}) was called on it"
                )
            start = 0 if saved.get("read_again") else saved["samples"]
            epoch = cast("int", saved["order_epoch"])  # which is saved with such samplers
            return iter(distributed.share(sampler, epoch, start))
        elif randomness.seed is not None:
            sampler = generator_states.reseeded(sampler, randomness.seed)
        return devices.drawn(sampler, iter(sampler))


def _skip(source: Iterator[Any], saved: LoaderState, unit: Literal["batches", "samples"]) -> None:
    """Advances the sampler by what was received, and checks that it is the sampler of the state."""
    count: int = saved[unit]
    if count == 0:
        return
    given = enumerate(itertools.islice(source, count), 1)
    _, head = next(given, (0, None))
    number, tail = next(
        iter(collections.deque(given, maxlen=1)), (1 if head is not None else 0, head)
    )
    found = plain(ends(head)[1]), plain(ends(tail)[2])
    for place, wanted, got in zip(("first", "last"), (saved["first"], saved["last"]), found):
        if number < count or (wanted is not None and got is not None and wanted != got):
            raise Error(
                f"the sampler does not give the order that the state is from: of the {count} {unit} "
                f"received then it gives {number}, the {place} is {got}, was {wanted}. Seed it by a "
                "torch generator of its own (attribute 'generator'), or give it state_dict() and "
                "load_state_dict()"
            )


def ends(keys: Any) -> tuple[int, Any, Any]:
    """Returns (samples, first key, last key) of an index batch, or of a single index."""
    if not isinstance(keys, list | tuple) and getattr(keys, "ndim", 0) != 1:
        return 1, keys, keys
    return (len(keys), keys[0], keys[-1]) if len(keys) else (0, None, None)


def plain(key: Any) -> Any:
    """Returns a key that JSON can hold and that compares equal in another process; None if ``key`` is no
    such key. For a tensor of keys, its last one."""
    if type(key) is int:
        return key
    if isinstance(key, str):
        return str.__str__(key)  # an enum's text, without the enum
    if type(key) is torch.Tensor and key.dim() == 1 and len(key):
        key = key[-1]
    with contextlib.suppress(TypeError):
        return operator.index(key)
    return None


class Position:
    """The loader's index sampler, with a memory. It knows samplers and dataset but does not hold the
    loader: torch's iterators hold the position, and a persistent iterator belongs to the loader."""

    def __init__(self, loader: Loader) -> None:
        # Guards everything here while an epoch begins. A second thread that calls iter() or loads a
        # state meanwhile must wait, or it would get the indices of the first thread's epoch. Reentrant,
        # because samplers and datasets are called then, and may ask the loader for its state.
        self._lock = ProcessLock()
        self.dataset: Any = loader.dataset
        self.iterable = loader._dataset_kind != 0
        self.samplers = Samplers(loader)
        self.epoch = 0  # of the next iter()
        self.announces = self.samplers.shard is not None  # whether it calls the dataset's set_epoch
        self.current: Progress | None = None
        # With a ShardSampler, or if Accelerate has sharded the loader: all ranks' crops come from it.
        self.run_seed: int | None = None
        # Joins the run's seed, if Accelerate has sharded the loader: each rank has crops of its own.
        self.rank = 0
        self.last_seed: int | None = None  # `epoch_seed` of the epoch begun last
        self._alone = False  # whether it asks no other rank
        self._first_meeting: Meeting | None = None  # which the ranks have begun and not ended
        self._agreed: Agreed | None = None
        self._looks = Looks()
        self.audit = begin_audit(self.samplers)  # None unless somebody has asked for it
        # What was before the epoch that begins.
        self._before: tuple[Progress | None, LoaderState | None] = (None, None)
        self._passes: weakref.WeakSet[Progress] = weakref.WeakSet()
        self.saved: LoaderState | None = None  # the state that was loaded, for the next iter()
        self.ahead_of_fabric = 0
        self.texts = generators.Texts()
        self.asked = False  # whether a state was asked for or loaded, so that workers send theirs
        self._restored = False  # whether the dataset's own state was loaded for the last epoch
        self.read_here = False  # whether the dataset was read in this process
        self.beginning = False  # whether iter() is making the epoch's iterator
        self._wished: int | None = None  # the number of the next epoch, if it was set meanwhile
        # The state in which iter() must leave the global generator, while iter() goes on in the middle
        # of an epoch.
        self.users_generator: torch.Tensor | None = None
        self.sampler_reloaded = False  # whether the sampler's own state was loaded for this epoch
        self._generators: list[torch.Generator] = []
        self._draws: EpochDraws | None = None  # what is erased and mixed in the epoch that begins
        self._undrawn: list[
            torch.Tensor | None
        ] = []  # their states before a seed was drawn in vain

    @property
    def lock(self) -> threading.RLock:
        return self._lock.lock

    def __len__(self) -> int:
        return len(self.samplers.sampler)

    def __iter__(self) -> Iterator[Any]:
        return self.iterate(iter)

    def iterate(self, draw: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """Does as ``iter()``, for a source that draws index batches from a sampler in its own way, by
        ``draw``. They must hold the same indices by the same draws, each batch a list or of one
        dimension. Batches of shares, and batches after a state, still come as lists."""
        if not self.beginning:  # the user only looks at indices
            return draw(self.samplers.sampler)
        generators.put_back(self._generators, self._undrawn)
        saved = self.saved
        mid_epoch = saved if saved is not None and saved["begun"] else None
        self.current = Progress(self.epoch, mid_epoch, self.iterable)
        self.current.augment(self._draws)
        if self.samplers.shard is not None:
            self.current.turn = self._turn(self.samplers.shard, self.epoch, mid_epoch is not None)
        if self.audit is not None and not self._alone:
            self.current.account = self.audit.begin(
                self.samplers, self.current, len(self.dataset), self._agreed
            )
        if saved is not None:
            self.current.base_seed = saved["base_seed"]
        self._passes.add(self.current)
        indices = Indices(
            self.samplers,
            self.current,
            self._generators,
            draw,
            self.sampler_reloaded,
            self.on_users_generator,
        )
        quick = self.samplers.stateful is None and type(self.samplers.sampler) in ENDED_BY_ERRORS
        drawn: Iterator[Any] = indices.quickly() if quick else indices
        if self.current.missing:
            drawn = MissingFirst(self.current, drawn)
        account = self.current.account
        return drawn if account is None else Noted(drawn, account.drawn)

    # --- an epoch ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def begin(self, loader: Loader) -> Iterator[None]:
        """Begins an epoch, around the making of its iterator."""
        if self.beginning:
            raise within_iter("iter()")
        with contextlib.ExitStack() as stack:
            stack.callback(self._reset_beginning)
            before = self.current, self.last_seed
            try:
                self._prepare(loader, stack)
                yield
            except BaseException:
                # The epoch has not begun, so a state is still of the one before.
                self.current, self.last_seed = before
                raise
            self._before = before[0], self.saved
            self.saved = None
            self.count_epoch(self.epoch + 1)

    def _reset_beginning(self) -> None:
        self.beginning = False
        self._undrawn = []
        self._draws = None
        self.sampler_reloaded = False
        wished, self._wished = self._wished, None
        if wished is not None:
            self.set_epoch(wished)

    def _prepare(self, loader: Loader, stack: contextlib.ExitStack) -> None:
        """Prepares the epoch. ``stack`` is left when its iterator is made, or could not be made."""
        self.samplers.follow(loader)
        untouched = self.current.untouched() if self.current is not None else None
        if self.saved is None and untouched is not None:
            # No batch was asked for of the epoch from whose middle a state was loaded. What drew its
            # order then was not drawn again, so the next epoch begins from the end of that one.
            self.saved = at_end(untouched, loader.persistent_workers)
        saved = self.saved
        if self.samplers.shard is not None:
            self.epoch = self.samplers.shard.epoch
        if saved is not None and saved["begun"] and saved["epoch"] != self.epoch:
            raise ValueError(
                f"the state that was loaded is from the middle of epoch {saved['epoch']}, but then "
                f"set_epoch({self.epoch}) was called: go on with that epoch, or load no state"
            )
        if self.samplers.shard is not None and self._agreed is None and not self._alone:
            self._agree(loader, self.samplers.shard)
        self._generators = self.samplers.generators(loader)
        if saved is not None and not saved["begun"]:
            states = generators.decoded(saved["generators"])
            generators.put_back(self._generators[1:], states)
            if saved["base_seed"] is not None:
                # Persistent workers lived on then, and have to be started now. Between two calls of
                # iter() on the sampler, torch now draws a seed for them that it did not draw then.
                self._undrawn = [torch.get_rng_state(), *states]
            if self.samplers.stateful is not None and saved["sampler_state"] is not None:
                self.samplers.stateful.load_state_dict(saved["sampler_state"])
                self.sampler_reloaded = True
        if self._restored:
            begin_anew(self.dataset)
        self._restored = saved is not None and saved["dataset_state"] is not None
        if saved is not None and self._restored:
            mid_epoch = saved["begun"] and saved["batches"] > 0
            restore(self.dataset, saved["dataset_state"], mid_epoch)
        if self.announces and hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(self.epoch)
        if saved is not None and saved["begun"]:
            # The epoch's seed is known, so drawing one must not change the user's generator.
            self.users_generator = torch.get_rng_state()
            stack.callback(self._put_users_generator_back)
        self.beginning = True

    def _put_users_generator_back(self) -> None:
        assert self.users_generator is not None
        torch.set_rng_state(self.users_generator)
        self.users_generator = None

    @contextlib.contextmanager
    def on_users_generator(self) -> Iterator[None]:
        """Keeps what code that restores the dataset does inside to the global generator."""
        if self.users_generator is None:
            yield
            return
        torch.set_rng_state(self.users_generator)
        try:
            yield
        finally:
            self.users_generator = torch.get_rng_state()

    def _agree(self, loader: Loader, shard: ShardSampler) -> None:
        saved = self.saved
        consumed = saved["samples"] if saved and saved["begun"] else 0
        facts = distributed.facts_about(loader, shard, len(self.dataset), self.epoch, consumed)
        proposal = _seed_of(loader) if self.run_seed is None else self.run_seed
        if self._first_meeting is None:
            self._first_meeting = distributed.first_meeting()
        try:
            self._agreed = distributed.agree(self._first_meeting, facts, proposal)
        except Exception:  # not Ctrl-C, behind which the meeting goes on
            self._first_meeting = None
            raise
        self._first_meeting = None
        self.run_seed = self._agreed.proposal

    def agree_anew(self) -> None:
        """Makes the next iter() compare this rank's place with those of the others, as the first one
        does."""
        self._agreed = None
        self._looks.clear()

    def _turn(self, shard: ShardSampler, epoch: int, goes_on: bool) -> distributed.Turn:
        """Makes the `Turn` that counts a pass as that epoch: the ranks meet for it. ``goes_on``: from a
        state. They do not meet then: they have compared their places, and some may have nothing left of
        the epoch."""
        meetings = None if self._agreed is None or goes_on else self._agreed.meetings
        facts = {distributed.LENGTH: len(self.dataset)}
        if shard.shuffle:  # or all epochs have one order, and one rank may make passes of its own
            facts[distributed.EPOCH] = epoch
        return distributed.Turn(meetings, facts)

    def take_back_looks(self, loader: Loader, superseding: bool = False) -> None:
        """Goes back to where the loader stood before the passes that were only a look at a batch.
        ``superseding``: whether the next epoch is about to begin."""
        if self.beginning:
            return
        if superseding:
            self.samplers.follow(loader)
        shard = self.samplers.shard
        if shard is None or shard.told or shard.epoch != self.epoch:  # somebody has set the number
            self._looks.clear()
        if shard is not None:
            shard.told = False
        for look in self._looks.dropped(loader, superseding):
            self.current, self.saved = look.before, look.saved
            self.count_epoch(look.progress.epoch)

    def hand_out(self, iterator: Any) -> None:
        """Notes the iterator of the epoch just begun, as the loop gets it."""
        if not hasattr(iterator, "progress"):  # a subclass may make one of any kind
            self._hand_out_uncounted()
            return
        iterator.progress = current = self.current
        if current is not None and current.account is not None:
            current.account.watch(iterator)
        if current is not None and current.turn is not None:
            if current.saved is None and self.samplers.ends_unevenly_at_once():
                current.count()
            self._looks.note(Look(current, weakref.ref(iterator), *self._before))
        self._before = None, None

    def keep_to_itself(self, loader: Loader) -> None:
        """Makes the next epoch ask no other rank, and tell the dataset nothing: for a look at a
        batch."""
        self._alone, self.announces = True, False
        if self.samplers.shard is not None and self.run_seed is None:
            self.run_seed = _seed_of(loader)

    def begin_draws(self, augmentation: Augmentation) -> EpochDraws:
        """Begins the draws of what is erased and mixed in the epoch that begins. A state of an older
        version lacks it."""
        saved, samplers, run_seed = self.saved, self.samplers, self.run_seed
        first, step = samplers.rank << 40, 1
        if samplers.shared:  # the place in the order of all ranks
            received = saved["samples"] if saved is not None and saved["begun"] else 0
            first, step = received + samplers.rank, samplers.inner.num_replicas
        self._draws = augmentation.begin(
            None if saved is None else saved.get("augmentation"),
            first,
            step,
            None if run_seed is None else self.run_epoch_seed(run_seed),
        )
        return self._draws

    def run_epoch_seed(self, run_seed: int) -> int:
        """Returns the seed of this epoch, of a run whose ranks have ``run_seed`` in common."""
        return splitmix64(run_seed, (self.rank << 40) + self.epoch)

    @property
    def resumes_mid_epoch(self) -> bool:
        """Whether the next iter() goes on in the middle of an epoch."""
        return self.saved is not None and bool(self.saved["begun"])

    def leave_out_rest(self, loader: Loader) -> Progress:
        """Makes the next iter() begin the epoch after the one of the state that was loaded. Returns a
        progress that goes stale when another state is loaded."""
        assert self.saved is not None
        self.saved = at_end(self.saved, loader.persistent_workers)
        self.count_epoch(self.saved["epoch"])
        self.last_seed = self.saved["epoch_seed"]
        promised = Progress(self.epoch, None, self.iterable)
        self._passes.add(promised)
        return promised

    def samples_before(self) -> int:
        """Counts the samples of the epoch that were received before this pass, for samplers that may
        repeat."""
        assert self.current is not None
        return 0 if self.samplers.shared else self.current.before

    def reads_again(self, states: dict[str, Any], resuming: bool) -> bool:
        """Returns whether worker processes, which begin with these states, first make again what was
        received before."""
        read_again = self.saved is not None and bool(self.saved.get("read_again"))
        return read_again or (self.iterable and resuming and not states)

    def worker_states(self) -> tuple[dict[str, Any], bool]:
        """Returns (states of the workers' datasets to begin with, whether these are of the middle of an
        epoch)."""
        saved = self.saved
        if saved is None:
            return {}, False
        return dict(saved["workers"]), saved["begun"] and saved["batches"] > 0

    def first_worker(self) -> int:
        saved = self.saved
        return saved["next_worker"] if saved is not None and saved["begun"] else 0

    def _hand_out_uncounted(self) -> None:
        """Notes that the loop holds an iterator that does not tell which batches it hands over."""
        if self.current is None:
            self.current = Progress(self.epoch, None, self.iterable)
        self.current.counted, self.current.account = False, None
        if self.samplers.shard is not None:  # now, since nobody will say when
            self._turn(self.samplers.shard, self.epoch - 1, goes_on=False)(None)

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, as the user wants it. Samplers and a dataset that have a
        ``set_epoch`` are told as well."""
        with self.lock:
            if self.beginning:  # called by the sampler, say, which means the next epoch
                self._wished = epoch
                return
            self.count_epoch(epoch)
            self._looks.clear()
            self.announces = True
            self.samplers.set_epoch(epoch)

    def count_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        if self.samplers.shard is not None:
            self.samplers.shard.epoch = epoch

    def supersede(self) -> None:
        """Ends the last epoch, from which the next one takes the loader's only iterator for life."""
        self.end_passes(
            "iter() was called again on a loader with persistent_workers=True, whose workers serve one "
            "epoch at a time: finish an epoch before the next one, or use persistent_workers=False for "
            "two iterators at once"
        )

    def end_passes(self, why: str) -> None:
        for each in list(self._passes):
            if not each.finished:
                each.stale = why
                if each.account is not None:
                    each.account.leave()


def within_iter(what: str) -> Error:
    return Error(
        f"{what} was called on a loader by its own sampler or dataset, while its iter() was beginning "
        "an epoch: call it before or after that"
    )


def _seed_of(loader: Loader) -> int:
    """Returns the seed to agree on: not drawn, because DataLoader draws nothing here."""
    return (loader.generator or torch.default_generator).initial_seed()
