"""What version 0.2 has pickled still loads."""

import importlib
import pickle
import sys

import pytest

import fastloader
from fastloader import datasets, transforms
from fastloader._core.machine import moved
from support import run_script

# Version 0.2.0: its modules with public classes and functions, which pickles name.
PUBLIC = {
    "fastloader.datasets._encoded.encoded_image": "EncodedImage",
    "fastloader.datasets._remote.cache.shard_cache": "ShardCache",
    "fastloader.datasets.hf_images": "HFImages",
    "fastloader.datasets.image_folder": "ImageFolder",
    "fastloader.datasets.list_images": "ListImages",
    "fastloader.datasets.lmdb_dataset": "LMDBDataset",
    "fastloader.datasets.mongo_images": "MongoImages",
    "fastloader.datasets.packed_arrays": "PackedArrays",
    "fastloader.datasets.parquet_images": "ParquetImages",
    "fastloader.datasets.shardwise_sampler": "ShardwiseSampler",
    "fastloader.datasets.tar_images": "TarImages",
    "fastloader.transforms.steps.apply": "apply",
    "fastloader.transforms.steps.conversion": "Normalize PILToTensor ToTensor",
    "fastloader.transforms.steps.geometry.crop": "CenterCrop Pad RandomCrop RandomResizedCrop",
    "fastloader.transforms.steps.geometry.flip": "RandomHorizontalFlip RandomVerticalFlip",
    "fastloader.transforms.steps.geometry.resize": "Resize",
    "fastloader.transforms.steps.geometry.warp": "RandomAffine RandomPerspective RandomRotation",
    "fastloader.transforms.steps.pixels.colour": "ColorJitter Grayscale RandomGrayscale",
    "fastloader.transforms.steps.pixels.sharpness": "GaussianBlur RandomAdjustSharpness",
    "fastloader.transforms.steps.pixels.tones": (
        "RandomAutocontrast RandomEqualize RandomInvert RandomPosterize RandomSolarize"
    ),
    "fastloader.transforms.steps.policies.aug_mix": "AugMix",
    "fastloader.transforms.steps.policies.auto_augment": "AutoAugment AutoAugmentPolicy",
    "fastloader.transforms.steps.policies.rand_augment": "RandAugment TrivialAugmentWide",
    "fastloader.transforms.steps.structure": "Compose RandomApply RandomChoice RandomOrder",
    "fastloader.transforms.steps.tensors.erasing": "RandomErasing",
    "fastloader.transforms.steps.tensors.mixing": "CutMix MixUp",
    "fastloader.transforms.steps.tensors.named_steps": "named_steps",
}


def public(name):
    return next(
        getattr(home, name) for home in (datasets, transforms, fastloader) if hasattr(home, name)
    )


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, names in PUBLIC.items() for name in names.split()],
)
def test_a_public_name_is_found_where_it_was(module, name):
    assert pickle.loads(f"c{module}\n{name}\n.".encode()) is public(name)


def test_every_old_name_leads_to_a_module():
    for old, new in moved._OLD.items():
        module = importlib.import_module(old)
        assert module is importlib.import_module(new)
        assert module.__name__ == module.__spec__.name == new


def test_other_names_are_missing_as_before():
    with pytest.raises(
        ModuleNotFoundError, match=r"No module named 'fastloader\.datasets\.nothing'"
    ):
        importlib.import_module("fastloader.datasets.nothing")
    assert sum(isinstance(each, moved._Finder) for each in sys.meta_path) == 1


@pytest.mark.processes
def test_a_pickle_comes_first():
    """Nothing of fastloader was imported before."""
    done = run_script(
        "import pickle\n"
        "kind = pickle.loads(b'cfastloader.transforms.steps.geometry.flip\\nRandomHorizontalFlip\\n.')\n"
        "print(kind.__module__)\n"
    )
    assert done.stdout.split() == ["fastloader.transforms.geometry"], done.stderr
