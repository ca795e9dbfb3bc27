"""Where a loader stands: which epoch, how much of it the training loop has received, and how to go on
from there.

`Position` stands in for the loader's index sampler, so that every source draws its index batches from it
by ``iter()``. In return, the iterator that the loop holds makes a call for each batch: see
`progress.Progress`.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from fastloader._core.machine.process import ProcessLock
from fastloader._core.order.distributed import agreement
from fastloader._core.order.distributed.agreement import Agreed, Meeting
from fastloader._core.order.distributed.looks import Look, Looks
from fastloader._core.order.index_batches import Indices
from fastloader._core.order.loader import Loader
from fastloader._core.order.progress import MissingFirst, Progress, at_end
from fastloader._core.order.samplers import ENDED_BY_ERRORS, Samplers
from fastloader._core.order.states import generators as generator_states
from fastloader._core.order.states.generators import splitmix64
from fastloader._core.order.states.loader_state import LoaderState
from fastloader._core.order.states.stateful import begin_anew, restore
from fastloader.errors import Error

if TYPE_CHECKING:
    from fastloader._core.batch.augmentation.augmentation import Augmentation, EpochDraws
    from fastloader._core.order.distributed.shards import ShardSampler


class Position:
    """The loader's index sampler, with a memory. It knows samplers and dataset but does not hold the
    loader: torch's iterators hold the position, and a persistent iterator belongs to the loader."""

    def __init__(self, loader: Loader) -> None:
        # Guards everything here while an epoch begins. A second thread that calls iter() or loads a
        # state meanwhile must wait, or it would get the indices of the first thread's epoch. Reentrant,
        # because samplers and datasets are called then, and may ask the loader for its state.
        self._lock = ProcessLock()
        self.dataset = loader.dataset
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
        # What was before the epoch that begins.
        self._before: tuple[Progress | None, LoaderState | None] = (None, None)
        self._passes: weakref.WeakSet[Progress] = weakref.WeakSet()
        self.saved: LoaderState | None = None  # the state that was loaded, for the next iter()
        self.ahead_of_fabric = 0
        self.texts = generator_states.Texts()
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
        generator_states.put_back(self._generators, self._undrawn)
        saved = self.saved
        mid_epoch = saved if saved is not None and saved["begun"] else None
        self.current = Progress(self.epoch, mid_epoch, self.iterable)
        self.current.augment(self._draws)
        if self.samplers.shard is not None:
            self.current.turn = self._turn(self.samplers.shard, self.epoch, mid_epoch is not None)
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
        drawn = indices.quickly() if quick else indices
        return MissingFirst(self.current, drawn) if self.current.missing else drawn

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
            states = generator_states.decoded(saved["generators"])
            generator_states.put_back(self._generators[1:], states)
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
        facts = agreement.facts_about(loader, shard, len(self.dataset), self.epoch, consumed)
        proposal = _seed_of(loader) if self.run_seed is None else self.run_seed
        if self._first_meeting is None:
            self._first_meeting = agreement.first_meeting()
        try:
            self._agreed = agreement.agree(self._first_meeting, facts, proposal)
        except Exception:  # not Ctrl-C, behind which the meeting goes on
            self._first_meeting = None
            raise
        self._first_meeting = None
        self.run_seed = self._agreed.proposal

    def agree_anew(self) -> None:
        """Has the next iter() compare this rank's place with those of the others, as the first one."""
        self._agreed = None
        self._looks.clear()

    def _turn(self, shard: ShardSampler, epoch: int, goes_on: bool) -> agreement.Turn:
        """What counts a pass as that epoch: the ranks meet for it. ``goes_on``: from a state.
        They do not meet then: they have compared their places, and some may have nothing left of the
        epoch."""
        meetings = None if self._agreed is None or goes_on else self._agreed.meetings
        facts = {agreement.LENGTH: len(self.dataset)}
        if shard.shuffle:  # or all epochs have one order, and one rank may make passes of its own
            facts[agreement.EPOCH] = epoch
        return agreement.Turn(meetings, facts)

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
        if current is not None and current.turn is not None:
            if current.saved is None and self.samplers.ends_unevenly_at_once():
                current.count()
            self._looks.note(Look(current, weakref.ref(iterator), *self._before))
        self._before = None, None

    def keep_to_itself(self, loader: Loader) -> None:
        """Has the next epoch ask no other rank, and tell the dataset nothing: for a look at a batch."""
        self._alone, self.announces = True, False
        if self.samplers.shard is not None and self.run_seed is None:
            self.run_seed = _seed_of(loader)

    def begin_draws(self, augmentation: Augmentation) -> EpochDraws:
        """What is erased and mixed in the epoch that begins. A state of an older version lacks it."""
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
        """The seed of this epoch, of a run whose ranks have this one in common."""
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
        """How many samples of the epoch were received before this pass, for samplers that may repeat."""
        assert self.current is not None
        return 0 if self.samplers.shared else self.current.before

    def reads_again(self, states: dict[str, Any], resuming: bool) -> bool:
        """Whether worker processes, which begin with these states, first make again what was received
        before."""
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
        self.current.counted = False
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


def within_iter(what: str) -> Error:
    return Error(
        f"{what} was called on a loader by its own sampler or dataset, while its iter() was beginning "
        "an epoch: call it before or after that"
    )


def _seed_of(loader: Loader) -> int:
    """The one to agree on: not drawn, because DataLoader draws nothing here."""
    return (loader.generator or torch.default_generator).initial_seed()
