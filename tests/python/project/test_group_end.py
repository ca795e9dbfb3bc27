"""The ranks of the tests end quietly, whatever a thread of gloo still has to let go of."""

import pytest
import torch.distributed as dist
from torchrun import torchrun

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="needs torch with gloo")

SOURCE = """
    kept = dist.group.WORLD  # as a Trainer among the globals keeps it
    tensor = torch.ones(1)
    dist.barrier()
    if RANK == 1:
        time.sleep(0.3)
    work = dist.all_reduce(tensor, async_op=True)
    if RANK == 1:
        work.wait()
    del tensor, work  # rank 0's is left to a thread of gloo, which is done 0.3 s later
    sys.setswitchinterval(1000)  # and then doesn't get the GIL before this thread waits for something
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass
    report(RANK)
"""


def test_a_tensor_that_gloo_lets_go_of_last(tmp_path):
    assert torchrun(tmp_path, 2, SOURCE) == [0, 1]
