"""timm's training and validation loaders on generated pictures, with fastloader's create_loader.

python examples/timm_train.py
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

# was: from timm.data import ImageDataset, Mixup, create_loader
from fastloader.compat.timm import ImageDataset, create_loader


def make_pictures(root: Path, count: int) -> None:
    """Two classes: bright above, bright below."""
    rng = np.random.default_rng(0)
    for number in range(count):
        name = ("above", "below")[number % 2]
        pixels = rng.integers(0, 120, (72, 96, 3), dtype=np.uint8)
        pixels[:36] += 120 if name == "above" else 0
        pixels[36:] += 120 if name == "below" else 0
        (root / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / name / f"{number}.jpg")


with tempfile.TemporaryDirectory() as folder:
    make_pictures(Path(folder), 160)
    train = create_loader(
        ImageDataset(folder),
        input_size=(3, 32, 32),
        batch_size=32,
        is_training=True,
        scale=(0.6, 1.0),
        interpolation="random",
        num_workers=2,
    )
    validation = create_loader(ImageDataset(folder), (3, 32, 32), 64, interpolation="bicubic")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 2))
    model.to(train.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        for input, target in train:
            loss = torch.nn.functional.cross_entropy(model(input), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = sum((model(input).argmax(1) == target).sum() for input, target in validation)
        print(f"epoch {epoch}: loss {loss:.3f}, {right} of {len(validation.dataset)} right")
    print(train.loader.plan())
    train.close()
    validation.close()
