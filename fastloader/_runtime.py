"""What a FastLoader keeps besides its arguments."""

from __future__ import annotations

import weakref

from fastloader._array_iterator import ArrayIterator, ArrayMemory
from fastloader._autotune import ThreadTuner
from fastloader._delivery import Delivery
from fastloader._headspace import Measured
from fastloader._images import ErrorPolicy, ImageIterator, ImageSource
from fastloader._position import Position
from fastloader._threads import ThreadIterator
from fastloader._worker_ring import WorkerRings


class Runtime:
    """The loader's own things, in one attribute: a subclass may call its attributes what it likes, as it
    may with DataLoader. Nothing here is pickled; a copy of a loader makes its own."""

    position: Position  # made once the loader has its samplers

    def __init__(self, delivery: Delivery, policy: ErrorPolicy, tuner: ThreadTuner | None) -> None:
        self.delivery = delivery
        self.policy = policy
        self.tuner = tuner
        self.source: ImageSource | None = None  # kept over the epochs
        self.rings = WorkerRings()
        self.images: ImageIterator | None = None  # of the epoch begun last, for replay()
        self.arrays: ArrayIterator | None = None
        self.array_memory = ArrayMemory()
        self.thread_iterators: weakref.WeakSet[ThreadIterator] = weakref.WeakSet()
        self.headspace: Measured | None = None
        self.said = ""  # the reason for the Python path that was logged last
