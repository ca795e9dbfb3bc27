"""The ranks of the tests end quietly, whatever a thread of gloo still has to let go of."""

import pytest
import torch
import torch.distributed as dist
from torchrun import torchrun

pytestmark = [
    pytest.mark.skipif(not dist.is_gloo_available(), reason="needs torch with gloo"),
    # There the group joins the threads of gloo with the GIL, which they need to let go of a tensor:
    # https://github.com/pytorch/pytorch/pull/154976
    pytest.mark.skipif(
        torch.__version__ < (2, 8), reason="before torch 2.8, the end of such a group is a deadlock"
    ),
]

SOURCE = """
    report(RANK)  # first, since a file lets the GIL go
    kept = dist.group.WORLD  # as a Trainer among the globals keeps it
    dist.barrier()
    while RANK == 1 and not os.path.exists(f"{OUT}/left"):
        time.sleep(0.01)
    # Many: where the end of the group lets one thread have the GIL, that thread has more to let go of.
    works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(100)]
    if RANK == 1:
        for work in works:
            work.wait()
    works = work = None  # rank 0's are left to threads of gloo, which wait for rank 1
    sys.setswitchinterval(1000)  # and don't get the GIL before this thread waits for something
    if RANK == 0:
        open(f"{OUT}/left", "w").close()
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass
"""


def test_a_tensor_that_gloo_lets_go_of_last(tmp_path):
    assert torchrun(tmp_path, 2, SOURCE) == [0, 1]
