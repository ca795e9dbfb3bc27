"""Recognising datasets whose pictures the native path can read, decode and transform by itself.

Exact types only: a subclass may do anything. Nothing of torchvision or timm is imported; a class is
known by its module and name. When something is not known, `Unlowered` names it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import weakref
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset, default_collate

from fastloader._core.pictures.lowered import Lowered
from fastloader._core.pictures.store import Files
from fastloader._core.sources.images.stores.folder import FolderFiles
from fastloader._core.sources.images.stores.lmdb import PackedFiles
from fastloader.datasets.image_folder import ImageFolder
from fastloader.datasets.lmdb_dataset import LMDBDataset
from fastloader.transforms._chain_reader import Unlowered, read_chain


def lower(loader: Any) -> Lowered:
    """Raises Unlowered with the reason, in words."""
    _check_batches(loader)
    container = _container(loader.collate_fn)
    return dataclasses.replace(_lower_dataset(loader.dataset), container=container)


def check_collation(loader: Any) -> None:
    """Raises Unlowered unless batches are samples in default_collate, and no code of the user's runs in
    workers."""
    _check_batches(loader)
    if loader.collate_fn is not default_collate:
        raise Unlowered(f"collate_fn is {_named(loader.collate_fn)}")


def _check_batches(loader: Any) -> None:
    if loader._dataset_kind != 0:
        raise Unlowered("the dataset is iterable")
    if loader.batch_size is None and loader.batch_sampler is None:
        raise Unlowered("batch_size=None: samples are not collated")
    init = loader.worker_init_fn
    if init is not None and not _only_seeds(init):
        raise Unlowered(f"worker_init_fn is {_named(init)}")


# Lightning, under the names of both its packages, and the Trainer of transformers.
_SEEDING = (
    ("lightning.fabric.utilities.seed", "pl_worker_init_function"),
    ("lightning_fabric.utilities.seed", "pl_worker_init_function"),
    ("transformers.trainer_utils", "seed_worker"),
)


def _only_seeds(init: Any) -> bool:
    """Whether a worker_init_fn seeds the generators of a worker process and does nothing else: there is
    nothing left to do where there are no worker processes."""
    if _is(type(init), "fastloader.compat.timm.collate", "WorkerSeeding"):
        return bool(init.usual)
    while type(init) is functools.partial:
        init = init.func
    return (getattr(init, "__module__", ""), getattr(init, "__qualname__", "")) in _SEEDING


def _container(collate_fn: Any) -> type:
    """What ``collate_fn`` makes of samples (picture, class), besides batching both."""
    if collate_fn is default_collate:
        return list
    name = (getattr(collate_fn, "__module__", ""), getattr(collate_fn, "__qualname__", ""))
    if name in _FAST_COLLATES:
        return tuple
    if _is(type(collate_fn), "fastloader.compat.timm.mixup", "FastCollateMixup"):
        if collate_fn.in_kernel:
            return tuple
        raise Unlowered("collate_fn is a FastCollateMixup outside of a PrefetchLoader")
    raise Unlowered(f"collate_fn is {_named(collate_fn)}")


_FAST_COLLATES = (
    ("fastloader.compat.timm.collate", "fast_collate"),
    ("timm.data.loader", "fast_collate"),
)


def _lower_dataset(dataset: Any) -> Lowered:
    kind = type(dataset)
    if kind is Subset:
        inner = _lower_dataset(dataset.dataset)
        picked = _whole_numbers(dataset.indices)
        picked = np.where(picked < 0, picked + len(inner), picked)
        if picked.size and (picked.min() < 0 or picked.max() >= len(inner)):
            raise Unlowered("a Subset holds indices that its dataset has not")
        indices = picked if inner.indices is None else inner.indices[picked]
        kept = _last_time.get(dataset)
        if kept is not None and np.array_equal(kept, indices):
            indices = kept
        _last_time[dataset] = indices
        return dataclasses.replace(inner, indices=indices, name=f"Subset of {inner.name}")
    if kind is ConcatDataset:
        return _concatenated(dataset, [_lower_dataset(each) for each in dataset.datasets])
    if kind is ImageFolder:
        if dataset.target_transform is not None:
            raise Unlowered("the dataset has a target_transform")
        if dataset.transform is None:
            raise Unlowered("the dataset has no transform: its samples are Pillow images")
        chain = read_chain(dataset.transform, ours_ends_in_tensor=True)
        files = FolderFiles(dataset.paths, dataset.ends)
        targets = np.asarray(dataset.targets)  # which somebody may have set
        if targets.dtype.kind not in "iu" or targets.shape != (len(files),):
            raise Unlowered("the dataset's targets are not a whole number for each file")
        return Lowered(files, targets, None, chain, "fastloader ImageFolder")
    if kind is LMDBDataset:
        return _lower_lmdb(dataset)
    if _is(kind, "torchvision.datasets.folder", "ImageFolder"):
        return _lower_torchvision(dataset)
    for package in ("timm.data", "fastloader.compat.timm"):
        if _is(kind, f"{package}.dataset", "ImageDataset"):
            return _lower_timm(dataset, f"{package.partition('.')[0]} ImageDataset")
    raise Unlowered(f"the dataset is a {kind.__module__}.{kind.__qualname__}")


def _lower_lmdb(dataset: LMDBDataset) -> Lowered:
    if dataset.legacy:
        raise Unlowered("the dataset is a legacy LMDB file: its samples are pickled")
    if dataset.target_transform is not None:
        raise Unlowered("the dataset has a target_transform")
    if dataset.transform is None:
        raise Unlowered("the dataset has no transform: its samples are Pillow images")
    chain = read_chain(dataset.transform, ours_ends_in_tensor=True)
    return Lowered(PackedFiles([dataset]), dataset.targets, None, chain, "fastloader LMDBDataset")


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
    files, targets = _flat(dataset, dataset.samples)
    return Lowered(files, targets, None, chain, "torchvision ImageFolder")


def _lower_timm(dataset: Any, called: str) -> Lowered:
    """timm's own and that of compat.timm."""
    reader = type(dataset.reader)
    homes = ("timm.data.readers.reader_image_folder", "fastloader.compat.timm.readers")
    if not any(_is(reader, home, "ReaderImageFolder") for home in homes):
        raise Unlowered(f"the dataset's reader is a {reader.__module__}.{reader.__qualname__}")
    plain = {
        "load_bytes": False,
        "input_img_mode": "RGB",
        "target_transform": None,
        "additional_features": None,
    }
    for name, value in plain.items():
        if getattr(dataset, name) != value:
            raise Unlowered(f"the dataset has {name}={getattr(dataset, name)!r}")
    attempts = getattr(dataset, "_max_retries", None)
    if not isinstance(attempts, int) or attempts < 1:
        raise Unlowered("this version of timm treats bad samples by a rule that is not known")
    chain = read_chain(dataset.transform, ours_ends_in_tensor=False)
    files, targets = _flat(dataset, dataset.reader.samples)
    return Lowered(files, targets, None, chain, called, attempts)


def _whole_numbers(indices: Any) -> Any:
    """A Subset's, as int64. What a list would not take for an index is torch's to refuse."""
    try:
        picked = np.asarray(indices)
    except (TypeError, ValueError):  # ragged
        picked = np.asarray(None)
    if picked.size == 0 and picked.ndim == 1:
        return np.zeros(0, np.int64)
    if picked.ndim != 1 or picked.dtype.kind not in "iu":
        raise Unlowered("a Subset holds indices that are not whole numbers")
    return picked.astype(np.int64, copy=False)


# What a dataset's files became at the last epoch. The same arrays again mean that nothing has changed,
# so that a loader keeps what it built on them.
_last_time: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _flat(dataset: Any, samples: list[tuple[str, int]]) -> tuple[FolderFiles, Any]:
    """(files, targets) of a list of samples. Encoding a million paths takes half a second, so it
    is done once; a shallow copy of the list, 8 bytes each, shows whether another sample stands
    anywhere, since comparing lists of the same tuples only compares their addresses."""
    kept = _last_time.get(dataset)
    if kept is not None and kept[0] == samples:
        arrays: tuple[FolderFiles, Any] = kept[1]
        return arrays
    encoded = [os.fsencode(path) for path, _target in samples]
    targets = [target for _path, target in samples]
    if not all(isinstance(target, int) and not isinstance(target, bool) for target in targets):
        raise Unlowered("the dataset's targets are not whole numbers")
    if targets and not -(1 << 63) <= min(targets) <= max(targets) < 1 << 63:
        raise Unlowered("the dataset's targets are of more than 64 bits")
    files = FolderFiles(
        np.frombuffer(b"".join(encoded), dtype=np.uint8),
        np.cumsum([len(path) for path in encoded], dtype=np.uint64),
    )
    arrays = files, np.asarray(targets, dtype=np.int64)
    _last_time[dataset] = (list(samples), arrays)
    return arrays


def _concatenated(dataset: Any, parts: list[Lowered]) -> Lowered:
    first = parts[0]
    if any(part.chain != first.chain for part in parts):
        raise Unlowered("the datasets of a ConcatDataset have different transforms")
    if any(part.attempts != first.attempts for part in parts):
        raise Unlowered("the datasets of a ConcatDataset treat bad samples differently")
    kept = _last_time.get(dataset)
    if kept is not None and _same_files(kept[0], parts):
        joined: Lowered = kept[1]
        return dataclasses.replace(joined, chain=first.chain, attempts=first.attempts)
    joined = _join(parts)
    _last_time[dataset] = (parts, joined)
    return joined


def _same_files(some: list[Lowered], others: list[Lowered]) -> bool:
    return len(some) == len(others) and all(a.same_files(b) for a, b in zip(some, others))


def _join(parts: list[Lowered]) -> Lowered:
    first = parts[0]
    counts = np.cumsum([0, *(len(part.files) for part in parts)])
    indices = None
    if any(part.indices is not None for part in parts):
        indices = np.concatenate(
            [
                (np.arange(len(part)) if part.indices is None else part.indices) + before
                for part, before in zip(parts, counts)
            ]
        )
    return Lowered(
        _joined([part.files for part in parts]),
        np.concatenate([part.targets for part in parts]),
        indices,
        first.chain,
        "ConcatDataset of " + ", ".join(part.name for part in parts),
        first.attempts,
        tuple(int(before) + start for part, before in zip(parts, counts) for start in part.starts),
    )


def _joined(parts: list[Any]) -> Files:
    kinds = {type(part) for part in parts}
    if kinds == {PackedFiles}:
        return PackedFiles([dataset for part in parts for dataset in part.parts])
    if kinds != {FolderFiles}:
        raise Unlowered("a ConcatDataset holds folders and LMDB files")
    before = np.cumsum([0, *(len(part.paths) for part in parts)]).astype(np.uint64)
    return FolderFiles(
        np.concatenate([part.paths for part in parts]),
        np.concatenate([part.ends + bytes_before for part, bytes_before in zip(parts, before)]),
    )


def _is(kind: type, module: str, name: str) -> bool:
    return (kind.__module__, kind.__qualname__) == (module, name)


def _named(value: Any) -> str:
    return str(getattr(value, "__qualname__", repr(value)))
