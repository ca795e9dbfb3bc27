"""``EncodedImage``: a picture that a dataset gives as it is encoded, and ``decode_image``."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from types import FunctionType, NoneType
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from fastloader._core.machine import extension, identity
from fastloader.datasets.companions import (
    Companion,
    EncodedMask,
    as_companions,
    check_size,
    finish_mask,
    make_jointly,
    unlike_frame,
)
from fastloader.datasets.picture_source import PictureSource
from fastloader.datasets.put_off import PutOff, open_in_trees
from fastloader.errors import Error, NotNative
from fastloader.transforms._chain import Chain
from fastloader.transforms._job import Job
from fastloader.transforms._pillow import naming
from fastloader.transforms._reader.beginning import read_beginning
from fastloader.transforms._reader.chain import (
    DIFFERENT_SIZES,
    read_chain,
    steps_of,
    wrapper,
)
from fastloader.transforms._reader.kinds import global_hooks, is_read, own_classes
from fastloader.transforms._reader.torchvision import is_v2
from fastloader.transforms._recipe import draw
from fastloader.transforms._recipe.operations import RESAMPLINGS, Following
from fastloader.transforms.tensors import erased, numbered

# ---- Where a batch is collated whose encoded pictures stay encoded.


class EncodedPlace:
    """Stands in a batch for column number ``column`` of encoded pictures: for all that comes out there,
    or for a ``part`` of it, the pictures ("image") or those that follow them under a key. It is no
    dataclass, because those are opened like other containers."""

    __slots__ = ("column", "part")

    def __init__(self, column: int, part: Any = None) -> None:
        self.column = column
        self.part = part

    def of(self, columns: Sequence[Any]) -> Any:
        """Returns what stands in its place once the columns are made."""
        made = columns[self.column]
        return made if self.part is None else made[self.part]


class Keeping:
    """Keeps encoded pictures encoded: while it is entered, a place stands for each column of them in the
    batches that this thread collates. Attributes: ``columns``, the `EncodedImage`s of each column that
    is kept; ``made``, how many pictures were made meanwhile; ``why``, what ``refusal`` returned, or why
    some were made all the same; ``pairs``, the columns of pictures of `transformed`, by the id of the
    pair of the first sample. ``refusal`` is asked at the first picture, and says why all pictures are to
    be made; an empty answer keeps them."""

    def __init__(self, refusal: Callable[[], str] = str) -> None:
        self.columns: list[list[Any]] = []
        self.made = 0
        self.why = ""
        self.pairs: dict[int, int] = {}
        self._refusal = refusal
        self._refused: bool | None = None  # before the first picture
        self._passing_on = False  # while a function runs that knows no places

    def keeps(self) -> bool:
        """Returns whether pictures that are collated now stay encoded."""
        if self._refused is None:
            self.why = self._refusal()
            self._refused = bool(self.why)
        return not self._refused and not self._passing_on

    def keep(self, column: list[Any]) -> EncodedPlace:
        self.columns.append(column)
        return EncodedPlace(len(self.columns) - 1)

    def making(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function that does not know places: while it runs, pictures are made."""

        def made(*args: Any, **options: Any) -> Any:
            before, self._passing_on = self._passing_on, True
            try:
                return function(*args, **options)
            finally:
                self._passing_on = before

        return made

    def __enter__(self) -> Keeping:
        _of_thread.keeping = self
        return self

    def __exit__(self, *_error: object) -> None:
        _of_thread.keeping = None


def keeping() -> Keeping | None:
    """Returns the `Keeping` that this thread has entered."""
    found: Keeping | None = getattr(_of_thread, "keeping", None)
    return found


_of_thread = threading.local()


# ---- What was drawn for pictures, as tensors.


def parameters(
    chains: Sequence[Chain],
    drawn: Sequence[Mapping[str, Any] | None],
    keys: Sequence[tuple[int, int]],
    number: int,
) -> dict[str, torch.Tensor]:
    """Makes the tensors that `EncodedImage` documents, a row for each picture.

    Args:
        chains: what is done to each picture.
        drawn: what its chain draws for each, as the native module's ``ImageJob.draw`` gives it. None
            for a picture that could not be read, whose row says nothing.
        keys: (seed, sample) of each.
        number: which picture of its sample each is.
    """
    rows: list[list[list[float]]] = []
    for chain, draws, (seed, sample) in zip(chains, drawn, keys, strict=True):
        named = [] if draws is None else [*chain.steps(draws), *chain.erased(seed, sample, number)]
        rows.append([numbered(step) for step in named])
    longest = max((len(steps) for steps in rows), default=0)
    widest = max((len(step) for steps in rows for step in steps), default=1)
    table = torch.full((len(rows), longest, widest), math.nan, dtype=torch.float64, device="cpu")
    for row, steps in zip(table, rows):
        for place, step in zip(row, steps):
            place[: len(step)] = torch.tensor(step, dtype=torch.float64, device="cpu")
    known = [_UNREAD if draws is None else draws for draws in drawn]
    return {
        "size": _whole([draws["size"] for draws in known]),
        "box": _whole([draws["box"] for draws in known]),
        "hflip": _whole([draws["hflip"] for draws in known]).bool(),
        "vflip": _whole([draws["vflip"] for draws in known]).bool(),
        "interpolation": _whole([RESAMPLINGS.index(draws["interpolation"]) for draws in known]),
        "steps": table,
    }


_UNREAD = {
    "size": (0, 0),
    "box": (0, 0, 0, 0),
    "hflip": False,
    "vflip": False,
    "interpolation": RESAMPLINGS[0],
}
_NAMES = {*_UNREAD, "steps"}


def are_parameters(value: Any) -> bool:
    """Returns whether a value in a batch is what `parameters` gives."""
    return type(value) is dict and value.keys() == _NAMES


def stacked(rows: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Stacks the parameters of single pictures in one dict. The pictures may have different numbers of
    steps."""
    steps = [row["steps"][0] for row in rows]
    high, wide = (max(each.shape[axis] for each in steps) for axis in (0, 1))
    table = torch.full((len(steps), high, wide), math.nan, dtype=torch.float64, device="cpu")
    for place, each in zip(table, steps):
        place[: each.shape[0], : each.shape[1]] = each
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0] if name != "steps"} | {
        "steps": table
    }


def _whole(values: Sequence[Any]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device="cpu")


# ---- What a transform makes of an encoded picture.


class ReadTransform:
    """A transform that was read.

    Attributes: ``chain``, what is done without Python; ``rest``, the steps behind it; ``whole``, whether
    every picture comes out as a tensor of one shape, with nothing left for Python to do; ``why``, in
    words, if it does not; ``own_sizes``, the transform read to its end, if only their shapes differ;
    ``fills_by_kind``, whether a step fills pictures and masks with colours of their own; ``wrap``, of a
    transform read to its end, torchvision's class of tensors that its pictures are, None for plain ones.
    """

    fills_by_kind = False

    def __init__(
        self,
        chain: Chain,
        rest: list[Callable[[Any], Any]],
        why: str = "",
        own_sizes: ReadTransform | None = None,
        wrap: Any = None,
    ) -> None:
        self.chain = chain
        self.wrap = wrap
        self.rest = rest
        self.whole = not why
        self.why = why
        self.own_sizes = own_sizes
        self._followers: dict[Following, tuple[Chain, bytes]] = {}

    @functools.cached_property
    def encoded_chain(self) -> bytes:
        """The chain as it crosses to another process."""
        return pickle.dumps(self.chain)

    def follower(self, following: Following) -> tuple[Chain, bytes]:
        """Returns the chain of a picture that follows one of this transform, also as it crosses to
        another process.

        Raises:
            NotNative: as `Chain.follower` does.
        """
        found = self._followers.get(following)
        if found is None:
            if following.mask and self.fills_by_kind:
                raise NotNative("a transform fills pictures and masks with colours of their own")
            chain = self.chain.follower(following)
            if len(self._followers) >= _MOST_KEPT:
                self._followers.clear()
            found = self._followers[following] = chain, pickle.dumps(chain)
        return found


def read_transform(transform: Any) -> ReadTransform:
    """Reads a transform. What was read last is kept for as long as the transform is made of the same,
    because reading one may take as long as decoding a picture."""
    stamp = list(_stamp(transform))
    with _kept_lock:
        for place, (kept, made) in enumerate(_kept):
            if len(kept) == len(stamp) and all(map(_same, kept, stamp)):
                _kept.append(_kept.pop(place))
                return made
    made = _read(transform)
    # torchvision's v2 takes a dict of colours, in which a mask has one of its own.
    if any(is_v2(each) and isinstance(getattr(each, "fill", None), dict) for each in stamp):
        for read in (made, made.own_sizes):
            if read is not None:
                read.fills_by_kind = True
    with _kept_lock:
        _kept.append((stamp, made))
        del _kept[:-_MOST_KEPT]
    return made


# The last few transforms: what each is made of, and what was read.
_kept: list[tuple[list[Any], ReadTransform]] = []
_kept_lock = threading.Lock()  # guards _kept: worker threads read transforms, too
_MOST_KEPT = 32
_MOST_OBJECTS = 4096  # in a stamp
_PLAIN = (NoneType, bool, float, int, str)


@dataclasses.dataclass(frozen=True)
class _Value:
    """A snapshot of something that may change in place."""

    value: Any


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is _Value and one == other)


def _stamp(transform: Any) -> Iterator[Any]:
    """Gives all that a transform is made of: the objects, the transform first, with their classes, their
    attributes and what is in their containers, and the values of tensors and arrays. Only objects of
    known classes are looked into, since no other is read, and the user's own classes that derive from
    these."""
    yield _Value(torch.get_default_dtype())  # in which bytes become floats
    yield identity.generation()
    yield _Value(global_hooks())
    waiting = [transform]
    for _ in range(_MOST_OBJECTS):
        if not waiting:
            return
        part = waiting.pop()
        if isinstance(part, torch.Tensor | np.ndarray):
            # The text, because not a number is not equal to itself.
            yield _Value((type(part), part.dtype, repr(part.tolist())))
            continue
        yield part
        if type(part) in _PLAIN:
            continue
        yield type(part)
        if isinstance(part, list | tuple | set | frozenset):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part)
            waiting.extend(part.values())
        elif isinstance(part, property):
            waiting.append(part.fget)
        elif type(part) is FunctionType:
            yield part.__code__
        elif is_read(part):
            waiting.extend(getattr(part, "__dict__", {}).values())
            for own in own_classes(part):
                yield own
                yield _Value((*vars(own),))
                waiting.extend(vars(own).values())
    yield object()  # there is more, which is not compared


def _read(transform: Any) -> ReadTransform:
    if transform is None:
        chain, why = Chain(tensor=True), "without a transform pictures keep their sizes"
        return ReadTransform(chain, [], why, ReadTransform(chain, []))
    own_sizes = None
    try:
        chain = read_chain(transform, ours_ends_in_tensor=True, sized=False)
    except NotNative as refusal:
        why = str(refusal)
    else:
        wrap, known = _wrapper_of(transform)
        if chain.size is not None:
            return ReadTransform(chain, [], wrap=wrap)
        why = DIFFERENT_SIZES
        if known:
            own_sizes = ReadTransform(chain, [], wrap=wrap)
    try:
        beginning = read_beginning(transform, ours_ends_in_tensor=True)
    except NotNative:
        return ReadTransform(Chain(), list(steps_of(transform)), why, own_sizes)
    return ReadTransform(beginning.chain, beginning.rest, why, own_sizes)


def _wrapper_of(transform: Any) -> tuple[Any, bool]:
    """Returns torchvision's class of what a transform gives, and whether that is known."""
    try:
        return wrapper(transform), True
    except NotNative:
        return None, False


# ---- One encoded picture, made on the calling thread.


class Single:
    """A picture that is decoded and transformed without the loader's threads.

    Args:
        transform: its transform, as it was read.
        seed, sample, number: the key of its draws; ``number`` says which of the sample's pictures it is.
    """

    def __init__(
        self,
        source: PictureSource,
        transform: ReadTransform,
        seed: int,
        sample: int = 0,
        number: int = 0,
    ) -> None:
        self._source = source
        self._transform = transform
        self._key = (seed, sample, number)

    def make(self) -> Any:
        """Makes what the transform gives.

        Raises:
            OSError: for a picture that Pillow cannot decode either.
        """
        transform = self._transform
        picture: Any = self._picture()
        if transform.rest and transform.chain.grey:
            picture = picture.getchannel(0)
        for step in transform.rest:
            picture = step(picture)
        if not (transform.chain.tensor or transform.whole):
            return picture
        with naming(self._source.name):  # a mask may have too large an index
            pixels = transform.chain.pixels(picture).contiguous()
        made = finished(transform.chain, pixels, self._key)
        return made if transform.wrap is None else transform.wrap(made)

    def drawn(self) -> Mapping[str, Any]:
        """Draws for this picture, as the native module's ``ImageJob.draw`` gives it."""
        seed, sample, number = self._key
        return self._job().draw_file(0, self._source.open_rgb, seed, sample, number)

    def _picture(self) -> Any:
        """Makes the Pillow picture that comes out of the chain."""
        seed, sample, number = self._key
        job = self._job()
        if job.native is not None:
            try:
                with naming(self._source.name):
                    return job.make_picture(0, seed, sample, number)
            except (Error, ValueError):  # Pillow says what is wrong, or knows how
                pass
        return draw.apply_chain(job.chain, self._source.open_rgb(), seed, sample, number)

    def _job(self) -> Job:
        chain = self._transform.chain
        if extension.load() is None:
            return Job(chain, None)
        return Job.of_pictures(chain, self._source.opened())


def finished(chain: Chain, pixels: torch.Tensor, key: tuple[int, int, int]) -> torch.Tensor:
    """Finishes a chain: normalises as the loader does it, and erases. ``pixels`` is uint8 (3, H, W)."""
    if chain.floating:
        pixels = chain.normalization.applied(pixels[None])[0]
    if chain.erasing is None:
        return pixels
    seed, sample, number = key
    return erased(pixels, chain.erasing, seed, sample, number)


# ---- ``EncodedImage``: a picture that a dataset gives as it is encoded.


class EncodedImage(PutOff):
    """A picture that is still encoded, anywhere in a sample of any dataset. ::

        class Captions(Dataset):
            def __getitem__(self, i):
                return fastloader.EncodedImage(self.path[i], self.transform), self.tokens[i]

    `FastLoader` decodes and transforms it on its C++ threads, straight into the batch, which is
    collated as default_collate collates the tensors. Several pictures of a sample that have the same
    source are decoded once where that is cheaper. Random steps draw by the seed of the epoch, the sample
    and which picture of the sample it is, so a picture comes out the same for any number of workers.

    The worker makes the picture if the transform is not known to the end, or does not give tensors of
    one shape: it decodes and begins natively, and Python does the rest. The same happens in a plain
    DataLoader, with any collate_fn. Then torch's default generator gives the seed.

    Whoever looks into it anywhere else gets what `decode` makes, as if that stood there: its attributes,
    such as ``shape`` or ``to``, and what operators and functions of torch and numpy do with it. That is
    made with the first look, and kept: all looks see one draw, and so does the batch. An image is
    therefore for one sample: make a new one for the next. What an EncodedImage has itself stays its own,
    such as ``size``, the (height, width) of the file.

    Args:
        source: A path (str or os.PathLike), or the encoded bytes: bytes, bytearray, memoryview, a numpy
            array or a tensor of uint8. Nothing is copied unless the picture crosses to another process.
        transform: The function of the RGB picture: a transform of torchvision, of timm or of
            `fastloader.transforms`, or a callable that takes a Pillow picture. None (default) gives its
            pixels, uint8 0..255 of shape (3, H, W), which collate only if all pictures have one size.
        return_parameters: True gives a pair (tensor, parameters) in the tensor's place. The parameters
            say what was drawn, for the part of the transform that is done natively. They are a dict of
            tensors: "size" (height, width) of the picture, "box" (left, top, width, height) of the part
            that was used, "hflip", "vflip", "interpolation" (Pillow's number) and "steps", which
            `fastloader.transforms.named_steps` reads. False (default) gives the tensor alone.
        with_: Pictures and masks that follow this one: whatever is drawn for it is done to them. Each
            is a path or bytes, a `Companion`, or an `EncodedMask`. With a dict, a dict comes out, with
            this picture under "image" and the others under their keys; with a sequence, a tuple of this
            picture and the others. None (default), or an empty one, is this picture alone.

    Raises:
        TypeError: for a source of another type.
        ValueError: for a path with a null character, or a key "image" in ``with_``.
    """

    __slots__ = ("_source", "named", "return_parameters", "transform", "with_")

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes | bytearray | memoryview | Any,
        transform: Callable[[Any], Any] | None = None,
        return_parameters: bool = False,
        with_: Mapping[Any, Any] | Sequence[Any] | None = None,
    ) -> None:
        self._source = source if isinstance(source, PictureSource) else PictureSource(source)
        self.transform = transform
        self.return_parameters = bool(return_parameters)
        # By key, or by place from 1 on; and whether these are keys.
        self.with_: dict[Any, Companion | EncodedMask] = {}
        self.named = True
        if with_ is not None:
            self.with_, self.named = as_companions(with_)
        self.kept = None
        PutOff.any_made = True

    @property
    def source(self) -> str | Any:
        """The path, or an array of the encoded bytes."""
        return self._source.data if self._source.path is None else os.fsdecode(self._source.path)

    @property
    def encoded(self) -> PictureSource:
        """The source of the picture, as the loader sees it."""
        return self._source

    @property
    def size(self) -> tuple[int, int]:
        """The (height, width) of the file's picture, of which no more than the header is decoded.

        Raises:
            OSError: for a file that cannot be read.
        """
        height, width = Single(self._source, ReadTransform(Chain(), []), 0).drawn()["size"]
        return height, width

    @property
    def sources(self) -> tuple[PictureSource, ...]:
        """The sources of its pictures, as the loader sees them."""
        return (self._source,)

    @property
    def draws(self) -> int:
        """How many pictures of its sample are drawn for."""
        return 1

    @property
    def form(self) -> Any:
        """What the encoded pictures in one place of a batch have in common."""
        return self.return_parameters

    def decode(self) -> Any:
        """Decodes and transforms the picture on this thread, and without the GIL while that is native.
        One draw from torch's default generator gives the seed. With ``return_parameters``, returns a
        pair of the result and this picture's parameters.

        Raises:
            OSError: for a file that cannot be read or decoded.
        """
        made, rows = self._make()
        return made if rows is None else (made, {name: row[0] for name, row in rows.items()})

    def _taken_apart(self) -> tuple[Any, dict[str, torch.Tensor] | None]:
        """Returns what comes out for it, as `_make` does."""
        if self.kept is None:
            return self._make()
        if not self.return_parameters:
            return self.kept[0], None
        made, row = self.kept[0]
        return made, {name: value[None] for name, value in row.items()}

    def _make(self) -> tuple[Any, dict[str, torch.Tensor] | None]:
        """Makes what the transform gives; also returns the parameters in one row, if they are asked
        for."""
        read = read_transform(self.transform)
        read = read.own_sizes or read
        chains: dict[Any, Chain] = {}
        if self.with_:
            why, chains = self._followers(read)
            if why:
                if self.return_parameters:
                    raise ValueError(f"return_parameters, and Python makes {self}: {why}")
                made = make_jointly(self._source, self.transform, self.with_, why)
                return self.assembled(made), None
        seed = _draw_seed(read.chain)
        single = Single(self._source, read, seed)
        made = single.make()
        if not (self.with_ or self.return_parameters):
            return made, None
        drawn = single.drawn()
        if self.with_:
            made = [made]
            for key, companion in self.with_.items():
                single_of = Single(companion.encoded, ReadTransform(chains[key], []), seed)
                own = single_of.drawn()["size"]
                check_size(companion.encoded.name, key, companion.scale, drawn["size"], own)
                pixels = single_of.make()
                if companion.following.mask:
                    pixels = finish_mask(pixels, companion.dtype)
                elif read.wrap is not None:
                    pixels = read.wrap(pixels)
                made.append(pixels)
            made = self.assembled(made)
        if not self.return_parameters:
            return made, None
        return made, parameters([read.chain], [drawn], [(seed, 0)], 0)

    def _followers(self, read: ReadTransform) -> tuple[str, dict[Any, Chain]]:
        """Returns why the companions cannot follow natively, or their chains by key."""
        if read.rest or not (read.whole or read.chain.tensor):
            return read.why, {}
        chains = {}
        for key, companion in self.with_.items():
            try:
                chains[key] = read.follower(companion.following)[0]
            except NotNative as refusal:
                return f"the companion {key!r}: {refusal}", {}
        return "", chains

    def assembled(self, made: Sequence[Any]) -> Any:
        """Puts this picture and its companions, in their order, into what comes out for them."""
        if not self.with_:
            return made[0]
        return dict(zip(("image", *self.with_), made, strict=True)) if self.named else tuple(made)

    def __reduce__(self) -> Any:
        with_: Any = None
        if self.with_:
            with_ = self.with_ if self.named else tuple(self.with_.values())
        args = self._source, self.transform, self.return_parameters, with_
        return EncodedImage, args, *self._state()

    def __repr__(self) -> str:
        return f"EncodedImage({self._source.name!r}, {self.transform!r})"


class EncodedClip(EncodedImage):
    """A clip whose frames are still encoded, each in a file of its own, anywhere in a sample of any
    dataset. It becomes a tensor of shape (T, C, H, W), in a batch (N, T, C, H, W). ::

        EncodedClip([f"{folder}/{n:05}.jpg" for n in range(start, start + 16)], transform)

    FastLoader decodes the frames on its C++ threads, straight into the batch, as it does with an
    `EncodedImage`. All frames of a clip have one size.

    Args:
        frames: The frames in their order: paths, or encoded bytes, as `EncodedImage` takes them. Clips
            that are collated together have as many.
        transform: The function of each frame, as `EncodedImage` takes it.
        shared: True (default) makes one draw for all frames of a clip: one crop, one flip, one colour. A
            transform that is not native to the end has to be one of torchvision.transforms.v2 then,
            which takes all frames at once. False draws for each frame.

    Raises:
        TypeError: for a frame of another type.
        ValueError: for a clip without frames, or of more than 1024.
    """

    __slots__ = ("_frames", "shared")

    def __init__(
        self,
        frames: Sequence[str | os.PathLike[str] | bytes | bytearray | memoryview | Any],
        transform: Callable[[Any], Any] | None = None,
        shared: bool = True,
    ) -> None:
        ordered = isinstance(frames, Iterable) and not isinstance(frames, Mapping | Set | PutOff)
        if not ordered or isinstance(frames, str | bytes | os.PathLike):
            raise TypeError(f"frames is a sequence of paths or of bytes, not {frames!r}")
        self._frames = tuple(
            each if isinstance(each, PictureSource) else PictureSource(each) for each in frames
        )
        if not 0 < len(self._frames) <= _MOST_FRAMES:
            raise ValueError(
                f"a clip of {len(self._frames)} frames; 1 to {_MOST_FRAMES} are allowed"
            )
        super().__init__(self._frames[0], transform)
        self.shared = bool(shared)

    @property
    def sources(self) -> tuple[PictureSource, ...]:
        return self._frames

    @property
    def frames(self) -> list[Any]:
        """The path of each frame, or an array of its encoded bytes."""
        return [EncodedImage(each).source for each in self._frames]

    @property
    def draws(self) -> int:
        return 1 if self.shared else len(self._frames)

    @property
    def form(self) -> Any:
        return len(self._frames), self.shared

    def _make(self) -> tuple[Any, None]:
        read = read_transform(self.transform)
        read = read.own_sizes or read
        if not self.shared:
            return _stacked(
                [EncodedImage(each, self.transform).decode() for each in self._frames]
            ), None
        if read.rest or not (read.whole or read.chain.tensor):
            rest = dict(enumerate(map(Companion, self._frames[1:]), 1))
            made = make_jointly(self._source, self.transform, rest, read.why, clip=True)
            return _stacked(made), None
        seed = _draw_seed(read.chain)
        singles = [Single(each, read, seed) for each in self._frames]
        first = singles[0].drawn()["size"]
        for source, single in zip(self._frames, singles):
            if single.drawn()["size"] != first:
                raise unlike_frame(source.name)
        return _stacked([single.make() for single in singles]), None

    def __reduce__(self) -> Any:
        return EncodedClip, (self._frames, self.transform, self.shared), *self._state()

    def __repr__(self) -> str:
        of = f"{len(self._frames)} frames from {self._source.name!r}"
        return f"EncodedClip({of}, {self.transform!r}, shared={self.shared})"


_MOST_FRAMES = 1024


open_in_trees(EncodedImage)
open_in_trees(EncodedClip)

PICTURES_AND_CLIPS = (EncodedImage, EncodedClip)  # what stays encoded in a batch that is collated


def _draw_seed(chain: Chain) -> int:
    """Draws a seed from torch's default generator, if the chain draws anything."""
    if not chain.random and chain.erasing is None:
        return 0
    return int(torch.randint(0, 2**63 - 1, (), device="cpu").item())


def _stacked(frames: list[Any]) -> Any:
    """Stacks what was made of the frames of a clip, if they are tensors."""
    return torch.stack(frames) if isinstance(frames[0], torch.Tensor) else frames


def count_pictures(column: list[Any]) -> int:
    """Returns how many pictures a column of encoded ones has, with their companions."""
    return sum(len(each.sources) + len(each.with_) for each in column)


def collated(column: list[Any], collate_fn_map: Any) -> Any:
    """Makes a column of encoded pictures on this thread, and collates it."""
    made = [each._taken_apart() for each in column]
    pictures = collate([picture for picture, _row in made], collate_fn_map=collate_fn_map)
    rows = [row for _picture, row in made if row is not None]
    return [pictures, stacked(rows)] if rows else pictures


def collate_encoded(column: list[Any], *, collate_fn_map: Any = None) -> Any:
    """Collates a column of encoded pictures for default_collate."""
    first = type(column[0])
    for each in column:
        kind = type(each)
        if kind not in PICTURES_AND_CLIPS:
            whose = next(
                known for known in reversed(PICTURES_AND_CLIPS) if isinstance(each, known)
            ).__qualname__
            raise TypeError(
                f"a sample holds a {kind.__qualname__}, which derives from {whose}: FastLoader does not "
                f"know what it changes. Make a {whose} itself, with a function of yours for example"
            )
        if kind is not first:
            raise TypeError(
                f"a batch of {first.__qualname__}s has an {kind.__qualname__} among them"
            )
    if len({each.return_parameters for each in column}) > 1:
        raise TypeError("a batch has EncodedImages with return_parameters, and others without")
    kept = keeping()
    if kept is not None and kept.keeps():
        return kept.keep(column)
    if kept is not None:
        kept.made += count_pictures(column)
    return collated(column, collate_fn_map)


for _kind in PICTURES_AND_CLIPS:
    default_collate_fn_map[_kind] = collate_encoded
