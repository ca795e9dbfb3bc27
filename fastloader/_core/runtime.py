"""Holds all that runs for one loader."""

from __future__ import annotations

import copy
import logging
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, cast

from fastloader._core import options as python_path
from fastloader._core.batch.augmentation import Augmentation
from fastloader._core.delivery.delivery import Delivery
from fastloader._core.handoff import Fallback, Plan, Source, StandIn, lines_of
from fastloader._core.loader_stats import LoaderStats
from fastloader._core.machine import extension
from fastloader._core.machine.identity import one_look
from fastloader._core.machine.limits import decode_threads, exceeds_processors
from fastloader._core.machine.numa import keep_decode_threads
from fastloader._core.machine.process import ProcessLock
from fastloader._core.observation.headspace import Headspace, Measured
from fastloader._core.observation.statistics import (
    PER_PROCESSOR,
    AutoChoice,
    Figures,
    Observation,
    Stage,
    Statistics,
)
from fastloader._core.observation.tuning import DepthRule
from fastloader._core.options import LoaderOptions, come_normalized, refused_options
from fastloader._core.order import distributed, trainers
from fastloader._core.order import state as states
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.loader import AutoWorkers, Loader, auto_workers
from fastloader._core.order.position import Position
from fastloader._core.order.trainers import NextEpoch
from fastloader._core.pictures.images import make_policy
from fastloader._core.sources.arguments import requires_native
from fastloader._core.sources.table import make_sources
from fastloader.errors import NotNative
from fastloader.transforms._normalization import Normalization

# ---- What ``num_workers="auto"`` and ``depth="auto"`` have come to, in words.


def workers_choice(workers: AutoWorkers, begun: bool, made: AutoChoice | None) -> AutoChoice:
    """Says which number of workers was chosen, and why. ``begun``: whether there was an epoch. ``made``:
    the choice of the source, if it makes one."""
    if not begun:
        return AutoChoice(int(workers), f"{PER_PROCESSOR}: nothing was iterated yet")
    return made or AutoChoice(int(workers), f"{PER_PROCESSOR}; not changed while workers run")


def depth_choice(
    rule: DepthRule, begun: bool, watched: bool, fixed: int | None, workers: int
) -> AutoChoice:
    """Says which depth was chosen, and why. ``watched``: whether anything follows the rule. If not, the
    depth is ``fixed``, where there is a ring."""
    if not begun:
        return AutoChoice(rule.depth, "to begin with: nothing was iterated yet")
    if watched:
        return AutoChoice(rule.depth, rule.why)
    if workers > 0:
        why = "num_workers and prefetch_factor say how many batches are made ahead"
        return AutoChoice(fixed, why)
    return AutoChoice(fixed, "there are no batches made ahead, whose number would be to choose")


# ---- What one loader has running.


_log = logging.getLogger("fastloader")


class Runtime:
    """Keeps the threads, memory and counters of one loader, in one attribute of the loader: a subclass
    may call its attributes what it likes, as it may with DataLoader. Only `for_copy` is pickled; a copy
    of a loader makes its own runtime. The runtime does not hold the loader, so that a dropped loader
    ends at once."""

    def __init__(self, loader: Loader, options: LoaderOptions) -> None:
        self._loader = weakref.ref(loader)
        self._position: Position | None = None
        self._carried: dict[str, Any] | None = None  # from the loader that this one is a copy of
        # Guards that the first thread that asks makes the only position. Reentrant: a subclass's
        # samplers, which it looks at, and signal handlers may ask for it while it is made.
        self._making = ProcessLock()
        self._options = options
        self.auto_workers: AutoWorkers | None = None  # what num_workers="auto" began with
        self.sharding: distributed.AutoSharding | None = None  # with distributed="auto"
        self.delivery = delivery = Delivery(options.delivery_spec())
        self.layout = options.layout(delivery)
        policy = make_policy(options.on_error, options.max_errors)
        # Asked in this order. The first plan is taken; what none of them serves is the fallback's.
        self.sources: tuple[Source, ...]
        self.fallback: Fallback
        self.sources, self.fallback = make_sources(delivery.statistics, policy)
        self._headspace: Measured | None = None
        self._placed = False  # whether it was decided where decode threads run
        self._logged_reason = ""  # the reason for the Python path that was logged last
        self._unsaid = ""  # the same, if rank 0 may not have had it

    @property
    def _every_source(self) -> Sequence[Source]:
        """The fallback and the other sources. The fallback comes first: what it drew in the last epoch
        hides what another source drew in one before."""
        return (self.fallback, *reversed(self.sources))

    # --- what others ask for -----------------------------------------------------------------------

    @property
    def statistics(self) -> Statistics:
        """The loader's counters."""
        return self.delivery.statistics

    @property
    def normalization(self) -> Normalization | None:
        """The delivery's normalisation of images."""
        return self.delivery.normalization

    @property
    def augmentation(self) -> Augmentation | None:
        """The delivery's erasing and mixing."""
        return self.delivery.augmentation

    def augment(self, augmentation: Augmentation | None) -> None:
        """Sets what the delivery erases and mixes from the next ``iter()`` on; None for nothing.

        Raises:
            ValueError: if the delivery does not normalise images.
        """
        self.delivery.augment(augmentation)

    @property
    def delivers_as_made(self) -> bool:
        """Whether the loop gets the batches as their source made them."""
        return self.delivery.is_plain

    def torch_iterator(self, loader: Loader) -> Any:
        """Makes the iterator for which torch asks by ``_get_iterator()``."""
        return self.fallback.iterator(loader)

    # --- the order ---------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """The loader's position. It is made when it is first asked for, since it looks at the loader's
        samplers."""
        if self._position is None:
            with self._making.lock:
                if self._position is None:
                    loader = self._loader()
                    assert loader is not None  # the caller holds it
                    made = Position(loader)
                    if self._carried is not None:
                        states.carry_on(made, self._carried)
                    # A sampler that `Position` looked at may meanwhile have asked for the position, and
                    # so made it, on this thread: the lock is reentrant. That one is in use already.
                    if self._position is None:
                        self._position = made
        return self._position

    def beginning(self) -> Position | None:
        """Returns the position while ``iter()`` makes an epoch's iterator."""
        return self._position if self._position is not None and self._position.beginning else None

    def share_out(
        self, dataset: Any, shuffle: bool | None, sampler: Any, batch_sampler: Any, generator: Any
    ) -> tuple[Any, bool | None]:
        """Returns the arguments ``sampler`` and ``shuffle``, with this rank's share in their place if
        ``distributed`` asks for it."""
        policy = self._options.distributed
        shard = distributed.make_sampler(
            policy, dataset, shuffle, sampler, batch_sampler, generator
        )
        return (shard, None) if shard is not None else (sampler, shuffle)

    def begin_sharding(
        self, dataset: Any, shuffle: bool | None, sampler: Any, batch_sampler: Any
    ) -> None:
        """Lets the first look at the loader's sampler decide from here on, with
        ``distributed="auto"``."""
        policy = self._options.distributed
        self.sharding = distributed.begin_auto(policy, dataset, shuffle, sampler, batch_sampler)

    def decide_sharding(self, loader: Loader) -> None:
        """Decides about sharding, before one of the loader's samplers is looked at."""
        if self.sharding is not None:
            self.sharding.decide(loader)

    def samplers_replaced(self) -> None:
        """Notes that the user assigned a sampler, so that sharding is up to the user from now on."""
        self.sharding = None

    def state_dict(self, loader: Loader) -> dict[str, Any]:
        position = self.position
        with position.lock:
            return states.state_dict(position, loader)

    def load_state_dict(self, loader: Loader, state: dict[str, Any]) -> None:
        position = self.position
        with position.lock:
            states.load_state_dict(position, loader, state)
            if state:
                if loader._iterator is not None:  # persistent workers, which began before the state
                    self.delivery.end_iterators()
                self._forget_workers(loader)

    def _forget_seed(self) -> None:
        """Forgets the seed of persistent workers, which have ended."""
        if self._position is not None:
            self._position.last_seed = None

    # --- an epoch ----------------------------------------------------------------------------------

    def iterate(self, loader: Loader) -> Any:
        """Begins an epoch, and returns what ``iter()`` gives."""
        if self.sharding is not None:
            self.sharding.check(loader)
        position = self.position
        with position.lock:
            if position.resumes_mid_epoch and trainers.counted_as_over():
                rest = position.leave_out_rest(loader)
                return NextEpoch(loader, lambda: self._begin_epoch(loader), rest)
            return self._begin_epoch(loader)

    def _begin_epoch(self, loader: Loader) -> Any:
        position = self.position
        with position.lock:
            self.delivery.settle()
            position.take_back_looks(loader, superseding=True)
            trainers.follow_count(position, trainers.fabrics_epoch(loader))
            with position.begin(loader):
                if not self._placed:  # now that the ranks have counted each other
                    self._placed = True
                    keep_decode_threads(self.delivery.device, decode_threads(loader.num_workers))
                iterator = self._iterate(loader, EpochOrder(position, loader))
            position.hand_out(iterator)
            return iterator

    def _iterate(self, loader: Loader, order: EpochOrder) -> Iterator[Any]:
        plan, reason = self._planned(loader)
        # Not in the except clause: errors of workers forked there would name the refusal as context.
        refused = refused_options(loader, reason) if reason else ""
        for source in self._every_source:
            source.begin_epoch(refused)
        if reason:
            self._say(loader, reason, plan)
        return self.delivery.begin(plan, order)

    def _planned(self, loader: Loader) -> tuple[Plan, str]:
        """Plans the next epoch, and says why the plan is Python's, if it is."""
        with one_look():
            return self._looked_for(loader)

    def _looked_for(self, loader: Loader) -> tuple[Plan, str]:
        reason, wanted = "", self.delivery.normalization
        for source in self.sources:
            try:
                plan = source.plan(loader, wanted)
            except NotNative as refusal:  # another source may serve what this one refuses
                plan, reason = None, reason or str(refusal)
            if plan is not None:
                return plan, ""
        reason = reason or python_path.why_no_source(loader)
        why = python_path.obstacles(loader, reason)
        dataset, why = self._stand_in(loader, wanted, why)
        normalized = come_normalized(loader)
        plan = self.fallback.plan(
            loader,
            wanted,
            why,
            dataset,
            normalized,
            lambda: python_path.obstacles_of_parts(loader, reason),
        )
        return plan, "" if dataset is not None and dataset.native else reason

    def _stand_in(self, loader: Loader, wanted: Normalization | None, why: str) -> StandIn:
        for source in self.sources:
            made = source.stand_in(loader, wanted, why)
            if made is not None:
                return made
        return StandIn(None, why)

    def check_required(self, loader: Loader) -> None:
        """Raises ValueError with ``native="require"``, if it is known already that Python would make the
        next epoch's batches. A look at a batch_sampler would decide about sharding, so that the first
        ``iter()`` looks in its place."""
        undecided = self.sharding is not None and not self.sharding.decided
        if requires_native(loader) and not (undecided and loader.batch_size is None):
            _plan, reason = self._planned(loader)
            if reason:
                refused_options(loader, reason)

    def is_native(self, loader: Loader) -> bool:
        """Returns whether the native path makes the next epoch's pictures and arrays, as far as that is
        known."""
        _plan, reason = self._planned(loader)
        return not reason or self.fallback.makes_encoded

    def _say(self, loader: Loader, reason: str, plan: Plan) -> None:
        """Logs and warns why Python makes the batches: once, not at every epoch. Of several ranks the
        first one warns. Another one does so at its next epoch, if rank 0 has not had that reason."""
        if reason != self._logged_reason:
            self._logged_reason = reason
            _log.info("fastloader: Python path: %s", reason)
            self._unsaid = reason
            if distributed.speaks(reason):
                self._warn(loader, plan)
        elif self._unsaid and not distributed.was_said(reason):
            self._warn(loader, plan)
        else:
            self._unsaid = ""

    def _warn(self, loader: Loader, plan: Plan) -> None:
        reason, self._unsaid = self._unsaid, ""
        if loader.native is True and extension.load() is not None:
            why = python_path.obstacles(loader, reason)
            python_path.warn_if_pictures(loader.dataset, why, plan.parts)

    def plan(self, loader: Loader) -> str:
        """Explains in words how the next epoch's batches and each part of its samples are made."""
        plan, _reason = self._planned(loader)
        return "\n".join([self._in_words(plan), *lines_of(plan.parts())])

    def summary(self, loader: Loader) -> str:
        """Returns the first line of `plan`."""
        return self._in_words(self._planned(loader)[0])

    def _in_words(self, plan: Plan) -> str:
        return f"{plan}; batches are {self.delivery}"

    def _lines_of_parts(self, loader: Loader) -> list[str]:
        """Lists the other lines of `plan`; none before it is decided about sharding, which `plan`
        does."""
        if self.sharding is not None and not self.sharding.decided:
            return []
        return lines_of(self._planned(loader)[0].parts())

    def kind_of_workers(self, loader: Loader) -> str:
        """Returns in words what ``num_workers`` counts in the next epoch. Returns "" without a look at
        the dataset if there are no more workers than processors: nobody is warned then."""
        return self._planned(loader)[0].workers if exceeds_processors(loader.num_workers) else ""

    def drop_ended_workers(self, loader: Loader) -> None:
        """Drops persistent workers that are of no use any more, before torch would go on with them."""
        if self.fallback.drop_ended(loader):
            self._forget_seed()

    def _forget_workers(self, loader: Loader) -> None:
        """Makes the persistent workers, and those that torch would have, begin anew."""
        loader._iterator = None
        for source in self._every_source:
            source.forget()

    def close(self, loader: Loader) -> None:
        self.delivery.close()
        self.fallback.end_iterators()
        if loader.persistent_workers:
            self._forget_workers(loader)
            self._forget_seed()
        for source in self._every_source:
            source.close()

    # --- copies of the loader ----------------------------------------------------------------------

    def for_copy(self) -> dict[str, Any]:
        """Returns what a copy of the loader takes over. Threads and pinned memory stay where they
        are."""
        return {
            "options": self._options,
            "augmentation": copy.copy(self.delivery.augmentation),  # which counts epochs
            "said": self._logged_reason,
            "auto_workers": self.auto_workers,
            "sharding": copy.copy(self.sharding),  # the decision is about one loader's sampler
            "carried": self._carried if self._position is None else self._to_carry(self._position),
        }

    def _to_carry(self, position: Position) -> dict[str, Any]:
        loader = self._loader()
        assert loader is not None  # it is being copied
        position.take_back_looks(loader)
        return states.carried(position)

    @classmethod
    def of_copy(cls, loader: Loader, attributes: dict[str, Any]) -> Runtime:
        """Makes the runtime of ``loader``, which is about to get these attributes of another one."""
        taken = attributes["_runtime"]
        runtime = cls(loader, taken["options"])
        runtime.delivery.augment(taken["augmentation"])
        runtime._logged_reason, runtime.sharding = taken["said"], taken["sharding"]
        runtime._carried, runtime.auto_workers = taken["carried"], taken["auto_workers"]
        distributed.give_own_share(attributes)
        return runtime

    # --- what there is to report -------------------------------------------------------------------

    def observe(self, loader: Loader) -> Observation:
        """Collects what there is to report of ``loader``, since it was made."""
        figures = self._figures(loader)
        return Observation(
            statistics=self.delivery.statistics.copied(),
            figures=figures,
            workers=loader.num_workers,
            worker_backend=loader.worker_backend,
            ahead=loader.num_workers > 0 or figures.ahead,
            path=self.delivery.path,
            device=self.delivery.device,
            normalizes=self.delivery.normalization is not None,
            auto=self._choices(loader, figures),
            headspace=self._headspace,
            describe=lambda: self.summary(loader),
            parts=lambda: self._lines_of_parts(loader),
        )

    def _figures(self, loader: Loader) -> Figures:
        """Joins the figures of all sources and of the delivery. The training loop's waiting is the last
        of the stages."""
        made = Figures()
        for source in (*reversed(self.sources), self.fallback):
            made = made.joined(source.figures(loader))
        statistics = self.delivery.statistics
        seconds, where = statistics.wait_s, "the training loop"
        waited = Stage("wait", seconds, statistics.batches, "batch", where, bound=None)
        return made.joined(self.delivery.figures()).joined(Figures(stages=(waited,)))

    def headspace(self, loader: Loader, batches: int) -> Headspace:
        headspace = Headspace(loader, batches, self.delivery.device)
        self._headspace = headspace.measured
        return headspace

    def replay(self, loader: Loader, index: int) -> dict[str, Any]:
        for source in self._every_source:
            found: dict[str, Any] | None = source.replay(index)
            if found is not None:
                return found
        raise ValueError(f"no epoch was begun on the native path: {self.summary(loader)}")

    def stats(self, loader: Loader) -> LoaderStats:
        seen = self.observe(loader)
        counted = self.delivery.stats()
        counted["stages"] = {stage.name: stage.as_dict() for stage in seen.figures.stages}
        for source in self._every_source:
            counted.update(source.stats(loader))
        if seen.auto:
            counted["auto"] = {name: choice.as_dict() for name, choice in seen.auto.items()}
        return cast(LoaderStats, counted)

    def _choices(self, loader: Loader, figures: Figures) -> dict[str, AutoChoice]:
        """Returns the choices, by the name of the argument that was "auto"."""
        choices: dict[str, AutoChoice] = {}
        begun = self._position is not None and self._position.current is not None
        if (workers := auto_workers(loader)) is not None:
            choices["num_workers"] = workers_choice(workers, begun, figures.workers)
        if (rule := self.delivery.spec.depth_rule) is not None:
            watched = self.delivery.watches_depth or figures.ahead
            depth = None if watched else self.delivery.figures().ring.get("depth")
            choices["depth"] = depth_choice(rule, begun, watched, depth, loader.num_workers)
        return choices
