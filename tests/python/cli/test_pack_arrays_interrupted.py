"""A packing of arrays that is killed, or finds the disk full, goes on from what was committed."""

import resource
import signal
import subprocess
import sys

import pytest

from fastloader.datasets import PackedArrays
from support import HANG

# Every sample waits for a line on standard input.
GATED = """
import sys
import numpy as np
from fastloader.cli import pack_arrays

pack_arrays._TOGETHER = 2

class Gated:
    def __len__(self):
        return 12

    def __getitem__(self, index):
        if GATE and self.begun:
            print(index, flush=True)
            sys.stdin.readline()
        self.begun = True
        return np.full((4, 300), index, np.float32), index

    begun = False
"""


COMMAND = [
    *(sys.executable, "-m", "fastloader.cli", "pack"),
    *("gated:Gated()", "set", "--workers", "1"),
]


def packed_at_once(folder, **options):
    (folder / "gated.py").write_text("GATE = False\n" + GATED)
    return subprocess.run(
        COMMAND, cwd=folder, capture_output=True, text=True, timeout=HANG, **options
    )


def begun(folder, reads):
    """A packing that has been let through ``reads`` reads, and waits in the next one."""
    (folder / "gated.py").write_text("GATE = True\n" + GATED)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    child = subprocess.Popen(COMMAND, cwd=folder, text=True, **pipes)
    for _ in range(reads):
        child.stdout.readline()
        child.stdin.write("\n")
        child.stdin.flush()
    child.stdout.readline()
    return child


@pytest.mark.processes
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_interruptions(tmp_path, how):
    child = begun(tmp_path, 9)
    other = packed_at_once(tmp_path)
    assert other.returncode == 1 and "set is being packed by another process" in other.stderr
    child.send_signal(how)
    # A thread that reads is not interrupted, and ends with the lines that it waits for.
    lines = "\n" * 20 if how == signal.SIGINT else None
    _out, err = child.communicate(lines, timeout=HANG)
    if how == signal.SIGINT:
        assert child.returncode == 130 and "Traceback" not in err, err
    with pytest.warns(RuntimeWarning, match="interrupted after"):
        packed = PackedArrays(tmp_path / "set")
    assert 2 <= len(packed) <= 9
    assert [int(number) for _array, number in packed] == list(range(len(packed)))
    done = packed_at_once(tmp_path)
    assert done.returncode == 0 and f"goes on after {len(packed)} of 12" in done.stdout, done.stderr
    whole = PackedArrays(tmp_path / "set")
    assert [(array.unique().tolist(), int(n)) for array, n in whole] == [
        ([n], n) for n in range(12)
    ]


@pytest.mark.processes
def test_a_full_disk(tmp_path):
    most = 30_000  # bytes of a file
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # noqa: E731
    done = packed_at_once(tmp_path, preexec_fn=limit)
    assert done.returncode == 1 and "File too large" in done.stderr, done.stderr
    assert "can be read" in done.stderr and "Traceback" not in done.stderr
    with pytest.warns(RuntimeWarning, match="interrupted after"):
        before = len(PackedArrays(tmp_path / "set"))
    assert 0 < before < 12
    assert packed_at_once(tmp_path).returncode == 0
    assert [int(number) for _array, number in PackedArrays(tmp_path / "set")] == list(range(12))
