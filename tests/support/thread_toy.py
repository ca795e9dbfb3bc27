"""A source with a thread: what one has to mind that makes batches ahead of the loop.

It serves `ThreadToys` and makes no batches in slots. `ToySource` does, without a thread.
"""

import collections
from concurrent.futures import CancelledError, ThreadPoolExecutor

from torch.utils.data import default_collate
from toy import ToyPlan, ToySource

from fastloader._core.observation.statistics import LoopIterator

AHEAD = 2


class ThreadToys:
    """Pictures and their numbers."""

    def __init__(self, pictures):
        self.pictures = pictures

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.pictures[index], index


class ThreadToyIterator(LoopIterator):
    def __init__(self, dataset, index_batches, handoff):
        super().__init__(handoff.statistics if handoff.held_by_loop else None)
        self._dataset, self._index_batches = dataset, index_batches
        # Of this epoch; a forked child begins epochs of its own.
        self._maker = ThreadPoolExecutor(1)
        # Each in a tuple of its own, because a sampler may give one object twice.
        self._drawn = collections.deque()
        self._flight = collections.deque()
        # On this thread, because a pump would draw while the loop may be asking for a state.
        self._top_up()

    def _drop_begun(self):
        """Drops the index batch whose batch is in flight already."""
        if self._drawn and self._flight and self._flight[-1][0] is self._drawn[0]:
            self._drawn.popleft()

    def _top_up(self):
        self._drop_begun()  # which Ctrl-C may have prevented
        while len(self._flight) < AHEAD:
            if not self._drawn and not self._draw():
                return
            try:
                made = self._maker.submit(_make, self._dataset, self._drawn[0][0])
            except RuntimeError:  # closed meanwhile
                raise StopIteration from None
            # The index batch stays until its batch is in flight, because Ctrl-C may come in between.
            self._flight.append((self._drawn[0], made))
            self._drop_begun()

    def _draw(self):
        try:
            self._drawn.append((next(self._index_batches),))
        except StopIteration:
            return False
        except Exception as error:  # takes its batch's place
            self._drawn.append((error,))
        return True

    def _next(self):
        self._top_up()
        if not self._flight:
            raise StopIteration
        try:
            batch = self._flight[0][1].result()  # Ctrl-C leaves it there for the next call
        except CancelledError:  # closed meanwhile
            raise StopIteration from None
        except Exception:  # takes the batch's place
            self._flight.popleft()
            raise
        self._flight.popleft()
        return batch

    def leave(self):
        """Wakes a ``next()`` that waits, on whatever thread."""
        self.close()

    def close(self):
        super().close()
        self._maker.shutdown(wait=False, cancel_futures=True)


def _make(dataset, drawn):
    if isinstance(drawn, Exception):
        raise drawn
    return default_collate([dataset[index] for index in drawn])


class ThreadToyPlan(ToyPlan):
    name = "thread toys"
    fills_slots = False
    iterator = ThreadToyIterator


class ThreadToySource(ToySource):
    serves = ThreadToys
    makes = ThreadToyPlan
    where = "the toy's thread"
    depth = AHEAD


def with_toys(loader):
    """``loader``, with one more source in front of its own and one behind them."""
    runtime = loader._runtime
    runtime.sources = (ToySource(), *runtime.sources, ThreadToySource())
    return loader
