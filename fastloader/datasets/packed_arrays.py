"""``PackedArrays``: samples of arrays in mapped files."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from fastloader.datasets._formats.arrays.folder import META, PackedArray, begin_of, read_folder
from fastloader.datasets._formats.files.file_list import checked_index


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
            raise ValueError(f"{self.path} is no folder of `fastloader pack`: it has no {META}")
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
