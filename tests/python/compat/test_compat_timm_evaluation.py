"""compat.timm beside the installed timm: evaluation gives the same pixels, types and labels."""

import random

import pytest
import torch
from beside_timm import TOLERANCE, assert_close, pair
from pictures import open_as_torchvision, random_folder

from fastloader import FastLoader
from fastloader.compat import timm as ours

pytestmark = pytest.mark.covering


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    seed = random.randrange(2**32)
    print("seed", seed)
    folder = random_folder(tmp_path_factory.mktemp("timm"), seed, each=2, others=True)
    for path in folder.rglob("*.*"):
        edges = sorted(open_as_torchvision(path).size)
        if edges[1] > 12 * edges[0]:
            path.unlink()  # fitted into a square, it has no pixels left, in timm neither
    return str(folder)


EVALUATIONS = {
    "default": {},
    "bicubic": {"interpolation": "bicubic", "crop_pct": 0.9},
    "whole": {"crop_pct": 1.0},
    "squash": {"crop_mode": "squash", "crop_pct": 0.95},
    "border": {"crop_mode": "border", "crop_pct": 0.9},
    "lanczos": {"interpolation": "lanczos"},
    "border-bicubic": {"crop_mode": "border", "interpolation": "bicubic"},
}
SIZES = [24, (20, 28), (3, 26, 18)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", EVALUATIONS)
def test_evaluation(theirs, everything, name, size, way):
    mine, their = pair(theirs, everything, size, 7, num_workers=0, **EVALUATIONS[name])
    native = way.name != "pure"
    assert mine.loader.plan().startswith("native images: fastloader ImageDataset") is native
    assert_close(mine, their)
    mine.close()


@pytest.mark.parametrize("name", EVALUATIONS)
def test_our_dataset_gives_what_the_loader_gives(everything, name):
    """The same chains in Python, picture by picture."""
    dataset = ours.ImageDataset(everything)
    loader = ours.create_loader(dataset, (20, 28), 5, use_prefetcher=False, **EVALUATIONS[name])
    images = torch.cat([images for images, _labels in loader])
    for index, image in enumerate(images):
        torch.testing.assert_close(image, dataset[index][0], rtol=0, atol=2e-6)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_dtypes(theirs, root, dtype):
    assert_close(*pair(theirs, root, 24, 6, img_dtype=dtype, num_workers=0), dtype)


def test_fp16_wins(theirs, root):
    options = {"fp16": True, "img_dtype": torch.bfloat16, "num_workers": 0}
    mine, their = pair(theirs, root, 24, 6, **options)
    assert mine.img_dtype == their.img_dtype == torch.float16
    assert_close(mine, their, torch.float16)


@pytest.mark.parametrize("no_aug", [False, True])
def test_without_prefetcher(theirs, root, no_aug):
    torch.manual_seed(3)
    options = {"use_prefetcher": False, "num_workers": 0, "is_training": no_aug, "no_aug": no_aug}
    mine, their = pair(theirs, root, 24, 5, **options)
    assert isinstance(mine, FastLoader) and mine.plan().startswith("native"), mine.plan()
    torch.manual_seed(3)
    got = list(mine)
    torch.manual_seed(3)
    assert_close(got, list(their))


@pytest.mark.parametrize("options", [{}, {"crop_mode": "border", "mean": (0.4,), "std": (0.2,)}])
def test_grey_pictures(theirs, root, options):
    options = {"device": torch.device("cpu"), "num_workers": 0, **options}
    mine, their = (
        kind.create_loader(kind.ImageDataset(root, input_img_mode="L"), (1, 24, 30), 6, **options)
        for kind in (ours, theirs)
    )
    assert_close(mine, their)
    assert "input_img_mode='L'" in mine.loader.plan()


def test_four_channels(theirs, root):
    """With a border of four numbers."""
    options = {"device": torch.device("cpu"), "num_workers": 0, "crop_mode": "border"}
    four = {"mean": (0.1, 0.2, 0.3, 0.4), "std": (0.5,) * 4}
    mine, their = (
        kind.create_loader(
            kind.ImageDataset(root, input_img_mode="CMYK"), (4, 24, 30), 6, **options, **four
        )
        for kind in (ours, theirs)
    )
    assert_close(mine, their)


def test_averages_for_other_channels(theirs, root, caplog):
    """With timm's warning."""
    mine, their = (
        kind.create_loader(
            kind.ImageDataset(root, input_img_mode="L"),
            (1, 24, 24),
            6,
            device=torch.device("cpu"),
            num_workers=0,
        )
        for kind in (ours, theirs)
    )
    said = [record for record in caplog.records if "shape than model" in record.message]
    assert {record.name for record in said} == {"fastloader", "timm.data.loader"}
    assert mine.mean.shape == their.mean.shape == (1, 1, 1, 1)
    torch.testing.assert_close(mine.mean, their.mean)
    torch.testing.assert_close(mine.std, their.std)
    assert_close(mine, their)


@pytest.mark.parametrize("size", SIZES[:2], ids=str)
def test_evaluation_with_timms_steps(theirs, root, size):
    options = {"crop_border_pixels": 3, "num_workers": 0}
    mine, their = pair(theirs, root, size, 5, **options)
    assert_close(mine, their)
    assert "TrimBorder" in mine.loader.plan()


def test_evaluation_needs_one_filter(root):
    with pytest.raises(ValueError, match="is for training"):
        ours.create_loader(ours.ImageDataset(root), 24, 4, interpolation="random")
    with pytest.raises(ValueError, match="use one of nearest, lanczos, bilinear"):
        ours.create_loader(ours.ImageDataset(root), 24, 4, interpolation="lanzos")
