"""timm's ImageDataset with create_transform's chains: native where they are plain, and then the same
pixels; the distribution of its random crops; its rule for files that cannot be read."""

import logging
import random
from pathlib import Path

import pytest
import torch
from image_source import image_source
from pictures import (
    import_timm,
    picture,
    plain_folder,
    random_folder,
    redo,
    script,
    upstream_pillow,
)
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Subset

from exact import normalised, same_bits
from fastloader import FastLoader
from fastloader.datasets import ImageFolder
from fastloader.transforms._recipe import draws, sized
from support import SUPPORT, same

PLAIN = {"color_jitter": None}


@pytest.fixture
def timm():
    return import_timm()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("timm"), 11))


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Every kind of JPEG and PNG; none so thin that a resize would leave an edge of 0 pixels."""
    seed = random.randrange(1 << 30)
    print(f"random_folder seed {seed}")
    root = random_folder(tmp_path_factory.mktemp("timm"), seed, each=3, others=True)
    for path in sorted(Path(root).rglob("*.*")):
        with Image.open(path) as image:
            short, long = sorted(image.size)
        if long > 8 * short:
            path.unlink()
    return str(root)


def dataset_of(timm, root, input_size, **options):
    transform = timm.data.create_transform(input_size, **options)
    return timm.data.ImageDataset(root, transform=transform)


def copied(loader):
    return [[images.clone(), labels] for images, labels in loader]


def is_native(loader):
    return loader.plan().startswith("native images: ")


# --- evaluation: the same pixels ----------------------------------------------------------------

EVALUATION = {
    "default": (32, {}),
    "bicubic": (32, {"interpolation": "bicubic"}),
    "crop_pct 1": (32, {"crop_pct": 1.0}),
    "squash": ((3, 32, 24), {"crop_mode": "squash", "interpolation": "bicubic"}),
    "border": (32, {"crop_mode": "border", "crop_pct": 1.0}),
    "border smaller": ((3, 33, 20), {"crop_mode": "border", "crop_pct": 0.9}),
    "border black": (32, {"crop_mode": "border", "mean": (0.0, 0.0, 0.0)}),
    "not square": ((3, 24, 40), {}),
    "no_aug": (32, {"is_training": True, "no_aug": True}),
}


@upstream_pillow
@pytest.mark.parametrize("name", EVALUATION)
def test_evaluation_chains_give_timms_pixels(timm, everything, name):
    size, options = EVALUATION[name]
    dataset = dataset_of(timm, everything, size, normalize=False, **options)
    loader = FastLoader(dataset, 5)
    assert is_native(loader) and "timm ImageDataset" in loader.plan(), loader.plan()
    got = copied(loader)
    assert got[0][0].dtype == torch.uint8
    for (images, labels), (wanted, wanted_labels) in zip(got, DataLoader(dataset, 5)):
        same(labels, wanted_labels)
        for number, (one, other) in enumerate(zip(images, wanted)):
            assert torch.equal(one, other), (name, number)


@pytest.mark.parametrize("name", EVALUATION)
def test_evaluation_chains_normalised(timm, root, name):
    size, options = EVALUATION[name]
    dataset = dataset_of(timm, root, size, **options)
    loader = FastLoader(dataset, 4)
    assert is_native(loader) and "normalised float32" in loader.plan(), loader.plan()
    for (images, labels), (wanted, wanted_labels) in zip(loader, DataLoader(dataset, 4)):
        same(labels, wanted_labels)
        assert images.dtype == wanted.dtype
        assert torch.allclose(images, wanted, atol=2e-6, rtol=0)


@pytest.mark.parametrize("flipped", [False, True])
def test_border_around_a_flipped_picture(timm, root, flipped):
    """No chain of create_transform flips behind a pad of odd width, but one can be written."""
    t, flip = timm.data.transforms, import_flip()
    steps = [
        t.ResizeKeepRatio((23, 20), longest=1.0),
        t.CenterCropOrPad((31, 30), fill=[9, 99, 199]),
    ]
    steps += [flip(1.0)] * flipped + [t.MaybePILToTensor()]
    dataset = timm.data.ImageDataset(root, transform=composed(steps))
    loader = FastLoader(dataset, 4)
    assert is_native(loader), loader.plan()
    same(copied(loader), list(DataLoader(dataset, 4)))


def import_flip():
    import torchvision

    return torchvision.transforms.RandomHorizontalFlip


def composed(steps):
    import torchvision

    return torchvision.transforms.Compose(steps)


# --- training -----------------------------------------------------------------------------------


@upstream_pillow
@pytest.mark.parametrize("interpolation", ["random", "bilinear", "bicubic"])
def test_training_pictures_are_what_replay_says(timm, everything, interpolation):
    dataset = dataset_of(
        timm, everything, 28, is_training=True, interpolation=interpolation, vflip=0.3,
        normalize=False, **PLAIN,
    )  # fmt: skip
    loader = FastLoader(dataset, 8)
    assert is_native(loader), loader.plan()
    used = set()
    images = torch.cat([images.clone() for images, _labels in loader])
    for index, image in enumerate(images):
        replayed = loader.replay(index)
        used.add(replayed["interpolation"])
        path = dataset.filename(index, absolute=True)
        wanted = redo(path, replayed, exact=(28, 28), filter=replayed["interpolation"])
        assert torch.equal(image, wanted), (path, replayed)
    assert used == ({"bilinear", "bicubic"} if interpolation == "random" else {interpolation})


@upstream_pillow
def test_training_chain_normalised(timm, root):
    dataset = dataset_of(timm, root, (3, 20, 24), is_training=True, **PLAIN)
    loader = FastLoader(dataset, 4)
    assert is_native(loader) and "normalised float32" in loader.plan(), loader.plan()
    step = dataset.transform.transforms[-1]  # of float32
    constants = step.mean.tolist(), step.std.tolist()
    images, labels = zip(*copied(loader))
    assert torch.cat(labels).tolist() == [dataset[index][1] for index in range(11)]
    for index, image in enumerate(torch.cat(images)):
        replayed = loader.replay(index)
        path = dataset.filename(index, absolute=True)
        wanted = redo(path, replayed, exact=(20, 24), filter=replayed["interpolation"])
        same_bits(image[None], normalised(wanted[None], *constants, torch.float32))


def test_the_same_crops_for_any_interpolation(timm, root):
    """ "random" draws from numbers of its own."""
    boxes = []
    for interpolation in ("random", "bicubic"):
        dataset = dataset_of(timm, root, 20, is_training=True, interpolation=interpolation, **PLAIN)
        loader = FastLoader(dataset, 11, generator=torch.Generator().manual_seed(4))
        next(iter(loader))
        boxes.append([loader.replay(i)["box"] for i in range(11)])
    assert boxes[0] == boxes[1]


# --- what stops it ------------------------------------------------------------------------------


def train(**options):
    return lambda timm, root: dataset_of(timm, root, 20, is_training=True, **options)


def changed(**attributes):
    def make(timm, root):
        dataset = dataset_of(timm, root, 20, normalize=False)
        vars(dataset).update(attributes)
        return dataset

    return make


class OwnReader:
    def __init__(self, inner):
        self.inner = inner

    def __getitem__(self, index):
        return self.inner[index]

    def __len__(self):
        return len(self.inner)


def own_reader(timm, root):
    dataset = dataset_of(timm, root, 20)
    dataset.reader = OwnReader(dataset.reader)
    return dataset


def subclass(timm, root):
    kind = type("OwnDataset", (timm.data.ImageDataset,), {"__len__": lambda self: 3})
    return kind(root, transform=timm.data.create_transform(20))


def own_steps(*make):
    def dataset(timm, root):
        t = timm.data.transforms
        steps = [each(t) for each in make]
        return timm.data.ImageDataset(root, transform=composed(steps))

    return dataset


def end(t):
    return t.MaybePILToTensor()


def crop(t):
    return t.CenterCropOrPad(12)


STOPPED = {
    "erasing": (train(re_prob=0.5, **PLAIN), "RandomErasing"),
    "naflex": (
        lambda timm, root: dataset_of(timm, root, 20, naflex=True, patchify=True),
        "ResizeToSequence",
    ),
    "reader": (own_reader, "OwnReader"),
    "subclass": (subclass, "OwnDataset"),
    "load_bytes": (changed(load_bytes=True), "load_bytes=True"),
    "grey images": (changed(input_img_mode="L"), "input_img_mode='L'"),
    "images as they are": (changed(input_img_mode=""), "input_img_mode=''"),
    "features": (changed(additional_features=["size"]), "additional_features="),
    "no transform": (changed(transform=None), "Pillow images"),
    "another timm": (changed(_max_retries=None), "version of timm"),
    "floats in 0..255": (own_steps(crop, lambda t: t.ToTensor()), "floats in 0..255"),
    "no colour": (own_steps(lambda t: t.CenterCropOrPad(60, fill=300), end), "no colour"),
    "reversed range": (
        own_steps(lambda t: t.RandomResizedCropAndInterpolation(12, ratio=(2.0, 0.5)), end),
        "ratio=(2.0, 0.5)",
    ),
    "three interpolations": (
        own_steps(lambda t: with_interpolations(t, ("bilinear", "bicubic", "bilinear")), end),
        "one of the interpolations",
    ),
    "to numpy": (own_steps(crop, lambda t: t.ToNumpy()), "ToNumpy"),
}


def with_interpolations(t, names):
    crop = t.RandomResizedCropAndInterpolation(12, interpolation="random")
    crop.interpolation = tuple(t.str_to_interp_mode(name) for name in names)
    return crop


@pytest.mark.filterwarnings("ignore:range should be of kind")
@pytest.mark.parametrize("name", STOPPED)
def test_stopped_by(timm, root, name):
    make, wanted = STOPPED[name]
    plan = FastLoader(make(timm, root), 3).plan()
    assert plan.startswith("Python path: ") and wanted in plan, plan
    first, *parts = plan.splitlines()
    assert len(first) < 400 and all(line.startswith("  ") for line in parts), plan


@pytest.mark.processes
def test_timm_is_not_imported(root):
    """Objects that say that they are timm's are not."""
    script(
        """
        import sys
        sys.path.insert(0, sys.argv[2])
        import torch
        from fastloader import FastLoader, transforms as T
        from fastloader.datasets import ImageFolder
        from pictures import stand_in
        ours = ImageFolder(sys.argv[1], T.Compose([T.Resize((12, 10)), T.PILToTensor()]))
        tv, t = "torchvision.transforms.transforms", "timm.data.transforms"
        chain = stand_in(tv, "Compose", transforms=[
            stand_in(tv, "Resize", size=(12, 10), max_size=None, interpolation="bilinear"),
            stand_in(t, "MaybePILToTensor"),
        ])
        reader = stand_in("timm.data.readers.reader_image_folder", "ReaderImageFolder",
                          samples=list(ours.samples))
        theirs = stand_in("timm.data.dataset", "ImageDataset", (torch.utils.data.Dataset,),
                          reader=reader, transform=chain, load_bytes=False, input_img_mode="RGB",
                          target_transform=None, additional_features=None, _max_retries=10)
        type(theirs).__len__ = lambda self: len(self.reader.samples)
        for dataset in (theirs, ImageFolder(sys.argv[1], chain)):
            assert FastLoader(dataset, 3).plan().startswith("Python path: ")
        assert FastLoader(ours, 3).plan().startswith("native images: ")
        assert not [name for name in sys.modules if name.partition(".")[0] in ("torchvision", "timm")]
        """,
        root,
        str(SUPPORT),
    )


# --- files that cannot be read ------------------------------------------------------------------


@pytest.fixture
def spoilt(timm, tmp_path):
    """Eleven pictures, of which `bad` are replaced by nothing; the fifth is a BMP named .jpg."""

    def make(*bad, transform=None, **attributes):
        root = plain_folder(tmp_path / f"{len(list(tmp_path.iterdir()))}", 11)
        dataset = timm.data.ImageDataset(
            str(root), transform=transform or timm.data.create_transform(20, normalize=False)
        )
        picture(random.Random(1), 33, 44).save(dataset.filename(4, absolute=True), "BMP")
        for index in bad:
            Path(dataset.filename(index, absolute=True)).write_bytes(b"")
        vars(dataset).update(attributes)
        return dataset

    return make


@upstream_pillow
@pytest.mark.parametrize(
    "bad", [[2], [3], [10], [0, 1], [9, 10, 0], [2, 3, 5, 6]], ids=lambda bad: str(bad)
)
def test_the_next_file_takes_its_place(spoilt, caplog, bad):
    dataset = spoilt(*bad)
    loader = FastLoader(dataset, 4)
    assert is_native(loader)
    wanted = list(DataLoader(dataset, 4))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fastloader"):
        same(copied(loader), wanted)
    said = [record.getMessage() for record in caplog.records if record.name == "fastloader"]
    tries = [file for index in bad for file in run_of(index, bad)]
    assert len(said) == len(tries) == loader.stats()["images"]["bad"]
    for file in bad:
        path = dataset.filename(file, absolute=True)
        assert [path in line for line in said].count(True) == tries.count(file)


def run_of(index, bad):
    """The bad files that are tried for sample ``index``."""
    tried = []
    while index in bad:
        tried.append(index)
        index = (index + 1) % 11
    return tried


def test_too_many_in_a_row(spoilt):
    dataset = spoilt(2, 3, 4, 5, _max_retries=3)
    for loader in (FastLoader(dataset, 1), DataLoader(dataset, 1)):
        batches = iter(loader)
        next(batches)
        next(batches)
        with pytest.raises(RuntimeError, match="Failed to load 3 consecutive samples"):
            next(batches)
        with pytest.raises(RuntimeError, match="Failed to load 3 consecutive samples"):
            next(batches)
        next(batches)


def test_only_what_timm_skips_is_skipped(spoilt):
    """A decompression bomb is not an OSError."""
    dataset = spoilt()
    path = Path(dataset.filename(1, absolute=True))
    bomb = Image.new("1", (15000, 15000))
    bomb.save(path, "PNG")
    for loader in (FastLoader(dataset, 2), DataLoader(dataset, 2)):
        with pytest.raises(Image.DecompressionBombError):
            next(iter(loader))


def test_an_error_policy_takes_the_place_of_timms_rule(spoilt):
    loader = FastLoader(spoilt(2), 4, on_error="skip")
    assert [len(labels) for _, labels in loader] == [3, 4, 3]


def test_the_next_file_is_of_the_same_dataset(spoilt):
    transform = spoilt().transform
    data = ConcatDataset(
        [spoilt(10, transform=transform), Subset(spoilt(3, 10, transform=transform), [10, 3])]
    )
    loader = FastLoader(data, 13)
    assert is_native(loader), loader.plan()
    same(copied(loader), list(DataLoader(data, 13)))


def test_datasets_of_different_rules_are_not_concatenated(timm, root):
    theirs = dataset_of(timm, root, 20, normalize=False)
    ours = ImageFolder(root, theirs.transform)
    plan = FastLoader(ConcatDataset([theirs, ours]), 3).plan()
    assert plan.startswith("Python path: ") and "bad samples differently" in plan


def test_crops_of_timm_are_drawn_by_the_documented_key(timm, root):
    """(base seed, file number, operation): the same as in pure Python."""
    dataset = dataset_of(timm, root, 20, is_training=True, **PLAIN)
    loader = FastLoader(dataset, 11, generator=torch.Generator().manual_seed(4))
    next(iter(loader))
    seed = image_source(loader).last.seeds.base_seed
    for index in range(11):
        with Image.open(dataset.filename(index, absolute=True)) as image:
            width, height = image.size
        numbers = draws.Draws(seed, index, draws.CROP)
        box = sized.random_resized_crop(height, width, (0.08, 1.0), (3 / 4, 4 / 3), numbers)
        assert loader.replay(index)["box"] == box
