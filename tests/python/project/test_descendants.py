"""Nothing that a test has started outlives it: not where it ends by a time limit, and not where its
process dies."""

import subprocess
import sys

import descendants
import pytest
import torch
import torch.distributed as dist
import warm
from torch.utils.data import DataLoader
from torchrun import torchrun

from support import SUPPORT, alive, eventually, run_script

# As torchrun starts its ranks: in a session of their own. The ranks tell their numbers and never end.
RANKS = """
    import os, subprocess, sys, time
    rank = "import os, sys, time; open(sys.argv[1] + str(os.getpid()), 'w').close(); time.sleep(1000)"
    for _ in range(2):
        subprocess.Popen([sys.executable, "-S", "-c", rank, sys.argv[1] + "/"], start_new_session=True)
    while len(os.listdir(sys.argv[1])) < 2:
        time.sleep(0.01)
"""


def ranks(folder):
    return eventually(
        lambda: [int(each.name) for each in folder.iterdir()], lambda: "no rank has begun"
    )


@pytest.mark.parametrize("begin", ["fresh", "warm"])
def test_the_ranks_of_a_launcher_that_is_killed(tmp_path, begin):
    """In a test process of its own, whose test ends as by a time limit: the launcher alone is killed."""
    launcher = f"import textwrap\nexec(textwrap.dedent({RANKS!r}))\ntime.sleep(1000)"
    source = f"""
        import os, signal, subprocess, sys, time
        import descendants, warm
        descendants.begin()
        before = descendants.started()
        launcher = {launcher!r}
        if {begin!r} == "warm":
            started = warm.Program(launcher, [sys.argv[1]])
        else:
            started = subprocess.Popen([sys.executable, "-c", launcher, sys.argv[1]])
        while len(os.listdir(sys.argv[1])) < 2:
            time.sleep(0.01)
        os.kill(started.pid, signal.SIGKILL)
        ranks = [int(each) for each in os.listdir(sys.argv[1])]
        assert all(os.path.exists(f"/proc/{{rank}}") for rank in ranks)
        descendants.end_started(before)
        assert descendants.started() == before
    """
    run_script(source, tmp_path, fresh=True)
    assert len(ranks(tmp_path)) == 2
    assert not [rank for rank in ranks(tmp_path) if alive(rank)]


def test_workers_that_were_ended_fail_no_other_test():
    before = descendants.started()
    iterator = iter(DataLoader(range(100), num_workers=1))
    next(iterator)
    descendants.end_started(before)
    assert descendants.started() == before
    torch._C._error_if_any_worker_fails()


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "pass"])
def test_what_a_test_process_leaves_when_it_ends(tmp_path, end):
    source = f"""
import os, sys
sys.path.insert(0, {str(SUPPORT)!r})
import descendants
descendants.begin(grace=0.1)
exec(__import__("textwrap").dedent({RANKS!r}))
{end}
"""
    subprocess.run([sys.executable, "-S", "-c", source, tmp_path], timeout=60, check=False)
    left = ranks(tmp_path)
    assert len(left) == 2
    eventually(lambda: not any(map(alive, left)), lambda: f"{left} ended with their test process")


@pytest.mark.skipif(not dist.is_gloo_available(), reason="needs torch with gloo")
@pytest.mark.parametrize("launcher", [False, True])
def test_torchrun_ends_by_its_time_limit(tmp_path, launcher, monkeypatch):
    """One rank waits for another, which never comes to the barrier."""
    import torchrun as module

    monkeypatch.setattr(module, "HANG", 15 if launcher else 5)
    source = """
    with open(f"{ARGUMENT}/{os.getpid()}", "w"):
        pass
    if RANK == 0:
        time.sleep(1000)
    dist.barrier()
    """
    before = descendants.started()
    here = tmp_path / "here"
    here.mkdir()
    with pytest.raises(subprocess.TimeoutExpired):
        torchrun(tmp_path, 2, source, str(here), launcher=launcher)
    descendants.end_started(before)  # as behind every test
    assert len(ranks(here)) == 2
    assert not [rank for rank in ranks(here) if alive(rank)]


def test_a_warm_program_ends_by_its_time_limit(tmp_path):
    program = warm.Program(
        f"exec(__import__('textwrap').dedent({RANKS!r}))\ntime.sleep(1000)", [tmp_path]
    )
    ranks(tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(2)
    assert not [rank for rank in ranks(tmp_path) if alive(rank)] and not alive(program.pid)


def test_a_warm_program_begins_behind_a_collection():
    """A child's start takes away what Python's module itself has of the main process's class."""
    source = """
        import gc, warm
        from multiprocessing import process
        process._current_process = process.BaseProcess()
        gc.collect()
        assert warm._MainProcess().name == "MainProcess"
    """
    run_script(source, fresh=True)


def test_a_warm_program_is_like_a_fresh_one(tmp_path):
    """In what a program can see of its arguments, environment, status, output and children."""
    source = """
        import multiprocessing, os, sys, threading, atexit
        print(sys.argv, __name__, sorted(globals())[:2] != [], os.environ["FASTLOADER_X"], os.getcwd())
        print(multiprocessing.current_process().name, multiprocessing.parent_process())
        print(multiprocessing.get_start_method(), sys.modules["__main__"].__dict__ is globals())
        print("said", file=sys.stderr)
        atexit.register(print, "at exit")
        joined = threading.Event()
        threading.Thread(target=lambda: (joined.wait(), print("thread"))).start()
        child = multiprocessing.Process(target=print, args=("child",), daemon=True)
        child.start()
        child.join()
        joined.set()
        sys.exit(3)
    """
    told = [
        run_script(source, "a", 1, env={"FASTLOADER_X": "y"}, fresh=fresh, check=False)
        for fresh in (False, True)
    ]
    warm_one, fresh_one = [(done.returncode, done.stdout.split("\n"), done.stderr) for done in told]
    assert warm_one == fresh_one
    assert warm_one[0] == 3 and "at exit" in told[0].stdout and "child" in told[0].stdout
