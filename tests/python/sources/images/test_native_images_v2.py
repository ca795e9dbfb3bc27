"""torchvision's v2 transforms on the native path: what is read, and what must not be."""

import importlib

import pytest
import torch
from pictures import import_torchvision, plain_folder
from torch.utils.data import DataLoader

from fastloader import FastLoader
from support import MEAN, STD, same


@pytest.fixture
def tv():
    return import_torchvision()


@pytest.fixture
def v2(tv):
    return importlib.import_module("torchvision.transforms.v2")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("v2"), 11))


def to_float(v2):
    return v2.ToDtype(torch.float32, scale=True)


def normalize(v2):
    return v2.Normalize(MEAN, STD)


def geometry(v2):
    return [v2.Resize(14), v2.CenterCrop((12, 10))]


BYTES = {
    "image": lambda v2: [*geometry(v2), v2.ToImage()],
    "tensor": lambda v2: [*geometry(v2), v2.PILToTensor()],
    "image of bytes": lambda v2: [*geometry(v2), v2.ToImage(), v2.ToDtype(torch.uint8)],
    "scaled bytes": lambda v2: [*geometry(v2), v2.PILToTensor(), v2.ToDtype(torch.uint8, True)],
    "pure": lambda v2: [*geometry(v2), v2.ToImage(), v2.ToPureTensor()],
    "rgb": lambda v2: [v2.RGB(), *geometry(v2), v2.RGB(), v2.ToImage(), v2.RGB()],
    "nested": lambda v2: [v2.Compose(geometry(v2)), v2.Compose([v2.ToImage()])],
    "pair": lambda v2: [v2.Resize([13, 9], antialias=None), v2.ToImage()],
    "not antialiased": lambda v2: [v2.Resize((13, 9), antialias=False), v2.ToImage()],
    "bicubic": lambda v2: [v2.Resize((13, 9), interpolation=3), v2.ToImage()],
    "longest": lambda v2: [v2.Resize(14, max_size=15), v2.CenterCrop(16), v2.ToImage()],
    "grey": lambda v2: [*geometry(v2), v2.Grayscale(1), v2.ToImage()],
    "flipped": lambda v2: [*geometry(v2), v2.RandomHorizontalFlip(1.0), v2.ToImage()],
    "flipped behind": lambda v2: [*geometry(v2), v2.ToImage(), v2.RandomVerticalFlip(1.0)],
}
FLOATS = {
    "recommended": lambda v2: [*geometry(v2), v2.ToImage(), to_float(v2), normalize(v2)],
    "tensor": lambda v2: [*geometry(v2), v2.PILToTensor(), to_float(v2), normalize(v2)],
    "bytes first": lambda v2: [
        *geometry(v2), v2.ToImage(), v2.ToDtype(torch.uint8, scale=True), to_float(v2), normalize(v2)
    ],
    "float twice": lambda v2: [*geometry(v2), v2.ToImage(), to_float(v2), v2.ToDtype(torch.float32)],
    "not normalised": lambda v2: [*geometry(v2), v2.ToImage(), to_float(v2)],
    "older name": lambda v2: [*geometry(v2), v2.ToImage(), v2.ConvertImageDtype(torch.float32)],
    "flip at the end": lambda v2: [
        *geometry(v2), v2.ToImage(), to_float(v2), normalize(v2), v2.RandomHorizontalFlip(1.0)
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BYTES)
def test_bytes(tv, v2, root, name):
    dataset = tv.datasets.ImageFolder(root, v2.Compose(BYTES[name](v2)))
    loader = FastLoader(dataset, 4)
    assert loader.plan().startswith("native images: "), loader.plan()
    got = [[images.clone(), labels] for images, labels in loader]
    same(got, list(DataLoader(dataset, 4)))
    assert type(got[0][0]) is torch.Tensor and got[0][0].dtype == torch.uint8


@pytest.mark.parametrize("name", FLOATS)
def test_floats(tv, v2, root, name):
    dataset = tv.datasets.ImageFolder(root, v2.Compose(FLOATS[name](v2)))
    loader = FastLoader(dataset, 4)
    assert loader.plan().startswith("native images: "), loader.plan()
    for (images, labels), (wanted, wanted_labels) in zip(loader, DataLoader(dataset, 4)):
        same(labels, wanted_labels)
        assert type(images) is torch.Tensor and images.dtype == wanted.dtype == torch.float32
        assert torch.allclose(images, wanted, atol=2e-6, rtol=0)


def test_first_version_with_its_dtype_step(tv, root):
    t = tv.transforms
    steps = [t.Resize((12, 10)), t.PILToTensor(), t.ConvertImageDtype(torch.float32)]
    dataset = tv.datasets.ImageFolder(root, t.Compose([*steps, t.Normalize(MEAN, STD)]))
    loader = FastLoader(dataset, 11)
    assert loader.plan().startswith("native images: "), loader.plan()
    images, wanted = next(iter(loader))[0], next(iter(DataLoader(dataset, 11)))[0]
    assert torch.allclose(images, wanted, atol=2e-6, rtol=0)


def test_training(tv, v2, root):
    steps = [v2.RandomResizedCrop(12), v2.RandomHorizontalFlip(), v2.ToImage(), to_float(v2)]
    loader = FastLoader(tv.datasets.ImageFolder(root, v2.Compose(steps)), 4)
    assert "random crop of 0.08 to 1" in loader.plan()
    assert next(iter(loader))[0].shape == (4, 3, 12, 12)


def hooked(v2):
    resize = v2.Resize((12, 10))
    resize.register_forward_hook(lambda module, given, made: made)
    return [resize, v2.ToImage()]


TENSORS = "by other rules than Pillow images"
STOPPED = {
    "resize behind": (lambda v2: [v2.ToImage(), v2.Resize((12, 10))], TENSORS),
    "random crop behind": (lambda v2: [v2.ToImage(), v2.RandomResizedCrop(9)], TENSORS),
    "centre crop behind": (
        lambda v2: [v2.Resize((20, 20)), v2.ToImage(), v2.CenterCrop(9)],
        TENSORS,
    ),
    "resize behind tensor": (lambda v2: [v2.PILToTensor(), v2.Resize((12, 10))], TENSORS),
    "dtype first": (
        lambda v2: [to_float(v2), v2.Resize((12, 10)), v2.ToImage()],
        "before the conversion to a tensor",
    ),
    "unscaled": (
        lambda v2: [*geometry(v2), v2.ToImage(), v2.ToDtype(torch.float32)],
        "floats in 0..255",
    ),
    "half": (
        lambda v2: [*geometry(v2), v2.ToImage(), v2.ToDtype(torch.float16, scale=True)],
        "torch.float16",
    ),
    "back to bytes": (
        lambda v2: [*geometry(v2), v2.ToImage(), to_float(v2), v2.ToDtype(torch.uint8, True)],
        "torch.uint8",
    ),
    "by kind": (
        lambda v2: [*geometry(v2), v2.ToImage(), v2.ToDtype({torch.Tensor: torch.float32})],
        "ToDtype",
    ),
    "bytes normalised": (
        lambda v2: [*geometry(v2), v2.ToImage(), normalize(v2)],
        "convert to float",
    ),
    "normalised twice": (
        lambda v2: [*geometry(v2), v2.ToImage(), to_float(v2), normalize(v2), normalize(v2)],
        "Normalize(",
    ),
    "one channel at random": (
        lambda v2: [*geometry(v2), v2.RandomApply([v2.Grayscale(1)]), v2.ToImage()],
        "Grayscale(",
    ),
    "no size": (
        lambda v2: [v2.Resize(None, max_size=9), v2.CenterCrop(9), v2.ToImage()],
        "Resize(",
    ),
    "picture at the end": (geometry, "ends in a Pillow image"),
    "hooks": (hooked, "has hooks"),
}


@pytest.mark.parametrize("name", STOPPED)
def test_stopped_by(tv, v2, root, name):
    make, wanted = STOPPED[name]
    plan = FastLoader(tv.datasets.ImageFolder(root, v2.Compose(make(v2))), 3).plan()
    assert plan.startswith("Python path: ") and wanted in plan, plan
    assert len(plan.splitlines()[0]) < 400, plan


def test_a_size_by_chance(tv, v2, root):
    """The pictures are made natively, and collated by Python."""
    chain = v2.Compose([v2.RandomApply([v2.Resize((12, 10))]), v2.ToImage()])
    plan = FastLoader(tv.datasets.ImageFolder(root, chain), 3).plan()
    assert (
        plan.startswith("native images: ")
        and "then Python: the transform gives pictures of diff" in plan
    )


def test_steps_of_a_sequential_are_not_looked_at(tv, v2, root):
    """It runs them as Compose does; but it is a module that anything may be registered on."""
    chain = torch.nn.Sequential(*geometry(v2), v2.ToImage())
    for transform in (chain, v2.Compose([chain]), tv.transforms.Compose([chain])):
        loader = FastLoader(tv.datasets.ImageFolder(root, transform), 3)
        assert "Sequential(" in loader.plan() and "Compose" in loader.plan(), loader.plan()
        assert next(iter(loader))[0].shape == (3, 3, 12, 10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_to_tensor_gives_torchs_default_dtype(tv, root, dtype):
    """As torchvision does it; with the usual default dtype the same chain is native."""
    v1 = tv.transforms
    chain = [v1.Resize(14), v1.CenterCrop((12, 10)), v1.ToTensor(), v1.Normalize(MEAN, STD)]
    dataset = tv.datasets.ImageFolder(root, v1.Compose(chain))
    loader = FastLoader(dataset, 4)
    assert loader.plan().startswith("native images")
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        assert f"ToTensor() gives torch's default dtype, {dtype}" in loader.plan()
        got = [[images.clone(), labels] for images, labels in loader]
        same(got, list(DataLoader(dataset, 4)))
    finally:
        torch.set_default_dtype(before)
    assert got[0][0].dtype is dtype
    assert next(iter(loader))[0].dtype is torch.float32
