"""Trains a ResNet on pictures that lie in a folder for each class, or in an LMDB file.

python examples/imagenet.py                               # on a few pictures that it makes, in seconds
python examples/imagenet.py --data /data/imagenet --arch resnet50 --size 224 --batch-size 256 --epochs 90
python examples/imagenet.py --data /data/imagenet ...     # the same command once more goes on

--data has the folders train and val, or the files train.lmdb and val.lmdb, which `fastloader pack`
makes. The script runs on one device; ddp.py shows several.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from fastloader import FastLoader
from fastloader.datasets import ImageFolder, LMDBDataset
from fastloader.transforms import (
    CenterCrop,
    Compose,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two convolutions and the way around them."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.around = nn.Conv2d(inputs, outputs, 1, stride=2)

    def forward(self, images):
        return torch.relu(self.convolutions(images) + self.around(images))


def make_model(arch, classes):
    if arch != "small":
        import torchvision  # only for its models

        return getattr(torchvision.models, arch)(num_classes=classes)
    blocks = [Block(3, 16), Block(16, 32), Block(32, 64)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def make_pictures(root, split, count):
    """Two classes: bright above, bright below."""
    rng = np.random.default_rng(0)
    for number in range(count):
        name = ("above", "below")[number % 2]
        pixels = rng.integers(0, 120, (72, 96, 3), dtype=np.uint8)
        pixels[slice(36) if name == "above" else slice(36, 72)] += 120
        folder = root / split / name
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number}.jpg")


def make_dataset(path, transform):
    packed = path.with_suffix(".lmdb")
    return LMDBDataset(packed, transform) if packed.exists() else ImageFolder(path, transform)


def make_loaders(options):
    train = Compose([RandomResizedCrop(options.size, (0.6, 1.0)), RandomHorizontalFlip()])
    val = Compose([Resize(options.size * 8 // 7), CenterCrop(options.size)])
    delivery = {"device": "auto", "mean": MEAN, "std": STD, "num_workers": options.workers}
    return (
        FastLoader(
            make_dataset(options.data / "train", train),
            options.batch_size,
            shuffle=True,
            drop_last=True,
            **delivery,
        ),
        FastLoader(make_dataset(options.data / "val", val), options.batch_size, **delivery),
    )


def accuracy(model, loader):
    """The share of pictures that the model gets right."""
    model.eval()
    right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in loader)
    return right / len(loader.dataset)


def run(options):
    train, val = make_loaders(options)
    print(train.plan())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = make_model(options.arch, len(train.dataset.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9, weight_decay=1e-4)
    first_epoch, parts = 0, {"model": model, "optimizer": optimizer, "loader": train}
    if options.checkpoint.exists():
        saved = torch.load(options.checkpoint, weights_only=True)
        first_epoch = saved["epoch"]
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        torch.set_rng_state(saved["torch"])  # later epochs' order comes from it
        print(f"goes on in epoch {first_epoch}")

    def save(epoch):
        states = {name: part.state_dict() for name, part in parts.items()}
        partial = options.checkpoint.with_suffix(".partial")
        torch.save({**states, "epoch": epoch, "torch": torch.get_rng_state()}, partial)
        partial.replace(options.checkpoint)  # a process that dies before this keeps the old one

    saved_at = time.monotonic()
    for epoch in range(first_epoch, options.epochs):
        model.train()
        for images, labels in train:  # on the device, normalised
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if time.monotonic() - saved_at > 600:  # in the middle of an epoch, too
                save(epoch)
                saved_at = time.monotonic()
        save(epoch + 1)
        with torch.no_grad():
            print(f"epoch {epoch}: loss {loss.item():.3f}, {accuracy(model, val):.1%} right")
    print(train.report())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, help="the folder with train and val")
    parser.add_argument("--arch", default="small", help="small, or a model of torchvision")
    parser.add_argument("--size", type=int, default=32, help="pixels a side")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--workers", type=int, default=0, help="decode threads; 0: all processors")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    options = parser.parse_args()
    if options.data is not None:
        run(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        options.data, options.checkpoint = Path(folder), Path(folder, "checkpoint.pt")
        make_pictures(options.data, "train", 128)
        make_pictures(options.data, "val", 32)
        run(options)


if __name__ == "__main__":
    main()
