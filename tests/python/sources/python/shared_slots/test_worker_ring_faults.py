"""Shared slots when things go wrong, each in a process of its own: killed workers, exits, limits, and
many epochs."""

import os
import subprocess
import textwrap

import pytest

from fastloader._core.machine import extension
from support import eventually, run_script

pytestmark = pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")

START = """
    import os, signal, sys, threading
    import torch
    from fastloader import FastLoader
    from support import children
    from torch.utils.data import Dataset

    class Samples(Dataset):
        def __init__(self, count=400, shape=(80, 80)):
            self.count, self.shape = count, shape
        def __len__(self):
            return self.count
        def __getitem__(self, index):
            return torch.full(self.shape, float(index)), index

    def check(batch, first):
        images, labels = batch
        assert labels.tolist() == list(range(first, first + len(labels))), labels
        assert torch.equal(images, labels.view(-1, 1, 1).float().expand_as(images))

    def stats():
        return loader.stats()["workers"]

    def tells_of_a_death(error):
        # torch's signal handler raises on the main thread, wherever that is: where it waits for a batch,
        # whose message then is the first one, or outside.
        return "exited unexpectedly" in str(error) or "killed by signal" in str(error)
"""


def run(body, *arguments, limit=60, prefix="", env=None):
    before = set(os.listdir("/dev/shm"))
    lines = [START, body]
    variables = {"FASTLOADER_WORKER_RING": "1", **(env or {})}
    done = run_script(
        "\n".join(map(textwrap.dedent, lines)), *arguments, env=variables, timeout=limit, fresh=True
    )
    assert "leaked" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    # Files of other processes come and go there; none stays.
    new = set(os.listdir("/dev/shm")) - before
    eventually(lambda: not new & set(os.listdir("/dev/shm")), lambda: new)
    return done


@pytest.mark.processes
@pytest.mark.parametrize("persistent", [False, True])
def test_a_worker_killed_in_the_middle_of_a_batch(persistent):
    run(
        """
        class Killed(Samples):
            def __getitem__(self, index):
                if index == 41 and os.path.exists(sys.argv[1]):
                    os.unlink(sys.argv[1])
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().__getitem__(index)

        open(sys.argv[1], "w").close()
        loader = FastLoader(Killed(), batch_size=4, num_workers=2,
                            persistent_workers=sys.argv[2] == "True")
        kept = []
        iterator = iter(loader)
        try:
            for number, batch in enumerate(iterator):
                check(batch, 4 * number)
                kept = [(batch, 4 * number)]
        except RuntimeError as error:
            assert tells_of_a_death(error), error
        else:
            raise AssertionError("nobody noticed")
        check(*kept[0])
        del iterator
        loader.close()
        for _epoch in range(2):
            for number, batch in enumerate(loader):
                check(batch, 4 * number)
            assert number == 99
        assert stats()["fallbacks"] == 0, stats()
        del batch, kept
        assert stats()["slots_held"] == 0, stats()
        """,
        f"/tmp/fastloader-test-{os.getpid()}-{persistent}",
        persistent,
    )


@pytest.mark.processes
def test_a_worker_killed_from_outside():
    run(
        """
        class Slow(Samples):
            def __getitem__(self, index):
                if index == 40:
                    with open(sys.argv[1], "w") as file:  # now it is in a batch of its own
                        file.write(str(os.getpid()))
                    signal.pause()
                return super().__getitem__(index)

        os.mkfifo(sys.argv[1])
        def killer():
            with open(sys.argv[1]) as file:
                os.kill(int(file.read()), signal.SIGKILL)
        thread = threading.Thread(target=killer)
        thread.start()
        loader = FastLoader(Slow(), batch_size=4, num_workers=2)
        try:
            for number, batch in enumerate(loader):
                check(batch, 4 * number)
        except RuntimeError as error:
            assert tells_of_a_death(error), error
        else:
            raise AssertionError("nobody noticed")
        thread.join()
        os.unlink(sys.argv[1])
        """,
        f"/tmp/fastloader-test-{os.getpid()}-fifo",
    )


@pytest.mark.processes
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_exit_with_batches_alive(context, tmp_path):
    # Spawned workers import the main module, so it is a file.
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(START)
        + textwrap.dedent(f"""
        if __name__ == "__main__":
            loader = FastLoader(Samples(), batch_size=4, num_workers=2,
                                multiprocessing_context="{context}")
            iterator = iter(loader)
            torch.kept = [next(iterator) for _ in range(8)]  # outlives this module
            check(torch.kept[7], 28)
            assert stats()["slots_held"] > 0
            if "{context}" == "fork":
                torch.iterator = iterator
        """)
    )
    done = run(
        """
        import runpy
        runpy.run_path(sys.argv[1], run_name="__main__")
        """,
        script,
    )
    assert done.stderr == ""


@pytest.mark.processes
def test_a_timeout_leaves_the_ring_usable():
    run(
        """
        class Stuck(Samples):
            def __getitem__(self, index):
                if index == 40 and not os.path.exists(sys.argv[1]):
                    open(sys.argv[1], "w").close()
                    signal.pause()
                return super().__getitem__(index)

        loader = FastLoader(Stuck(), batch_size=4, num_workers=1, timeout=2)
        try:
            for number, batch in enumerate(loader):
                check(batch, 4 * number)
        except RuntimeError as error:
            assert "timed out" in str(error), error
        else:
            raise AssertionError("nobody noticed")
        for number, batch in enumerate(loader):
            check(batch, 4 * number)
        os.unlink(sys.argv[1])
        assert number == 99 and stats()["fallbacks"] == 0
        """,
        f"/tmp/fastloader-test-{os.getpid()}-stuck",
        env={},
    )


@pytest.mark.processes
def test_few_descriptors_are_enough():
    run(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

        class Many(Samples):
            def __getitem__(self, index):
                return [torch.full((100, 200), float(index)) for _ in range(30)]

        loader = FastLoader(Many(200), batch_size=2, num_workers=8, prefetch_factor=4)
        kept = []
        for number, batch in enumerate(loader):
            assert all((leaf[1] == 2 * number + 1).all() for leaf in batch)
            kept = [batch, *kept[:1]]
        assert number == 99 and stats()["fallbacks"] == 0, stats()
        """
    )


@pytest.mark.processes
def test_an_error_for_want_of_descriptors_names_the_limit():
    run(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

        class Many(Samples):
            def __getitem__(self, index):
                return [torch.ones(100, 200) for _ in range(20)]

        kept = []
        try:
            for batch in FastLoader(Many(80), batch_size=None, num_workers=1):
                kept.append(batch)
            raise AssertionError("nobody noticed")
        except (OSError, RuntimeError) as error:
            said = str(error)
        assert "was unpickled" in said.partition("Traceback")[0], said
        assert "may have 256 files open at once: raise the limit (ulimit -n" in said, said
        """,
        env={"FASTLOADER_WORKER_RING": "0"},
    )


@pytest.mark.processes
def test_a_small_dev_shm_is_enough():
    mounts = "mount -t tmpfs -o size=64k tmpfs /dev/shm"
    if subprocess.run(["unshare", "-m", "sh", "-c", mounts], capture_output=True).returncode:
        pytest.skip("may not mount a small /dev/shm here")
    done = run(
        """
        import subprocess
        if len(sys.argv) > 1:
            again = ["unshare", "-m", "sh", "-c", sys.argv[1] + ' && exec "$0" -c "$1"', sys.executable,
                     open("/proc/self/cmdline").read().split("\\0")[2]]
            print(subprocess.run(again, check=True, capture_output=True, text=True).stdout)
        else:
            assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize <= 65536
            loader = FastLoader(Samples(), batch_size=4, num_workers=2)
            for number, batch in enumerate(loader):
                check(batch, 4 * number)
            assert number == 99 and stats()["fallbacks"] == 0
            print("all of it")
        """,
        mounts,
    )
    assert "all of it" in done.stdout


@pytest.mark.processes
def test_ctrl_c_ends_it():
    done = run(
        """
        loader = FastLoader(Samples(4000), batch_size=4, num_workers=2)
        try:
            for number, batch in enumerate(loader):
                if number == 20:
                    os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            print("interrupted at", number)
        del batch
        loader.close()
        assert stats()["slots_held"] == 0
        """
    )
    assert "interrupted at 20" in done.stdout


@pytest.mark.processes
def test_many_epochs_cost_nothing_that_stays():
    """Early breaks, each with workers of its own. The figures are printed: run pytest with -s."""
    epochs = int(os.environ.get("FASTLOADER_SOAK_EPOCHS", "60"))
    done = run(
        """
        from support import eventually, resident_bytes

        def figures():
            # The threads of queues that were given up close their descriptors as they end.
            eventually(lambda: threading.active_count() == 1, threading.enumerate)
            return {"fds": len(os.listdir("/proc/self/fd")), "rss_mb": resident_bytes() >> 20,
                    "ring_mb": stats()["ring_bytes"] >> 20, "threads": threading.active_count(),
                    "children": len(children()),
                    "mappings": open("/proc/self/maps").read().count("memfd:fastloader")}

        loader = FastLoader(Samples(), batch_size=4, num_workers=2)
        for epoch in range(int(sys.argv[1])):
            for number, batch in enumerate(loader):
                check(batch, 4 * number)
                if number == epoch % 9:
                    break
            if epoch == 9:
                first = figures()
        last = figures()
        print(first, last, stats()["slots_used"], stats()["fallbacks"], sep="\\n")
        assert last["rss_mb"] <= first["rss_mb"] + 8
        assert last["ring_mb"] <= first["ring_mb"] + 1
        assert {**last, "rss_mb": 0, "ring_mb": 0} == {**first, "rss_mb": 0, "ring_mb": 0}
        assert stats()["fallbacks"] == 0
        """,
        epochs,
        limit=60 + epochs,
    )
    print(done.stdout)


@pytest.mark.processes
@pytest.mark.parametrize("context", ["spawn", "fork"])
def test_its_descriptor_closed_by_other_code_and_its_number_used_again(context):
    run(
        """
        from support import Pictures, same

        def rings():
            found = []
            for fd in os.listdir("/proc/self/fd"):
                try:
                    if os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:fastloader "):
                        found.append(int(fd))
                except OSError:
                    pass
            return found

        if __name__ == "__main__":
            data = Pictures(8)
            loader = FastLoader(data, batch_size=2, num_workers=1, multiprocessing_context=sys.argv[1])
            wanted = list(FastLoader(data, batch_size=2))
            same(list(loader), wanted)
            (fd,) = rings()
            ours = os.open("/dev/null", os.O_RDONLY)
            os.dup2(ours, fd)
            for _ in range(2):
                same(list(loader), wanted)
                assert stats()["slots_used"] % 4 == 0 and not stats()["fallbacks"]
            loader.close()
            assert os.readlink(f"/proc/self/fd/{fd}") == "/dev/null"
        """,
        context,
    )
