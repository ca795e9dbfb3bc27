"""An iterator over batches that a training loop may hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastloader._core.observation.statistics import LeftOut
from fastloader._core.order.progress import Progress


class BatchIterator(Iterator[Any]):
    """What its class has to give is `_take`."""

    progress: Progress | None = None  # set on the iterator that the user gets
    _closed = False
    _took = True

    def __next__(self) -> Any:
        while True:
            try:
                return self._take()
            except LeftOut:
                if self.progress is None:  # who takes the batch further counts
                    raise

    def _take(self) -> Any:
        """The next batch. Raises LeftOut in the place of one that is not to be delivered."""
        raise NotImplementedError

    def __reduce__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")
