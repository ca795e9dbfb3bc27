"""What a test process has started, and the end of it: nothing outlives a test that fails, hangs or
crashes.

A test that ends by a time limit kills the program that it waits for, whose own processes, such as
the ranks of torchrun, are then nobody's. `begin` makes them children of the test process, where
`end_started` finds them. If the test process itself dies, a guardian, which is this file as a
program, ends all that bears its mark.
"""

import contextlib
import ctypes
import gc
import os
import select
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver
from pathlib import Path

# In the environment of all that a test process starts. "FASTLOADER" is not in the name, since
# scripts of the tests are started without such variables.
MARK = "STARTED_BY_TEST_PROCESS"
# What multiprocessing and torch start for themselves, and what lives as long as the process.
HELPERS = ("resource_tracker", "torch_shm_manager")
_PR_SET_CHILD_SUBREAPER = 36


def begin(grace=5):
    """Makes this process the one that its orphans come to, and starts its guardian, which gives
    what is left at the end ``grace`` seconds."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    # Started by a process that ends at once: the guardian is nobody's child that a test could count.
    guardian = [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark, str(grace)]
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    # Not with the mark that this process may have from another test process.
    env = {name: value for name, value in os.environ.items() if name != MARK}
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *guardian], check=True, env=env, **pipes
    )
    os.environ[MARK] = mark
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(pid=None):
    """{id: command line} of a process's living children, this one's by default."""
    found = {}
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    with contextlib.suppress(OSError):
                        state = (
                            Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
                        )
                        if state != "Z":
                            command = Path(f"/proc/{child}/cmdline").read_bytes()
                            found[child] = command.decode(errors="replace").replace("\0", " ")
    return found


def started():
    """The ids of what this process has started and is alive, itself or through multiprocessing's
    fork server. Its server, and the trackers of multiprocessing and torch, live as long as this
    process and are left out."""
    found = set()
    # By its number: what it has forked, and what that has forked, bears its command line.
    server = forkserver._forkserver._forkserver_pid
    for pid, command in children().items():
        if pid == server:
            found |= set(children(pid))
        elif not any(helper in command for helper in HELPERS):
            found.add(pid)
    return found


def _with_descendants(pids):
    found, look = set(), set(pids)
    while look:
        found |= look
        look = {child for pid in look for child in children(pid)} - found
    return found


def _kill(pids):
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def kill_tree(pid, seconds=20):
    """Kills a process and all that it has started, and waits until they are gone: a signal takes its
    time on a busy machine. They are stopped first, so that none starts another meanwhile."""
    found = set()
    while new := _with_descendants({pid}) - found:
        for each in new:
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGSTOP)
        found |= new
    _kill(found)
    deadline = time.monotonic() + seconds
    while any(map(alive, found)) and time.monotonic() < deadline:
        time.sleep(0.005)


def alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def end_started(before, seconds=20):
    """Kills what `started` names and is not in ``before``, with all that it has started."""
    deadline = time.monotonic() + seconds
    if not started() <= before:
        _forget_workers()
    while (left := started() - before) and time.monotonic() < deadline:
        _kill(_with_descendants(left))
        for pid in left:
            with contextlib.suppress(OSError):  # a child of the fork server, or waited for already
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def _forget_workers():
    """Torch looks for ended workers of every iterator that there is, and whenever a child ends: those
    of a test that failed, whose error holds its iterator, would fail this end and the next test."""
    dataloader = sys.modules.get("torch.utils.data.dataloader")
    if dataloader is None:  # tests/emulation/ptx runs where there is no torch
        return
    for each in gc.get_objects():
        if isinstance(each, dataloader._MultiProcessingDataLoaderIter) and each._worker_pids_set:
            dataloader._utils.signal_handling._remove_worker_pids(id(each))
            each._worker_pids_set = False


def marked(mark):
    """The processes that bear a mark."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
    return found


def guard(pid, mark, grace, seconds=20):
    """Waits for the end of the test process, then for what bears its mark. Kills that after
    ``grace`` seconds."""
    with contextlib.suppress(ProcessLookupError):
        ends = select.poll()
        ends.register(os.pidfd_open(pid), select.POLLIN)
        ends.poll()
    begun = time.monotonic()
    while (left := marked(mark)) and time.monotonic() < begun + seconds:
        if time.monotonic() > begun + grace:
            _kill(left)
        time.sleep(0.05)


if __name__ == "__main__":
    guard(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
