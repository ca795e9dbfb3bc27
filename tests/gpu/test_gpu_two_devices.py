"""Two GPUs: each loader delivers to its own, whichever is current."""

import pytest
import torch

from exact import normalised, same_bits
from fastloader import FastLoader
from support import MEAN, STD, Pictures

pytestmark = [pytest.mark.two_devices, pytest.mark.cuda_only]
WORKERS = pytest.mark.parametrize("workers", [0, 2])


def make(data, device, workers):
    return FastLoader(data, 4, num_workers=workers, device=device, mean=MEAN, std=STD)


def right(data, image, label, device):
    assert image.device == label.device == torch.device(device)
    same_bits(image.cpu(), normalised(data.images[label.cpu()], MEAN, STD, torch.float32))


@WORKERS
@pytest.mark.parametrize("current", [0, 1])
def test_the_current_device_does_not_matter(gpu, way, workers, current):
    data = Pictures(40, size=(33, 31))
    with torch.cuda.device(current):
        for device in ("cuda:0", "cuda:1"):
            for image, label in make(data, device, workers):
                right(data, image, label, device)
            assert torch.cuda.current_device() == current


@WORKERS
def test_side_by_side(gpu, way, workers):
    data, other = Pictures(40, seed=1), Pictures(40, seed=2)
    first, second = make(data, "cuda:0", workers), make(other, "cuda:1", workers)
    for one, two in zip(first, second, strict=True):
        right(data, *one, "cuda:0")
        right(other, *two, "cuda:1")
        assert torch.cuda.current_device() == 0
