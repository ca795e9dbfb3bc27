"""What several test files share: small datasets, comparisons, and looking at this process."""

import contextlib
import ctypes
import gc
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping
from multiprocessing import forkserver
from pathlib import Path

import descendants
import emulated_cuda
import pytest
import torch
import warm
from descendants import alive as alive
from torch.utils.data import Dataset, IterableDataset

SUPPORT = Path(__file__).resolve().parent  # where helper modules lie
PROCESSES = SUPPORT / "processes"  # in PYTHONPATH of processes that import torchvision
PACKAGE_ROOT = SUPPORT.parents[1]

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def require_program(name):
    """Skips without a program that only the tests need."""
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}, which is not on PATH (Debian: apt-get install {name})")


def random_images(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def generator(seed):
    return torch.Generator().manual_seed(seed)


class Pictures(Dataset):
    """``count`` random pictures with their index as label."""

    def __init__(self, count=12, size=(5, 7), channels=3, seed=0):
        self.images = random_images(seed, count, channels, *size)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], index


class Stream(IterableDataset):
    """The same pictures as an iterable, split over workers."""

    def __init__(self, count=12, seed=0):
        self.pictures = Pictures(count, seed=seed)

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        for index in range(first, len(self.pictures), step):
            yield self.pictures[index]


def expected(images, mean=MEAN, std=STD):
    """What torchvision gives, in float64."""
    shape = (1, -1, 1, 1)
    means, stds = (torch.tensor(v, dtype=torch.float64).reshape(shape) for v in (mean, std))
    return (images.double() / 255 - means) / stds


def same(got, wanted):
    """Equal to the bit, in type, shape and container."""
    assert type(got) is type(wanted), (type(got), type(wanted))
    if isinstance(wanted, torch.Tensor):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        assert torch.equal(got, wanted)
    elif isinstance(wanted, Mapping):
        assert list(got) == list(wanted)
        for key in wanted:
            same(got[key], wanted[key])
    elif isinstance(wanted, list | tuple):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted):
            same(one, other)
    else:
        assert got == wanted


def labels(loader):
    return [batch[1].tolist() for batch in loader]


# --- this process -------------------------------------------------------------------------------


def named_threads(pid="self"):
    """{tid: name} of all threads, as the kernel has them."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found[int(task.name)] = (task / "comm").read_text().strip()
    return found


def native_threads(pid="self"):
    """{tid: name} of the threads that the kernel knows by one of our names."""
    ours = ("fl-prefetch", "fl-reaper", "fl-twin")
    return {tid: name for tid, name in named_threads(pid).items() if name.startswith(ours)}


def ring_threads():
    """Ids of the threads that a loader ends in close(). The twin's streams, which a GPU has no
    threads for, live as long as their engine."""
    return {tid for tid, name in native_threads().items() if not name.startswith("fl-twin")}


def our_threads():
    """Names of the threads that fastloader runs in this process."""
    pumps = [each.name for each in threading.enumerate() if each.name.startswith("fastloader-")]
    return sorted(native_threads().values()) + pumps


def running():
    """What a loader may have started: ids of native threads, Python threads, child processes."""
    pumps = {each.ident for each in threading.enumerate() if each.name.startswith("fastloader-")}
    return {*native_threads(), *pumps, *children()}


_SERVER = "multiprocessing.forkserver"


def children(pid=None):
    """{pid: command line} of the living child processes, those of torch's resource and shared
    memory managers and multiprocessing's fork server aside, which live as long as the process."""
    pid = pid or os.getpid()
    here = pid == os.getpid()
    # What a fork server has started has its command line, and so have the children of that: this
    # process knows its own server by the number.
    forked = here or _SERVER in Path(f"/proc/{pid}/cmdline").read_text()
    server = forkserver._forkserver._forkserver_pid if here else None
    return {
        child: command
        for child, command in descendants.children(pid).items()
        if not any(helper in command for helper in descendants.HELPERS)
        and child != server
        and (forked or _SERVER not in command)
    }


def begun_at(pid):
    """When the process began, in ticks, None once it is gone. Numbers come again within seconds where
    many threads are made, since those are numbered with the processes: number and time together tell."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    return None


def eventually(condition, what, seconds=20):
    """Waits for a condition that must come true by itself; fails loudly if it does not."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds} s still not: {what()}")
        time.sleep(0.005)


def forget_forks():
    """The descriptor that marks a fork is closed at the next fork after its children have ended. Behind
    this one, one mark is left: its own."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def nothing_left_running(before=frozenset()):
    """Allows what is ending to end. A pump may hold what it then leaves in a reference cycle, so
    collecting once is not enough."""

    def only_before():
        if running() <= before:
            return True
        gc.collect()
        return False

    eventually(only_before, lambda: f"threads {our_threads()} and processes {children()} gone")


def require_hooks():
    """Skips where the native module has nothing that makes the twin or the disk slow or faulty."""
    from fastloader._core.machine import extension

    native = extension.load()
    if native is not None and not native.__test_hooks__:
        pytest.skip("the native module was compiled without FASTLOADER_TEST_HOOKS, as a wheel's is")


def resident_bytes():
    # What malloc keeps for the next tensor is not what anybody holds.
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# Seconds until a program that a test has started counts as hanging: what ends at all on a busy machine
# has ended by then.
HANG = 300


def script_environment():
    """The environment of a program that a test starts: without fastloader's variables but the one by
    which ranks keep account of their samples, and with the tests' helpers on Python's path."""
    variables = {key: value for key, value in os.environ.items() if "FASTLOADER" not in key}
    paths = [str(PACKAGE_ROOT), str(SUPPORT), str(PROCESSES), variables.get("PYTHONPATH", "")]
    python_path = os.pathsep.join(filter(None, paths))
    return variables | {"PYTHONPATH": python_path, "FASTLOADER_AUDIT": "1"}


def run_script(source, *arguments, env=None, timeout=HANG, check=True, fresh=False):
    """Runs Python source in a process of its own, which is a warm interpreter (see `warm`) unless
    ``fresh`` asks for another or ``env`` has what Python reads at its start. Returns the
    CompletedProcess, with text."""
    variables = script_environment() | (env or {})
    source = textwrap.dedent(source)
    early = [name for name in env or () if not name.startswith("FASTLOADER")]
    if fresh or early or emulated_cuda.wanted():
        done = subprocess.run(
            [sys.executable, "-c", source, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=variables,
            check=False,
        )
    else:
        done = warm.Program(source, arguments, variables).wait(timeout)
    if check:
        assert done.returncode == 0, done.stderr
    return done
