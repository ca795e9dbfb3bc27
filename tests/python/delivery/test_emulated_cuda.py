"""What the emulated CUDA runtime says of a program that a test starts: see ``ways.STRICT``."""

import pytest
from ways import EMULATED

from support import run_script

if not EMULATED:
    pytest.skip("needs the emulated CUDA runtime", allow_module_level=True)

MISUSED = 86  # the exit status of cuda_emulated.h

PROGRAM = """
    import ctypes, emulated_cuda

    runtime = emulated_cuda._emulator()
    block = emulated_cuda.Block(1000)  # of torch's allocator, which gives nothing back
    assert runtime.emulated_torch_synchronize() == 0  # the block is being filled until then
    event = ctypes.c_void_p()
    assert runtime.cudaEventCreateWithFlags(ctypes.byref(event), 0) == 0
"""


def run(way, last):
    return run_script(PROGRAM + f"\n    {last}\n    print('the end')", env=way.env, check=False)


@pytest.mark.processes
def test_a_misuse_ends_the_program(twin):
    done = run(twin, "runtime.cudaFree(ctypes.c_void_p(block.device + 1))")
    assert (done.returncode, done.stdout) == (MISUSED, "")
    assert "MISUSE" in done.stderr and "] cudaFree: " in done.stderr


@pytest.mark.processes
def test_what_is_left_is_told_and_fails_nothing(twin):
    done = run(twin, "")
    assert (done.returncode, done.stdout) == (0, "the end\n")
    assert "left at exit: 0 streams, 1 events, 0 device blocks" in done.stderr


@pytest.mark.processes
def test_nothing_is_told_where_torchs_memory_alone_is_left(twin):
    done = run(twin, "assert runtime.cudaEventDestroy(event) == 0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")
