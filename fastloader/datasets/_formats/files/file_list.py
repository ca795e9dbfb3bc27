"""Pictures in files, one each, in flat arrays."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset

from fastloader.datasets._formats.files.seek_file import SeekFile
from fastloader.datasets._formats.sample_form import PLAIN, SampleForm
from fastloader.transforms._pillow import open_rgb
from fastloader.transforms._python_chain import as_tensor_chain


class FileList(Dataset[Any]):
    """The path of file i is the bytes from ``ends[i - 1]`` (0 for the first) to ``ends[i]`` of
    ``paths``, uint64 and uint8 arrays, and its label is ``targets[i]``. ``form``: what else is in a
    sample. ``seek_file``: where seek indices of its JPEGs are, or None. ``called``: what a plan calls
    the dataset."""

    called: str
    paths: Any
    ends: Any
    targets: Any
    form: SampleForm = PLAIN
    transform: Callable[[Any], Any] | None
    target_transform: Callable[[int], Any] | None
    seek_file: SeekFile | None = None

    @property
    def samples(self) -> Samples:
        return Samples(self)

    @property
    def imgs(self) -> Samples:
        return Samples(self)

    def path(self, index: int) -> str:
        """The path of sample ``index``."""
        begin = int(self.ends[index - 1]) if index else 0
        return os.fsdecode(self.paths[begin : int(self.ends[index])].tobytes())

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> Any:
        index = checked_index(index, len(self))
        image = open_rgb(self.path(index))
        if self.transform is not None:
            image = as_tensor_chain(self.transform)(image)
        target: Any = int(self.targets[index])
        if self.target_transform is not None:
            target = self.target_transform(target)
        return self.form.sample(image, target, index)


class Samples(Sequence[tuple[str, int]]):
    """The (path, class number) of each sample, made when it is asked for."""

    def __init__(self, folder: FileList) -> None:
        self._folder = folder

    def __len__(self) -> int:
        return len(self._folder)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = checked_index(index, len(self))
        return self._folder.path(index), int(self._folder.targets[index])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other))

    __hash__ = None  # type: ignore[assignment]


def checked_index(index: int, length: int) -> int:
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"sample {index} of {length}")
    return index + length if index < 0 else index
