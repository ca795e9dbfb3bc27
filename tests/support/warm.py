"""Programs of the tests in warm interpreters: processes that have imported torch when they begin.

Each test process has one fork server of multiprocessing for them. What a program sees is what
``python -c`` would give it, but for this: torch, numpy and Pillow are imported already; variables
of the environment that are read while these load have no effect; all have one seed for the hashes
of strings; Python's modules are not torn down at the end (threads are joined and ``atexit`` is
called). A program for which one of these matters needs a fresh interpreter.
"""

import atexit
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from multiprocessing import process
from pathlib import Path

import descendants
import numpy as np
import starts

_PRELOADED = [
    "torch",
    "torch.distributed",
    "torch.distributed.nn",
    "torch.utils.data",
    "numpy",
    "PIL.Image",
]
# What `multiprocessing.current_process()` is in a program that somebody has typed. Python's module
# has no name for the class, and in a child nothing else would keep it.
_MainProcess = type(process.current_process())
_LATER = Path(__file__).resolve().parent / "processes" / "sitecustomize.py"


class Program:
    """A running program. ``source`` is its text, ``path`` the file that it is said to stand in."""

    def __init__(self, source, arguments=(), variables=None, path="-c"):
        starts.note("a warm interpreter")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._folder = tempfile.TemporaryDirectory(prefix="program-")
        variables = dict(os.environ if variables is None else variables)
        # What is printed goes into files: a process that the program leaves behind keeps no pipe open.
        self._printed = [os.path.join(self._folder.name, name) for name in ("out", "err")]
        arguments = [path, *map(str, arguments)]
        self._process = context.Process(
            target=_run, args=(source, arguments, variables, *self._printed)
        )
        self._process.start()
        self.pid = self._process.pid

    def poll(self):
        """The exit status; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout):
        """The CompletedProcess. Raises TimeoutExpired, behind the end of the program and of all
        that it has started."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            self.kill()
            self._process.join()
            raise subprocess.TimeoutExpired("a warm interpreter", timeout, *self._read())
        out, err = self._read()
        self._folder.cleanup()
        return subprocess.CompletedProcess("a warm interpreter", self._process.exitcode, out, err)

    def terminate(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def kill(self):
        descendants.kill_tree(self.pid)

    def _read(self):
        return [Path(file).read_text(errors="replace") for file in self._printed]


def wait_for_all(programs, timeout):
    """The CompletedProcesses. As torchrun does, ends the others when one has failed."""
    deadline, ending = time.monotonic() + timeout, False
    while any(each.poll() is None for each in programs) and time.monotonic() < deadline:
        if not ending and any(each.poll() for each in programs):
            ending = True
            for each in programs:
                if each.poll() is None:
                    each.terminate()
            deadline = min(deadline, time.monotonic() + 30)
        time.sleep(0.005)
    return [each.wait(0 if each.poll() is None else None) for each in programs]


def _run(source, arguments, variables, out, err):
    """Is the program's process."""
    for number, file in ((1, out), (2, err)):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = arguments
    places = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    first = "" if arguments[0] == "-c" else os.path.dirname(arguments[0])
    sys.path[:] = dict.fromkeys([first, *places, *sys.path])
    if str(_LATER.parent) in sys.path:  # as Python's start would import it
        exec(compile(_LATER.read_text(), _LATER, "exec"), {"__name__": "sitecustomize"})
    np.random.seed()  # a fork has the state of its server, and so of its brothers
    if threads := variables.get("OMP_NUM_THREADS"):
        import torch

        torch.set_num_threads(int(threads))
    # Not the child of anybody, as far as Python's own modules can tell.
    process._current_process, process._parent_process = _MainProcess(), None
    multiprocessing.set_start_method(None, force=True)  # not "forkserver", but the usual one
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if arguments[0] != "-c":
        main.__file__ = arguments[0]
    status = 0
    try:
        exec(compile(source, arguments[0], "exec"), main.__dict__)
    except SystemExit as end:
        status = _status(end.code)
    except KeyboardInterrupt:
        traceback.print_exc()
        status = -signal.SIGINT
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if status < 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


def _status(code):
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1
