"""The end of a rank: no thread of gloo outlives the interpreter."""

import gc

import torch.distributed as dist

from support import named_threads


def end_group(names):
    """Destroys the process group of a script whose globals are ``names``, with all that refers to it.

    A thread of gloo lets go of the last tensors of a collective by itself, for which it takes the GIL.
    torch aborts the process ("terminate called without an active exception") if the interpreter begins
    to exit while it waits for that: https://github.com/pytorch/pytorch/issues/190489. The group's
    destructor joins those threads, but a Trainer or a DistributedDataParallel among the script's globals
    keeps the group alive. So they are dropped first.

    Raises AssertionError if a thread of gloo is left.
    """
    for name in [name for name in names if not name.startswith("__")]:
        del names[name]
    dist.destroy_process_group()
    gc.collect()
    left = [name for name in named_threads().values() if name.startswith(("gloo", "pt_gloo"))]
    assert not left, f"something still refers to a process group, whose threads are left: {left}"
