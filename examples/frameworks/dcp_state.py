"""torch.distributed.checkpoint: saved by two ranks in the middle of an epoch, loaded by three.

needs: torch
runs: torchrun --nproc-per-node=2 examples/frameworks/dcp_state.py save FOLDER
runs: torchrun --nproc-per-node=3 examples/frameworks/dcp_state.py load FOLDER
"""

import itertools
import sys

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.utils.data import TensorDataset

from fastloader import FastLoader
from fastloader.compat.dcp import OneKeyState

COUNT = 48
what, folder = sys.argv[1:]
dist.init_process_group("gloo")
dataset = TensorDataset(torch.arange(COUNT))
loader = FastLoader(dataset, 2, shuffle=True, distributed="exact")
state = {"loader": OneKeyState(loader), "received": torch.zeros(COUNT, dtype=torch.bool)}


def receive(batches):
    """Notes what all ranks have received."""
    mine = torch.zeros(COUNT, dtype=torch.int)
    for (numbers,) in batches:
        mine[numbers] += 1
    dist.all_reduce(mine)
    assert not (state["received"] & (mine > 0)).any() and mine.max() <= 1
    state["received"] |= mine > 0


if what == "save":
    receive(itertools.islice(loader, 6))
    dcp.save(state, checkpoint_id=folder)
else:
    dcp.load(state, checkpoint_id=folder)
    before = int(state["received"].sum())
    receive(loader)
    assert state["received"].all()
if dist.get_rank() == 0:
    ranks, received = dist.get_world_size(), int(state["received"].sum())
    if what == "save":
        print(f"{ranks} ranks saved after {received} of {COUNT} samples, under one key")
    else:
        print(f"{ranks} ranks went on after {before} samples: all {COUNT} came once")
dist.barrier()
dist.destroy_process_group()
