"""``DataLoaderX``: a FastLoader whose own source is advanced on a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from fastloader._core.order.progress import Progress
from fastloader._core.sources.python.polling import PolledIterator
from fastloader.compat.prefetch_generator.background_generator import BackgroundGenerator
from fastloader.loader import FastLoader


class _Counted(BackgroundGenerator[Any]):
    """Tells the loader what the training loop has received, for `FastLoader.state_dict`."""

    progress: Progress | None = None  # set on the iterator that the user gets

    def __next__(self) -> Any:
        if self.progress is None:
            return super().__next__()
        self.progress.check()
        try:
            batch = super().__next__()
        except StopIteration:
            self.progress.end()
            raise
        except Exception:
            self.progress.delivered()
            raise
        self.progress.delivered()
        return batch


class DataLoaderX(FastLoader[Any]):
    """The ``DataLoaderX`` of the tutorials: a DataLoader that makes the next batches on a thread while
    the training loop works, with every argument of `FastLoader` on top.

    ``max_prefetch`` (default 1): batches that wait, at most. It is of use where batches are made in
    this process (``num_workers=0``): the dataset's code then runs on another thread, and draws its
    random numbers ahead of time. The native image path needs no such thread, and has none.
    """

    def __init__(self, *args: Any, max_prefetch: int = 1, **kwargs: Any) -> None:
        self.max_prefetch = max_prefetch
        # Of the epoch begun last: how to end its thread, and the thread.
        self._background: tuple[Callable[[], Any], threading.Thread, Any] | None = None
        super().__init__(*args, **kwargs)

    def _torch_iterator(self) -> Iterator[Any]:
        if self._background is not None and self.persistent_workers:
            # There is one torch iterator for life: the thread of the last epoch must let go of it.
            end, thread, source = self._background
            end()
            if isinstance(source, PolledIterator):  # not one of a subclass's own
                source.leave()
            thread.join()
        source = super()._torch_iterator()
        made = _Counted(source, self.max_prefetch)
        self._background = (made._closing, made._thread, source)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_background": None}
