"""The folder that ``fastloader pack`` writes for samples of arrays, and `PackedArrays`, which reads it.

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
import warnings
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from fastloader.datasets.pictures import checked_index

ARRAYS_META = "arrays.json"
FORMAT = "fastloader-arrays"
VERSION = 1
KINDS = "biufc"  # of numpy's dtypes: truths and numbers


@dataclasses.dataclass
class PackedArray:
    """One array of all samples. ``shape`` is that of one sample."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    crc32: int = 0

    @property
    def row_bytes(self) -> int:
        """How many bytes one sample takes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclasses.dataclass
class ArrayFolder:
    """The contents of ``arrays.json``."""

    arrays: list[PackedArray]
    single: bool
    source: str
    total: int
    count: int = 0

    @property
    def complete(self) -> bool:
        return self.count == self.total

    def as_json(self) -> str:
        header = {"format": FORMAT, "version": VERSION, "complete": self.complete}
        return json.dumps({**header, **dataclasses.asdict(self)}, indent=1)


def read_folder(path: str) -> ArrayFolder | None:
    """Reads what the folder says of itself; None if it says nothing.

    Raises:
        ValueError: which names the file, if it says what cannot be, or is of another version.
    """
    meta = os.path.join(path, ARRAYS_META)
    try:
        with open(meta, encoding="utf-8") as file:
            fields = json.load(file)
        if fields["format"] != FORMAT:
            raise ValueError(f"its format is {fields['format']!r}")
        if fields["version"] != VERSION:
            raise ValueError(f"version {fields['version']} is for another fastloader")
        arrays = [_array(each) for each in fields["arrays"]]
        count, total = _whole(fields["count"]), _whole(fields["total"])
        if count > total or not arrays:
            raise ValueError(f"{count} of {total} samples of {len(arrays)} arrays")
        return ArrayFolder(arrays, fields["single"] is True, str(fields["source"]), total, count)
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
    """Returns where the numbers of an open ``.npy`` begin. Raises ValueError if it is not such a file,
    or holds other numbers: another program may have written it anew."""
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


# ---- ``PackedArrays``: samples of arrays in mapped files.


class PackedArrays(Dataset[Any]):
    """Samples of arrays that ``fastloader pack`` put into a folder: an ordinary ``.npy`` for each array
    of a sample.

    The files are mapped into memory, and native threads gather the batches from there, as they do for a
    ``TensorDataset``. What a program writes into a sample stays in that process, and does not change the
    files.

    Args:
        path: The folder.

    Attributes:
        tensors: a tensor for each array, of the shape (samples, ...), whose numbers lie in the file.

    A sample is a tuple of tensors, or a tensor if the samples that were packed were no tuples. A number
    has become a tensor of no dimension, so that batches are those that ``default_collate`` makes of what
    was packed. A dataset may be pickled, and used after a fork or in a spawned process. A packing that
    was interrupted can be read as far as it got, with a warning.

    Raises:
        FileNotFoundError: if there is no such folder, or a file in it is missing.
        ValueError: if it is not of ``fastloader pack`` or has no sample, or if a file was cut off or has
            another dtype, shape or order by now.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        if not os.path.isdir(self.path):
            raise FileNotFoundError(f"{self.path}: there is no such folder")
        folder = read_folder(self.path)
        if folder is None:
            raise ValueError(
                f"{self.path} is no folder of `fastloader pack`: it has no {ARRAYS_META}"
            )
        if not folder.count:
            raise ValueError(f"{self.path} has no sample, of {folder.total} that were to be packed")
        if not folder.complete:
            warnings.warn(
                f"{self.path}: packing was interrupted after {folder.count} of {folder.total} samples, "
                "which is what there is to read. Run the same `fastloader pack` again to complete it",
                RuntimeWarning,
                stacklevel=2,
            )
        self.single = folder.single
        self._folder = folder
        self.tensors = self._mapped()

    def _mapped(self) -> tuple[torch.Tensor, ...]:
        return tuple(map(self._mapped_array, self._folder.arrays))

    def _mapped_array(self, array: PackedArray) -> torch.Tensor:
        path, count = os.path.join(self.path, array.file), self._folder.count
        with open(path, "rb") as file:
            try:
                begin = begin_of(file, array, self._folder.total)
            except ValueError as error:
                raise ValueError(f"{path} is no array of `fastloader pack`: {error}") from None
            wanted, there = begin + count * array.row_bytes, os.fstat(file.fileno()).st_size
            if there < wanted:
                raise ValueError(f"{path} is cut off: {there} bytes of at least {wanted}")
            if array.row_bytes == 0:  # there is nothing to map
                return torch.from_numpy(np.empty((count, *array.shape), array.dtype))
            # "c" maps private pages: torch warns of tensors that may not be written.
            return torch.from_numpy(
                np.memmap(file, array.dtype, "c", begin, shape=(count, *array.shape))
            )

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int) -> Any:
        index = checked_index(index, len(self))
        sample = tuple(tensor[index] for tensor in self.tensors)
        return sample[0] if self.single else sample

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tensors": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.tensors = self._mapped()
