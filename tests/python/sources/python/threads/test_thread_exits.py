"""worker_backend="thread": the process may end, be interrupted or fork in the middle of an epoch."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from support import PACKAGE_ROOT, SUPPORT, run_script

START = """
    import os, sys, threading, torch, warnings
    warnings.filterwarnings("ignore")
    from fastloader import FastLoader

    never = threading.Event()

    class Data(torch.utils.data.Dataset):
        stuck = None
        def __len__(self):
            return 40
        def __getitem__(self, index):
            if index == self.stuck:
                print("waiting", flush=True)
                never.wait(float(sys.argv[1]))
            return index

    loader = FastLoader(Data(), num_workers=2, worker_backend="thread")
"""

ENDINGS = {
    "half used": ("it = iter(loader); next(it)", 0),
    "untouched": ("it = iter(loader)", 0),
    "in a module": ("sys.held = (loader, iter(loader)); next(sys.held[1])", 0),
    "exit in the loop": ("for batch in loader: sys.exit(7)", 7),
    "persistent": (
        "loader = FastLoader(Data(), num_workers=2, worker_backend='thread',"
        " persistent_workers=True); it = iter(loader); next(it)",
        0,
    ),
    "busy": ("Data.stuck = 3; it = iter(loader); print(len([next(it), next(it), next(it)]))", 0),
}


@pytest.mark.processes
@pytest.mark.parametrize("name", ENDINGS)
def test_the_process_ends(name):
    body, status = ENDINGS[name]
    done = run_script(textwrap.dedent(START) + body, 1, check=False, fresh=True)
    assert done.returncode == status and done.stderr == "", done.stderr


IN_NEXT = """
    class Watched(Data):
        stuck = 4
        def __getitem__(self, index):
            if index == self.stuck:
                # A signal that comes before the loop waits in the iterator may end the loop elsewhere.
                while not waits_in_the_iterator(sys._current_frames()[threading.main_thread().ident]):
                    pass
            return super().__getitem__(index)

    def waits_in_the_iterator(frame):
        while frame is not None and frame.f_code.co_name != "_get_data":
            frame = frame.f_back
        return frame is not None

    loader = FastLoader(Watched(), num_workers=2, worker_backend="thread")
    try:
        for batch in loader:
            pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        never.set()
        raise
"""


@pytest.mark.processes
def test_ctrl_c_while_waiting_for_a_thread():
    paths = [str(PACKAGE_ROOT), str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    source = textwrap.dedent(START) + textwrap.dedent(IN_NEXT)
    process = subprocess.Popen(
        [sys.executable, "-c", source, "100"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    try:
        assert process.stdout.readline() == "waiting\n"
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - begin < 3
        _, noise = process.communicate(timeout=25)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()
    assert process.returncode in (-signal.SIGINT, 130)
    assert "KeyboardInterrupt" in noise and "Exception ignored" not in noise, noise


IN_THE_LOOP = """
    import signal, time

    begun = threading.Barrier(3)

    class Stuck(Data):
        def __getitem__(self, index):
            if index in (3, 4):
                begun.wait(30)
                never.wait(float(sys.argv[1]))
            return index

    asked = []  # seconds, of each wait for a worker thread
    join = threading.Thread.join

    def counting(self, timeout=None):
        asked.append(timeout)
        join(self, timeout)

    threading.Thread.join = counting
    start = iter(FastLoader(Stuck(), num_workers=2, worker_backend="thread"))
    try:
        for batch in start:
            if batch == 2:
                begun.wait(30)
                begin = time.monotonic()
                start = None  # the loop alone has it, as usual
                signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        waited = time.monotonic() - begin
        never.set()
    print(*asked, waited)
"""


@pytest.mark.processes
def test_ctrl_c_in_the_loop_waits_once_for_all_threads():
    source = textwrap.dedent(START) + textwrap.dedent(IN_THE_LOOP)
    *asked, waited = map(float, run_script(source, 100).stdout.split())
    assert len(asked) >= 2 and waited >= 4.9  # two threads were waited for, for torch's time
    assert sum(asked) < 5.1, asked


FORK = """
    torch.set_num_threads(1)  # OpenMP does not survive a fork
    iterator = iter(loader)
    next(iterator)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                next(iterator)
            except RuntimeError as error:
                assert str(os.getpid()) in str(error), error
            else:
                assert False, "the inherited iterator went on"
            del iterator
            assert [int(batch) for batch in loader] == list(range(40))
            loader.close()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [int(batch) for batch in iterator] == list(range(1, 40))
    print("done")
"""


@pytest.mark.processes
def test_fork():
    source = textwrap.dedent(START) + textwrap.dedent(FORK)
    assert run_script(source, 1).stdout == "done\n"
