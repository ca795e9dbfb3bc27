"""Pictures of one channel: each step does to them natively what it does to Pillow's mode L, and each
delivery brings tensors of one channel."""

import importlib

import numpy as np
import pytest
import torch
from pictures import import_timm, import_torchvision, plain_folder, random_folder
from torch.utils.data import DataLoader

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from support import same

pytestmark = pytest.mark.skipif(extension.load() is None, reason="needs the native module")

COUNT = 23
MEAN, STD = (0.1307,), (0.3081,)


@pytest.fixture(params=["v1", "v2"])
def steps(request):
    """torchvision's transforms."""
    import_torchvision()
    name = "torchvision.transforms" + (".v2" if request.param == "v2" else "")
    return importlib.import_module(name)


@pytest.fixture
def mnist():
    """MNIST as its constructor leaves it, with pictures that no file holds."""
    tv = import_torchvision()

    def mnist(*chain):
        dataset = tv.datasets.MNIST.__new__(tv.datasets.MNIST)
        numbers = np.random.default_rng(len(chain))
        dataset.data = torch.from_numpy(numbers.integers(0, 256, (COUNT, 28, 30), dtype=np.uint8))
        dataset.targets = torch.from_numpy(numbers.integers(0, 10, COUNT))
        dataset.transform, dataset.target_transform = T.Compose(chain), None
        return dataset

    return mnist


def native(dataset, **options):
    loader = FastLoader(dataset, 4, **options)
    assert loader.plan().startswith("native images: "), loader.plan()
    return loader


def batches(loader):
    return [[images.clone(), labels.clone()] for images, labels in loader]


# Steps that draw nothing, or the same for all pictures: what comes out is torchvision's own.
FIXED = {
    "RandomInvert": lambda m: m.RandomInvert(1.0),
    "RandomPosterize": lambda m: m.RandomPosterize(3, 1.0),
    "RandomSolarize": lambda m: m.RandomSolarize(99, 1.0),
    "RandomAdjustSharpness": lambda m: m.RandomAdjustSharpness(2.5, 1.0),
    "RandomAdjustSharpness blurred": lambda m: m.RandomAdjustSharpness(0.25, 1.0),
    "RandomAutocontrast": lambda m: m.RandomAutocontrast(1.0),
    "RandomEqualize": lambda m: m.RandomEqualize(1.0),
    "GaussianBlur": lambda m: m.GaussianBlur((5, 3), (1.25, 1.25)),
    "brightness": lambda m: m.ColorJitter(brightness=(1.5, 1.5)),
    "contrast": lambda m: m.ColorJitter(contrast=(0.5, 0.5)),
    "more contrast": lambda m: m.ColorJitter(contrast=(1.75, 1.75)),
    "saturation": lambda m: m.ColorJitter(saturation=(1.75, 1.75)),
    "hue": lambda m: m.ColorJitter(hue=(0.25, 0.25)),
    "Grayscale": lambda m: m.Grayscale(),
    "RandomGrayscale": lambda m: m.RandomGrayscale(1.0),
    "CenterCrop": lambda m: m.CenterCrop(20),
    "CenterCrop padded": lambda m: m.CenterCrop((31, 12)),
    "Pad": lambda m: m.Pad((3, 1), 200),
    "Pad float": lambda m: m.Pad(2, (7,)),
    **{
        f"Pad {mode}": lambda m, mode=mode: m.Pad((3, 1, 2, 5), padding_mode=mode)
        for mode in ("edge", "reflect", "symmetric")
    },
    **{
        f"Resize {name}": lambda m, name=name: m.Resize((13, 40), m.InterpolationMode(name))
        for name in ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
    },
    "Resize shorter": lambda m: m.Resize(19),
    **{
        f"RandomRotation {name}": lambda m, name=name: m.RandomRotation(
            (30, 30), m.InterpolationMode(name), fill=77
        )
        for name in ("nearest", "bilinear", "bicubic")
    },
    **{
        f"RandomAffine {name}": lambda m, name=name: m.RandomAffine(
            (20, 20), scale=(1.25, 1.25), shear=(5, 5, 3, 3),
            interpolation=m.InterpolationMode(name), fill=77,
        )
        for name in ("nearest", "bilinear", "bicubic")
    },
    "RandomHorizontalFlip": lambda m: m.RandomHorizontalFlip(1.0),
    "RandomVerticalFlip": lambda m: m.RandomVerticalFlip(1.0),
    "RandomApply": lambda m: m.RandomApply([m.RandomInvert(1.0), m.Pad(1, 9)], 1.0),
}  # fmt: skip
# Each picture gets the steps that replay() lists.
DRAWN = {
    "RandomCrop": lambda m: m.RandomCrop((24, 31), 2, True, 9),
    "RandomResizedCrop": lambda m: m.RandomResizedCrop((20, 18)),
    "RandomAffine": lambda m: m.RandomAffine(30, (0.2, 0.1), (0.6, 1.5), 20, fill=(5,)),
    "RandomPerspective": lambda m: m.RandomPerspective(0.6, 1.0, fill=9),
    "RandomRotation": lambda m: m.RandomRotation(60, m.InterpolationMode("bicubic")),
    "ColorJitter": lambda m: m.ColorJitter(0.4, (0.2, 1.9), 0.8, 0.3),
    "RandomGrayscale": lambda m: m.RandomGrayscale(0.5),
    "RandAugment": lambda m: m.RandAugment(3, 11, fill=7),
    "TrivialAugmentWide": lambda m: m.TrivialAugmentWide(),
    **{
        f"AutoAugment {name}": lambda m, name=name: m.AutoAugment(m.AutoAugmentPolicy(name))
        for name in ("imagenet", "cifar10", "svhn")
    },
    "RandomChoice": lambda m: m.RandomChoice([m.RandomInvert(1.0), m.RandomRotation(9)]),
    "RandomOrder": lambda m: m.RandomOrder([m.RandomEqualize(), m.RandomSolarize(99)]),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FIXED)
def test_a_step_does_as_torchvision(steps, mnist, name):
    dataset = mnist(FIXED[name](steps), steps.PILToTensor())
    got, wanted = batches(native(dataset)), list(DataLoader(dataset, 4))
    if name == "GaussianBlur":  # which torch computes, and rounds otherwise now and then
        images, images_wanted = (
            torch.cat([images for images, _ in each]) for each in (got, wanted)
        )
        differ = images.int().sub(images_wanted.int()).abs()
        assert differ.max() <= 1 and differ.float().mean() < 1e-3
    else:
        same(got, wanted)


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_does_to_mode_l_what_replay_says(steps, mnist, name):
    dataset, plain = (
        mnist(DRAWN[name](steps), steps.PILToTensor()),
        mnist(T.Resize(28), T.ToTensor()),
    )
    plain.transform = None
    loader = native(dataset)
    seen = set()
    for _ in range(4):
        images = torch.cat([images.clone() for images, _ in loader])
        for number, image in enumerate(images):
            drawn = loader.replay(number)["steps"]
            seen.add(str(drawn))
            picture = T.apply(plain[number][0], drawn)
            assert picture.mode == "L"
            same(image, T.PILToTensor()(picture))
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda m: m.Pad(2, (1, 2, 3)), "fills pictures of one channel with 3 numbers"),
        (lambda m: m.RandomApply([m.RandomRotation(9, fill=[1, 2, 3])]), "with 3 numbers"),
        (lambda m: m.RandomApply([m.Grayscale(3)]), "holds Grayscale"),
        (lambda m: m.AugMix(), "AugMix"),
        (lambda m: T.RandomChoice([T.Grayscale(1), T.Pad(1)]), "holds Grayscale"),
    ],
)  # fmt: skip
def test_what_differs_is_named(steps, mnist, make, reason):
    plan = FastLoader(mnist(make(steps), steps.PILToTensor()), 4).plan()
    assert plan.startswith("Python path: ") and reason in plan, plan


def test_erasing_with_three_values_is_named(mnist):
    dataset = mnist(T.ToTensor(), T.RandomErasing(value=[1, 2, 3]))
    plan = FastLoader(dataset, 4).plan()
    assert plan.startswith("Python path: RandomErasing"), plan


@pytest.mark.parametrize("mean", [(0.1, 0.2, 0.3), (0.1, 0.2)])
def test_a_normalisation_of_other_channels_is_torchvisions(steps, mnist, mean):
    """v1 refuses it, and v2 makes as many channels."""
    chain = [
        steps.PILToTensor(),
        steps.ConvertImageDtype(torch.float32),
        steps.Normalize(mean, mean),
    ]
    dataset = mnist(*chain)
    loader = FastLoader(dataset, 4)
    assert "is not of one channel" in loader.plan()
    if steps.__name__.endswith("v2"):
        same(batches(loader), list(DataLoader(dataset, 4)))
        return
    for each in (loader, DataLoader(dataset, 4)):
        with pytest.raises(RuntimeError, match=r"match|broadcast"):
            next(iter(each))


def test_timms_steps_are_of_three_channels(mnist):
    import_timm()
    timm = importlib.import_module("timm.data.transforms")
    plan = FastLoader(mnist(timm.TrimBorder(2), T.PILToTensor()), 4).plan()
    assert "timm's, stands on pictures of one channel" in plan


# --- from one channel to three, and back ------------------------------------------------------------


def test_grayscale_makes_three_channels(steps, mnist):
    norm = steps.Normalize((0.1, 0.2, 0.3), (0.3, 0.2, 0.1))
    chain = [steps.Grayscale(3), steps.Resize(20), steps.ToTensor(), norm]
    dataset = mnist(*chain)
    for got, wanted in zip(batches(native(dataset)), DataLoader(dataset, 4), strict=True):
        assert got[0].shape[1] == 3
        torch.testing.assert_close(got[0], wanted[0], rtol=0, atol=2e-6)


def test_steps_of_one_channel_are_no_obstacle(steps, mnist):
    dataset = mnist(steps.ToTensor(), steps.Normalize((0.1,), (0.3,)))
    plan = FastLoader(dataset, 4, collate_fn=len).plan()
    assert "collate_fn is len" in plan and "Normalize" not in plan.partition("; batches")[0]


def test_rgb_makes_three_channels(mnist):
    import_torchvision()
    v2 = importlib.import_module("torchvision.transforms.v2")
    dataset = mnist(v2.Pad(1, 3), v2.RGB(), v2.Pad(1, (1, 2, 3)), v2.ToImage())
    same(batches(native(dataset)), list(DataLoader(dataset, 4)))
    behind = mnist(v2.ToImage(), v2.RGB())
    assert "comes after the conversion" in FastLoader(behind, 4).plan()
    same(batches(FastLoader(behind, 4)), list(DataLoader(behind, 4)))


@pytest.mark.parametrize(
    "chain",
    [
        [T.Grayscale(), T.Resize((12, 10))],
        [T.Resize((12, 10)), T.Grayscale()],
        [T.Resize((12, 10)), T.Grayscale(1), T.Pad(1, 9), T.RandomInvert(1.0)],
        [T.Grayscale(), T.Grayscale(3), T.CenterCrop((9, 8))],
    ],
    ids=str,
)
def test_files_in_grey(tmp_path, chain):
    dataset = ImageFolder(str(random_folder(tmp_path, 17)), T.Compose([*chain, T.PILToTensor()]))
    same(batches(native(dataset)), list(DataLoader(dataset, 4)))


def test_grey_floats_of_files(tmp_path):
    chain = [T.Resize((12, 10)), T.Grayscale(), T.ToTensor(), T.Normalize(MEAN, STD)]
    dataset = ImageFolder(str(plain_folder(tmp_path, 9)), T.Compose(chain))
    for got, wanted in zip(batches(native(dataset)), DataLoader(dataset, 4), strict=True):
        torch.testing.assert_close(got[0], wanted[0], rtol=0, atol=2e-6)


# --- deliveries -----------------------------------------------------------------------------------


def close(got, wanted):
    assert len(got) == len(wanted)
    for (images, labels), (images_wanted, labels_wanted) in zip(got, wanted):
        assert images.shape == images_wanted.shape and images.dtype == images_wanted.dtype
        torch.testing.assert_close(images, images_wanted, rtol=0, atol=2e-6)
        same(labels, labels_wanted)


@pytest.fixture
def wanted(mnist):
    """Batches in floats, as torch makes them."""
    dataset = mnist(T.RandomVerticalFlip(1.0), T.ToTensor(), T.Normalize(MEAN, STD))
    return list(DataLoader(dataset, 4))


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_loader_normalises_one_channel(mnist, wanted, device, channels_last):
    dataset = mnist(T.RandomVerticalFlip(1.0), T.Resize(28), T.PILToTensor())
    loader = native(dataset, mean=MEAN, std=STD, channels_last=channels_last, **device)
    for _ in range(2):
        close(batches(loader), wanted)


def test_the_chain_normalises_one_channel(mnist, wanted, device):
    dataset = mnist(T.RandomVerticalFlip(1.0), T.ToTensor(), T.Normalize(MEAN, STD))
    loader = native(dataset, **device)
    close(batches(loader), wanted)


def test_a_mean_of_three_channels_is_refused(mnist, device):
    loader = FastLoader(mnist(T.PILToTensor()), 4, mean=MEAN * 3, std=STD * 3, **device)
    assert "mean and std are of 3 channels, the images have 1" in loader.plan()


@pytest.mark.parametrize("value", [0.5, "random"])
def test_one_channel_is_erased(mnist, device, value):
    erasing = T.RandomErasing(1.0, (0.1, 0.2), value=value)
    dataset = mnist(T.ToTensor(), T.Normalize(MEAN, STD), erasing)
    loader = native(dataset, **device)
    plain = dataset.data[:, None].float().div(255).sub(*MEAN).div(*STD)
    images = torch.cat([images for images, _ in batches(loader)])
    for number, image in enumerate(images):
        (_, box) = loader.replay(number)["steps"][-1]
        rows = slice(box["top"], box["top"] + box["height"])
        columns = slice(box["left"], box["left"] + box["width"])
        inside = torch.zeros(28, 30, dtype=torch.bool)
        inside[rows, columns] = True
        torch.testing.assert_close(image[:, ~inside], plain[number][:, ~inside], rtol=0, atol=2e-6)
        if value == "random":
            assert image[:, inside].std() > 0.5
        else:
            assert (image[:, inside] == value).all()


def test_one_channel_is_mixed(mnist, device):
    dataset = mnist(T.ToTensor(), T.Normalize(MEAN, STD))
    plain = dataset.data[:, None].float().div(255).sub(*MEAN).div(*STD)
    loader = FastLoader(dataset, COUNT, collate_fn=T.MixUp(num_classes=10), **device)
    assert loader.plan().startswith("native images: ")
    ((images, labels),) = [(images.clone(), labels.clone()) for images, labels in loader]
    assert images.shape == plain.shape and labels.shape == (COUNT, 10)
    other = plain.roll(1, 0)
    weight = ((images - other) * (plain - other)).sum() / (plain - other).square().sum()
    assert 0 <= weight <= 1
    torch.testing.assert_close(images, other.lerp(plain, weight), rtol=0, atol=1e-3)


def test_a_step_of_ones_own_gets_mode_l(mnist):
    modes = []

    def look(image):
        modes.append(image.mode)
        return image

    dataset = mnist(T.Resize(20), look, T.PILToTensor())
    loader = FastLoader(dataset, 4)
    assert "native up to Resize" in loader.plan()
    got = batches(loader)
    assert set(modes) == {"L"}
    same(got, list(DataLoader(dataset, 4)))
