"""Names the sample and the file in errors about the pictures of a dataset's own samples.

A dataset's own code opens its pictures by Pillow, whose errors often name no file. What is known is read
from the error's traceback, so nothing is done for a sample that can be made.
"""

from __future__ import annotations

import bisect
import contextlib
import dis
import io
import os
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import ConcatDataset, IterableDataset, Subset
from torch.utils.data._utils import fetch as fetch_module
from torch.utils.data._utils import worker

from fastloader._core.machine.torch_datasets import kind_of
from fastloader._core.pictures.images import SeededKeys
from fastloader._core.pictures.in_place import InPlace
from fastloader.transforms._pillow import is_named, name_picture

# The functions by which Pillow reads the bytes of a picture.
_READING = frozenset({"open", "load", "verify", "seek", "getexif", "feed", "close"})
# What they raise about the bytes.
_RAISED = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error)
# Pillow's own exceptions, which are about nothing else.
_OF_PILLOW = (
    ("PIL", "UnidentifiedImageError"),
    ("PIL.Image", "DecompressionBombError"),
    ("PIL.Image", "DecompressionBombWarning"),
)
# Where datasets keep the paths of their pictures, in the order of their indices.
_LISTS = ("samples", "imgs")


class NamingWorker:
    """A worker_init_fn that calls the user's, and lets `name_sample` look at the errors that this worker
    process sends."""

    def __init__(self, given: Callable[[int], None] | None) -> None:
        self._given = given

    def __call__(self, worker_id: int) -> None:
        # torch's worker loop looks it up here. Only this worker runs in this process. A fetcher of ours
        # would be in the traceback that is sent.
        names: Any = worker
        names.ExceptionWrapper = _named_and_wrapped
        if self._given is not None:
            self._given(worker_id)


def _named_and_wrapped(*arguments: Any, **named: Any) -> ExceptionWrapper:
    name_sample(sys.exc_info()[1])
    return ExceptionWrapper(*arguments, **named)


def name_sample(error: BaseException | None) -> None:
    """Puts the number of the sample and the path of its file, as far as they can be known, into the
    message of an error of Pillow's about a picture that does not say it yet. Any other error stays as it
    is. To be called where what torch's fetcher raises is caught."""
    if isinstance(error, Exception) and "PIL" in sys.modules and not is_named(error):
        with contextlib.suppress(Exception):  # of a user's object that was asked
            _name(error)


def _name(error: Exception) -> None:
    frames = list(_frames(error))
    of_pillow = [*_last_of_pillow(frames)]
    if getattr(error, "filename", None) is not None or not _is_of_picture(error, of_pillow):
        return
    given = [each for each in map(_arguments_of, frames) if each is not None]
    sample = _sample(given, frames)
    files = [*_files(of_pillow)]
    path = next(filter(None, map(_path_of, files)), "")
    if not path:
        # The dataset that is nearest to the picture knows best.
        places = given[::-1] if sample is None else [*given[::-1], sample.place]
        path = next(filter(None, (_path_in(*place) for place in places)), "")
    number = "" if sample is None else f"sample {sample.number}"
    if path:
        text = str(error)
        if path in text or repr(path)[1:-1] in text:
            return
        name = f"{path} ({number})" if number else path
    else:
        held = next((each for each in files if isinstance(each, io.BytesIO)), None)
        name = number if held is None else _held(held, number)
    reprs = (repr(each) for each in files if hasattr(each, "read"))
    name_picture(error, name, next((each for each in reprs if each in str(error)), ""))


def _frames(error: Exception) -> Iterator[FrameType]:
    place = error.__traceback__
    while place is not None:
        yield place.tb_frame
        place = place.tb_next


def _last_of_pillow(frames: list[FrameType]) -> Iterator[FrameType]:
    """Gives the frames of Pillow's in which the error was raised, the innermost first."""
    for frame in reversed(frames):
        if str(frame.f_globals.get("__name__")).partition(".")[0] != "PIL":
            return
        yield frame


def _is_of_picture(error: Exception, of_pillow: list[FrameType]) -> bool:
    if any(isinstance(error, _class_of(*each)) for each in _OF_PILLOW):
        return True
    reading = any(frame.f_code.co_name in _READING for frame in of_pillow)
    return reading and isinstance(error, _RAISED)


def _class_of(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, ())


# --- which sample ---------------------------------------------------------------------------------


def _arguments_of(frame: FrameType) -> tuple[Any, Any] | None:
    """Returns the dataset and the index that a frame of a ``__getitem__`` was given; None for another
    frame."""
    code = frame.f_code
    if code.co_name != "__getitem__" or code.co_argcount < 2:
        return None
    own, index = code.co_varnames[:2]
    for each in dis.get_instructions(code):
        if each.opname.startswith("STORE") and index in _names_of(each.argval):
            return None  # it may have another value by now
    given = frame.f_locals
    return (given[own], given[index]) if own in given and index in given else None


def _names_of(argument: Any) -> Any:
    return argument if isinstance(argument, tuple) else (argument,)


class _Sample(NamedTuple):
    number: Any  # as the sampler gave it
    place: tuple[Any, Any]  # the dataset in which it lies, and its index there


def _sample(given: list[tuple[Any, Any]], frames: list[FrameType]) -> _Sample | None:
    """Finds the sample that failed; None if it is not known. ``given``: the arguments of the datasets'
    frames."""
    fetch = next(filter(_is_fetch, frames), None)
    if fetch is None:  # somebody has replaced it
        return None
    fetcher, index = (fetch.f_locals[name] for name in fetch.f_code.co_varnames[:2])
    dataset = fetcher.dataset
    index = index.keys if type(index) is SeededKeys else index
    if isinstance(dataset, IterableDataset):
        return None
    if not fetcher.auto_collation:
        index = [index]
    elif not isinstance(index, list | tuple | torch.Tensor | np.ndarray):  # it may be used up
        return None
    if len(index) == 1:
        return _Sample(index[0], _located(dataset, index[0]))
    for own, own_index in given:
        for number in index:
            with contextlib.suppress(Exception):
                place = _located(dataset, number)
                if place[0] is own and (place[1] is own_index or place[1] == own_index):
                    return _Sample(number, place)
    return None


def _is_fetch(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name == "fetch" and frame.f_globals.get("__name__") == fetch_module.__name__


def _located(dataset: Any, index: Any) -> tuple[Any, Any]:
    """Returns the dataset in which a sample lies, below `Subset` and `ConcatDataset`, and its index
    there."""
    while True:
        if isinstance(dataset, InPlace):
            dataset = dataset.own
        elif kind_of(dataset) is Subset:
            dataset, index = dataset.dataset, dataset.indices[index]
        elif kind_of(dataset) is ConcatDataset:
            sizes = dataset.cumulative_sizes
            index = index + len(dataset) if index < 0 else index
            part = bisect.bisect_right(sizes, index)
            dataset, index = dataset.datasets[part], index - (sizes[part - 1] if part else 0)
        else:
            return dataset, index


# --- which file -----------------------------------------------------------------------------------


def _files(of_pillow: Iterable[FrameType]) -> Iterator[Any]:
    """Gives what Pillow was reading: paths and file objects, the innermost first."""
    for frame in of_pillow:
        own = frame.f_locals.get("self")
        held = (getattr(own, name, None) for name in ("filename", "fp", "_fp"))
        for each in (*held, frame.f_locals.get("filename"), frame.f_locals.get("fp")):
            if each is not None:
                yield each


def _path_of(file: Any) -> str:
    """Returns the path of a file, or that the object is; empty if it has none."""
    name = getattr(file, "name", None) if hasattr(file, "read") else file
    if not isinstance(name, str | bytes | os.PathLike):
        return ""
    return os.fsdecode(name)


def _path_in(dataset: Any, index: Any) -> str:
    """Returns the path that a dataset has for an index in its list of samples; empty if it has none."""
    own = getattr(dataset, "__dict__", {})  # without its own code, which properties are
    for name in _LISTS:
        samples = own.get(name)
        if isinstance(samples, list | tuple | np.ndarray):
            with contextlib.suppress(IndexError, TypeError):
                entry = samples[index]
                alone = not isinstance(entry, tuple | list)
                path = entry if alone else entry[0]
                # A text alone may be anything.
                if isinstance(path, str | os.PathLike) and (not alone or os.path.isfile(path)):
                    return os.fsdecode(path)
    return ""


def _held(file: io.BytesIO, number: str) -> str:
    with contextlib.suppress(ValueError):  # it was closed
        held = f"{file.getbuffer().nbytes} bytes in memory"
        return f"{held} ({number})" if number else held
    return number
