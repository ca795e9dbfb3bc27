"""compat.timm beside the installed timm: the same arguments, values, lengths, types and attributes."""

import inspect
import logging
import random

import numpy as np
import pytest
import torch
from pictures import (
    any_picture,
    import_timm,
    open_as_torchvision,
    plain_folder,
    random_folder,
    script,
)
from torch.utils.data import Dataset, IterableDataset

from fastloader import FastLoader
from fastloader.compat import timm as ours

TOLERANCE = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.fixture(scope="module")
def theirs():
    return import_timm().data


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("timm"), 22, size=(50, 41)))


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


def pair(theirs, root, input_size, batch_size, **options):
    """(our loader, timm's), on the CPU."""
    device = torch.device("cpu")
    return (
        ours.create_loader(
            ours.ImageDataset(root), input_size, batch_size, device=device, **options
        ),
        theirs.create_loader(
            theirs.ImageDataset(root), input_size, batch_size, device=device, **options
        ),
    )


def assert_close(ours_loader, their_loader, dtype=torch.float32):
    assert len(ours_loader) == len(their_loader)
    count = 0
    for mine, their in zip(ours_loader, their_loader, strict=True):
        assert type(mine) is type(their)
        assert mine[0].dtype == their[0].dtype == dtype
        assert mine[0].shape == their[0].shape
        difference = (mine[0].double() - their[0].double()).abs().max().item()
        assert difference <= TOLERANCE[dtype], difference
        assert mine[1].dtype == their[1].dtype and torch.equal(mine[1], their[1])
        count += 1
    assert count


def test_the_same_signatures(theirs):
    names = ("create_loader", "PrefetchLoader", "ImageDataset", "fast_collate", "FastCollateMixup")
    for name in (*names, "Mixup", "OrderedDistributedSampler", "RepeatAugSampler"):
        home = theirs.mixup if name == "Mixup" else theirs.loader
        mine = inspect.signature(getattr(ours, name)).parameters
        their = inspect.signature(getattr(home, name)).parameters
        assert list(mine) == list(their), name
        for argument, parameter in their.items():
            if argument != "device":  # "auto" instead of "cuda"
                assert mine[argument].default == parameter.default, (name, argument)
                assert mine[argument].kind == parameter.kind


# --- evaluation: the same pixels ----------------------------------------------------------------

EVALUATIONS = {
    "default": {},
    "bicubic": {"interpolation": "bicubic", "crop_pct": 0.9},
    "whole": {"crop_pct": 1.0},
    "squash": {"crop_mode": "squash", "crop_pct": 0.95},
    "border": {"crop_mode": "border", "crop_pct": 0.9},
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


# --- training -----------------------------------------------------------------------------------


def labels_of(loader, epochs=2):
    return [[labels.tolist() for _images, labels in loader] for _ in range(epochs)]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("multi", [False, True])
def test_training_order(theirs, root, workers, multi):
    """The same pictures in the same order for the same seed, epoch by epoch."""
    options = {
        "is_training": True,
        "color_jitter": None,
        "num_workers": workers,
        "use_multi_epochs_loader": multi,
        "interpolation": "random",
        "hflip": 0,  # timm's flips draw from the generator that the next epoch's order comes from
    }
    mine, their = pair(theirs, root, 24, 4, **options)
    for loader in (mine, their):
        loader.dataset.reader.samples = [
            (path, number) for number, (path, _class) in enumerate(loader.dataset.reader.samples)
        ]
    torch.manual_seed(11)
    got = labels_of(mine, 3)
    torch.manual_seed(11)
    assert got == labels_of(their, 3)
    assert len({str(epoch) for epoch in got}) == 3
    assert mine.loader.plan().startswith("native"), mine.loader.plan()
    mine.close()
    if multi:
        their.loader.iterator = None


def test_training_distribution(theirs, tmp_path):
    """A picture of one colour ramp tells the crop: means and spreads as timm's, flips included."""
    ramp = np.zeros((64, 96, 3), np.uint8)
    ramp[..., 0], ramp[..., 1] = np.arange(96)[None] * 2, np.arange(64)[:, None] * 3
    (tmp_path / "a").mkdir()
    from PIL import Image

    for number in range(100):
        Image.fromarray(ramp).save(tmp_path / "a" / f"{number}.png")
    options = {"is_training": True, "color_jitter": 0, "vflip": 0.3, "num_workers": 0}
    seed = random.randrange(2**31)
    print("seed", seed)
    found = []
    random.seed(seed)
    torch.manual_seed(seed)
    for loader in pair(theirs, str(tmp_path), 16, 50, scale=(0.2, 0.9), **options):
        images = torch.cat([images for _ in range(10) for images, _labels in loader]).double()
        steps = torch.stack(
            [
                images.mean((1, 2, 3)),
                images[:, 0, 8, -1] - images[:, 0, 8, 0],  # width of the crop, sign of the flip
                images[:, 1, -1, 8] - images[:, 1, 0, 8],
                (images[:, 0, 8, -1] < images[:, 0, 8, 0]).double(),
                (images[:, 1, -1, 8] < images[:, 1, 0, 8]).double(),
            ]
        )
        found.append((steps.mean(1), steps.std(1)))
    (mean, spread), (their_mean, their_spread) = found
    error = their_spread / 1000**0.5
    assert ((mean - their_mean).abs() < 6 * error).all(), (mean, their_mean, error)
    torch.testing.assert_close(spread, their_spread, rtol=0.15, atol=0)


def test_many_epochs_of_one_iterator(root, way):
    """On every path: break off and go on, epoch after epoch, other crops in each, and an end."""
    loader = ours.create_loader(
        ours.ImageDataset(root), 24, 4, is_training=True, color_jitter=None, device="cpu",
        use_multi_epochs_loader=True,
    )  # fmt: skip
    first = next(iter(loader))
    epochs = [[images for images, _labels in loader] for _ in range(3)]
    assert [len(epoch) for epoch in epochs] == [5, 5, 5] and len(loader) == 5
    seen = [first[0], *(images for epoch in epochs for images in epoch)]
    assert len({each.double().sum().item() for each in seen}) == 16
    iterator = loader.loader.iterator
    loader.close()
    assert loader.loader.iterator is None and list(iterator) == []
    assert len(list(loader)) == 5
    loader.close()


def test_an_empty_dataset_of_many_epochs(root):
    """torch's endless sampler would look for a first index for ever."""
    loader = ours.create_loader(
        ours.ImageDataset(root), 24, 50, is_training=True, color_jitter=None, device="cpu",
        use_multi_epochs_loader=True,
    )  # fmt: skip
    assert len(loader) == 0 and list(loader) == []


EXIT = """
    import sys
    from fastloader.compat.timm import ImageDataset, create_loader

    loader = create_loader(ImageDataset(sys.argv[1]), 24, 4, is_training=True, device="cpu",
                           color_jitter=None, use_multi_epochs_loader=sys.argv[2] == "multi")
    kept = iter(loader)
    print(len(next(kept)))
"""


@pytest.mark.parametrize("multi", ["multi", "once"])
def test_the_process_ends_with_an_epoch_under_way(root, way, multi):
    done = script(EXIT, root, multi, env=way.env)
    assert (done.stdout, done.stderr) == ("2\n", "")


TIMMS = {
    "color_jitter": {},
    "hue": {"color_jitter": (0.1, 0.1, 0.1, 0.1), "color_jitter_prob": 0.5},
    "randaugment": {"auto_augment": "rand-m9-mstd0.5"},
    "autoaugment": {"auto_augment": "original", "color_jitter": None},
    "grayscale": {"color_jitter": None, "grayscale_prob": 0.3},
    "blur": {"color_jitter": None, "gaussian_blur_prob": 0.3},
    "rkrc": {"color_jitter": None, "train_crop_mode": "rkrc"},
    "lanczos": {"color_jitter": None, "interpolation": "lanczos"},
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", TIMMS)
def test_timms_augmentations(theirs, root, name, workers):
    """Its own transforms on its own random numbers: the same pictures."""
    mine, their = pair(
        theirs, root, 24, 4, is_training=True, num_workers=workers, persistent_workers=False,
        **TIMMS[name],
    )  # fmt: skip
    batches = []
    for loader in (mine, their):
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        batches.append(list(loader))
    assert "Python path" in mine.loader.plan()
    assert_close(*batches)


@pytest.mark.parametrize("size", SIZES[:2], ids=str)
def test_evaluation_with_timms_steps(theirs, root, size):
    options = {"crop_border_pixels": 3, "num_workers": 0}
    mine, their = pair(theirs, root, size, 5, **options)
    assert_close(mine, their)
    assert "TrimBorder" in mine.loader.plan()


def test_augmentation_splits(theirs, root):
    options = {
        "is_training": True,
        "auto_augment": "augmix-m5-w4-d2",
        "num_aug_splits": 3,
        "num_workers": 0,
        "device": torch.device("cpu"),
    }
    batches = []
    for kind in (ours, theirs):
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        dataset = theirs.AugMixDataset(kind.ImageDataset(root), num_splits=3)
        batches.append(list(kind.create_loader(dataset, 24, 4, **options)))
    assert batches[0][0][0].shape == (12, 3, 24, 24)
    assert_close(*batches)


def test_scheduled_sizes(theirs, root):
    options = {
        "is_training": True,
        "color_jitter": None,
        "input_size_choices": [16, (20, 24), (3, 28, 28)],
        "batch_size_choices": [8, 6, 4],
        "batch_choice_seed": 3,
        "num_workers": 0,
    }
    mine, their = pair(theirs, root, 28, 4, **options)
    for epoch in range(2):
        shapes = []
        for loader in (mine, their):
            torch.manual_seed(9)
            if hasattr(loader.batch_sampler, "set_epoch"):
                loader.batch_sampler.set_epoch(epoch)
            shapes.append([(tuple(images.shape), labels.tolist()) for images, labels in loader])
        assert shapes[0] == shapes[1]
    assert len(mine) == len(their) and len({shape for shape, _labels in shapes[0]}) > 1


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"is_training": False}, ValueError),
        ({"use_multi_epochs_loader": True}, ValueError),
        ({"num_aug_splits": 2}, ValueError),
        ({"input_size_choices": []}, ValueError),
        ({"input_size_choices": [16, (4, 16, 16)]}, ValueError),
        ({"input_size_choices": [16, (16, 0)]}, ValueError),
        ({"batch_size_choices": [4]}, ValueError),
        ({"batch_choice_weights": [1.0]}, ValueError),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_scheduled_sizes_refused(theirs, root, options, kind):
    options = {
        "is_training": True, "color_jitter": None, "input_size_choices": [16, 20], **options
    }  # fmt: skip
    for data in (ours, theirs):
        with pytest.raises(kind):
            data.create_loader(
                data.ImageDataset(root), 16, 4, device=torch.device("cpu"), **options
            )


# --- other arguments ----------------------------------------------------------------------------


class Seeds(Dataset):
    """Tells what each worker was seeded with."""

    transform = None

    def __len__(self):
        return 4

    def __getitem__(self, index):
        numbers = [np.random.randint(2**30), random.getrandbits(30), int(torch.randint(2**30, ()))]
        return torch.zeros(3, 2, 2, dtype=torch.uint8), torch.tensor(numbers)


def seed_of(info):
    return 100 + info.id


@pytest.mark.parametrize("seeding", ["all", "part", seed_of], ids=["all", "part", "function"])
def test_worker_seeding(theirs, seeding):
    found = []
    for kind in (ours, theirs):
        torch.manual_seed(2)
        loader = kind.create_loader(
            Seeds(), 2, 2, num_workers=2, worker_seeding=seeding, device=torch.device("cpu")
        )
        found.append([targets.tolist() for _images, targets in loader])
        del loader
    if seeding == "part":  # torch seeds NumPy, too; timm's "part" is older
        found = [[[row[1:] for row in batch] for batch in each] for each in found]
    assert found[0] == found[1]


def test_worker_seeding_by_a_function_keeps_to_workers(root):
    loader = ours.create_loader(ours.ImageDataset(root), 24, 4, worker_seeding=seed_of)
    assert "worker_init_fn is WorkerSeeding" in loader.loader.plan()
    with pytest.raises(ValueError, match="'all', 'part'"):
        ours.create_loader(ours.ImageDataset(root), 24, 4, worker_seeding="al")


class Counting(IterableDataset):
    """What timm's IterableImageDataset has."""

    transform = None

    def set_loader_cfg(self, num_workers):
        self.num_workers = num_workers

    def __iter__(self):
        from PIL import Image

        for number in range(6):
            yield self.transform(Image.new("RGB", (30, 40), (number, 0, 0))), number


def test_iterable_datasets():
    dataset = Counting()
    loader = ours.create_loader(dataset, 24, 4, num_workers=0, device="cpu")
    assert dataset.num_workers == 0
    assert [labels.tolist() for _images, labels in loader] == [[0, 1, 2, 3], [4, 5]]


def test_other_datasets_run_native(root):
    """Everything with a transform that the native path knows, not only ImageDataset."""
    from fastloader.datasets import ImageFolder

    loader = ours.create_loader(ImageFolder(root, is_valid_file=any_picture), 24, 4, device="cpu")
    assert loader.loader.plan().startswith("native"), loader.loader.plan()
    assert sum(len(labels) for _images, labels in loader) == 22


def test_timms_dataset_runs_native(theirs, root):
    loader = ours.create_loader(theirs.ImageDataset(root), 24, 4, device="cpu")
    assert loader.loader.plan().startswith("native images: timm ImageDataset")
    own = theirs.create_loader(theirs.ImageDataset(root), 24, 4, device=torch.device("cpu"))
    assert_close(loader, own)
    del own


def test_evaluation_needs_one_filter(root):
    with pytest.raises(ValueError, match="is for training"):
        ours.create_loader(ours.ImageDataset(root), 24, 4, interpolation="random")
    with pytest.raises(ValueError, match="use one of bilinear, bicubic"):
        ours.create_loader(ours.ImageDataset(root), 24, 4, interpolation="lanzos")


# --- without timm -------------------------------------------------------------------------------

WITHOUT = """
    import sys

    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("timm", "torchvision"):
                raise ModuleNotFoundError(f"No module named {name!r}")

    sys.meta_path.insert(0, Absent())
    import torch
    from fastloader.compat.timm import ImageDataset, create_loader

    root = sys.argv[1]
    def make(**options):
        return create_loader(ImageDataset(root), 24, 4, device="cpu", **options)
    for options in ({}, {"crop_mode": "border"}, {"is_training": True, "color_jitter": None},
                    {"is_training": True, "no_aug": True}, {"use_prefetcher": False}):
        assert sum(len(labels) for _images, labels in make(**options)) in (20, 22)
    training = {"is_training": True, "color_jitter": None}
    for name, options in {
        "color_jitter=0.4": {"is_training": True},
        "auto_augment='rand-m9'": {**training, "auto_augment": "rand-m9"},
        "grayscale_prob=0.1": {**training, "grayscale_prob": 0.1},
        "gaussian_blur_prob=0.1": {**training, "gaussian_blur_prob": 0.1},
        "train_crop_mode='rkrc'": {**training, "train_crop_mode": "rkrc"},
        "interpolation='lanczos'": {"interpolation": "lanczos"},
        "num_aug_splits": {**training, "num_aug_splits": 2},
        "crop_border_pixels=2": {"crop_border_pixels": 2},
        "tf_preprocessing=True": {"tf_preprocessing": True},
        "input_size_choices": {**training, "input_size_choices": [16, 20]},
    }.items():
        try:
            make(**options)
        except ImportError as error:
            assert str(error).startswith(f"{name} needs timm, "), error
            assert ("color_jitter=None" in str(error)) == (name == "color_jitter=0.4"), error
        else:
            raise AssertionError(name)
    for options in ({"reader": "tfds/cifar10"}, {"root": __import__("os").path.join(root, "x.tar")}):
        open(root + "/x.tar", "w").close()
        try:
            ImageDataset(**{"root": root, **options})
        except ImportError as error:
            assert next(iter(options)) in str(error)
        else:
            raise AssertionError(options)
    print("done", sorted(name for name in sys.modules if name.startswith(("timm", "torchvision"))))
"""


def test_without_timm(root, tmp_path):
    import shutil

    folder = shutil.copytree(root, tmp_path / "pictures")
    assert script(WITHOUT, folder).stdout == "done []\n"


def test_with_a_timm_that_cannot_be_imported(root, tmp_path):
    """As with a torchvision that is built for another torch, which is no ImportError."""
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "__init__.py").write_text("raise RuntimeError('nms does not exist')")
    program = """
        import sys
        sys.path.insert(0, sys.argv[2])
        from fastloader.compat.timm import ImageDataset, create_loader
        try:
            create_loader(ImageDataset(sys.argv[1]), 24, 4, auto_augment="rand-m9", is_training=True)
        except ImportError as error:
            print(error)
    """
    said = script(program, root, tmp_path).stdout
    assert said.startswith("auto_augment='rand-m9' needs timm") and "nms does not exist" in said
    # Left to itself, pip would bring another torch with it.
    assert "torchvision==" in said.partition("pip install timm")[0]


def test_nothing_is_logged_in_vain(root, caplog):
    caplog.set_level(logging.WARNING)
    list(ours.create_loader(ours.ImageDataset(root), 24, 4))
    assert not caplog.records
