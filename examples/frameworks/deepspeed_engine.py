"""DeepSpeed: the engine takes batches of a FastLoader, and RepeatingLoader goes over its epochs.

needs: deepspeed
runs: torchrun --nproc-per-node=2 examples/frameworks/deepspeed_engine.py
"""

import itertools

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.dataloader import RepeatingLoader
from torch.utils.data import TensorDataset

import fastloader
from fastloader import FastLoader

COUNT = 48
images = torch.randint(0, 256, (COUNT, 3, 8, 8), dtype=torch.uint8)
dataset = TensorDataset(images, torch.arange(COUNT))
deepspeed.init_distributed("gloo", verbose=False)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, COUNT))
config = {
    "train_batch_size": 8,
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
loader = FastLoader(
    dataset,
    4,
    shuffle=True,
    distributed="auto",
    device=engine.device,
    mean=(0.5,) * 3,
    std=(0.5,) * 3,
)
seen = []
steps = iter(RepeatingLoader(loader))
for _ in range(2 * len(loader)):
    pictures, labels = next(steps)
    loss = torch.nn.functional.cross_entropy(engine(pictures), labels)
    engine.backward(loss)
    engine.step()
    seen.append(labels.tolist())
gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, seen)
for epoch in range(2):
    part = slice(epoch * len(loader), (epoch + 1) * len(loader))
    labels = itertools.chain.from_iterable(itertools.chain(*(rank[part] for rank in gathered)))
    assert sorted(labels) == list(range(COUNT))
assert seen[: len(loader)] != seen[len(loader) :]
if dist.get_rank() == 0:
    print(f"2 ranks, 2 epochs through RepeatingLoader: each of {COUNT} samples once an epoch")
    print(fastloader.check(RepeatingLoader(loader)))
dist.destroy_process_group()
