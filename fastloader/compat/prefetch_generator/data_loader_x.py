"""``DataLoaderX``: a FastLoader whose own source is advanced on a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from fastloader._core.order.progress import Progress
from fastloader._core.sources.python.iterators import WorkerIterator
from fastloader.compat.prefetch_generator.background_generator import BackgroundGenerator
from fastloader.loader import FastLoader


class _Counted(BackgroundGenerator[Any]):
    """Tells the loader what the training loop has received, for `FastLoader.state_dict`."""

    progress: Progress | None = None  # set on the iterator that the loop holds

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
            self.progress.delivered(came=False)
            raise
        self.progress.delivered()
        return batch


class DataLoaderX(FastLoader[Any]):
    """The ``DataLoaderX`` of the tutorials: a DataLoader that makes the next batches on a thread while
    the training loop works. It also takes every argument of `FastLoader`.

    ``max_prefetch`` (default 1) is how many batches may wait. The class is of use if batches are made
    in this process (``num_workers=0``). The dataset's code then runs on another thread, and draws its
    random numbers ahead of time. The native image path does not need such a thread, and does not have
    one.
    """

    def __init__(self, *args: Any, max_prefetch: int = 1, **kwargs: Any) -> None:
        self.max_prefetch = max_prefetch
        # What ends the thread of the epoch begun last, that thread, and its source.
        self._background: tuple[Callable[[], Any], threading.Thread, Any] | None = None
        super().__init__(*args, **kwargs)

    def _torch_iterator(self) -> Iterator[Any]:
        if self._background is not None and self.persistent_workers:
            # The thread of the last epoch must let go of torch's iterator, which is the only one for
            # life.
            end, thread, source = self._background
            end()
            if isinstance(source, WorkerIterator):  # a subclass may have made another kind
                source.leave()
            thread.join()
        source = super()._torch_iterator()
        made = _Counted(source, self.max_prefetch)
        self._background = (made._closing, made._thread, source)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_background": None}
