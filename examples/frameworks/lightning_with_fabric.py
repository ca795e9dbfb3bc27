"""Lightning Fabric on two ranks: each sample once, DataLoader's order, and an exact resume.

needs: lightning
runs: torchrun --nproc-per-node=2 examples/frameworks/lightning_with_fabric.py
"""

import itertools
import logging
import tempfile

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

import fastloader
from fastloader import FastLoader

logging.getLogger("lightning.fabric").setLevel(logging.ERROR)

COUNT, EPOCHS = 48, 3
images = torch.randint(0, 256, (COUNT, 3, 8, 8), dtype=torch.uint8)
dataset = TensorDataset(images, torch.arange(COUNT))
fabric = Fabric(accelerator="cpu", strategy="ddp", devices=2)
fabric.launch()


def make(kind, **options):
    return fabric.setup_dataloaders(kind(dataset, batch_size=4, shuffle=True, **options))


def of_all_ranks(mine):
    gathered = [None] * fabric.world_size
    torch.distributed.all_gather_object(gathered, mine)
    return gathered


ours = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "num_workers": "auto"}
reference, loader = make(DataLoader), make(FastLoader, **ours)
wanted = [[labels.tolist() for _, labels in reference] for _ in range(EPOCHS)]
straight = [[labels.tolist() for _, labels in loader] for _ in range(EPOCHS)]
assert straight == wanted
for epoch in zip(*of_all_ranks(straight)):
    assert sorted(itertools.chain(*itertools.chain(*epoch))) == list(range(COUNT))

with tempfile.TemporaryDirectory() as mine:
    path = of_all_ranks(f"{mine}/state.ckpt")[0]
    loader = make(FastLoader, **ours)
    list(loader)
    got = [labels.tolist() for _, labels in itertools.islice(loader, 2)]  # of the second epoch
    fabric.save(path, {"loader": loader})
    again = make(FastLoader, **ours)
    fabric.load(path, {"loader": again})
    got += [labels.tolist() for _, labels in again]
    assert got == straight[1]
    assert [labels.tolist() for _, labels in again] == straight[2]
    fabric.barrier()

(inside,) = fastloader.check(again).loaders
if fabric.is_global_zero:
    print(f"2 ranks, {EPOCHS} epochs: each of {COUNT} samples once an epoch, in DataLoader's order")
    print("resumed after 2 of 6 batches of the second epoch: the rest, then the third epoch")
    print(fastloader.check(again))
    print(f"check(loader).loaders[0].report(): {inside.report().batches} batches")
