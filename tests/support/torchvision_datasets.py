"""torchvision's datasets over files in their real formats, with tiny pictures.

Two things are not torchvision's own: its check of the files' md5 only looks whether a file is there, and
scipy, which not every machine has, is an object that returns the tables of the .mat files.
"""

import importlib
import json
import os
import pickle
import random
import struct
import sys
import types

import numpy as np
import torch
from pictures import picture, plain_folder, save_jpeg

COUNT = 11  # pictures of each
_CHECKED = ("cifar", "flowers102", "places365", "stl10", "svhn")  # modules that look at an md5


def _classes(count, most=10):
    return np.random.default_rng(7).integers(0, most, count)


def _pixels(*shape):
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)


def _pickled(path, **entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(entries))


def cifar10(root):
    base = root / "cifar-10-batches-py"
    for number in range(5):
        data = _pixels(3 + number, 3072)
        _pickled(base / f"data_batch_{number + 1}", data=data, labels=_classes(3 + number).tolist())
    _pickled(base / "test_batch", data=_pixels(COUNT, 3072), labels=_classes(COUNT).tolist())
    _pickled(base / "batches.meta", label_names=[f"name {number}" for number in range(10)])
    return {}


def cifar100(root):
    base = root / "cifar-100-python"
    for name in ("train", "test"):
        labels = _classes(COUNT, 100).tolist()
        _pickled(base / name, data=_pixels(COUNT, 3072), fine_labels=labels)
    _pickled(base / "meta", fine_label_names=[f"name {number}" for number in range(100)])
    return {"train": False}


def _write_idx(path, array):
    """Yann LeCun's format: what the numbers are, the edges, the numbers; big-endian."""
    kind = {1: 8, 4: 12}[array.itemsize]
    header = struct.pack(f">BBBB{array.ndim}i", 0, 0, kind, array.ndim, *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + array.astype(array.dtype.newbyteorder(">")).tobytes())


def mnist(root, kind="MNIST", prefixes=("train", "t10k")):
    for number, prefix in enumerate(prefixes):
        raw = root / kind / "raw"
        _write_idx(raw / f"{prefix}-images-idx3-ubyte", _pixels(COUNT + number, 28, 28))
        labels = _classes(COUNT + number).astype(np.uint8)
        _write_idx(raw / f"{prefix}-labels-idx1-ubyte", labels)
    return {}


def emnist(root):
    mnist(root, "EMNIST", ("emnist-letters-train", "emnist-letters-test"))
    return {"split": "letters", "train": False}


def qmnist(root):
    raw = root / "QMNIST" / "raw"
    _write_idx(raw / "qmnist-train-images-idx3-ubyte", _pixels(COUNT, 28, 28))
    rows = np.random.default_rng(3).integers(0, 10, (COUNT, 8), dtype=np.int32)
    _write_idx(raw / "qmnist-train-labels-idx2-int", rows)
    return {}


def svhn(root):
    (root / "train_32x32.mat").touch()
    labels = (_classes(COUNT) + 1).astype(np.uint8)[:, None]
    _mat(root / "train_32x32.mat", X=np.asfortranarray(_pixels(32, 32, 3, COUNT)), y=labels)
    return {}


def stl10(root):
    base = root / "stl10_binary"
    base.mkdir(parents=True)
    for name in ("train", "test", "unlabeled"):
        _pixels(COUNT, 3, 96, 96).tofile(base / f"{name}_X.bin")
        (_classes(COUNT) + 1).astype(np.uint8).tofile(base / f"{name}_y.bin")
    return {}


def _save(path, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = random.Random(path.name)
    picture(rng, rng.randint(20, 30), rng.randint(16, 26), mode).save(path, "JPEG")


def _names(kinds):
    """(kind, name, class) of each picture."""
    of_each = enumerate(_classes(COUNT, len(kinds)).tolist())
    return [(kinds[of], f"{number:04}", of) for number, of in of_each]


def food101(root):
    base = root / "food-101"
    found = {"pie": [], "apple": []}
    for kind, name, _ in _names(list(found)):
        found[kind].append(f"{kind}/{name}")
        _save(base / "images" / kind / f"{name}.jpg", "L" if name.endswith("3") else "RGB")
    (base / "meta").mkdir()
    (base / "meta" / "train.json").write_text(json.dumps(found))
    return {}


def flowers102(root):
    base = root / "flowers-102"
    numbers = [4, 2, 9, 1, 7]
    for number in numbers:
        _save(base / "jpg" / f"image_{number:05}.jpg")
    for name in ("setid.mat", "imagelabels.mat"):
        (base / name).touch()
    _mat(base / "setid.mat", trnid=np.array(numbers, np.uint16))
    _mat(base / "imagelabels.mat", labels=np.arange(1, 103, dtype=np.uint8)[::-1])
    return {}


def dtd(root):
    base = root / "dtd" / "dtd"
    lines = []
    for kind, name, _ in _names(["banded", "dotted", "woven"]):
        lines.append(f"{kind}/{name}.jpg")
        _save(base / "images" / kind / f"{name}.jpg")
    (base / "labels").mkdir()
    (base / "labels" / "train1.txt").write_text("\n".join(lines) + "\n")
    return {}


def pets(root):
    base = root / "oxford-iiit-pet"
    lines = []
    for kind, name, of in _names(["Abyssinian", "beagle"]):
        lines.append(f"{kind}_{name} {of + 1} {2 - of} 1")
        _save(base / "images" / f"{kind}_{name}.jpg", "CMYK" if name.endswith("2") else "RGB")
    (base / "annotations").mkdir()
    (base / "annotations" / "trainval.txt").write_text("\n".join(lines) + "\n")
    return {}


def image_folder(root, *below):
    plain_folder(root.joinpath(*below), COUNT)
    return {}


def imagenet(root):
    image_folder(root, "val")
    torch.save(({f"c{number}": (f"name {number}",) for number in range(3)}, []), root / "meta.bin")
    return {"split": "val"}


def imagenette(root):
    for number, kind in enumerate(["n01440764", "n02102040"] * 3):
        path = root / "imagenette2" / "train" / kind / f"{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_jpeg(random.Random(number), path, 30, 24)
    return {}


def places365(root):
    (root / "categories_places365.txt").write_text("/a/airfield 0\n/b/beach 1\n")
    lines = []
    for kind, name, of in _names(["a", "b"]):
        lines.append(f"{kind}/{name}.jpg {of}")
        _save(root / "val_256" / kind / f"{name}.jpg")
    (root / "places365_val.txt").write_text("\n".join(lines) + "\n")
    return {"split": "val", "small": True}


def caltech101(root):
    base = root / "caltech101" / "101_ObjectCategories"
    (base / "BACKGROUND_Google").mkdir(parents=True)
    for kind, count in (("ant", 4), ("Faces", 3)):
        for number in range(1, count + 1):
            _save(base / kind / f"image_{number:04}.jpg", "L" if number == 2 else "RGB")
    return {}


def caltech256(root):
    base = root / "caltech256" / "256_ObjectCategories"
    for of, kind in enumerate(("001.ak47", "002.american-flag")):
        for number in range(1, 5):
            mode = "L" if number == 2 else "RGB"
            _save(base / kind / f"{of + 1:03}_{number:04}.jpg", mode)
    return {}


# By the class: what writes its files and returns the arguments of the constructor.
ARRAYS = {
    "CIFAR10": cifar10,
    "CIFAR100": cifar100,
    "SVHN": svhn,
    "STL10": stl10,
}
GREY = {
    "MNIST": mnist,
    "FashionMNIST": lambda root: mnist(root, "FashionMNIST"),
    "KMNIST": lambda root: mnist(root, "KMNIST"),
    "EMNIST": emnist,
    "QMNIST": qmnist,
}
FILES = {
    "ImageFolder": image_folder,
    "ImageNet": imagenet,
    "EuroSAT": lambda root: image_folder(root, "eurosat", "2750"),
    "Imagenette": imagenette,
    "Places365": places365,
    "Food101": food101,
    "Flowers102": flowers102,
    "DTD": dtd,
    "OxfordIIITPet": pets,
}
OPENED_AS_THEY_ARE = {"Caltech101": caltech101, "Caltech256": caltech256}
ALL = {**ARRAYS, **GREY, **FILES, **OPENED_AS_THEY_ARE}

_tables = {}  # of .mat files, by path


def _mat(path, **table):
    _tables[os.path.realpath(path)] = table


def _loadmat(path, squeeze_me=False):
    table = _tables[os.path.realpath(path)]
    return {key: np.squeeze(value) if squeeze_me else value for key, value in table.items()}


def stand_in(monkeypatch, tv):
    """Puts what is not torchvision's own in its place, as long as the test runs."""
    for name in _CHECKED:
        module = importlib.import_module(f"torchvision.datasets.{name}")
        monkeypatch.setattr(module, "check_integrity", lambda path, md5=None: os.path.isfile(path))
    scipy, scipy_io = types.ModuleType("scipy"), types.ModuleType("scipy.io")
    scipy.io, scipy_io.loadmat = scipy_io, _loadmat
    monkeypatch.setitem(sys.modules, "scipy", scipy)
    monkeypatch.setitem(sys.modules, "scipy.io", scipy_io)


def make(tv, root, name, **options):
    """The dataset of that class over files of its own, in a new folder in ``root``."""
    folder = root / f"{name} {len(os.listdir(root))}"
    folder.mkdir()
    arguments = {**ALL[name](folder), **options}
    return getattr(tv.datasets, name)(str(folder), **arguments)
