"""torchtitan's BaseDataLoader over a FastLoader: one key, saved by two ranks and loaded by three.

needs: torchtitan
runs: torchrun --nproc-per-node=2 examples/frameworks/torchtitan_loader.py save FOLDER
runs: torchrun --nproc-per-node=3 examples/frameworks/torchtitan_loader.py load FOLDER
"""

import itertools
import sys

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.utils.data import DistributedSampler, TensorDataset

from fastloader import FastLoader
from fastloader.compat.torchtitan import TitanLoader

COUNT = 48
what, folder = sys.argv[1:]
dist.init_process_group("gloo")
dataset = TensorDataset(torch.arange(COUNT))
dp_world_size, dp_rank = dist.get_world_size(), dist.get_rank()  # without other parallelism


def collate(samples):
    tokens = torch.stack([number for (number,) in samples])
    return {"input": tokens}, tokens


sampler = DistributedSampler(dataset, dp_world_size, dp_rank)
dataloader = TitanLoader(FastLoader(dataset, 2, sampler=sampler, collate_fn=collate))
batches = (labels.tolist() for _, labels in dataloader)
state = {"dataloader": dataloader, "received": torch.zeros(COUNT, dtype=torch.bool)}


def receive(count):
    """Notes what all ranks have received in ``count`` steps."""
    mine = torch.zeros(COUNT, dtype=torch.int)
    for number in itertools.chain.from_iterable(itertools.islice(batches, count)):
        mine[number] += 1
    dist.all_reduce(mine)
    assert not (state["received"] & (mine > 0)).any() and mine.max() <= 1
    state["received"] |= mine > 0


if what == "save":
    receive(6)
    dcp.save(state, checkpoint_id=folder)
else:
    dcp.load(state, checkpoint_id=folder)
    before = int(state["received"].sum())
    receive(4)
    assert state["received"].all()
    state["received"][:] = False
    receive(8)  # and the whole epoch after it
    assert state["received"].all()
if dp_rank == 0:
    received = int(state["received"].sum())
    if what == "save":
        print(f"{dp_world_size} ranks saved after {received} of {COUNT} samples, under one key")
    else:
        print(f"{dp_world_size} ranks went on after {before} samples: all {COUNT} came once,")
        print("and once more in the next epoch, without a second iter()")
dist.barrier()
dist.destroy_process_group()
