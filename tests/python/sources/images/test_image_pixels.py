"""Every picture of every batch is what Pillow makes of it, bit for bit, on every way to deliver."""

import functools
import random

import pytest
import torch
from pictures import any_picture, plain_folder, random_folder, redo, upstream_pillow
from torch.utils.data import DataLoader

from exact import table
from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder
from support import MEAN, STD, expected, same

FLIPS = [T.RandomHorizontalFlip(), T.RandomVerticalFlip()]

# name: (steps, what redo() needs to know beside the box)
CHAINS = {
    "crop": ([T.RandomResizedCrop(32), *FLIPS], {"exact": (32, 32)}),
    "crop bicubic": (
        [T.RandomResizedCrop((21, 34), (0.05, 1), (0.3, 3), "bicubic"), *FLIPS],
        {"exact": (21, 34), "filter": "bicubic"},
    ),
    "crop up": ([T.RandomResizedCrop(97, (0.01, 0.1)), *FLIPS], {"exact": (97, 97)}),
    "crop and centre": (
        [T.RandomResizedCrop(40), T.CenterCrop(31)],
        {"exact": (40, 40), "center": (31, 31)},
    ),
    "eval": (
        [T.Resize(36), T.CenterCrop(32)],
        {"shorter": 36, "center": (32, 32)},
    ),
    "eval bicubic flips": (
        [T.Resize(25, "bicubic"), T.CenterCrop((31, 24)), *FLIPS],
        {"shorter": 25, "center": (31, 24), "filter": "bicubic"},
    ),
    "max size": (
        [T.Resize(24, max_size=30), T.CenterCrop(28)],
        {"shorter": 24, "max_size": 30, "center": (28, 28)},
    ),
    "pair": ([T.Resize((19, 45)), T.RandomVerticalFlip(1)], {"exact": (19, 45)}),
    "pair bicubic": ([T.Resize((65, 3), "bicubic")], {"exact": (65, 3), "filter": "bicubic"}),
    "centre": ([T.CenterCrop((25, 60)), *FLIPS], {"center": (25, 60)}),
    "bigger centre": ([T.CenterCrop(311), *FLIPS], {"center": (311, 311)}),
}
# These give pictures of 1 x 300 pixels a length of 0 or of thousands.
THIN = ("max size",)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Every kind of file in random sizes, other ones on every run; a failure names the seed."""
    seed = random.randrange(1 << 32)
    root = random_folder(tmp_path_factory.mktemp(f"pictures{seed}"), seed, each=5, others=True)
    return str(root)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("plain"), 10))


exact_table = functools.lru_cache(table)


def normalised(images, mean, std, dtype):
    rows = exact_table(tuple(mean), tuple(std), dtype)
    return torch.stack([rows[c][images[:, c].long()] for c in range(3)], dim=1)


def thick(path):
    """Not so thin that Resize with max_size makes nothing of it."""
    from PIL import Image

    if not any_picture(path):
        return False
    with Image.open(path) as image:
        return max(image.size) <= 20 * min(image.size)


def folder(root, steps, name=""):
    return ImageFolder(root, T.Compose(steps), is_valid_file=thick if name in THIN else any_picture)


@upstream_pillow
@pytest.mark.parametrize("name", CHAINS)
def test_pillow_redoes_every_picture(everything, name):
    steps, wanted = CHAINS[name]
    dataset = folder(everything, steps, name)
    loader = FastLoader(dataset, batch_size=7, shuffle=True, num_workers=2)
    assert loader.plan().startswith("native images")
    order, images = [], []
    plain = DataLoader(range(len(dataset)), batch_size=7, shuffle=True)
    state = torch.get_rng_state()
    order = [index for batch in plain for index in batch.tolist()]
    torch.set_rng_state(state)
    for batch, labels in loader:
        assert batch.dtype == torch.uint8 and batch.is_contiguous() and batch.ndim == 4
        assert labels.dtype == torch.int64
        images += zip(batch, labels.tolist())
    assert len(images) == len(order) == len(dataset)
    for index, (image, label) in zip(order, images):
        path, target = dataset.samples[index]
        assert label == target
        again = redo(path, loader.replay(index), **wanted)
        assert torch.equal(image, again), (path, loader.replay(index), name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["crop", "eval", "crop bicubic"])
@pytest.mark.parametrize("delivery", ["cpu", "twin", "streams"])
def test_every_delivery_gives_the_same(everything, enter_way, name, delivery):
    steps, _ = CHAINS[name]
    dataset = folder(everything, steps)

    def batches(way, **options):
        enter_way(way)
        torch.manual_seed(3)
        loader = FastLoader(dataset, 6, shuffle=True, num_workers=2, **options)
        with loader:
            return [[images.clone(), labels.clone()] for images, labels in loader]

    plain = batches("cpu")
    same(batches(delivery, device="cpu"), plain)
    for options in (
        {"mean": MEAN, "std": STD},
        {"mean": MEAN, "std": STD, "dtype": torch.bfloat16, "channels_last": True},
        {"dtype": torch.float16},
    ):
        got = batches(delivery, device="cpu", **options)
        assert len(got) == len(plain)
        for (images, labels), (raw, raw_labels) in zip(got, plain):
            same(labels, raw_labels)
            constants = (options.get("mean", (0, 0, 0)), options.get("std", (1, 1, 1)))
            wanted = normalised(raw, *constants, options.get("dtype", torch.float32))
            assert images.dtype == wanted.dtype and images.shape == wanted.shape
            assert torch.equal(images, wanted)
            layout = torch.channels_last if options.get("channels_last") else None
            assert images.is_contiguous(memory_format=layout or torch.contiguous_format)


@pytest.mark.parametrize("delivery", ["cpu", "twin", "streams"])
def test_chain_that_ends_in_floats(everything, enter_way, delivery):
    enter_way(delivery)
    ends = [
        ([T.PILToTensor()], lambda raw: raw, 0),
        ([T.ToTensor()], lambda raw: raw.double() / 255, 2e-7),
        ([T.ToTensor(), T.Normalize(MEAN, STD)], expected, 2e-6),
    ]
    for end, wanted, tolerance in ends:
        dataset = folder(everything, [T.Resize(36), T.CenterCrop(32), *end])
        loader = FastLoader(dataset, 9, device="cpu")
        assert loader.plan().startswith("native images")
        start = 0
        for images, _labels in loader:
            raw = torch.stack(
                [
                    redo(dataset.path(i), loader.replay(i), shorter=36, center=(32, 32))
                    for i in range(start, start + len(images))
                ]
            )
            assert images.dtype == (
                torch.uint8 if len(end) == 1 and not tolerance else torch.float32
            )
            difference = (images.double() - wanted(raw).double()).abs().max().item()
            assert difference <= tolerance
            one = dataset[start][0]
            assert one.dtype == images.dtype and one.shape == images.shape[1:]
            assert (one.double() - images[0].double()).abs().max().item() <= tolerance
            start += len(images)
        assert start == len(dataset)
        loader.close()


@pytest.mark.parametrize(
    "end",
    [[], [T.PILToTensor()], [T.ToTensor()], [T.ToTensor(), T.Normalize(MEAN, STD)]],
    ids=["none", "bytes", "floats", "normalised"],
)
def test_one_sample_is_what_a_batch_holds(plain, end):
    dataset = ImageFolder(plain, T.Compose([T.Resize((16, 20)), *end]))
    images, labels = next(iter(FastLoader(dataset, 4)))
    image, label = dataset[1]
    assert type(image) is torch.Tensor and type(label) is int
    same(image, images[1].clone())
    assert label == labels[1]
    same(next(iter(DataLoader(dataset, 4))), [images.clone(), labels])


@pytest.mark.parametrize(
    "nested",
    [
        lambda: T.Compose([T.Compose([T.Resize((16, 20)), T.ToTensor()])]),
        lambda: T.Compose([T.Compose([T.Resize((16, 20))])]),
        lambda: T.Resize((16, 20)),
    ],
    ids=["tensor inside", "image inside", "one step"],
)
def test_nested_chains_too(plain, nested):
    dataset = ImageFolder(plain, nested())
    images, _ = next(iter(FastLoader(dataset, 4)))
    same(dataset[1][0], images[1].clone())


@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_plain_loader(plain, workers):
    """The same chain works on Pillow images, in torch's workers."""
    dataset = ImageFolder(plain, T.Compose([T.Resize(20), T.CenterCrop(16)]))
    same(
        list(DataLoader(dataset, 4, num_workers=workers)),
        [[images.clone(), labels] for images, labels in FastLoader(dataset, 4)],
    )
    random_one = ImageFolder(plain, T.Compose([T.RandomResizedCrop(16), *FLIPS]))
    for images, _ in DataLoader(random_one, 5, num_workers=workers):
        assert images.shape == (5, 3, 16, 16) and images.dtype == torch.uint8


def test_without_transform_a_sample_is_a_pillow_image(plain):
    from PIL import Image

    image, label = ImageFolder(plain)[0]
    assert isinstance(image, Image.Image) and image.mode == "RGB" and label == 0


def test_kept_batches_stay(plain):
    """Memory is recycled only when nothing holds it any more."""
    dataset = ImageFolder(plain, T.Resize((16, 20)))
    loader = FastLoader(dataset, 2)
    kept = [images for images, _ in loader]
    copies = [images.clone() for images in kept]
    part = kept[0][1, 2]
    for _ in range(3):
        for images, _ in loader:
            images.fill_(77)
    same(kept, copies)
    same(part, copies[0][1, 2])


def test_labels_and_images_are_the_users_own(plain):
    """In-place work on one tensor touches nothing else."""
    dataset = ImageFolder(plain, T.Resize((16, 20)))
    loader = FastLoader(dataset, 5)
    first = [[images.clone(), labels.clone()] for images, labels in loader]
    for images, labels in loader:
        images.zero_()
        labels.add_(100)
    same([[images.clone(), labels] for images, labels in loader], first)
    assert dataset.targets.max() < 3
