"""The front doors on a CUDA device: what they deliver is there, and is what they deliver on the CPU."""

import pytest
import torch
from pictures import import_timm, plain_folder
from torch.utils.data import DataLoader

from exact import normalised, same_bits
from fastloader.compat import timm as ours
from fastloader.compat.apex import data_prefetcher
from support import MEAN, STD, Pictures

WORKERS = pytest.mark.parametrize("workers", [0, 2])
TOLERANCE = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("timm"), 22, size=(50, 41)))


@WORKERS
def test_apex(gpu, way, workers):
    data = Pictures(22)
    prefetcher = data_prefetcher(DataLoader(data, 4, num_workers=workers), device=gpu.name)
    count = 0
    image, label = prefetcher.next()
    while image is not None:
        assert gpu.holds(image, label)
        same_bits(image.cpu(), normalised(data.images[label.cpu()], MEAN, STD, torch.float32))
        count += 1
        image, label = prefetcher.next()
    assert count == 6
    prefetcher.close()


@WORKERS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_timms_prefetch_loader(gpu, way, dtype, workers):
    data = Pictures(22)
    inner = DataLoader(data, 4, num_workers=workers, collate_fn=ours.fast_collate)
    loader = ours.PrefetchLoader(
        inner, MEAN, STD, device=torch.device(gpu.name), img_dtype=dtype, channels=3
    )
    for _ in range(2):
        for image, label in loader:
            assert gpu.holds(image, label)
            same_bits(image.cpu(), normalised(data.images[label.cpu()], MEAN, STD, dtype))
    loader.close()


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
def test_timms_create_loader(gpu, way, monkeypatch, root, training):
    options = {"is_training": training, "num_workers": 2}
    if training:
        options |= {"color_jitter": None, "re_prob": 0.5, "re_mode": "pixel"}

    def epoch(device):
        torch.manual_seed(3)
        loader = ours.create_loader(
            ours.ImageDataset(root), 32, 6, device=torch.device(device), **options
        )
        batches = [[each.cpu() for each in batch] for batch in loader]
        loader.close()
        return batches

    delivered = epoch(gpu.name)
    with monkeypatch.context() as patch:
        patch.delenv("FASTLOADER_BACKEND", raising=False)
        reference = epoch("cpu")
    for (image, label), (wanted, number) in zip(delivered, reference, strict=True):
        same_bits(image, wanted)
        assert torch.equal(label, number)


def test_timms_own_loader_agrees(gpu, way, root):
    theirs = import_timm().data
    device = torch.device(gpu.name)
    mine, their = (
        kind.create_loader(kind.ImageDataset(root), 32, 6, num_workers=2, device=device)
        for kind in (ours, theirs)
    )
    for (image, label), (wanted, number) in zip(mine, their, strict=True):
        assert gpu.holds(image, label) and image.dtype == wanted.dtype
        difference = (image.double() - wanted.double()).abs().max().item()
        assert difference <= TOLERANCE[image.dtype]
        assert torch.equal(label, number)
    mine.close()
