"""``Pictures``: the base class of datasets of pictures, so that a format is one class."""

from __future__ import annotations

import bisect
import dataclasses
import io
import itertools
import operator
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from fastloader._core.machine.mapped_memory import read_view
from fastloader.datasets._formats.mapped_file import Looks, MappedFile, SeekFile, WatchedFile
from fastloader.datasets._formats.sample_form import PLAIN, SampleForm, shown_dataset
from fastloader.datasets.encoded import EncodedImage
from fastloader.datasets.picture_source import PictureSource
from fastloader.transforms._pillow import opened
from fastloader.transforms._python_chain import as_tensor_chain

# ---- Where pictures lie in mapped files.


@dataclasses.dataclass(frozen=True)
class FileSpans:
    """Says which bytes of which files the pictures of a dataset are. `FileSpans.of` makes it.

    Attributes:
        files: the files, which are mapped into memory. A process that gets them by pickle maps them
            anew.
        starts: the number of the first sample in each file, and behind these how many samples there
            are. The samples of a file follow each other.
        offsets, sizes: where the picture of each sample begins in its file, and how many bytes it has,
            uint64 arrays. A size of 0: that picture is not in the file, and only the dataset's
            ``image_bytes`` knows where it is.
    """

    files: Sequence[Any]  # `MappedFile`s, and what can be one for as long as it is wanted
    starts: list[int]
    offsets: Any
    sizes: Any

    @classmethod
    def of(
        cls,
        files: Sequence[str | os.PathLike[str]],
        counts: Sequence[int],
        offsets: Any,
        sizes: Any,
    ) -> FileSpans:
        """Maps the files.

        Args:
            files: Their paths.
            counts: How many samples lie in each.
            offsets, sizes: As above, for all samples in their order.

        Raises:
            OSError: if a file cannot be read.
            TypeError: if a count is no whole number.
            ValueError: if a file is empty, if a picture is not in its file, if a count is negative, or
                if there are not as many offsets and sizes as samples.
        """
        starts = list(itertools.accumulate(map(operator.index, counts), initial=0))
        begins, lengths = (np.array(each, np.uint64) for each in (offsets, sizes))
        if len(counts) != len(files) or not len(begins) == len(lengths) == starts[-1]:
            raise ValueError(
                f"{len(files)} files with {starts[-1]} samples in {len(counts)} counts: there are "
                f"{len(begins)} offsets and {len(lengths)} sizes"
            )
        for path, count in zip(files, counts):
            if count < 0:  # the samples of two files would lie at the same places
                raise ValueError(f"{os.fspath(path)} would have {count} samples")
        mapped = [MappedFile(os.path.abspath(os.fspath(each))) for each in files]
        for file, begin, end in zip(mapped, starts, starts[1:]):
            room = np.uint64(len(file.mapping))
            # Compared in this way, because a sum of two such numbers may be too large for either.
            fits = (begins[begin:end] <= room) & (lengths[begin:end] <= room - begins[begin:end])
            if not fits.all():
                sample = begin + int(np.argmin(fits))
                raise ValueError(
                    f"{file.path} has {len(file.mapping)} bytes, and its sample {sample - begin} would "
                    f"be {lengths[sample]} bytes from byte {begins[sample]} on"
                )
        return cls(mapped, starts, begins, lengths)

    def __len__(self) -> int:
        return self.starts[-1]

    def number(self, index: int) -> int:
        """Returns the number of the file in which a sample lies."""
        return bisect.bisect_right(self.starts, index) - 1

    def read(self, index: int) -> bytes:
        """Reads the bytes of a picture. Raises ValueError if the file has changed, or cannot be read."""
        file = self.files[self.number(index)]
        found: bytes = file.read_bytes(int(self.offsets[index]), int(self.sizes[index]))
        file.check()
        return found

    def places(self) -> tuple[Any, Any, Any]:
        """Returns the pictures' addresses and sizes, uint64 arrays, and the mappings that keep these
        valid. An address of 0 stands for a size of 0."""
        addresses = self.offsets.copy()
        mapped = [np.frombuffer(file.mapping, np.uint8) for file in self.files]
        for each, begin, end in zip(mapped, self.starts, self.starts[1:]):
            addresses[begin:end] += np.uint64(each.__array_interface__["data"][0])
        addresses[self.sizes == 0] = 0
        # Nobody can write into arrays of an index that processes share, and a copy would be each one's.
        sizes = self.sizes.copy() if self.sizes.flags.writeable else self.sizes
        return addresses, sizes, mapped

    def files_of(self, indices: Iterable[int]) -> list[MappedFile]:
        """Returns the files that these pictures are read from, and that may change meanwhile."""
        numbers = {self.number(index) for index in indices}
        return [file for number in numbers if (file := self.files[number].mapped_file)]

    def will_need(self, indices: list[int]) -> None:
        """Asks the system to read these pictures ahead, all at the same time. Waits for nothing."""
        # Taken from the arrays together, since each number taken alone costs as much as the call below.
        offsets, sizes = self.offsets[indices].tolist(), self.sizes[indices].tolist()
        for index, offset, size in zip(indices, offsets, sizes):
            self.files[self.number(index)].will_need(offset, size)


# ---- The datasets of pictures.


# The formats: the classes whose own code says what the pictures are, and what messages call several
# datasets of each.
_formats: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()


class Pictures(Dataset[Any]):
    """A dataset of pictures, in whatever files or database they lie: the base class of all of
    `fastloader.datasets` that have pictures, and of formats of your own. ::

        class MyShards(Pictures, called="my shards"):
            def __init__(self, files, transform=None):
                self.transform = transform
                counts, offsets, sizes, self.targets = my_index(files)
                self.spans = FileSpans.of(files, counts, offsets, sizes)

    A sample is (picture, label). The picture is RGB, and what ``transform`` makes of it.

    A format says where its pictures are, in one of two ways.

    * It sets ``spans``: the pictures lie in files, as files. FastLoader maps these, and its C++ threads
      decode from there; nothing of a sample is Python. A ``name`` says what errors call a sample. An
      ``image_bytes`` of its own gives the same bytes, since only Python and pictures of size 0 need it.
    * It has ``image_bytes``, which reads a picture from anywhere, and ``__len__``. Workers call it, and
      C++ threads decode what it gives (`EncodedImage`). If it raises ValueError or OSError, the error is
      the sample's: it names the sample, and ``on_error`` decides. Other errors are raised as they are.
      ``sources`` reads the pictures of a batch at the same time, where that is faster.

    ``called`` makes the class a format: what messages call several datasets of it. A class without it
    that derives from a format is one of its datasets, and Python makes the samples if it changes
    anything that a sample is made by (``loader.plan()`` says what). A format must leave
    ``__getitem__``, ``__getitems__`` and ``open_rgb`` as they are here, or Python calls its own.

    Attributes:
        transform, target_transform: the functions that are applied to a picture and to a label, or None.
        targets: the labels, an int64 array.
        spans: a `FileSpans`, or None.
        upright: whether pictures are turned as EXIF says; default False.
        cache: the `ShardCache` through which pictures come, whose counts are in ``loader.stats()``; or
            None.
    """

    transform: Callable[[Any], Any] | None = None
    target_transform: Callable[[int], Any] | None = None
    targets: Any = None
    form: SampleForm = PLAIN  # what else is in a sample
    upright: bool = False
    cache: Any = None
    spans: FileSpans | None = None

    def __init_subclass__(cls, called: str | None = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        if called is not None:
            _formats[cls] = called

    # ---- What a format says.

    def __len__(self) -> int:
        return len(self._own_spans("__len__"))

    def name(self, index: int) -> str:
        """Returns what messages call sample ``index``."""
        index = checked_index(index, len(self))
        if self.spans is None:
            return f"sample {index}"
        number = self.spans.number(index)
        return f"sample {index - self.spans.starts[number]} in {self.spans.files[number].path}"

    def image_bytes(self, index: int) -> bytes:
        """Reads the encoded picture."""
        return self._own_spans("image_bytes").read(checked_index(index, len(self)))

    def sources(self, indices: list[int]) -> list[PictureSource]:
        """Reads the encoded pictures of a batch at the same time, as they are, not turned. A picture
        that cannot be read becomes a source that says what is wrong. It is called where C++ threads
        cannot read the pictures by themselves."""
        return [self._source(index) for index in indices]

    def places(self) -> tuple[Any, Any, Any]:
        """Returns where the pictures are in memory: their addresses and their sizes in bytes, uint64
        arrays that the caller may keep, and what must stay alive for these to stay valid. An address of
        0 means that the picture is elsewhere, and that only `image_bytes` knows where."""
        return self._own_spans("places").places()

    def _own_files(self) -> tuple[Any, Any, Sequence[SeekFile]] | None:
        """Returns the paths in one run of bytes, where each ends, and the seek indices, if each picture
        is a file of its own; otherwise None."""
        return None

    def will_need(self, indices: list[int]) -> None:
        """Asks the system to read these pictures ahead, all at the same time. Waits for nothing."""
        if self.spans is not None:
            self.spans.will_need(indices)

    def files_of(self, indices: list[int]) -> Sequence[WatchedFile]:
        """Returns the files that these pictures are read from, as far as anybody can tell whether they
        have changed."""
        return [] if self.spans is None else self.spans.files_of(indices)

    def _elsewhere(self) -> str | None:
        """Says why C++ threads cannot read the pictures by themselves; None if they can."""
        return _unknown(self) if self.spans is None else None

    def _plan_note(self) -> str:
        """Returns what ``loader.plan()`` says of the dataset, behind its name."""
        return ""

    # ---- What is made of that.

    def open_rgb(self, index: int) -> Any:
        """Opens a picture through Pillow, in RGB, and upright if ``upright`` says so."""
        return PictureSource(self.image_bytes(index), self.name(index)).open_rgb(self.upright)

    def __repr__(self) -> str:
        return shown_dataset(self, {})

    def __getitem__(self, index: int) -> Any:
        index = checked_index(index, len(self))
        sample = self.form.sample(self._picture(index), self._target(index), index)
        if self.form.reader is not None:  # which has read since the look at the picture's file
            _check(self.files_of([index]))
        return sample

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Makes the samples of a batch. Pictures that C++ threads cannot read by themselves are read at
        the same time, and those with a transform are `EncodedImage`s, which ``default_collate`` makes to
        tensors."""
        if self._elsewhere() is None or type(self).__getitem__ is not Pictures.__getitem__:
            return [self[index] for index in indices]
        indices = [checked_index(index, len(self)) for index in indices]
        reader = self.form.reader
        rest = [()] * len(indices) if reader is None else reader(indices)
        samples = [
            self.form.sample(self._encoded(source), self._target(index), index, others)
            for index, source, others in zip(indices, self.sources(indices), rest, strict=True)
        ]
        _check(self.files_of(indices))
        return samples

    def _picture(self, index: int) -> Any:
        """Makes the picture of a sample that is made alone."""
        picture = self.open_rgb(index)
        return picture if self.transform is None else as_tensor_chain(self.transform)(picture)

    def _encoded(self, source: PictureSource) -> Any:
        """Makes the picture of a sample whose source was read. A picture that EXIF turns is turned here
        and encoded anew without loss, because what decodes an `EncodedImage` does not turn it."""
        if self.transform is None:
            return source.open_rgb(self.upright)
        return EncodedImage(_turned(source) if self.upright else source, self.transform)

    def _target(self, index: int) -> Any:
        label = self._label(index)
        return label if self.target_transform is None else self.target_transform(label)

    def _label(self, index: int) -> int:
        return int(self.targets[index])

    def _source(self, index: int) -> PictureSource:
        """Reads the bytes of a picture, or notes what is wrong with it."""
        name = self.name(index)
        try:
            return PictureSource(self.image_bytes(index), name)
        except (ValueError, OSError) as error:
            return PictureSource(b"", name, str(error))

    def _own_spans(self, missing: str) -> FileSpans:
        if self.spans is None:
            raise NotImplementedError(
                f"{type(self).__qualname__} has neither spans nor {missing}()"
            )
        return self.spans


def formats() -> dict[type, str]:
    """Returns the formats, and what messages call several datasets of each."""
    return dict(_formats)


def format_of(kind: type) -> type | None:
    """Returns the format that a class is, or derives from."""
    return next((each for each in kind.__mro__ if each in _formats), None)


def _unknown(dataset: Any) -> str:
    return f"the dataset is a {type(dataset).__module__}.{type(dataset).__qualname__}"


def checked_index(index: int, length: int) -> int:
    """Returns the index counted from 0. Raises IndexError if there is no such sample."""
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"sample {index} of {length}")
    return index + length if index < 0 else index


def _check(files: Sequence[WatchedFile]) -> None:
    """Raises ValueError if one of the files has changed."""
    Looks(files).check()


_ORIENTATION = 0x0112  # EXIF's tag


def _turned(source: PictureSource) -> PictureSource:
    """Returns the picture as EXIF turns it, or as it is if that turns nothing."""
    try:
        if source.path is not None:
            file: Any = os.fsdecode(source.path)
        else:
            file = io.BytesIO(read_view(source.data, source.name))
        with opened(file, source.name) as picture:
            if picture.getexif().get(_ORIENTATION, 1) == 1:
                return source
        out = io.BytesIO()
        source.open_rgb(upright=True).save(out, "PNG", compress_level=1)
        return PictureSource(out.getvalue(), source.name)
    except Exception:  # Pillow raises anything, and does so again where it counts
        return source
