"""The pictures that there are to check: those of a folder, of tar shards, or of an LMDB file."""

from __future__ import annotations

import array
import dataclasses
import os
from typing import Any

import numpy as np

from fastloader._core.pictures.store import ImageStore
from fastloader._core.sources.images.stores.folder import FolderStore
from fastloader._core.sources.images.stores.lmdb import LmdbStore
from fastloader._core.sources.images.stores.mapped import MappedStore
from fastloader.datasets import LMDBDataset, TarImages
from fastloader.datasets._formats.lmdb import data_file, is_lmdb
from fastloader.datasets._formats.paths import files_once, is_url
from fastloader.datasets.files import IMG_EXTENSIONS


@dataclasses.dataclass
class Collection:
    """``stores``: where the pictures lie. ``bad``: (name, error) of what cannot be looked into, such as
    a damaged shard. ``others``: how many files are not taken for pictures, by their names."""

    stores: list[ImageStore]
    bad: list[tuple[str, BaseException]]
    others: int = 0

    def __len__(self) -> int:
        return sum(len(store) for store in self.stores)

    @classmethod
    def of(cls, path: str, index_dir: str) -> Collection:
        """``index_dir``: a folder where the places of a shard's pictures may be noted.

        Raises:
            OSError, ValueError: if there is nothing to check.
        """
        if is_url(path):
            raise ValueError(f"{path}: a folder or file of this machine is checked, no URL")
        if not os.path.exists(path):
            raise FileNotFoundError(f"there is no {path}")
        if os.path.isfile(path) and path.lower().endswith(".tar"):
            return _of_shards([path], index_dir)
        if not os.path.isdir(path) and not os.path.isfile(path):
            raise OSError(f"not a regular file: {path!r}")
        if os.path.isfile(path) and not is_lmdb(path):
            raise ValueError(
                f"{path} is no tar (.tar) and no LMDB file: a folder of pictures or of tar shards is "
                "checked, one shard, or a file of `fastloader pack`. Of a list or a picture, check the "
                "folder"
            )
        if os.path.isfile(path) or os.path.exists(data_file(path)):
            return cls([LmdbStore([LMDBDataset(path)])], [])
        found, shards = _of_files(path)
        if shards and not len(found):
            return _of_shards(shards, index_dir)
        if not len(found) and not found.bad:
            raise ValueError(f"{path} has no pictures ({', '.join(IMG_EXTENSIONS)}) and no shards")
        return found


def _of_shards(paths: list[str], index_dir: str) -> Collection:
    found = Collection([], [])
    for path in paths:
        try:
            shards = TarImages(path, index_dir=index_dir)
        except (OSError, ValueError) as error:
            found.bad.append((path, error))
        else:
            found.stores.append(MappedStore([shards], "tar shards"))
    return found


def _of_files(folder: str) -> tuple[Collection, list[str]]:
    """The pictures of a folder by their names, and its shards."""
    paths, ends, shards = bytearray(), array.array("Q"), []
    found = Collection([], [])

    def note(error: OSError) -> None:
        found.bad.append((str(error.filename), error))

    for path in files_once(folder, note):
        name = path.lower()
        if name.endswith(IMG_EXTENSIONS):
            paths += os.fsencode(path)
            ends.append(len(paths))
        else:
            found.others += 1
            if name.endswith(".tar"):
                shards.append(path)
    if ends:
        flat: Any = np.frombuffer(bytes(paths), np.uint8)
        found.stores.append(FolderStore(flat, np.frombuffer(ends.tobytes(), np.uint64)))
    return found, shards
