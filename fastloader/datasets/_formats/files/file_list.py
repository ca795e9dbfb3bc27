"""Pictures in files, one each, in flat arrays."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset

from fastloader.datasets._encoded.encoded_image import EncodedImage
from fastloader.datasets._encoded.picture_source import PictureSource
from fastloader.datasets._formats.files.seek_file import SeekFile
from fastloader.datasets._formats.files.whole_objects import WholeObjects
from fastloader.datasets._formats.sample_form import PLAIN, SampleForm
from fastloader.datasets._formats.shown_dataset import shown_dataset
from fastloader.transforms._pillow import open_rgb
from fastloader.transforms._python_chain import as_tensor_chain


class FileList(Dataset[Any]):
    """The path of file i is the bytes from ``ends[i - 1]`` (0 for the first) to ``ends[i]`` of
    ``paths``, uint64 and uint8 arrays, and its label is ``targets[i]``. ``form``: what else is in a
    sample. ``seek_file``: where seek indices of its JPEGs are, or None. ``cache``: how to reach the
    store, if the paths are URLs; None: they are files of this machine."""

    paths: Any
    ends: Any
    targets: Any
    form: SampleForm = PLAIN
    transform: Callable[[Any], Any] | None
    target_transform: Callable[[int], Any] | None
    seek_file: SeekFile | None = None
    cache: WholeObjects | None = None

    @property
    def samples(self) -> Samples:
        return Samples(self)

    imgs = samples

    def path(self, index: int) -> str:
        """The path of sample ``index``."""
        begin = int(self.ends[index - 1]) if index else 0
        return os.fsdecode(self.paths[begin : int(self.ends[index])].tobytes())

    def __len__(self) -> int:
        return len(self.ends)

    def __repr__(self) -> str:
        root = getattr(self, "root", None)
        return shown_dataset(self, {"Root location": root} if root else {})

    def __getitem__(self, index: int) -> Any:
        index = checked_index(index, len(self))
        path = self.path(index)
        if self.cache is None:
            image = open_rgb(path)
        else:
            image = PictureSource(self.cache.whole([path])[0], path).open_rgb()
        if self.transform is not None:
            image = as_tensor_chain(self.transform)(image)
        return self.form.sample(image, self._target(index), index)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The samples of a batch. Pictures of a store are read at the same time, and those with a
        transform are `EncodedImage`s, which ``default_collate`` makes to tensors."""
        if self.cache is None or type(self).__getitem__ is not FileList.__getitem__:
            return [self[index] for index in indices]
        indices = [checked_index(index, len(self)) for index in indices]
        urls = [self.path(index) for index in indices]
        samples = []
        for index, url, content in zip(indices, urls, self.cache.whole(urls), strict=True):
            source = PictureSource(content, url)
            picture = (
                source.open_rgb()
                if self.transform is None
                else EncodedImage(source, self.transform)
            )
            samples.append(self.form.sample(picture, self._target(index), index))
        return samples

    def _target(self, index: int) -> Any:
        target = int(self.targets[index])
        return target if self.target_transform is None else self.target_transform(target)


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
