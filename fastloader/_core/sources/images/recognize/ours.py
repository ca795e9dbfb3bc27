"""fastloader's own datasets of pictures."""

from __future__ import annotations

import numpy as np

from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources.images.recognize.reading import Reading
from fastloader._core.sources.images.stores.folder import FolderStore
from fastloader._core.sources.images.stores.lmdb import LmdbStore
from fastloader._core.sources.images.stores.mapped import MappedStore
from fastloader._core.sources.sequences import by_place
from fastloader.datasets.files import FileList
from fastloader.datasets.hugging_face import HFImages
from fastloader.datasets.lmdb import LMDBDataset
from fastloader.datasets.parquet import ParquetImages
from fastloader.datasets.tar import TarImages
from fastloader.errors import NotNative


def recognize_files(dataset: FileList, reading: Reading) -> NativeImages:
    reading.target_transform(dataset.target_transform)
    chain = reading.chain(dataset.transform, ours_ends_in_tensor=True)
    file = dataset.seek_file
    store = FolderStore(dataset.paths, dataset.ends, () if file is None else (file,))
    targets = np.asarray(
        by_place(dataset.targets, "the dataset's targets")
    )  # which the user may have set
    if targets.dtype.kind not in "iu" or targets.shape != (len(store),):
        raise NotNative("the dataset's targets are not a whole number for each file")
    return NativeImages(store, targets, None, chain, form=dataset.form)


def recognize_lmdb(dataset: LMDBDataset, reading: Reading) -> NativeImages:
    if dataset.legacy:
        raise NotNative("the dataset is a legacy LMDB file: its samples are pickled")
    reading.target_transform(dataset.target_transform)
    chain = reading.chain(dataset.transform, ours_ends_in_tensor=True)
    name = "fastloader LMDBDataset" + ("" if dataset.cache is None else " (in the cache)")
    return NativeImages(LmdbStore([dataset]), dataset.targets, None, chain, name)


def is_here(dataset: TarImages | FileList) -> bool:
    """Whether all of it lies in files of this machine."""
    return dataset.mapped if isinstance(dataset, TarImages) else dataset.cache is None


_MAPPED = {
    TarImages: "tar shards",
    HFImages: "Hugging Face data sets",
    ParquetImages: "Parquet files",
}


def recognize_mapped(
    dataset: TarImages | HFImages | ParquetImages, reading: Reading
) -> NativeImages:
    reading.target_transform(dataset.target_transform)
    chain = reading.chain(dataset.transform, ours_ends_in_tensor=True)
    kind = next(each for each in _MAPPED if isinstance(dataset, each))
    name = f"fastloader {kind.__name__}"
    files = dataset.files() if isinstance(dataset, HFImages) else None
    if files is not None:
        folder = FolderStore(*files, upright=dataset.upright)
        return NativeImages(
            folder, dataset.targets, None, chain, f"{name} (files)", form=dataset.form
        )
    store = MappedStore([dataset], _MAPPED[kind])
    if isinstance(dataset, TarImages) and dataset.cache is not None:
        name += " (all shards in the cache)"
    if isinstance(dataset, HFImages) and (elsewhere := int((dataset.places()[0] == 0).sum())):
        name += f" ({elsewhere} pictures are paths or missing: Pillow reads these)"
    return NativeImages(store, dataset.targets, None, chain, name, form=dataset.form)


def is_mapped(dataset: ParquetImages) -> bool:
    """Whether its pictures lie in memory. Otherwise its samples are encoded pictures, as those of any
    dataset may be."""
    return dataset.mapped
