"""What a FastLoader keeps besides its arguments."""

from __future__ import annotations

import weakref
from typing import Any

from fastloader._core.delivery.delivery import Delivery
from fastloader._core.machine.process import ProcessLock
from fastloader._core.observation.headspace import Measured
from fastloader._core.order.position import Position
from fastloader._core.order.shards import AutoSharding
from fastloader._core.sources.arrays.iterator import ArrayIterator, ArrayMemory
from fastloader._core.sources.images.iterator import ErrorPolicy, ImageIterator, ImageSource
from fastloader._core.sources.python.shared_slots.rings import WorkerRings
from fastloader._core.sources.python.torch_iterators import CountingIterator
from fastloader._core.tuning.threads import ThreadTuner


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
                        made.carry_on(self._carried)
                    if self._position is None:  # nor made meanwhile by who asked for it in there
                        self._position = made
        return self._position

    def carried(self) -> dict[str, Any] | None:
        """What a copy of the loader knows of its epochs."""
        return self._carried if self._position is None else self._position.carried()

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
