"""DistributedDataParallel: each rank gets its share of the pictures, and evaluates each picture once.

torchrun --nproc-per-node 2 examples/ddp.py

It needs no GPU; without one the ranks talk by gloo. `python examples/ddp.py` is one rank alone.
"""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fastloader import FastLoader
from fastloader.datasets import ImageFolder
from fastloader.transforms import CenterCrop, Compose, RandomHorizontalFlip, RandomResizedCrop

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make_pictures(root, count):
    """Two classes: bright above, bright below."""
    rng = np.random.default_rng(0)
    for number in range(count):
        name = ("above", "below")[number % 2]
        pixels = rng.integers(0, 120, (48, 64, 3), dtype=np.uint8)
        pixels[slice(24) if name == "above" else slice(24, 48)] += 120
        (root / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / name / f"{number}.jpg")


def run(root, rank, device):
    train = FastLoader(
        ImageFolder(root, Compose([RandomResizedCrop(32, (0.6, 1.0)), RandomHorizontalFlip()])),
        batch_size=8,  # of each rank
        shuffle=True,
        drop_last=True,
        distributed="auto",  # no DistributedSampler, no set_epoch
        device="auto",
        mean=MEAN,
        std=STD,
    )
    evaluation = FastLoader(
        ImageFolder(root, CenterCrop(32)),
        batch_size=8,
        distributed="exact",  # each picture on one rank; some ranks may have a batch more
        device="auto",
        mean=MEAN,
        std=STD,
    )
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 2)).to(device)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        for images, labels in train:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        counts = torch.zeros(2, device=device)  # pictures that are right, pictures
        with torch.no_grad():
            for images, labels in evaluation:  # model.module: no collective inside of this loop
                right = model.module(images).argmax(1) == labels
                counts += torch.stack([right.sum(), torch.tensor(len(labels), device=device)])
        torch.distributed.all_reduce(counts)
        if rank == 0:
            print(f"epoch {epoch}: {int(counts[0])} of {int(counts[1])} right")
    if rank == 0:
        # This state serves all ranks, and another number of them.
        print(f"a checkpoint would hold {train.state_dict()}")


def main():
    for name, alone in (
        ("RANK", "0"),
        ("LOCAL_RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("MASTER_PORT", "0"),
    ):
        os.environ.setdefault(name, alone)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl" if cuda else "gloo")
    rank = torch.distributed.get_rank()
    # Rank 0 makes the pictures for all; yours lie where all ranks see them.
    shared = [tempfile.mkdtemp() if rank == 0 else None]
    if rank == 0:
        make_pictures(Path(shared[0]), 128)
    torch.distributed.broadcast_object_list(shared)
    try:
        run(Path(shared[0]), rank, torch.device("cuda" if cuda else "cpu"))
        torch.distributed.barrier()
    finally:
        if rank == 0:
            shutil.rmtree(shared[0])
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
