"""Recognising datasets whose pictures the native path can read, decode and transform by itself.

Exact types only: a subclass may do anything. Nothing of torchvision is imported; a class is known by
its module and name. When something is not known, `Unlowered` names it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset, default_collate

from fastloader import transforms
from fastloader.datasets.image_folder import ImageFolder


class Unlowered(Exception):
    """Why a dataset takes the Python path."""


@dataclasses.dataclass
class Chain:
    """A chain of transforms in the one order that is native: see csrc/image/image_transform.h."""

    random_crop: tuple[float, float, float, float] | None = None
    shorter: int | None = None
    max_size: int | None = None
    exact: tuple[int, int] | None = None
    center_crop: tuple[int, int] | None = None
    horizontal_flip: float = 0.0
    vertical_flip: float = 0.0
    filter: str = "bilinear"
    tensor: bool = False  # ends in a tensor
    floating: bool = False  # ... of floats in 0..1, normalised if mean is set
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def native(self, module: Any) -> Any:
        return module.ImageTransform(
            random_crop=None if self.random_crop is None else list(self.random_crop),
            shorter=self.shorter,
            max_size=self.max_size,
            exact=self.exact,
            center_crop=self.center_crop,
            horizontal_flip=self.horizontal_flip,
            vertical_flip=self.vertical_flip,
            filter=self.filter,
        )


@dataclasses.dataclass
class Lowered:
    """A dataset in flat arrays. ``indices`` maps the dataset's indices to files, None is one to one."""

    paths: Any  # uint8
    ends: Any  # uint64, one a file
    targets: Any  # one a file
    indices: Any | None
    chain: Chain
    name: str

    def __len__(self) -> int:
        return len(self.ends) if self.indices is None else len(self.indices)


def lower(loader: Any) -> Lowered:
    """Raises Unlowered with the reason, in words."""
    if loader._dataset_kind != 0:
        raise Unlowered("the dataset is iterable")
    if loader.batch_size is None and loader.batch_sampler is None:
        raise Unlowered("batch_size=None: samples are not collated")
    if loader.collate_fn is not default_collate:
        raise Unlowered(f"collate_fn is {_named(loader.collate_fn)}")
    if loader.worker_init_fn is not None:
        raise Unlowered(f"worker_init_fn is {_named(loader.worker_init_fn)}")
    return _lower_dataset(loader.dataset)


def _lower_dataset(dataset: Any) -> Lowered:
    kind = type(dataset)
    if kind is Subset:
        inner = _lower_dataset(dataset.dataset)
        picked = np.asarray(dataset.indices, dtype=np.int64)
        picked = np.where(picked < 0, picked + len(inner), picked)
        if picked.size and (picked.min() < 0 or picked.max() >= len(inner)):
            raise Unlowered("a Subset holds indices that its dataset has not")
        indices = picked if inner.indices is None else inner.indices[picked]
        return dataclasses.replace(inner, indices=indices, name=f"Subset of {inner.name}")
    if kind is ConcatDataset:
        return _concatenated([_lower_dataset(each) for each in dataset.datasets])
    if kind is ImageFolder:
        if dataset.target_transform is not None:
            raise Unlowered("the dataset has a target_transform")
        if dataset.transform is None:
            raise Unlowered("the dataset has no transform: its samples are Pillow images")
        chain = read_chain(dataset.transform, ours_ends_in_tensor=True)
        return Lowered(
            dataset.paths, dataset.ends, dataset.targets, None, chain, "fastloader ImageFolder"
        )
    if _is(kind, "torchvision.datasets.folder", "ImageFolder"):
        return _lower_torchvision(dataset)
    raise Unlowered(f"the dataset is a {kind.__module__}.{kind.__qualname__}")


def _lower_torchvision(dataset: Any) -> Lowered:
    if dataset.target_transform is not None:
        raise Unlowered("the dataset has a target_transform")
    loader = dataset.loader
    if (getattr(loader, "__module__", ""), getattr(loader, "__qualname__", "")) != (
        "torchvision.datasets.folder",
        "default_loader",
    ):
        raise Unlowered(f"the dataset's loader is {_named(loader)}")
    # DatasetFolder keeps the transform twice; a user who replaces one of them means __getitem__'s.
    chain = read_chain(dataset.transform, ours_ends_in_tensor=False)
    encoded = [os.fsencode(path) for path, _target in dataset.samples]
    targets = [target for _path, target in dataset.samples]
    if not all(isinstance(target, int) for target in targets):
        raise Unlowered("the dataset's targets are not whole numbers")
    return Lowered(
        np.frombuffer(b"".join(encoded), dtype=np.uint8),
        np.cumsum([len(path) for path in encoded], dtype=np.uint64),
        np.asarray(targets, dtype=np.int64),
        None,
        chain,
        "torchvision ImageFolder",
    )


def _concatenated(parts: list[Lowered]) -> Lowered:
    first = parts[0]
    if any(part.chain != first.chain for part in parts):
        raise Unlowered("the datasets of a ConcatDataset have different transforms")
    files = np.cumsum([0, *(len(part.ends) for part in parts)])
    bytes_before = np.cumsum([0, *(len(part.paths) for part in parts)]).astype(np.uint64)
    indices = None
    if any(part.indices is not None for part in parts):
        indices = np.concatenate(
            [
                (np.arange(len(part)) if part.indices is None else part.indices) + before
                for part, before in zip(parts, files)
            ]
        )
    return Lowered(
        np.concatenate([part.paths for part in parts]),
        np.concatenate([part.ends + before for part, before in zip(parts, bytes_before)]),
        np.concatenate([part.targets for part in parts]),
        indices,
        first.chain,
        "ConcatDataset of " + ", ".join(part.name for part in parts),
    )


_GEOMETRIC = (
    "RandomResizedCrop",
    "Resize",
    "CenterCrop",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
)
_HOMES = {
    "fastloader.transforms": "",
    "torchvision.transforms.transforms": "",
    "torchvision.transforms.v2._geometry": "",
    "torchvision.transforms.v2._container": "",
    "torchvision.transforms.v2._misc": "",
    "torchvision.transforms.v2._type_conversion": "",
    "torchvision.transforms.v2._deprecated": "",
}


def read_chain(transform: Any, ours_ends_in_tensor: bool) -> Chain:
    """Reads the steps off a transform. Raises Unlowered naming the first that is not known, or not
    known in its place."""
    if transform is None:
        raise Unlowered("the dataset has no transform: its samples are Pillow images")
    chain = Chain()
    ours = True
    for step in steps_of(transform):
        ours = ours and type(step).__module__ == "fastloader.transforms"
        _read_step(chain, step)
    if not chain.tensor and not (ours and ours_ends_in_tensor):
        raise Unlowered("the transform ends in a Pillow image, which is not collated")
    if chain.exact is None and chain.center_crop is None:
        raise Unlowered("the transform gives pictures of different sizes")
    return chain


def steps_of(transform: Any) -> Iterable[Any]:
    """The steps of a transform, those of chains within chains too."""
    if _kind(transform) != "Compose":
        return [transform]
    return [step for each in transform.transforms for step in steps_of(each)]


def _kind(step: Any) -> str:
    kind = type(step)
    return kind.__qualname__ if kind.__module__ in _HOMES else ""


def _read_step(chain: Chain, step: Any) -> None:
    kind = _kind(step)
    if chain.tensor:
        _read_behind_tensor(chain, step, kind)
        return
    flipped = chain.horizontal_flip or chain.vertical_flip
    scaled = chain.exact is not None or chain.shorter is not None
    if kind in _GEOMETRIC and kind.endswith("Flip"):
        name = "horizontal_flip" if kind == "RandomHorizontalFlip" else "vertical_flip"
        if getattr(chain, name):
            raise Unlowered(f"{step!r} stands in the transform for the second time")
        setattr(chain, name, float(step.p))
    elif kind in _GEOMETRIC and flipped:
        raise Unlowered(f"{step!r} stands behind a flip")
    elif kind == "RandomResizedCrop" and not scaled and chain.center_crop is None:
        (low, high), (thin, wide) = step.scale, step.ratio
        chain.random_crop = (float(low), float(high), float(thin), float(wide))
        chain.exact = (int(step.size[0]), int(step.size[1]))
        chain.filter = _filter(step)
    elif kind == "Resize" and not scaled and chain.center_crop is None:
        size = [step.size] if isinstance(step.size, int) else list(step.size or [])
        if len(size) == 1:
            chain.shorter, chain.max_size = int(size[0]), step.max_size
        elif len(size) == 2:
            chain.exact = (int(size[0]), int(size[1]))
        else:
            raise Unlowered(f"{step!r} has no size")
        chain.filter = _filter(step)
    elif kind == "CenterCrop" and chain.center_crop is None:
        chain.center_crop = (int(step.size[0]), int(step.size[1]))
    elif kind == "PILToTensor":
        chain.tensor = True
    elif kind == "ToTensor":
        chain.tensor = chain.floating = True
    else:
        raise Unlowered(f"{step!r} is not a native transform, or not in this place")


def _read_behind_tensor(chain: Chain, step: Any, kind: str) -> None:
    if kind != "Normalize" or not chain.floating or chain.mean is not None:
        raise Unlowered(f"{step!r} stands behind the conversion to a tensor")
    mean, std = (
        tuple(torch.as_tensor(v, dtype=torch.float64).flatten().tolist())
        for v in (step.mean, step.std)
    )
    if len(mean) not in (1, 3) or len(std) not in (1, 3) or 0.0 in std:
        raise Unlowered(f"{step!r} is not of three channels")
    chain.mean = mean * (3 // len(mean))
    chain.std = std * (3 // len(std))


def _filter(step: Any) -> str:
    try:
        return transforms.interpolation_name(step.interpolation)
    except ValueError:
        raise Unlowered(f"{step!r} does not resize bilinearly or bicubically") from None


def _is(kind: type, module: str, name: str) -> bool:
    return (kind.__module__, kind.__qualname__) == (module, name)


def _named(value: Any) -> str:
    return str(getattr(value, "__qualname__", repr(value)))
