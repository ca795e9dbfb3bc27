"""compat.timm beside the installed timm: the same signatures and arguments; and compat.timm
without it."""

import importlib
import inspect
import logging
import random

import numpy as np
import pytest
import torch
from beside_timm import assert_close
from pictures import any_picture, script
from torch.utils.data import Dataset, IterableDataset

from fastloader.compat import timm as ours


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
    loader = ours.create_loader(
        ours.ImageDataset(root), 24, 4, num_workers=1, worker_seeding=seed_of
    )
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
    training = {"is_training": True, "color_jitter": None}
    for options in (
        {},
        {"crop_mode": "border"},
        {"crop_border_pixels": 2},
        {"interpolation": "lanczos"},
        training,
        {"is_training": True},
        {**training, "grayscale_prob": 0.1},
        {**training, "gaussian_blur_prob": 0.1},
        {**training, "auto_augment": "rand-m9-mstd0.5-inc1"},
        {**training, "auto_augment": "augmix-m5-w4-d2"},
        {**training, "auto_augment": "original", "train_crop_mode": "rkrr"},
        {"is_training": True, "no_aug": True},
        {"use_prefetcher": False},
    ):
        assert sum(len(labels) for _images, labels in make(**options)) in (20, 22)
    needing = {
        "re_prob=0.2": {
            **training, "re_prob": 0.2, "use_prefetcher": False, "collate_fn": list
        },
        "num_aug_splits": {**training, "num_aug_splits": 2},
        "tf_preprocessing=True": {"tf_preprocessing": True},
        "input_size_choices": {**training, "input_size_choices": [16, 20]},
    }
    for name, options in needing.items():
        try:
            make(**options)
        except ImportError as error:
            assert str(error).startswith(f"{name} needs timm, "), error
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


@pytest.mark.processes
def test_without_timm(root, tmp_path):
    import shutil

    folder = shutil.copytree(root, tmp_path / "pictures")
    assert script(WITHOUT, folder).stdout == "done []\n"


@pytest.mark.processes
def test_with_a_timm_that_cannot_be_imported(root, tmp_path):
    """As with a torchvision that is built for another torch, which is no ImportError."""
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "__init__.py").write_text("raise RuntimeError('nms does not exist')")
    program = """
        import sys
        sys.path.insert(0, sys.argv[2])
        from fastloader.compat.timm import ImageDataset, create_loader
        try:
            create_loader(ImageDataset(sys.argv[1]), 24, 4, tf_preprocessing=True)
        except ImportError as error:
            print(error)
    """
    said = script(program, root, tmp_path).stdout
    assert said.startswith("tf_preprocessing=True needs timm") and "nms does not exist" in said
    # Left to itself, pip would bring another torch with it.
    assert "torchvision==" in said.partition("pip install timm")[0]


def test_nothing_is_logged_in_vain(root, caplog):
    caplog.set_level(logging.WARNING)
    list(ours.create_loader(ours.ImageDataset(root), 24, 4))
    assert not caplog.records


def test_the_module_that_tutorials_import_from(theirs):
    """``timm.data.loader``: what it defines in public is in ours, and is what the package has."""
    original = importlib.import_module("timm.data.loader")
    defined = {
        name
        for name, value in vars(original).items()
        if getattr(value, "__module__", "") == original.__name__ and not name.startswith("_")
    }
    loader = importlib.import_module("fastloader.compat.timm.loader")
    assert defined - set(loader.__all__) == {"adapt_to_chs"}  # a step of its PrefetchLoader
    package = importlib.import_module("fastloader.compat.timm")
    for name in loader.__all__:
        assert getattr(loader, name) is getattr(package, name)
