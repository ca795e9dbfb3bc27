"""A training that is killed in the middle of an epoch, and goes on in another process.

python examples/resume.py

Compares the batches of the second process with those of a training that nobody has interrupted.
"""

import multiprocessing
import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fastloader import FastLoader
from fastloader.datasets import ImageFolder
from fastloader.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop

EPOCHS = 2


def make_pictures(root, count):
    rng = np.random.default_rng(0)
    for number in range(count):
        folder = root / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg")


def train(root, checkpoint, record, killed_after=None):
    """Trains, goes on if there is a checkpoint, and adds the mean of each batch to a file."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = FastLoader(
        ImageFolder(root, Compose([RandomResizedCrop(32), RandomHorizontalFlip()])),
        batch_size=8,
        shuffle=True,
        device="cpu",
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
    )
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    parts = {"model": model, "optimizer": optimizer, "loader": loader}
    first_epoch = step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        first_epoch, step = saved["epoch"], saved["step"]
        torch.set_rng_state(saved["torch"])  # the order of later epochs comes from it
    for epoch in range(first_epoch, EPOCHS):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
            with record.open("a") as file:
                file.write(f"{step} {labels.tolist()} {images.double().mean():.12f}\n")
            if step % 3 == 0:  # every 1000 steps in real life
                states = {name: part.state_dict() for name, part in parts.items()}
                rest = {"epoch": epoch, "step": step, "torch": torch.get_rng_state()}
                partial = checkpoint.with_suffix(".partial")
                torch.save({**states, **rest}, partial)
                partial.replace(checkpoint)  # a process that dies before this keeps the old one
            if step == killed_after:
                os.kill(os.getpid(), signal.SIGKILL)


def in_a_process(*arguments):
    process = multiprocessing.get_context("spawn").Process(target=train, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_pictures(folder / "pictures", 60)
        whole, before, after = (folder / each for each in ("whole", "before", "after"))
        in_a_process(folder / "pictures", folder / "other.pt", whole)
        code = in_a_process(folder / "pictures", folder / "checkpoint.pt", before, 5)
        print(f"killed by signal {-code} after {len(before.read_text().splitlines())} steps")
        in_a_process(folder / "pictures", folder / "checkpoint.pt", after)
        expected = whole.read_text().splitlines()[3:]  # the checkpoint is of step 3
        assert after.read_text().splitlines() == expected
        print(f"the {len(expected)} steps after the checkpoint had the same batches, to the bit")


if __name__ == "__main__":
    main()
