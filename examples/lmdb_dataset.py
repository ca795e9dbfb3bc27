"""Packs a folder of pictures into one file, and trains from that.

python examples/lmdb_dataset.py

It calls the command `fastloader pack` as a shell would, and needs lmdb (pip install lmdb).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fastloader import FastLoader
from fastloader.datasets import ImageFolder, LMDBDataset
from fastloader.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop


def make_pictures(root, count):
    """Two classes: bright above, bright below."""
    rng = np.random.default_rng(0)
    for number in range(count):
        name = ("above", "below")[number % 2]
        pixels = rng.integers(0, 120, (72, 96, 3), dtype=np.uint8)
        pixels[slice(36) if name == "above" else slice(36, 72)] += 120
        (root / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / name / f"{number}.jpg")


def make_loader(dataset):
    return FastLoader(
        dataset,
        batch_size=16,
        shuffle=True,
        generator=torch.Generator().manual_seed(0),
        device="auto",
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    )


with tempfile.TemporaryDirectory() as name:
    folder, packed = Path(name, "train"), Path(name, "train.lmdb")
    make_pictures(folder, 128)
    # In a shell: fastloader pack train train.lmdb
    pack = [sys.executable, "-m", "fastloader.cli", "pack", str(folder), str(packed)]
    print(subprocess.run(pack, check=True, capture_output=True, text=True).stdout)

    transform = Compose([RandomResizedCrop(32, (0.6, 1.0)), RandomHorizontalFlip()])
    dataset = LMDBDataset(packed, transform)  # was: ImageFolder(folder, transform)
    loader = make_loader(dataset)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 2)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(loader.plan())

    # The file has the pictures byte for byte, so the batches are those of the folder.
    from_file, from_folder = make_loader(dataset), make_loader(ImageFolder(folder, transform))
    for (images, labels), (same_images, same_labels) in zip(from_file, from_folder):
        assert torch.equal(images, same_images) and torch.equal(labels, same_labels)
    print("the batches are those of the folder, to the bit")
    for each in loader, from_file, from_folder:
        each.close()
