"""The native image path to a CUDA device: bit for bit what it makes on the CPU."""

import pytest
import torch
from pictures import any_picture, plain_folder, random_folder

from exact import same_bits
from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder
from support import MEAN, STD

CHAINS = {
    "train": [T.RandomResizedCrop(48), T.RandomHorizontalFlip()],
    "odd": [T.RandomResizedCrop((21, 35)), T.RandomVerticalFlip()],
    "eval": [T.Resize(40), T.CenterCrop(33)],
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return str(random_folder(tmp_path_factory.mktemp("all"), 7, each=2, others=True))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("plain"), 48))


def epochs(loader, count=2):
    torch.manual_seed(5)
    return [[list(batch) for batch in loader] for _ in range(count)]


def same_as_on_the_cpu(gpu, data, monkeypatch, **options):
    options = {"batch_size": 6, "shuffle": True, "num_workers": 3, **options}
    loader = FastLoader(data, device=gpu.name, **options)
    assert loader.plan().startswith("native images"), loader.plan()
    delivered = epochs(loader)
    with monkeypatch.context() as patch:
        patch.delenv("FASTLOADER_BACKEND", raising=False)
        reference = epochs(FastLoader(data, device="cpu", **options))
    for one, other in zip(delivered, reference, strict=True):
        for (image, label), (wanted, number) in zip(one, other, strict=True):
            assert gpu.holds(image, label) and image.stride() == wanted.stride()
            assert torch.equal(label.cpu(), number)
            if image.is_floating_point():
                same_bits(image.cpu(), wanted)
            else:
                assert torch.equal(image.cpu(), wanted)
    return loader


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_same_bits(gpu, way, monkeypatch, plain, chain, dtype, channels_last):
    data = ImageFolder(plain, T.Compose(CHAINS[chain]))
    options = {"mean": MEAN, "std": STD, "dtype": dtype, "channels_last": channels_last}
    same_as_on_the_cpu(gpu, data, monkeypatch, **options)


@pytest.mark.parametrize("decode", ["exact", "fast", "whole"])
def test_every_kind_of_file(gpu, way, monkeypatch, everything, decode):
    data = ImageFolder(everything, T.Compose(CHAINS["train"]), is_valid_file=any_picture)
    same_as_on_the_cpu(gpu, data, monkeypatch, mean=MEAN, std=STD, decode=decode)


def test_raw_pixels(gpu, way, monkeypatch, plain):
    same_as_on_the_cpu(gpu, ImageFolder(plain, T.Compose(CHAINS["train"])), monkeypatch)


def test_pictures_are_decoded_in_pinned_slots(gpu, monkeypatch, plain):
    data = ImageFolder(plain, T.Compose(CHAINS["train"]))
    ring = same_as_on_the_cpu(gpu, data, monkeypatch, mean=MEAN, std=STD).stats()["ring"]
    assert ring["pinned"], ring["why_not_pinned"]
    assert ring["copied_bytes"] == 2 * 48 * 8  # the labels


def test_epochs_that_end_early(gpu, way, monkeypatch, plain):
    data = ImageFolder(plain, T.Compose(CHAINS["train"]))
    loader = FastLoader(data, 6, num_workers=3, device=gpu.name, mean=MEAN, std=STD)
    torch.manual_seed(5)
    whole = [image.cpu() for image, _ in loader]
    for taken in range(6):
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        del iterator
    torch.manual_seed(5)
    for image, wanted in zip(loader, whole, strict=True):
        same_bits(image[0].cpu(), wanted)


def test_damaged_files(gpu, way, tmp_path, monkeypatch):
    root = plain_folder(tmp_path, 24)
    for path in sorted(root.rglob("*.jpg"))[::7]:
        path.write_bytes(path.read_bytes()[:50])
    data = ImageFolder(str(root), T.Compose(CHAINS["train"]))
    options = {"batch_size": 5, "mean": MEAN, "std": STD, "on_error": "skip", "num_workers": 2}
    torch.manual_seed(5)
    loader = FastLoader(data, device=gpu.name, **options)
    delivered = [[each.cpu() for each in batch] for batch in loader]
    assert sum(len(label) for _image, label in delivered) == 20
    monkeypatch.delenv("FASTLOADER_BACKEND", raising=False)
    torch.manual_seed(5)
    reference = list(FastLoader(data, device="cpu", **options))
    for (image, label), (wanted, number) in zip(delivered, reference, strict=True):
        same_bits(image, wanted)
        assert torch.equal(label, number)
