"""The native image path in a forked child, at the end of the process, and under Ctrl-C."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from pictures import script

from support import HANG

START = """
    import os, signal, sys, threading, torch
    from fastloader import FastLoader, transforms as T
    from fastloader.datasets import ImageFolder
    dataset = ImageFolder(sys.argv[1], T.Compose([T.RandomResizedCrop(12)]))
    loader = FastLoader(dataset, 2, num_workers=2, device="cpu")
"""
DELIVERIES = pytest.mark.parametrize("backend", ["", "host", "torch"])


def environment(backend):
    return {"FASTLOADER_BACKEND": backend} if backend else {}


@pytest.mark.processes
@DELIVERIES
def test_fork(root, backend):
    source = textwrap.dedent(START) + textwrap.dedent("""
        it = iter(loader); next(it)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                try:
                    next(it)
                except RuntimeError as error:
                    assert "process" in str(error) or "fork" in str(error), error
                    labels = [x for _, y in loader for x in y.tolist()]
                    assert labels == dataset.targets.tolist(), labels
                    code = 0
            except BaseException:
                import traceback; traceback.print_exc()
            finally:
                os._exit(code)
        import time
        deadline = time.monotonic() + 20
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done: break
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0); sys.exit("the child hung")
            time.sleep(0.01)
        assert status == 0, status
        assert sum(len(y) for _, y in it) == len(dataset) - 2
    """)
    script(source, root, env=environment(backend), timeout=HANG)


ENDINGS = {
    "half-used iterator": ("it = iter(loader); next(it)", 0),
    "untouched iterator": ("it = iter(loader)", 0),
    "two": ("a, b = iter(loader), iter(loader); next(a); next(b)", 0),
    "exit in the loop": ("for batch in loader: sys.exit(7)", 7),
    "kept batches": ("kept = list(loader)", 0),
    "in a module": ("sys.held = (loader, iter(loader)); next(sys.held[1])", 0),
    "cycle": ("it = iter(loader); next(it); loop = [it]; loop.append(loop); del it, loop", 0),
}


@pytest.mark.processes
@pytest.mark.parametrize("name", ENDINGS)
def test_end_of_the_process(root, name):
    """No hang, no crash, no noise; the three deliveries at once, each in its own process."""
    body, status = ENDINGS[name]
    source = textwrap.dedent(START) + "\n" + body
    failures = []

    def run(backend):
        done = script(source, root, env=environment(backend), timeout=HANG, check=False)
        if done.returncode != status or done.stderr.strip():
            failures.append((backend, done.returncode, done.stderr))

    threads = [threading.Thread(target=run, args=(each,)) for each in ("", "host", "torch")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.processes
@DELIVERIES
def test_ctrl_c(root, backend, tmp_path):
    """A picture that never comes holds next() up; Ctrl-C still arrives."""
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "empty.jpg").touch()
    source = textwrap.dedent(START) + textwrap.dedent("""
        import threading
        from fastloader._core.pictures import store

        store.open_rgb = lambda *_arguments: threading.Event().wait()
        it = iter(loader)
        print("ready", flush=True)
        try:
            next(it)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            os._exit(5)
    """)
    import pictures

    environ = {**os.environ, **environment(backend)}
    paths = [os.path.dirname(os.path.dirname(sys.modules["fastloader"].__file__))]
    environ["PYTHONPATH"] = os.pathsep.join([*paths, os.path.dirname(pictures.__file__)])
    process = subprocess.Popen(
        [sys.executable, "-c", source, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )
    try:
        assert process.stdout.readline().strip() == "ready"
        time.sleep(0.3)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=15)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out.strip()) == (5, "interrupted"), err
