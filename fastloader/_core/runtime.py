"""What one loader has running."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from typing import Any

from fastloader._core.delivery.delivery import Delivery
from fastloader._core.handoff import Plan, Source
from fastloader._core.machine import extension
from fastloader._core.machine.process import ProcessLock
from fastloader._core.observation.figures import AutoChoice, Figures, Observation, Stage
from fastloader._core.observation.headspace import Measured
from fastloader._core.order import trainers
from fastloader._core.order.distributed.shards import AutoSharding
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.loader import AutoWorkers, Loader
from fastloader._core.order.position import Position
from fastloader._core.order.states.state import carried, carry_on
from fastloader._core.order.trainers import NextEpoch
from fastloader._core.pictures.bad_samples import ErrorPolicy
from fastloader._core.sources.arrays.source import ArraySource
from fastloader._core.sources.fallback import holds_pictures, warn_of_python_path
from fastloader._core.sources.images.source import ImageSource
from fastloader._core.sources.python.source import PythonSource
from fastloader.errors import NotNative

_log = logging.getLogger("fastloader")

# The first half of what `plan` says is the source's; this is the delivery's.
_DELIVERED = {
    "torch": "delivered as they are",
    "cpu": "on the CPU",
    "engine": "delivered to {device} by the native prefetch thread",
    "streams": "delivered to {device} through torch's streams",
}


class Runtime:
    """Threads, memory and counters of one loader, in one attribute: a subclass may call its attributes
    what it likes, as it may with DataLoader. Nothing here is pickled but `carried`; a copy of a loader
    makes its own. It does not hold the loader, so that a dropped loader ends at once."""

    def __init__(
        self,
        loader: Loader,
        delivery: Delivery,
        policy: ErrorPolicy,
        sharding: AutoSharding | None,
    ) -> None:
        self._loader = weakref.ref(loader)
        self._position: Position | None = None
        self._carried: dict[str, Any] | None = None  # from the loader that this one is a copy of
        # Guards that there is one position, whoever asks first. Reentrant: a subclass's samplers, which
        # it looks at, and signal handlers may ask for it while it is made.
        self._making = ProcessLock()
        self.sharding = sharding  # with distributed="auto"
        self.delivery = delivery
        self.arrays = ArraySource(delivery.statistics)
        self.images = ImageSource(delivery.statistics, policy)
        self.python = PythonSource(delivery.statistics)
        # They are asked in this order; what none of them serves is Python's.
        self.native: tuple[Source, ...] = (self.arrays, self.images)
        self.headspace: Measured | None = None
        self.said = ""  # the reason for the Python path that was logged last

    # --- the order ---------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Made when it is first asked for, since it looks at the loader's samplers."""
        if self._position is None:
            with self._making.lock:
                if self._position is None:
                    loader = self._loader()
                    assert loader is not None  # whoever asks holds it
                    made = Position(loader)
                    if self._carried is not None:
                        carry_on(made, self._carried)
                    if self._position is None:  # nor made meanwhile by who asked for it in there
                        self._position = made
        return self._position

    def carried(self) -> dict[str, Any] | None:
        """What a copy of the loader knows of its epochs."""
        return self._carried if self._position is None else carried(self._position)

    def carry_on(self, carried: dict[str, Any] | None) -> None:
        """For the position that will be made."""
        self._carried = carried

    @property
    def begun(self) -> bool:
        """Whether there was an epoch."""
        return self._position is not None and self._position.current is not None

    def beginning(self) -> Position | None:
        """The position while ``iter()`` makes an epoch's iterator."""
        return self._position if self._position is not None and self._position.beginning else None

    def forget_seed(self) -> None:
        """The workers that were begun with it have ended."""
        if self._position is not None:
            self._position.last_seed = None

    # --- an epoch ----------------------------------------------------------------------------------

    def iterate(self, loader: Loader) -> Any:
        """What ``iter()`` gives."""
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
            self.delivery.spec.settle()
            trainers.follow_count(position, trainers.fabrics_epoch(loader))
            with position.begin(loader):
                iterator = self._iterate(loader, EpochOrder(position, loader))
            # A subclass may make an iterator of any kind, which does not count.
            if hasattr(iterator, "progress"):
                iterator.progress = position.current
            else:
                position.uncounted()
            return iterator

    def _iterate(self, loader: Loader, order: EpochOrder) -> Iterator[Any]:
        plan, reason = self._planned(loader)
        # Not where the refusal was caught: errors of workers forked there would name it as their
        # context.
        if reason:
            _refuse_image_options(loader, reason)
            self._say(loader, reason)
        return self.delivery.begin(plan, order)

    def _planned(self, loader: Loader) -> tuple[Plan, str]:
        """The plan of the next epoch; and why it is Python's, if it is."""
        reason = "native=False"
        wanted = self.delivery.normalization
        try:
            for source in self.native if loader.native else ():
                plan = source.plan(loader, wanted)
                if plan is not None:
                    return plan, ""
        except NotNative as refusal:
            reason = str(refusal)
        return self.python.plan(loader, wanted, reason), reason

    def _say(self, loader: Loader, reason: str) -> None:
        """Once, not at every epoch."""
        if reason != self.said:
            self.said = reason
            _log.info("fastloader: Python path: %s", reason)
            if loader.native and extension.load() is not None and holds_pictures(loader.dataset):
                warn_of_python_path(reason)

    def plan(self, loader: Loader) -> str:
        plan, _ = self._planned(loader)
        delivered = _DELIVERED[self.delivery.path].format(device=self.delivery.device)
        return f"{plan}; batches are {delivered}"

    def is_native(self, loader: Loader) -> bool:
        """Whether no worker of torch's makes the batches of the next epoch."""
        return not self._planned(loader)[1]

    def forget_workers(self, loader: Loader) -> None:
        """The persistent workers, and those that torch would have, begin anew."""
        loader._iterator = None
        self.arrays.forget_seed()

    def close(self, loader: Loader) -> None:
        self.delivery.close()
        self.python.end_iterators()
        if loader.persistent_workers:
            self.forget_workers(loader)
            self.forget_seed()
        self.python.rings.close()

    # --- what there is to report -------------------------------------------------------------------

    def observe(self, loader: Loader) -> Observation:
        """What there is to report of ``loader``, since it was made."""
        return Observation(
            statistics=self.delivery.statistics,
            figures=self._figures(loader),
            workers=loader.num_workers,
            worker_backend=loader.worker_backend,
            ahead=loader.num_workers > 0 or self.images.decoder is not None,
            path=self.delivery.path,
            device=self.delivery.device,
            normalizes=self.delivery.normalization is not None,
            auto=self._choices(loader),
            headspace=self.headspace,
            describe=lambda: self.plan(loader),
        )

    def _figures(self, loader: Loader) -> Figures:
        """The training loop's waiting is the last of the stages."""
        made = Figures()
        for source in (*reversed(self.native), self.python):
            made = made.joined(source.figures(loader))
        statistics = self.delivery.statistics
        waited = Stage("wait", statistics.wait_s, statistics.batches, "batch", "the training loop")
        return made.joined(self.delivery.figures()).joined(Figures(stages=(waited,)))

    def stats(self, loader: Loader) -> dict[str, Any]:
        seen = self.observe(loader)
        counted = self.delivery.stats()
        counted["stages"] = {stage.name: stage.as_dict() for stage in seen.figures.stages}
        for source in (self.python, *reversed(self.native)):
            counted.update(source.stats(loader))
        if seen.auto:
            counted["auto"] = {name: choice.as_dict() for name, choice in seen.auto.items()}
        return counted

    def _choices(self, loader: Loader) -> dict[str, AutoChoice]:
        """By the name of the argument that was "auto"."""
        choices: dict[str, AutoChoice] = {}
        if isinstance(loader.num_workers, AutoWorkers):
            choices["num_workers"] = self._workers_choice(loader)
        rule = self.delivery.spec.depth_rule
        if rule is not None:
            depth: int | None = rule.depth
            why = rule.why
            if not self.begun:
                why = "to begin with: nothing was iterated yet"
            elif not self.delivery.watches_depth and self.images.decoder is None:
                depth = self.delivery.figures().ring.get("depth")
                why = "there are no batches made ahead, whose number would be to choose"
                if loader.num_workers > 0:
                    why = "num_workers and prefetch_factor say how many batches are made ahead"
            choices["depth"] = AutoChoice(depth, why)
        return choices

    def _workers_choice(self, loader: Loader) -> AutoChoice:
        number, why = int(loader.num_workers), "one for each processor of this process"
        if not self.begun:
            return AutoChoice(number, f"{why}: nothing was iterated yet")
        tuner = self.images.tuner(loader.num_workers)
        if self.images.decoder is not None and tuner is not None:
            return AutoChoice(tuner.rule.threads, tuner.rule.why)
        if self.arrays.last is not None:
            return AutoChoice(
                self.arrays.last.threads, f"{why}; threads that gather are not watched"
            )
        return AutoChoice(number, f"{why}; not changed while workers run")


def _refuse_image_options(loader: Loader, reason: str) -> None:
    """Raises ValueError for what only pictures on the native path know."""
    asked = [
        f"{name}={value!r}"
        for name, value, usual in (
            ("decode", loader.decode, "exact"),
            ("truncated", loader.truncated, "error"),
            ("on_error", loader.on_error, "raise"),
        )
        if value != usual
    ]
    if asked:
        raise ValueError(
            f"{' and '.join(asked)}: for pictures on the native path, and this dataset takes "
            f"the Python path: {reason}"
        )
