"""Workers that die, exceptions of every kind and Ctrl-C: as DataLoader reports them, within seconds, and
nothing is left behind. Most of it in processes of its own: torch raises the death of a worker in the
main thread, wherever that is."""

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch
from side_by_side import Numbers, batches, same_for_both
from ways import WAYS

from support import HANG, PACKAGE_ROOT, SUPPORT, begun_at, children, eventually

pytestmark = pytest.mark.covering

WORKERS = pytest.mark.parametrize("workers", [0, 2])
HOWS = ("none", "cpu", "twin", "streams")
HOW = pytest.mark.parametrize("how", ("torch", *HOWS))

START = """
    import json, multiprocessing, os, signal, sys, time
    import torch
    from torch.utils.data import DataLoader
    import fastloader._core.sources.python.iterators
    from fastloader import FastLoader
    from side_by_side import Numbers, described
    from support import MEAN, STD, children

    torch.set_num_threads(1)
    torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.3  # how long dead iterators wait for workers
    fork = multiprocessing.get_context("fork")
    gate = fork.Event()

    def make(dataset, **options):
        if sys.argv[1] == "torch":
            return DataLoader(dataset, **options)
        if sys.argv[1] == "none":
            return FastLoader(dataset, **options)
        return FastLoader(dataset, device="cpu", mean=MEAN, std=STD, **options)

    def say(**what):
        print(json.dumps(what), flush=True)
"""


def start(how, body, *arguments):
    paths = [str(PACKAGE_ROOT), str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment.update(WAYS[how].env if how in WAYS else {})
    source = textwrap.dedent(START) + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", source, how, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


@contextlib.contextmanager
def running_script(how, body, *arguments):
    """Whatever happens, none of its processes is left to the next test; that none is left when
    it ends by itself is for the test to say."""
    before = set(os.listdir("/dev/shm"))
    process = start(how, body, *arguments)
    try:
        yield process
        # torch's manager of shared memory is a child of its own and unlinks behind the process.
        eventually(
            lambda: (
                not [
                    each
                    for each in set(os.listdir("/dev/shm")) - before
                    if str(process.pid) in each
                ]
            ),
            lambda: f"nothing of {process.pid} left in /dev/shm: {os.listdir('/dev/shm')}",
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def heard(process):
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return json.loads(line)


DYING = """
    class Dying(Numbers):
        def __getitem__(self, index):
            if index == 3:
                gate.wait()  # until the batches before it have arrived
                if sys.argv[2] == "exit":
                    os._exit(7)
                os.kill(os.getpid(), int(sys.argv[2]))
            return super().__getitem__(index)

    # torch's signal handler and its look at the workers tell of a death; whichever is first takes it
    # from the system. torch itself looks after 5 s without a batch only.
    if sys.argv[3] == "look":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    elif sys.argv[1] == "torch":
        kind = torch.utils.data.dataloader._MultiProcessingDataLoaderIter
        kind._try_get_data.__defaults__ = (1000,)
    else:
        fastloader._core.sources.python.iterators._TURN = 1000

    iterator = iter(make(Dying(8), num_workers=1))
    pid = iterator._workers[0].pid
    count = 0
    try:
        for batch in iterator:
            count += 1
            if count == 3:
                gate.set()
    except RuntimeError as error:
        say(told=[str(each).replace(str(pid), "PID") for each in (error, error.__cause__)], count=count)
    del iterator
    say(left=len(children()))
    os._exit(0)  # torch may tell it once more while the interpreter ends
"""


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize(
    "how, death",
    [
        *((how, death) for how in ("torch", *HOWS) for death in ("SIGKILL", "exit")),
        *((how, death) for how in ("none", "twin") for death in ("SIGSEGV", "SIGBUS", "SIGTERM")),
    ],
)
@pytest.mark.parametrize("first", ["handler", "look"])
def test_the_death_of_a_worker(how, death, first):
    if how == "torch" and first == "look":
        pytest.skip("torch cannot tell how the worker died then")
    with running_script(how, DYING, int(getattr(signal, death, 0)) or death, first) as process:
        begun = time.monotonic()
        said = heard(process)
        assert time.monotonic() - begun < 30
        wanted = {
            "exit": "DataLoader worker (pid PID) exited unexpectedly with exit code 7. ",
            "SIGKILL": "DataLoader worker (pid PID) is killed by signal: Killed. ",
            "SIGSEGV": "DataLoader worker (pid PID) is killed by signal: Segmentation fault. ",
            "SIGBUS": "DataLoader worker (pid PID) is killed by signal: Bus error. ",
            "SIGTERM": "DataLoader worker (pid PID) is killed by signal: Terminated. ",
        }[death]
        error, cause = said["told"]
        if (
            how == "twin"
        ):  # the queue is asked on a thread of ours: torch's handler interrupts only us
            assert error.startswith(wanted), said
        else:
            # Torch catches what its signal handler raises in the middle of a get, and raises from it.
            assert error == "DataLoader worker (pid(s) PID) exited unexpectedly", said
            assert cause.startswith(wanted), said
        assert said["count"] == 3  # what came before the death is not lost
        assert heard(process) == {"left": 0}
        assert process.wait(timeout=HANG) == 0


ORPHANS = """
    loader = make(Numbers(2000), num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    for _ in range(2):  # one of each worker: both have seen their parent
        next(iterator)
    say(workers=list(children()))
    time.sleep(60)
"""

LATE_ORPHANS = """
    parent = os.getpid()

    def begin_late(worker):
        while os.getppid() == parent:
            time.sleep(0.01)

    loader = make(
        Numbers(2000), num_workers=2, worker_init_fn=begin_late
    )
    iterator = iter(loader)
    say(workers=list(children()))
    time.sleep(60)
"""


@pytest.mark.exhaustive
@pytest.mark.processes
@HOW
def test_workers_do_not_outlive_a_killed_process(how):
    with running_script(how, ORPHANS) as process:
        workers_end_after_a_kill(process)


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize("how", HOWS)
def test_nor_does_a_worker_that_begins_after_its_parents_death(how):
    """Better than torch, whose watchdog takes the adopting process for the parent."""
    with running_script(how, LATE_ORPHANS) as process:
        workers_end_after_a_kill(process)


def workers_end_after_a_kill(process):
    workers = heard(process)["workers"]
    assert len(workers) == 2
    born = {each: begun_at(each) for each in workers}
    process.kill()
    process.wait()
    # They look every five seconds, and not as soon as that on a busy machine.
    eventually(
        lambda: not any(begun_at(each) == when for each, when in born.items()),
        lambda: f"{workers} gone",
        seconds=HANG,
    )


INTERRUPTED = """
    class Stuck(Numbers):
        def __getitem__(self, index):
            if index == 3:
                gate.wait()
            return super().__getitem__(index)

    iterator = iter(make(Stuck(8), num_workers=2, timeout=float(sys.argv[2])))
    try:
        for batch in iterator:
            if batch[1].item() == 2:
                say(waiting=list(children()))
    except KeyboardInterrupt:
        say(interrupted=True)
        raise
"""


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize(
    "how, timeout",
    [("torch", 0), ("none", 0), ("cpu", 0), ("twin", 0), ("twin", 50), ("streams", 50)],
)
def test_ctrl_c(how, timeout):
    with running_script(how, INTERRUPTED, timeout) as process:
        workers = {each: begun_at(each) for each in heard(process)["waiting"]}
        time.sleep(0.2)  # into the wait, where a time-out changes how it is waited
        begun = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        assert heard(process) == {"interrupted": True}
        assert time.monotonic() - begun < 5
        _, noise = process.communicate(timeout=HANG)
        assert process.returncode in (-signal.SIGINT, 130) and "KeyboardInterrupt" in noise
        # They look every five seconds, and not as soon as that on a busy machine.
        eventually(
            lambda: not any(begun_at(each) == when for each, when in workers.items()),
            lambda: f"{workers} gone",
            seconds=HANG,
        )


# --- exceptions ------------------------------------------------------------------------------------


class KeywordOnly(Exception):
    def __init__(self, *, code):
        super().__init__(code)


class Two(Exception):
    def __init__(self, message, extra):
        super().__init__(message, extra)
        self.extra = extra


class Unpicklable(Exception):
    def __init__(self):
        super().__init__("not for pickle")
        self.held = lambda: None


class Odd(Exception):
    def __str__(self):
        raise ZeroDivisionError("even str() fails")


KINDS = {
    "ValueError": lambda: ValueError("plain"),
    "KeyError": lambda: KeyError("new\nline"),
    "KeyError of a tuple": lambda: KeyError((1, 2)),
    "no arguments": lambda: IndexError(),
    "keyword only": lambda: KeywordOnly(code=3),
    "two": lambda: Two("a", "b"),
    "unpicklable": lambda: Unpicklable(),
    "OSError": lambda: PermissionError(13, "denied", "file.jpg"),
    "CalledProcessError": lambda: subprocess.CalledProcessError(2, "cmd"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    "JSONDecodeError": lambda: json.JSONDecodeError("bad", "{", 1),
    "MemoryError": lambda: MemoryError(),
    "AssertionError": lambda: AssertionError("no"),
    "OutOfMemoryError": lambda: torch.OutOfMemoryError("on the device"),
}


class Failing(Numbers):
    """Every second sample raises, each an exception of another kind."""

    def __init__(self):
        super().__init__(2 * len(KINDS))

    def __getitem__(self, index):
        if index % 2:
            raise list(KINDS.values())[index // 2]()
        return super().__getitem__(index)


@pytest.mark.exhaustive
@WORKERS
def test_exceptions_of_every_kind(fast, workers):
    """In order, with type and text, and the batches after them."""

    def scenario(make):
        loader = make(Failing(), num_workers=workers)
        return [*batches(loader), *batches(loader)]

    assert len(same_for_both(fast, scenario)) == 4 * len(KINDS)


class Hostile:
    """Everything it is asked for fails."""

    def __init__(self, where):
        self.where = where

    def __len__(self):
        if self.where == "len":
            raise OverflowError("len")
        return 4

    def __getitem__(self, index):
        if self.where == "getitem":
            raise RuntimeError("getitem")
        return Numbers()[index]

    def __getitems__(self, indices):
        if self.where == "getitems":
            raise NotImplementedError("getitems")
        return [self[index] for index in indices]


def bad_collate(samples):
    raise TypeError("collate")


@WORKERS
@pytest.mark.parametrize("where", ["len", "getitem", "getitems", "collate", "wrong length"])
def test_exceptions_in_every_place(fast, where, workers):
    def scenario(make):
        dataset = Hostile(where)
        if where == "wrong length":
            dataset.__class__ = type("Short", (Hostile,), {"__getitems__": lambda s, i: []})
        options = {"collate_fn": bad_collate} if where == "collate" else {}
        try:
            return batches(make(dataset, batch_size=2, num_workers=workers, **options))
        except Exception as error:
            return type(error), str(error)

    same_for_both(fast, scenario)


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [2])
def test_an_exception_and_then_an_early_end(fast, workers):
    """No process stays for an iterator that raised and was dropped."""
    loader = fast(Failing(), num_workers=workers)
    for _ in range(2):
        with pytest.raises(ValueError):
            list(loader)
    # The traceback from a worker leads to torch's iterator and back.
    eventually(lambda: gc.collect() >= 0 and not children(), lambda: f"{children()} gone")


class Fails(Numbers):
    def __getitem__(self, index):
        if index == 1:
            raise ValueError("no such picture")
        return super().__getitem__(index)


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 1])
def test_the_text_of_an_error_to_the_letter(fast, workers):
    """No other exception is named as what was being handled, in the worker's traceback or here."""

    def scenario(make):
        iterator = iter(make(Fails(3), num_workers=workers))
        next(iterator)
        with pytest.raises(ValueError) as caught:
            next(iterator)
        return [str(caught.value), caught.value.__context__, caught.value.__cause__]

    text = same_for_both(fast, scenario)[0]
    assert "During handling" not in text
    assert "no such picture" in text
