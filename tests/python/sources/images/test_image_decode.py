"""decode="exact", "whole" and "fast"; decoding no more than the output needs changes no pixel."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import (
    any_picture,
    needs_libjpeg,
    plain_folder,
    random_folder,
    redo,
    save_jpeg,
    upstream_pillow,
)
from PIL import Image

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder


def delivered(dataset, decode="exact", **options):
    """All images of one epoch of the same crops, and what replay() says of each."""
    generator = torch.Generator().manual_seed(7)
    loader = FastLoader(dataset, 5, generator=generator, num_workers=2, decode=decode, **options)
    assert loader.plan().startswith("native images")
    images = torch.cat([images for images, _ in loader])
    return images, [loader.replay(index) for index in range(len(dataset))]


def save(folder, pictures, **options):
    """The arrays as JPEGs of one class."""
    (folder / "a").mkdir(parents=True)
    for number, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(folder / "a" / f"{number}.jpg", "JPEG", **options)
    return str(folder)


# --- only what a centre crop needs --------------------------------------------------------------


@upstream_pillow
def test_a_centre_crop_of_a_resize_is_pillows(tmp_path):
    """Random chains and pictures: tall, wide, one pixel, up, down, padded, progressive."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    root = random_folder(tmp_path / "pictures", seed, each=2)
    for number, (width, height) in enumerate(
        [(1, 40), (40, 1), (1, 1), (3, 170), (170, 3), (2, 97), (400, 9), (9, 400), (301, 299)]
    ):
        for progressive in (False, True):
            path = root / "one" / f"odd{number}{progressive}.jpg"
            sampling = rng.choice(["4:4:4", "4:2:2", "4:2:0"])
            save_jpeg(rng, path, width, height, progressive=progressive, subsampling=sampling)
    for _ in range(12):
        filter = rng.choice(["bilinear", "bicubic"])
        center = (rng.randint(1, 90), rng.randint(1, 90))
        if rng.random() < 0.7:
            shorter = rng.choice([1, rng.randint(1, 30), rng.randint(20, 120)])
            steps, wanted = [T.Resize(shorter, filter)], {"shorter": shorter}
        else:
            exact = (rng.randint(1, 120), rng.randint(1, 120))
            steps, wanted = [T.Resize(exact, filter)], {"exact": exact}
        steps += [T.CenterCrop(center), T.RandomHorizontalFlip(), T.RandomVerticalFlip()]
        dataset = ImageFolder(root, T.Compose(steps))
        images, replayed = delivered(dataset)
        for index, image in enumerate(images):
            path = dataset.path(index)
            again = redo(path, replayed[index], **wanted, center=center, filter=filter)
            assert torch.equal(image, again), (seed, path, replayed[index], wanted, center, filter)


# --- whole --------------------------------------------------------------------------------------


def test_whole_gives_the_same_pixels(tmp_path):
    seed = random.randrange(1 << 32)
    root = random_folder(tmp_path / "pictures", seed, each=2, others=True)
    for steps in ([T.RandomResizedCrop(24)], [T.Resize(20), T.CenterCrop(16)]):
        dataset = ImageFolder(root, T.Compose(steps), is_valid_file=any_picture)
        images, replayed = delivered(dataset)
        again, told = delivered(dataset, "whole")
        assert torch.equal(images, again), seed
        assert told == replayed


def test_whole_finds_damage_below_the_crop(tmp_path):
    root = plain_folder(tmp_path / "pictures", 4, classes=1, size=(60, 200))
    dataset = ImageFolder(root, T.Compose([T.CenterCrop(16)]))
    path = Path(dataset.path(2))
    fine, _ = delivered(dataset)
    # A marker that may not stand there, after all rows.
    path.write_bytes(path.read_bytes()[:-2] + b"\xff\x02\xff\xd9")
    with pytest.raises(OSError) as pillows, Image.open(path) as image:
        image.load()
    overlooked, _ = delivered(dataset)
    assert torch.equal(overlooked, fine)
    with pytest.raises(OSError, match=str(pillows.value)):
        delivered(dataset, "whole")
    skipped = FastLoader(dataset, 4, decode="whole", on_error="skip")
    images, _ = next(iter(skipped))
    assert torch.equal(images, fine[[0, 1, 3]])


# --- fast ---------------------------------------------------------------------------------------


def smooth(rng, width, height):
    y, x = np.mgrid[0:height, 0:width]
    planes = [
        127 + 120 * np.sin(x * rng.uniform(-0.03, 0.03) + y * rng.uniform(-0.03, 0.03) + c)
        for c in range(3)
    ]
    return np.stack(planes, axis=-1).astype(np.uint8)


def noisy(rng, width, height):
    """Half of it noise of a few pixels, which aliases where a resize is done badly."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    noise = numbers.integers(0, 256, (height // 2 + 1, width // 2 + 1, 3)).repeat(2, 0).repeat(2, 1)
    return ((smooth(rng, width, height).astype(int) + noise[:height, :width]) // 2).astype(np.uint8)


@needs_libjpeg
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:0"])
@pytest.mark.parametrize(
    ("make", "mean", "over"), [(smooth, 0.7, 0.001), (noisy, 6.0, 0.25)], ids=["smooth", "noisy"]
)
def test_the_error_of_fast_is_bounded(tmp_path, make, mean, over, subsampling):
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    sizes = [(rng.randint(250, 700), rng.randint(250, 700)) for _ in range(12)]
    pictures = [make(rng, *size) for size in sizes]
    root = save(tmp_path / "p", pictures, quality=90, subsampling=subsampling)
    for steps in (
        [T.RandomResizedCrop(40), T.RandomHorizontalFlip()],
        [T.RandomResizedCrop(61, interpolation="bicubic"), T.RandomVerticalFlip()],
        [T.Resize(72), T.CenterCrop(64)],
    ):
        dataset = ImageFolder(root, T.Compose(steps))
        exact, replayed = delivered(dataset)
        fast, told = delivered(dataset, "fast")
        assert told == replayed
        assert not torch.equal(fast, exact), seed  # or nothing was put to the test
        difference = (fast.double() - exact.double()).abs()
        assert difference.mean() < mean, seed
        assert (difference > 8).double().mean() <= over, seed


def test_fast_does_not_shift_the_picture(tmp_path):
    """On a ramp, a shift by a tenth of a pixel of the output would be seen."""
    width, height = 700, 500
    y, x = np.mgrid[0:height, 0:width]
    ramp = np.stack([x / 3 + 5, y / 3 + 20, (x + y) / 6 + 20], axis=-1).astype(np.uint8)
    root = save(tmp_path / "p", [ramp] * 20, quality=97, subsampling="4:4:4")
    dataset = ImageFolder(root, T.Compose([T.RandomResizedCrop((30, 25), (0.2, 1.0))]))
    exact, replayed = delivered(dataset)
    fast, _ = delivered(dataset, "fast")
    shift = (fast.double() - exact.double()).mean(dim=(2, 3))
    for index in range(len(dataset)):
        _, _, box_width, box_height = replayed[index]["box"]
        a_tenth = 0.1 * min(box_width / 25, box_height / 30) / 3
        assert shift[index, :2].abs().max() < a_tenth, replayed[index]


def test_fast_is_exact_where_nothing_is_halved(tmp_path):
    root = random_folder(tmp_path / "pictures", random.randrange(1 << 32), each=1, others=True)
    for steps in ([T.RandomResizedCrop(151)], [T.CenterCrop(40)], [T.Resize((151, 20))]):
        dataset = ImageFolder(root, T.Compose(steps), is_valid_file=any_picture)
        images, _ = delivered(dataset)
        again, _ = delivered(dataset, "fast")
        assert torch.equal(images, again)


def test_fast_takes_every_kind_of_file(tmp_path):
    seed = random.randrange(1 << 32)
    root = random_folder(tmp_path / "pictures", seed, each=3, others=True)
    for steps in ([T.RandomResizedCrop(9)], [T.Resize(8), T.CenterCrop(12)]):
        dataset = ImageFolder(root, T.Compose(steps), is_valid_file=any_picture)
        exact, replayed = delivered(dataset)
        fast, told = delivered(dataset, "fast")
        assert told == replayed
        # Noise at random qualities, but still the same pictures.
        assert (fast.double() - exact.double()).abs().mean() < 6, seed


# --- arguments ----------------------------------------------------------------------------------


def test_modes_are_checked_and_native_only(tmp_path):
    dataset = ImageFolder(plain_folder(tmp_path / "p", 4), T.Resize((8, 8)))
    for wrong in ("draft", "", None, True):
        with pytest.raises(ValueError, match="'exact', 'whole' or 'fast'"):
            FastLoader(dataset, 2, decode=wrong)
    for mode in ("whole", "fast"):
        with pytest.raises(ValueError, match=f"decode='{mode}'.*native=False"):
            iter(FastLoader(dataset, 2, decode=mode, native=False))
    assert len(list(FastLoader(dataset, 2, decode="exact", native=False))) == 2
