"""torch's iterator ahead of the loop: whoever tells it to end is heard, wherever it is."""

import gc
import sys
import threading
import weakref

import pytest
import torch

from fastloader import FastLoader
from fastloader._core.sources.python import lookahead
from support import Pictures, run_script


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
        workers._left = False
        pump = Interrupted(source, line, source.leave)
        pump.start()
        pump.join(2)
        waits = pump.is_alive() and not pump.interrupted  # that was the last line before it sleeps
        if waits:
            source.leave()
        pump.join(20)
        assert pump.ended, f"not at line {line}"
    assert line > 3
    workers._shutdown_workers()


@pytest.mark.parametrize("make", [torch.utils.data.DataLoader, FastLoader])
def test_an_iterator_keeps_its_class_and_nothing_keeps_the_iterator(make):
    """Frameworks ask for the class of torch's iterator, and its workers end with the last reference."""
    loader = make(Pictures(8), num_workers=1)
    workers = iter(loader)
    kind = type(workers)
    source = lookahead.follow_loop(workers)
    assert len([next(source)]) == 1 and type(workers) is kind
    processes, known = list(workers._workers), weakref.ref(workers)
    gc.disable()
    try:
        source.leave()
        del workers, source
        assert known() is None
    finally:
        gc.enable()
    for process in processes:
        process.join(10)
        assert not process.is_alive()


def is_of_lookahead(value):
    return getattr(value, "__module__", None) == lookahead.__name__


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("make", [torch.utils.data.DataLoader, FastLoader])
def test_the_next_epoch_of_persistent_workers_has_torchs_iterator_again(make, dropped):
    loader = make(Pictures(6), num_workers=1, persistent_workers=True, timeout=7)
    workers = iter(loader)
    source = lookahead.follow_loop(workers)
    assert any(map(is_of_lookahead, vars(workers).values()))
    assert source.hand_over_timeout() == 7 and workers._timeout == 0
    next(source), next(source)
    source.leave()
    if dropped:
        source = None
    for _ in range(2):
        assert len(list(loader)) == 6 and iter(loader) is workers
    ours = [each for each in vars(workers).values() if is_of_lookahead(each)]
    assert not ours and workers._timeout == 7
    if not dropped:
        with pytest.raises(StopIteration):
            next(source)
    workers._shutdown_workers()


@pytest.mark.processes
def test_a_forked_child_leaves_the_workers_of_a_plain_loader_alone():
    """torch's own iterator, dropped there, tells them to end."""
    script = """
        import gc, os
        from torch.utils.data import DataLoader
        from fastloader._core.sources.python.lookahead import follow_loop
        workers = iter(DataLoader(range(4), num_workers=1))
        kept = [workers]
        kept.append(kept)  # so that the garbage collector finds it, not the end of the last reference
        source = follow_loop(workers)
        next(source)
        child = os.fork()
        if child == 0:
            del workers, source, kept
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        print(workers._workers_done_event.is_set())
    """
    done = run_script(script)
    assert done.stdout == "False\n", done.stderr
