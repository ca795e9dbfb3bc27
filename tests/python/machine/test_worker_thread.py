"""What tells worker threads to end."""

import threading

import pytest

from fastloader._core.machine.process import Stop
from support import HANG, run_script

# A signal comes at each step of `set` in turn, and its handler sets the same. With a lock that is not
# reentrant it would never end.
INTERRUPTED = """
    import signal
    import sys
    from fastloader._core.machine.process import Stop

    steps = interrupted = 0
    while interrupted == steps:
        stop, woken, left = Stop(), [], steps
        signal.signal(signal.SIGUSR1, lambda *_: stop.set())

        def step(_frame, _event, _argument):
            global left, interrupted
            left -= 1
            if left == -1:
                interrupted += 1
                signal.raise_signal(signal.SIGUSR1)

        with stop.waking(lambda: woken.append(1)):
            sys.setprofile(step)
            stop.set()
            sys.setprofile(None)
        assert stop.is_set() and woken, steps
        steps += 1
    print(steps)
"""


@pytest.mark.processes
def test_a_signal_in_the_middle_of_it():
    assert int(run_script(INTERRUPTED, timeout=HANG).stdout) > 5


def test_who_waits_is_woken():
    stop, woken, waiting = Stop(), threading.Event(), threading.Event()
    assert not stop.wait(0)
    found = []

    def wait():
        with stop.waking(woken.set):
            waiting.set()
            found.append(stop.wait(HANG))

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(HANG) and not woken.is_set()
    stop.set()
    thread.join(HANG)
    assert found == [True] and woken.is_set() and stop.is_set() and stop.wait(HANG)
    woken.clear()
    with stop.waking(woken.set):
        assert woken.is_set()
