"""torch's iterator ahead of the loop: whoever tells it to end is heard, wherever it is."""

import sys
import threading

import torch

from fastloader._core.sources.python import lookahead
from support import Pictures


class Interrupted(threading.Thread):
    """Asks for one more batch. At its line number ``at`` in the wait for the loop, ``call`` runs on this
    same thread, as a finalizer does that garbage collection comes to."""

    def __init__(self, source, at, call):
        super().__init__(daemon=True)
        self.source, self.at, self.call = source, at, call
        self.lines = 0
        self.interrupted = self.ended = False

    def run(self):
        sys.settrace(self.trace)
        try:
            next(self.source)
        except StopIteration:
            self.ended = True
        finally:
            sys.settrace(None)

    def trace(self, frame, event, _):
        if frame.f_code.co_filename not in (lookahead.__file__, threading.__file__):
            return None
        if event == "line" and self.source._owed:
            self.lines += 1
            if self.lines == self.at:
                self.interrupted = True
                sys.settrace(None)
                self.call()
        return None if self.interrupted else self.trace


def test_the_end_is_heard_in_every_line_of_the_wait():
    """Garbage collection may come to the loop's iterator on the pump's own thread, in the middle of the
    pump's wait. What it says there was lost, and the pump and its workers stayed for good."""
    workers = iter(torch.utils.data.DataLoader(Pictures(8), num_workers=1, prefetch_factor=2))
    source = lookahead.follow_loop(workers)
    next(source), next(source)  # as many as are prefetched: now the loop must take one
    line, waits = 0, False
    while not waits:
        line += 1
        source._left = False
        pump = Interrupted(source, line, source.leave)
        pump.start()
        pump.join(2)
        waits = pump.is_alive() and not pump.interrupted  # that was the last line before it sleeps
        if waits:
            source.leave()
        pump.join(20)
        assert pump.ended, f"not at line {line}"
    assert line > 3
    source._shutdown_workers()
