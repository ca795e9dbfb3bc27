"""The folder that ``fastloader pack`` writes for samples of arrays, and `PackedArrays` reads.

``arrays.json`` says what there is: ``format`` ("fastloader-arrays"), ``version`` (1), ``count`` of
samples that are there, ``total``, ``complete`` (false while packing goes on or was interrupted),
``source`` (what it was packed from; a resumed packing must agree), ``single`` (whether a sample is one
array and not a tuple) and ``arrays``, in their order in a sample: ``file``, ``dtype`` (as numpy writes
it), ``shape`` of a sample's array, and ``crc32`` of the samples that are there.

Each file is an ordinary ``.npy`` of the shape (total, ...), which ``numpy.load`` reads. It is shorter
while packing goes on. Fields may be added to the JSON. Any other change gets a new version.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import Any

import numpy as np

META = "arrays.json"
FORMAT = "fastloader-arrays"
VERSION = 1
KINDS = "biufc"  # of numpy's dtypes: truths and numbers


@dataclasses.dataclass
class PackedArray:
    """One array of all samples. ``shape``: of a sample's."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    crc32: int = 0

    @property
    def row_bytes(self) -> int:
        """What a sample takes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclasses.dataclass
class ArrayFolder:
    """What ``arrays.json`` says."""

    arrays: list[PackedArray]
    single: bool
    source: str
    total: int
    count: int = 0

    @property
    def complete(self) -> bool:
        return self.count == self.total

    def as_json(self) -> str:
        said = {"format": FORMAT, "version": VERSION, "complete": self.complete}
        return json.dumps({**said, **dataclasses.asdict(self)}, indent=1)


def read_folder(path: str) -> ArrayFolder | None:
    """What the folder says of itself; None if it does not say anything.

    Raises:
        ValueError: which names the file, if it says what cannot be, or is of another version.
    """
    meta = os.path.join(path, META)
    try:
        with open(meta, encoding="utf-8") as file:
            said = json.load(file)
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']!r}")
        if said["version"] != VERSION:
            raise ValueError(f"version {said['version']} is for another fastloader")
        arrays = [_array(each) for each in said["arrays"]]
        count, total = _whole(said["count"]), _whole(said["total"])
        if count > total or not arrays:
            raise ValueError(f"{count} of {total} samples of {len(arrays)} arrays")
        return ArrayFolder(arrays, said["single"] is True, str(said["source"]), total, count)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{meta} is not of `fastloader pack`: {error}") from None


def _array(said: Any) -> PackedArray:
    array = PackedArray(
        said["file"], said["dtype"], tuple(map(_whole, said["shape"])), _whole(said["crc32"])
    )
    if os.path.basename(array.file) != array.file or not array.file.endswith(".npy"):
        raise ValueError(f"{array.file!r} is no file in the folder")
    dtype = np.dtype(array.dtype)
    if dtype.kind not in KINDS or dtype.str != array.dtype:
        raise ValueError(f"arrays of {array.dtype!r}")
    return array


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no number of anything")
    return value


def begin_of(file: Any, array: PackedArray, total: int) -> int:
    """Where the numbers of an open ``.npy`` begin. Raises ValueError for another file, or one of other
    numbers: another program may have written it anew."""
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in read:
        raise ValueError(f"version {version} of numpy's format")
    shape, fortran_order, dtype = read[version](file)
    wanted = (total, *array.shape)
    if shape != wanted or fortran_order or dtype.str != array.dtype:
        order = " in Fortran's order" if fortran_order else ""
        raise ValueError(
            f"it has {dtype.str} {shape}{order}, and {array.dtype} {wanted} was packed"
        )
    return int(file.tell())
