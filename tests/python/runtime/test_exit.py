"""The end of the process, from every state: no hang, no crash, no noise, no orphan."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from support import PACKAGE_ROOT, SUPPORT, children, eventually, run_script

pytestmark = pytest.mark.covering

WORKERS = pytest.mark.parametrize("workers", [0, 2])

START = """
    import os, sys, torch
    from fastloader import FastLoader
    from support import MEAN, STD, Pictures, labels

    workers = int(sys.argv[1])
    loader = FastLoader(Pictures(40), batch_size=2, num_workers=workers, device="cpu",
                        mean=MEAN, std=STD)
"""

# What each script adds, its exit status, and the last line it writes to stderr.
ENDINGS = {
    "sys.exit in the loop": ("for batch in loader: sys.exit(7)", 7, ""),
    "exception in the loop": (
        "for batch in loader: 1 / 0",
        1,
        "ZeroDivisionError: division by zero",
    ),
    "half-used iterator": ("it = iter(loader); next(it)", 0, ""),
    "two half-used iterators": ("a = iter(loader); b = iter(loader); next(a); next(b)", 0, ""),
    "untouched iterator": ("it = iter(loader)", 0, ""),
    "used up": ("list(loader)", 0, ""),
    "kept batches": ("kept = list(loader)", 0, ""),
    "closed": ("it = iter(loader); next(it); loader.close()", 0, ""),
    "cycle": ("it = iter(loader); next(it); loop = [it]; loop.append(loop); del it, loop", 0, ""),
    "in a module": ("sys.held = (loader, iter(loader)); next(sys.held[1])", 0, ""),
    "at exit": ("import atexit; atexit.register(lambda: next(iter(loader)))", 0, None),
    "os._exit": ("it = iter(loader); next(it); os._exit(3)", 3, ""),
    "persistent": (
        "loader = FastLoader(Pictures(), num_workers=2, persistent_workers=True, device='cpu');"
        " it = iter(loader); next(it)",
        0,
        "",
    ),
}


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize("name", ENDINGS)
@WORKERS
def test_endings(way, name, workers):
    if way.name in ("streams", "pure") and "the loop" not in name and name != "half-used iterator":
        pytest.skip("no thread of ours: as on the CPU path")
    body, status, last = ENDINGS[name]
    if name == "os._exit" and workers:
        pytest.skip("torch's workers find out by themselves, in their own time")
    if name == "persistent" and not workers:
        pytest.skip("needs workers")
    source = textwrap.dedent(START) + body
    done = run_script(source, workers, env=way.env, check=False, fresh=True)
    assert done.returncode == status, done.stderr
    if last is None:  # whatever it says, it must end
        return
    if last:
        assert done.stderr.strip().splitlines()[-1] == last
        assert "Exception ignored" not in done.stderr and "leaked" not in done.stderr
    else:
        assert done.stderr == ""


FORKED_CHILD = """
    it = iter(loader)
    next(it)
    child = os.fork()
    if child == 0:
        sys.exit(0) if sys.argv[2] == "exit" else os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(it)) == 19
    print("done")
"""


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize("how", ["exit", "_exit"])
def test_a_forked_child_ends_quietly(way, how):
    source = textwrap.dedent(START) + textwrap.dedent(FORKED_CHILD)
    done = run_script(source, 0, how, env=way.env, fresh=True)
    assert done.stdout == "done\n" and done.stderr == ""


INTERRUPTED = """
    import multiprocessing, time
    never = multiprocessing.get_context("fork").Event()

    class Stuck(Pictures):
        def __getitem__(self, index):
            if index == 4:
                never.wait()
            return super().__getitem__(index)

    loader = FastLoader(Stuck(), num_workers=workers, device="cpu", mean=MEAN, std=STD)
    iterator = iter(loader)
    try:
        for batch in iterator:
            if batch[1].item() == 2:  # torch's streams keep one batch in flight
                print("waiting", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
"""


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("whole_group", [False, True], ids=["this process", "terminal"])
def test_ctrl_c_while_waiting_for_a_worker(way, workers, whole_group):
    paths = [str(PACKAGE_ROOT), str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(START) + textwrap.dedent(INTERRUPTED), str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **way.env, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "waiting\n"
        started = children(process.pid)
        assert len(started) == workers
        # The main thread sleeps in next() once nothing else is left to do.
        eventually(lambda: state(process.pid) == "S", lambda: "the main thread waits")
        begin = time.monotonic()
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - begin < 3
        _, noise = process.communicate(timeout=25)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode in (-signal.SIGINT, 130)
    assert "KeyboardInterrupt" in noise and "Exception ignored" not in noise, noise
    eventually(lambda: not any(alive(pid) for pid in started), lambda: f"{started} gone")


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def alive(pid):
    try:
        return state(pid) != "Z"
    except OSError:
        return False


@pytest.mark.processes
def test_a_daemon_thread_that_comes_back_too_late_does_not_abort():
    """Nobody may have the GIL any more. Straight into native code: torch's own functions do abort."""
    source = """
        import ctypes, threading, torch  # torch: so that the end takes its time
        from fastloader import _native
        spec = _native.NormalizeSpec(nchw=(1, 3, 64, 64), in_nhwc=True, out_nhwc=False,
                                     dtype=_native.FloatType.FLOAT32, scale=[1.0] * 3, bias=[0.0] * 3)
        memory = ctypes.create_string_buffer(spec.in_bytes + spec.out_bytes + 64)
        begin = ctypes.addressof(memory)
        running = threading.Barrier(5)
        def work():
            running.wait()
            while True:
                _native.normalize(spec, source=begin, destination=begin + spec.in_bytes)
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        running.wait()
    """
    for _ in range(3):
        assert run_script(source, fresh=True).stderr == ""


# The hook is registered before any of fastloader's, and so runs behind them.
MAIN_THREAD_FIRST = """
    import threading

    begun, over = threading.Event(), threading.Event()
    threading._register_atexit(over.set)

    def work():
        iterator = iter(loader)
        seen = [next(iterator)[1].tolist()]
        begun.set()
        assert over.wait(60)
        seen += [label.tolist() for _, label in iterator]
        assert seen == [[2 * i, 2 * i + 1] for i in range(20)], seen
        print("all of it; again:", labels(loader) == seen, flush=True)

    if workers:
        loader = FastLoader(Pictures(40), batch_size=2, num_workers=workers, device="cpu",
                            mean=MEAN, std=STD, worker_backend=sys.argv[2])
    threading.Thread(target=work).start()
    begun.wait(60)
"""


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments",
    [(0, "process"), (2, "process"), (2, "thread")],
    ids=lambda pair: f"{pair[0]} {pair[1]}",
)
def test_an_epoch_on_another_thread_outlives_the_main_thread(way, arguments):
    """As with DataLoader: the interpreter waits for its threads, and so does the loader's end."""
    source = textwrap.dedent(START) + textwrap.dedent(MAIN_THREAD_FIRST)
    done = run_script(source, *arguments, env=way.env, fresh=True)
    assert done.stdout == "all of it; again: True\n", done.stderr
    assert done.stderr == ""


# The first function is registered before any of fastloader's, and so runs behind them.
BEGUN_AT_EXIT = """
    import atexit, concurrent.futures, sys

    @atexit.register
    def left():
        print("left:", our_threads(), children(), flush=True)

    from fastloader import FastLoader
    from support import MEAN, STD, Pictures, children, our_threads

    kind, workers, earlier = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "again"

    def begin():
        held.append(iter(loader))
        print("first:", next(held[0])[1].tolist(), flush=True)

    # As if nothing had loaded it yet, which new versions of torch do.
    sys.modules.pop("concurrent.futures.thread", None)
    vars(concurrent.futures).pop("ThreadPoolExecutor", None)

    held = []
    atexit.register(begin)
    loader = FastLoader(Pictures(1000), batch_size=2, num_workers=workers, worker_backend=kind,
                        device="cpu", mean=MEAN, std=STD)
    if earlier:  # its end is registered now, and called before begin()
        next(iter(loader))
"""


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments",
    [
        ("process", 0, "again"),
        ("process", 2, "first"),
        ("thread", 2, "first"),
        ("thread", 2, "again"),
    ],
    ids=lambda each: " ".join(map(str, each)),
)
def test_an_epoch_that_begins_at_exit_ends_before_the_interpreter(way, arguments):
    """Nobody takes the second batch. What advances the source is therefore alive when the interpreter
    takes itself apart, unless the exit ends it."""
    done = run_script(BEGUN_AT_EXIT, *arguments, env=way.env, fresh=True)
    assert done.stdout == "first: [0, 1]\nleft: [] {}\n", done.stderr
    assert done.stderr == ""


ENDS_AT_EXIT = """
    import atexit
    from fastloader._core.machine import process

    def end(name):
        def call():
            print(name, flush=True)
            if name == "raises":
                raise ValueError("of an end")
        return call

    first, raises, later, last = map(end, ["first", "raises", "later", "last"])

    @atexit.register
    def begin():
        print("begins", flush=True)
        for each in (first, raises, later):
            process.at_exit(each)

    for each in (last, first):
        process.at_exit(each, last=each is last)
"""


@pytest.mark.processes
def test_what_ends_at_exit():
    """``first`` is due twice, and the others once."""
    done = run_script(ENDS_AT_EXIT, check=False, fresh=True)
    assert done.stdout.split() == ["first", "begins", "later", "raises", "first", "last"]
    assert done.stderr.strip().splitlines()[-1] == "ValueError: of an end"
