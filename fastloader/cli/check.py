"""Runs ``fastloader check``: decodes every picture, and names the bad ones."""

from __future__ import annotations

import array
import dataclasses
import json
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastloader._core.machine import extension
from fastloader._core.machine.limits import available_threads
from fastloader._core.machine.messages import progress
from fastloader._core.pictures.store import (
    FolderStore,
    ImageStore,
    LmdbStore,
    MappedStore,
    OpenStore,
)
from fastloader.cli.tasks import ahead, printable
from fastloader.datasets import LMDBDataset, TarImages
from fastloader.datasets._formats.lmdb_files import data_file, is_lmdb
from fastloader.datasets._formats.paths import files_once, is_url
from fastloader.datasets.files import IMG_EXTENSIONS
from fastloader.errors import Error
from fastloader.transforms._chain import Chain
from fastloader.transforms._job import Decode, make_job

# ---- The pictures that there are to check: those of a folder, of tar shards, or of an LMDB
# file.


@dataclasses.dataclass
class Collection:
    """The pictures to check. ``stores``: where they lie. ``bad``: (name, error) of what cannot be looked
    into, such as a damaged shard. ``others``: how many files are not taken for pictures, by their
    names."""

    stores: list[ImageStore]
    bad: list[tuple[str, BaseException]]
    others: int = 0

    def __len__(self) -> int:
        return sum(len(store) for store in self.stores)

    @classmethod
    def of(cls, path: str, index_dir: str) -> Collection:
        """Collects the pictures below a path. ``index_dir``: a folder where the places of a shard's
        pictures may be noted.

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
    """Collects the pictures of a folder by their names, and its shards."""
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


# ---- Decodes all pictures, and tells which are bad.


def check(path: str, workers: int | None, as_json: bool) -> int:
    """Prints what is bad, and returns the exit status: 0 if nothing is, 1 otherwise."""
    begun = time.monotonic()
    listed = []
    bad = 0
    with tempfile.TemporaryDirectory(prefix="fastloader-check-") as index_dir:
        found = Collection.of(os.path.expanduser(path), index_dir)
        count = len(found)
        with progress("checking", count) as line:
            for name, error in _bad(found, workers or available_threads(), line.step):
                bad += 1
                kind, message = type(error).__name__, _message(name, error)
                if as_json:
                    listed.append({"file": name, "error": kind, "message": message})
                else:
                    line.above(printable(f"{name}: {kind}: {message}"))
    seconds = time.monotonic() - begun
    if as_json:
        counts = {"checked": count, "bad": bad, "other_files": found.others}
        whole = {"folder": path, **counts, "seconds": round(seconds, 3), "files": listed}
        print(json.dumps(whole, indent=1))
        return 1 if bad else 0
    others = f"; {found.others} other files were not looked at" if found.others else ""
    unread = len(found.bad)
    what = (
        f"{bad - unread} of {count} pictures are bad" if bad else f"all {count} pictures are sound"
    )
    what += f", and {unread} files or folders cannot be read" if unread else ""
    rate = f"{count / max(seconds, 1e-9):.0f} pictures/s"
    print(printable(f"{path}: {what}, {seconds:.1f} s, {rate}{others}"))
    return 1 if bad else 0


def _bad(
    found: Collection, workers: int, step: Callable[[], None]
) -> Iterator[tuple[str, BaseException]]:
    """Gives the name and the error of each bad picture, in order."""
    yield from found.bad
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of pictures that it decodes
        for store in found.stores:
            trial = _Trial(store)
            indices = range(len(store))
            for index, error in zip(indices, ahead(trial.error, indices, workers), strict=True):
                step()
                if error is not None:
                    yield trial.name(index), error


class _Trial:
    """Decodes the pictures of a store."""

    def __init__(self, store: ImageStore) -> None:
        self._opened: OpenStore = store.opened()
        self._preparing = threading.Lock()
        self._job = None
        if extension.load() is not None:
            # One pixel of each: "whole" decodes all of it nevertheless, and needs no memory for it.
            self._job = make_job(
                self._opened.source,
                Chain(center_crop=(1, 1)).native(),
                decode=Decode("whole"),
                upright=self._opened.upright,
            )

    def error(self, index: int) -> BaseException | None:
        """Returns why the picture cannot be decoded; None if it can."""
        if self._job is not None:
            with self._preparing:
                self._opened.prepare([index])
            try:
                self._job.picture(index, 0)  # a large one is sound
                return None
            except (Error, ValueError):  # Pillow says what is wrong, or knows how
                pass
            except Exception as refused:  # Pillow's error, for a picture that would take too much
                return refused.with_traceback(None)
        try:
            self._opened.open_rgb(index)
        except Exception as error:  # Pillow raises whatever it likes
            return error.with_traceback(None)
        return None

    def name(self, index: int) -> str:
        try:
            return self._opened.name(index)
        except (OSError, ValueError):  # a record that is damaged has none
            return f"sample {index}"


def _message(name: str, error: BaseException) -> str:
    text = str(error).removeprefix(f"{name}: ")
    # Behind that Pillow names the object that held the bytes, which tells nobody anything.
    unknown = text.startswith("cannot identify image file")
    return "Pillow cannot identify the picture" if unknown else text
