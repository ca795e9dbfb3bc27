"""``TarImages``: pictures in tar shards, as WebDataset keeps them."""

from __future__ import annotations

import bisect
import concurrent.futures
import glob
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from fastloader._core.machine.limits import available_threads
from fastloader.datasets._file_list import checked_index
from fastloader.datasets._tar.shard import TarShard
from fastloader.transforms._pillow import decoded_rgb
from fastloader.transforms._python_chain import as_tensor_chain

IMAGES = ("jpg", "jpeg", "png", "webp", "ppm", "pgm", "pbm", "pnm", "bmp", "tif", "tiff", "img")

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"^(\d+)\.\.(\d+)$")


class TarImages(Dataset[Any]):
    """Pictures in tar files: WebDataset's shards, with random access.

    Files of one name up to the first dot, next to each other, are a sample, which is WebDataset's rule:
    ``0001.jpg`` and ``0001.cls``. A shard is mapped into memory, and the native path decodes from it.
    Where its samples are is found once, by a walk over its headers, and kept beside the shard
    (``<shard>.fastloader-tar``). So a sample can be read by its number: shuffling is a true one over all
    shards, an epoch has each sample once on whatever number of ranks, and a resumed epoch skips nothing.

    Args:
        shards: The shards: a path, a pattern (``train-*.tar``), or WebDataset's braces
            (``train-{000000..000146}.tar``), or a list of such. Shards of a pattern are sorted by name.
        transform: What becomes of a picture, as in `ImageFolder`; default None.
        target_transform: A function of the label; None (default) leaves the label.
        image: The extensions of pictures; of a sample that has several, the first in this order counts.
            Default: those of the usual formats. Samples without such a file are left out.
        index_dir: A folder for the indices of shards that lie where nothing may be written; default
            None, beside the shards. If nothing can be written, they are made anew each time.

    Attributes:
        shards: the paths. targets: the numbers in the samples' ``.cls`` files, an int64 array; -1: it
            has none, or holds something else. classes: None.

    Samples are (picture, label), as with `ImageFolder`. A dataset may be pickled, and used after a fork
    or in a spawned process.

    Raises:
        FileNotFoundError: if a shard, or any shard for a pattern, is missing.
        ValueError: if a shard is no tar, is damaged, was cut off, or is still written. The error names
            the shard and the byte. Also if there is no sample with a picture.
    """

    upright = False

    def __init__(
        self,
        shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        *,
        image: str | Sequence[str] = IMAGES,
        index_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.transform = transform
        self.target_transform = target_transform
        self.classes: list[str] | None = None
        self.shards = list(paths_of(shards))
        kept = None if index_dir is None else os.path.abspath(os.fspath(index_dir))
        if kept is not None:
            os.makedirs(kept, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(available_threads()) as pool:
            self._shards = list(pool.map(lambda path: TarShard(path, kept), self.shards))
        wanted = [image] if isinstance(image, str) else list(image)
        self._wanted = [each.lower().lstrip(".") for each in wanted]
        self._find_pictures()

    def _find_pictures(self) -> None:
        """Sets the flat arrays: of each sample with a picture, its number in its shard, and where the
        picture lies there."""
        numbers, offsets, sizes, labels, counts = [], [], [], [], [0]
        for shard in self._shards:
            index = shard.index
            offset = np.zeros(len(index), np.uint64)
            size = np.zeros(len(index), np.uint64)
            for each in self._wanted:
                if each in index.extensions:
                    column = index.extensions.index(each)
                    first = (offset == 0) & (index.offsets[:, column] > 0)
                    offset[first] = index.offsets[first, column]
                    size[first] = index.sizes[first, column]
            (there,) = np.nonzero(offset)
            numbers.append(there.astype(np.uint32))
            offsets.append(offset[there])
            sizes.append(size[there])
            labels.append(index.labels[there])
            counts.append(len(there))
        if not sum(counts):
            raise ValueError(
                f"{', '.join(self.shards[:3])}: no sample has a picture (.{', .'.join(self._wanted)})"
            )
        self._starts = np.cumsum(counts).tolist()  # of the shards
        self._numbers = np.concatenate(numbers)
        self.offsets = np.concatenate(offsets)
        self.sizes = np.concatenate(sizes)
        self.targets = np.concatenate(labels)

    def locate(self, index: int) -> tuple[TarShard, int]:
        """The shard in which sample ``index`` lies, and its number there."""
        shard = bisect.bisect_right(self._starts, index) - 1
        return self._shards[shard], int(self._numbers[index])

    def places(self) -> tuple[Any, Any, Any]:
        """(addresses, sizes, what keeps them valid) of the pictures, uint64 arrays."""
        addresses, sizes = self.offsets.copy(), self.sizes.copy()
        mapped = [np.frombuffer(shard.mapping, np.uint8) for shard in self._shards]
        for each, begin, end in zip(mapped, self._starts, self._starts[1:]):
            addresses[begin:end] += np.uint64(each.__array_interface__["data"][0])
        return addresses, sizes, mapped

    def name(self, index: int) -> str:
        """The key of sample ``index`` and its shard."""
        shard, number = self.locate(checked_index(index, len(self)))
        return f"{shard.index.key(number)} in {shard.path}"

    def image_bytes(self, index: int) -> bytes:
        """The encoded picture, as it lies in the shard."""
        index = checked_index(index, len(self))
        shard, _ = self.locate(index)
        begin = int(self.offsets[index])
        return bytes(shard.mapping[begin : begin + int(self.sizes[index])])

    def open_rgb(self, index: int) -> Any:
        """Opens a picture through Pillow, in RGB."""
        return decoded_rgb(io.BytesIO(self.image_bytes(index)), self.name(index))

    def will_need(self, indices: list[int]) -> None:
        """Has the system read these pictures ahead, all at the same time. Waits for nothing."""
        for index in indices:
            shard, _ = self.locate(index)
            shard.will_need(int(self.offsets[index]), int(self.sizes[index]))

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        index = checked_index(index, len(self))
        image = self.open_rgb(index)
        if self.transform is not None:
            image = as_tensor_chain(self.transform)(image)
        target: Any = int(self.targets[index])
        return image, target if self.target_transform is None else self.target_transform(target)


def paths_of(shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Iterator[str]:
    """The paths that are named. Raises FileNotFoundError for a pattern of which there is no file."""
    for each in [shards] if isinstance(shards, str | os.PathLike) else shards:
        text = os.path.expanduser(os.fspath(each))
        for path in [text] if os.path.exists(text) else _expanded(text):
            if os.path.exists(path):
                yield path
                continue
            found = sorted(glob.glob(path, recursive=True))
            if not found:
                raise FileNotFoundError(f"{path}: there is no such shard")
            yield from found


def _expanded(text: str) -> Iterator[str]:
    """``a{0..2}`` and ``a{x,y}``, as a shell and WebDataset expand them."""
    found = _BRACES.search(text)
    if found is None:
        yield text
        return
    before, behind = text[: found.start()], text[found.end() :]
    numbers = _RANGE.match(found[1])
    if numbers is None:
        inner = found[1].split(",")
    else:
        first, last = int(numbers[1]), int(numbers[2])
        inner = [f"{number:0{len(numbers[1])}}" for number in range(first, last + 1)]
    for each in inner:
        yield from _expanded(before + each + behind)
