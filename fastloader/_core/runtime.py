"""What a FastLoader keeps besides its arguments."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from fastloader._core.delivery.delivery import Delivery
from fastloader._core.machine.process import ProcessLock
from fastloader._core.observation.figures import LOOP, AutoChoice, Figures, Observation, Stage
from fastloader._core.observation.headspace import Measured
from fastloader._core.order import state
from fastloader._core.order.distributed.shards import AutoSharding
from fastloader._core.order.position import Position
from fastloader._core.pictures.bad_samples import ErrorPolicy
from fastloader._core.pictures.decoder import ImageSource
from fastloader._core.sources.arrays.iterator import ArrayIterator
from fastloader._core.sources.arrays.memory import ArrayMemory
from fastloader._core.sources.images.iterator import ImageIterator
from fastloader._core.sources.python.shared_slots.rings import WorkerRings
from fastloader._core.sources.python.torch_iterators import CountingIterator
from fastloader._core.tuning.tuner import ThreadTuner


class Runtime:
    """The loader's own things, in one attribute: a subclass may call its attributes what it likes, as it
    may with DataLoader. Nothing here is pickled but `carried`; a copy of a loader makes its own."""

    def __init__(
        self,
        loader: Any,
        delivery: Delivery,
        policy: ErrorPolicy,
        tuner: ThreadTuner | None,
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
        self.policy = policy
        self.tuner = tuner
        self.source: ImageSource | None = None  # kept over the epochs
        self.rings = WorkerRings()
        self.images: ImageIterator | None = None  # of the epoch begun last, for replay()
        self.arrays: ArrayIterator | None = None
        self.array_memory = ArrayMemory()
        self.torch_iterators: weakref.WeakSet[CountingIterator] = weakref.WeakSet()
        self.headspace: Measured | None = None
        self.said = ""  # the reason for the Python path that was logged last

    @property
    def position(self) -> Position:
        """Made when it is first asked for, since it looks at the loader's samplers."""
        if self._position is None:
            with self._making.lock:
                if self._position is None:
                    made = Position(self._loader())
                    if self._carried is not None:
                        state.carry_on(made, self._carried)
                    if self._position is None:  # nor made meanwhile by who asked for it in there
                        self._position = made
        return self._position

    def carried(self) -> dict[str, Any] | None:
        """What a copy of the loader knows of its epochs."""
        return self._carried if self._position is None else state.carried(self._position)

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

    def observe(self, loader: Any) -> Observation:
        """What there is to report of ``loader``, since it was made."""
        return Observation(
            statistics=self.delivery.statistics,
            figures=self._figures(loader),
            workers=loader.num_workers,
            worker_backend=loader.worker_backend,
            ahead=loader.num_workers > 0 or self.source is not None,
            path=self.delivery.path,
            device=self.delivery.device,
            normalizes=self.delivery.normalization is not None,
            auto=self.choices(loader),
            headspace=self.headspace,
            describe=loader.plan,
        )

    def _figures(self, loader: Any) -> Figures:
        """The training loop's waiting is the last of the stages."""
        made = self._of_pictures().joined(self._of_arrays()).joined(self._of_python(loader))
        statistics = self.delivery.statistics
        waited = Stage("wait", statistics.wait_s, statistics.batches, "batch", "the training loop")
        return made.joined(self._of_delivery(loader)).joined(Figures(stages=(waited,)))

    def _of_pictures(self) -> Figures:
        source = self.source
        if source is None:
            return Figures(bad_samples=self.policy.bad)
        return Figures(
            stages=tuple(self._picture_stages(source)),
            threads=source.quota.threads,
            depth=None if self.images is None else self.images.ahead,
            bytes_read=int(source.times().get("bytes", 0)),
            bad_samples=self.policy.bad,
            packed=source.files.packed,
        )

    def _picture_stages(self, source: ImageSource) -> Iterator[Stage]:
        located, batches = self.delivery.statistics.total("locate")
        if batches:
            who = "the pump" if self.delivery.path == "engine" else LOOP
            yield Stage("locate", located, batches, "batch", who)
        times = source.times()
        count = int(times.get("pictures", 0))
        if not count:
            return
        # Rows are timed on a sample of the pictures; see csrc/pipeline/stage_times.h.
        share = times["resize"] / times["looked_at"] if times["looked_at"] else 0.0
        made = [
            ("read", times["read"]),
            ("decode", times["decode"] * (1 - share)),
            ("resample", times["decode"] * share),
        ]
        if source.wish.normalization is not None:
            made.append(("normalise", times["finish"]))
        elif source.wish.planar:
            made.append(("collate", times["finish"]))
        for name, seconds in made:
            yield Stage(name, seconds, count, "picture", "decode threads", source.quota.threads)

    def _of_arrays(self) -> Figures:
        memory, arrays = self.array_memory, self.arrays
        threads = None if arrays is None else arrays.threads
        if not memory.gathered:
            return Figures(threads=threads)
        stage = Stage(
            "collate", memory.gather_s, memory.gathered, "batch", "gather threads", threads or 1
        )
        return Figures(stages=(stage,), threads=threads)

    def _of_python(self, loader: Any) -> Figures:
        workers = loader.num_workers
        return Figures(
            stages=tuple(self._python_stages(loader)),
            depth=workers * (loader.prefetch_factor or 2) if workers else None,
        )

    def _python_stages(self, loader: Any) -> Iterator[Stage]:
        workers = loader.num_workers
        if workers and loader.worker_backend == "process":
            counts = self.rings.counts
            if counts.fetched:
                who, batches = "worker processes", counts.fetched
                fetched = counts.fetch_s - counts.collate_s
                yield Stage("fetch", fetched, batches, "batch", who, workers)
                yield Stage("collate", counts.collate_s, batches, "batch", who, workers)
            return
        seconds, count = self.delivery.statistics.total("fetch")
        if count:
            where = "worker threads" if workers else LOOP
            yield Stage("fetch", seconds, count, "batch", where, max(1, workers))

    def _of_delivery(self, loader: Any) -> Figures:
        ring = self.delivery.ring_stats()
        stages = []
        if ring:
            count = int(ring["filled"])
            if ring["copied_bytes"]:
                thread = "the pump" if loader.num_workers else LOOP
                stages.append(Stage("pack", ring["pack_s"], count, "batch", thread))
            who = "the device, normalising too"
            stages.append(Stage("copy", ring["device_s"], count, "batch", who, 0))
        for name in ("copy", "normalise"):
            seconds, count = self.delivery.statistics.total(name)
            if count:
                stages.append(Stage(name, seconds, count, "batch", LOOP))
        return Figures(stages=tuple(stages), ring=ring)

    def choices(self, loader: Any) -> dict[str, AutoChoice]:
        """By the name of the argument that was "auto"."""
        choices: dict[str, AutoChoice] = {}
        delivery = self.delivery
        if self.tuner is not None:
            rule = self.tuner.rule
            number: int | None = loader.num_workers
            why = "one for each processor of this process"
            if not self.begun:
                why += ": nothing was iterated yet"
            elif self.source is not None:
                number, why = rule.threads, rule.why
            elif self.arrays is not None:
                number, why = self.arrays.threads, f"{why}; threads that gather are not watched"
            else:
                why += "; not changed while workers run"
            choices["num_workers"] = AutoChoice(number, why)
        if delivery.depth_rule is not None:
            depth: int | None = delivery.depth_rule.depth
            why = delivery.depth_rule.why
            if not self.begun:
                why = "to begin with: nothing was iterated yet"
            elif not delivery.watches_depth and self.source is None:
                depth = delivery.ring_stats().get("depth")
                why = "there are no batches made ahead, whose number would be to choose"
                if loader.num_workers > 0:
                    why = "num_workers and prefetch_factor say how many batches are made ahead"
            choices["depth"] = AutoChoice(depth, why)
        return choices
