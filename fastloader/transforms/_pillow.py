"""Speaks to Pillow: opens pictures with its limits, counts the work of a JPEG before it is decoded,
names the picture in errors, and imports Pillow where it is needed."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import stat
import struct
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from fastloader._core.machine import extension
from fastloader.errors import Error

# ---- The work of decoding a JPEG, found from its markers: the decoder itself cannot be
# stopped.


# The limits of csrc/image/jpeg/decoder.h, which gives the reasons.
MOST_SCANS = 100
MOST_WORK = 1 << 31  # scans times pixels

# The markers after which libjpeg reads a length, wherever it meets them, and the picture's end. It
# passes over all others (a scan's restarts, and what it takes for damage there), or gives the picture
# up at them.
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")
_END, _SCAN = 0xD9, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL = frozenset((0xC0, 0xC1, 0xC3, 0xC9))


def excess(data: Any, pixel_limit: int, whole: tuple[int, int] | None = None) -> str | None:
    """Returns the reason why the JPEG in these bytes is refused, which is too many scans; None if it is
    not refused, or is no JPEG. ``whole``: width and height of the picture of which it is a part."""
    width, height, count = scans(data)
    if whole is not None:
        width, height = whole
    most_work = max(MOST_WORK, 12 * pixel_limit)
    most = min(MOST_SCANS, most_work // max(1, width * height))
    if count <= most:
        return None
    if width * height > pixel_limit:  # in Pillow's words
        return (
            f"Image size ({width * height} pixels) exceeds limit of {pixel_limit} pixels, could be "
            "decompression bomb DOS attack."
        )
    return (  # csrc/image/jpeg/scans.cpp says the same
        f"the picture of {width}x{height} pixels has more than {most} scans; {MOST_SCANS} are the most, "
        f"and {most_work} for scans times pixels: it could be a decompression bomb. If you trust it, "
        "write it anew with one scan: jpegtran -copy all -outfile NEW.jpg OLD.jpg"
    )


def scans(data: Any) -> tuple[int, int, int]:
    """Returns (width, height, how many scans libjpeg would begin), or zeros for what does not begin as a
    JPEG. The number is never too small, and it is exact if libjpeg comes to the end without an error."""
    return scans_in_python(data) if extension.load() is None else extension.native.jpeg_scans(data)


def scans_in_python(data: Any) -> tuple[int, int, int]:
    """Does as `scans` without the native module."""
    frame = components = width = height = count = 0
    at = 2
    if data[:2] != b"\xff\xd8":
        return 0, 0, 0
    while (found := _MARKER.search(data, at)) is not None:
        at = found.end()
        code = data[at - 1]
        if code == _END:
            if count:
                break
            continue  # this is the end of tables for the rest
        count += code == _SCAN
        head = data[at : at + 8]
        if len(head) < 2:
            break
        if code in _FRAMES and len(head) == 8:
            high, wide = int.from_bytes(head[3:5], "big"), int.from_bytes(head[5:7], "big")
            # A second frame is an error to libjpeg. The larger of two measures the work.
            if high * wide >= width * height:
                width, height = wide, high
            frame, components = code, head[7]
        if code == _SCAN and count == 1 and frame in _SEQUENTIAL and len(head) > 2:
            if head[2] >= components:
                break  # everything is in this scan, so libjpeg reads no further
        at += max(2, int.from_bytes(head[:2], "big"))
    return width, height, count


# ---- Files of other kinds that Pillow opens, which may contain a JPEG, or worse.


_HOLDS_ANYTHING = "holds a picture that is decoded before anyone can tell how long that takes"
# Kinds that are of no use for training. But any file may be one of them, whatever its name says.
_REFUSED = {
    "BLP": _HOLDS_ANYTHING,
    "EPS": "is a program in PostScript, which may run for ever",
    "FPX": _HOLDS_ANYTHING,
    "IPTC": _HOLDS_ANYTHING,
    "MIC": _HOLDS_ANYTHING,
}

_COMPRESSION, _JPEG = 259, 7  # of the older kind, 6, libtiff itself takes three scans at most
# The tags with offsets and lengths of a TIFF's parts, for strips and for tiles.
_PIECES = ((273, 279), (324, 325))


def reason_to_refuse(image: Any, pixel_limit: int) -> str | None:
    """Returns the reason why a picture that Pillow has opened must not be decoded; None if the number of
    its pixels bounds the work of decoding."""
    if image.format in _REFUSED:
        why = _REFUSED[image.format]
        return f"a file of the kind {image.format} {why}: write it anew, as JPEG or PNG"
    if image.format != "TIFF" or not image.tile or image.tile[0][0] != "libtiff":
        return None
    before = image.fp.tell()
    try:
        return _reason_of_tiff(image, pixel_limit)
    finally:
        image.fp.seek(before)


def _reason_of_tiff(image: Any, pixel_limit: int) -> str | None:
    tags, file = image.tag_v2, image.fp
    size = file.seek(0, 2)
    # Refused, because libtiff reads the directory by itself and differently. Of two entries of a kind it
    # takes the first, and Pillow the last. And Pillow takes a big-endian BigTIFF for the usual kind.
    if not _is_read_in_one_way(file, tags.offset, size):
        return "the TIFF's directory can be read in two ways: write it anew"
    if tags.get(_COMPRESSION) != _JPEG:
        return None
    kinds = [(offsets, lengths) for offsets, lengths in _PIECES if offsets in tags]
    if len(kinds) != 1:
        return "the TIFF is in strips and in tiles at once: write it anew"
    offsets, lengths = (_numbers(tags.get(tag, ())) for tag in kinds[0])
    if len(offsets) != len(lengths):
        return "the TIFF does not say how long its parts are: write it anew"
    # Empty parts count as the whole file, because libtiff finds out by itself how long they are.
    lengths = tuple(length or size for length in lengths)
    # Equal parts may lie in the same place, but no part takes more than its pixels and a header.
    if sum(lengths) > size + 3 * image.width * image.height + 1024 * len(lengths):
        return "the TIFF's parts overlap: it could be a decompression bomb"
    for offset, length in zip(offsets, lengths):
        file.seek(offset)
        reason = excess(file.read(length), pixel_limit, image.size)
        if reason is not None:
            return reason
    return None


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _is_read_in_one_way(file: Any, where: int, size: int) -> bool:
    layouts = {b"II*\0": ("<H", 12), b"MM\0*": (">H", 12), b"II+\0": ("<Q", 20)}
    file.seek(0)
    head = file.read(4)
    if head not in layouts:
        return False
    number, entry = layouts[head]
    file.seek(where)
    (entries,) = struct.unpack(number, file.read(struct.calcsize(number)))
    data = file.read(min(entries * entry, size))
    tags = [data[at : at + 2] for at in range(0, len(data), entry)]
    return len(set(tags)) == len(tags)


# ---- A JPEG that lies in a much larger file, such as a sparse one, or one with a video behind
# it.


# A larger file is read as far as its picture goes. Only then is the work counted in several pieces.
LARGE = 64 << 20
_FIRST = 1 << 20


class CountedJpeg(io.BufferedIOBase):
    """Reads the bytes of a file when they are needed, twice as many each time. Before they are given
    out, ``check`` gets all that were read, and may raise.

    Args:
        owned: whether ``file`` is closed with this. If not, it has to stay open as long.
    """

    def __init__(
        self, file: Any, name: str, check: Callable[[bytearray], None], owned: bool
    ) -> None:
        self.name = name
        self._file, self._check, self._owned = file, check, owned
        self._data, self._at, self._ended = bytearray(), 0, False

    def __repr__(self) -> str:
        return repr(self.name) if self.name else super().__repr__()

    def _reach(self, end: int | None) -> None:
        """Reads on until there are ``end`` bytes, or all that the file has."""
        while not self._ended and (end is None or len(self._data) < end):
            more = self._file.read(max(_FIRST, len(self._data)))
            self._data += more
            self._ended = not more
            if more:
                self._check(self._data)

    def close(self) -> None:
        super().close()
        if self._owned:
            self._file.close()

    def read(self, size: int | None = -1) -> bytes:
        end = None if size is None or size < 0 else self._at + size
        self._reach(end)
        found = bytes(self._data[self._at : end])
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            self._reach(None)
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


# ---- Errors about a picture's bytes say which picture it is.


_NAMED = "_fastloader_named"  # an attribute of errors


def is_named(error: BaseException) -> bool:
    """Returns whether `name_picture` was called for this error, so that it says which picture it is
    about."""
    return _NAMED in error.__dict__


@contextlib.contextmanager
def naming(name: str, shown: str = "") -> Iterator[None]:
    """Does as `name_picture` to what is raised inside. In the place of ``shown`` the name stands as
    Pillow shows a path."""
    try:
        yield
    except Exception as error:
        if name and shown and shown in str(error):
            name_picture(error, repr(name), shown)
        else:
            name_picture(error, name)
        raise


def name_picture(error: BaseException, name: str, shown: str = "") -> None:
    """Puts ``name`` into the message of an error, whose type stays, unless it is there. It takes the
    place of ``shown``, if that is there: how Pillow shows the object that held the bytes."""
    if not name:
        return
    error.__dict__[_NAMED] = True
    first = error.args[0] if error.args and isinstance(error.args[0], str) else None
    text = str(error) if first is None or isinstance(error, OSError | UnicodeError) else first
    message = text.replace(shown, name) if shown else text
    if message == text and (name in text or repr(name)[1:-1] in text):
        return
    if isinstance(error, OSError) and error.errno is not None:
        if error.filename is None:
            error.filename = name
    elif isinstance(error, UnicodeError) and hasattr(error, "reason"):
        error.reason = f"{error.reason}: {name}"
    else:
        if message == text:
            message = f"{name}: {text}" if text else name
        error.args = (message, *error.args[1:])
        if isinstance(error, SyntaxError):
            error.msg = message


# ---- Pillow, imported where it is needed.


LARGEST_FILE = 1 << 30  # as csrc/source/source.h has it


def image_module() -> Any:
    """Imports ``PIL.Image`` of Pillow or Pillow-SIMD. Raises ImportError, which names both, without
    either."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "this needs PIL: pip install pillow, or pip install pillow-simd (faster, but it resizes "
            "otherwise)"
        ) from error
    return Image


def pass_order(version: str | None = None) -> str:
    """Returns the member of the native module's PassOrder for ``version`` of Pillow; None is the
    installed one. It says in which order Pillow's resize makes its two passes. Each pass rounds, so that
    only Pillow's own order gives its pixels. The order is Pillow 13's without Pillow, and also with
    Pillow-SIMD, which resizes otherwise anyhow."""
    if version is None:
        try:
            import PIL
        except ImportError:
            return "PILLOW13"
        version = str(PIL.__version__)
    if ".post" in version:  # only releases of Pillow-SIMD are named so
        return "PILLOW13"
    numbers = re.findall(r"\d+", version)
    release = tuple(int(number) for number in numbers[:2])
    if release >= (13,):
        return "PILLOW13"
    return "PILLOW12_2" if release >= (12, 2) else "HORIZONTAL_FIRST"


def open_rgb(path: str, upright: bool = False) -> Any:
    """Decodes the first frame of the picture at ``path`` and converts it, as torchvision's default
    loader does. ``upright``: turned as EXIF says. Raises what `regular_file` raises."""
    with regular_file(path) as file:
        return decoded_rgb(file, upright=upright)


def regular_file(path: str) -> Any:
    """Opens a file to be read. Raises OSError for what is no file, because a pipe named .jpg would never
    end."""
    file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"not a regular file: {path!r}")
    return file


def whole_file(path: str) -> bytes:
    """Reads the bytes of a picture's file. Raises what `regular_file` raises, and OSError for a file
    that is larger than any picture, which may be larger than the memory."""
    with regular_file(path) as file:
        return rest_of(file, path)


def rest_of(file: Any, path: str) -> bytes:
    """Reads what is left of such a file."""
    if os.fstat(file.fileno()).st_size > LARGEST_FILE:
        raise OSError(f"more than 1 GiB: {path!r}")
    return bytes(file.read())


def decoded_rgb(file: Any, name: str = "", upright: bool = False) -> Any:
    """Decodes the first frame of an open file. Errors name the file, by ``name`` if it has no name of
    its own. ``upright``: turned as EXIF says."""
    with naming(name or str(getattr(file, "name", "")), repr(file)), opened(file, name) as image:
        if not upright:
            return image.convert("RGB")
        from PIL import ImageOps

        return ImageOps.exif_transpose(image).convert("RGB")


def decoded_indices(file: Any, name: str = "") -> Any:
    """Decodes the first frame of an open file whose values are indices: of a palette, or grey. Returns
    an RGB picture with the lower eight bits of each index in red, and the upper ones in green. Errors
    name the file, as `decoded_rgb` has it.

    Raises:
        ValueError: for a picture of another mode.
    """
    with naming(name or str(getattr(file, "name", "")), repr(file)), opened(file, name) as image:
        image.load()
        if image.mode not in _INDEX_MODES:
            raise ValueError(
                f"a picture of mode {image.mode} is no mask: its modes are {', '.join(_INDEX_MODES)}"
            )
        import numpy as np

        values = np.asarray(image)
        if values.max(initial=0) > 0xFFFF or values.min(initial=0) < 0:
            raise ValueError(f"a mask with values from {values.min()} to {values.max()}")
        carried = np.zeros((*values.shape, 3), np.uint8)
        carried[..., 0] = values & 0xFF if values.dtype != bool else values
        if values.dtype.itemsize > 1:
            carried[..., 1] = values >> 8
        return image_module().fromarray(carried)


# Pillow before version 10.3 opens PNGs of 16 bits in mode I.
_INDEX_MODES = ("1", "L", "P", "I;16", "I;16L", "I;16B", "I")


def opened(file: Any, name: str = "") -> Any:
    """Opens the Pillow image of an open file, or of the path of one, without decoding it. Raises what
    `refusal` gives if decoding the picture would take too much. A JPEG is read once and into memory, so
    that the bytes that are decoded are those that were counted. A large file is read as far as Pillow
    asks."""
    if not hasattr(file, "read"):
        path = os.fspath(file)
        own = regular_file(path)
        jpeg = _jpeg_in(own, path, owned=True)
        if not isinstance(jpeg, CountedJpeg):
            own.close()
        return _checked(image_module().open(path if jpeg is None else jpeg), path)
    name = name or str(getattr(file, "name", ""))
    try:
        file.seek(0)  # because Pillow begins there, too
    except (AttributeError, io.UnsupportedOperation):
        file = _Bytes(file.read(), name)
    jpeg = _jpeg_in(file, name)
    return _checked(image_module().open(file if jpeg is None else jpeg), name)


def _checked(image: Any, name: str) -> Any:
    reason = reason_to_refuse(image, pixel_limits()[1])
    if reason is not None:
        image.close()
        raise refusal(reason, name)
    return image


def _jpeg_in(file: Any, name: str, owned: bool = False) -> _Bytes | CountedJpeg | None:
    """Returns the bytes of a file, which are checked before Pillow gets them; None if the file does not
    begin as what Pillow takes for a JPEG. ``owned``: whether nobody else closes the file."""

    def check(data: Any) -> None:
        reason = excess(data, pixel_limits()[1])
        if reason is not None:
            raise refusal(reason, name)

    begin = file.read(3)
    file.seek(0)
    if begin != b"\xff\xd8\xff":
        return None
    if _size_of(file) > LARGE:
        return CountedJpeg(file, name, check, owned)
    data = bytes(file.read())
    check(data)
    return _Bytes(data, name)


def _size_of(file: Any) -> int:
    """Returns the size of a file; 0 if it does not tell, as a stream need not."""
    try:
        file.seek(0, io.SEEK_END)
        size: int = file.tell()
    except (OSError, ValueError, TypeError):
        size = 0
    file.seek(0)
    return size


class _Bytes(io.BytesIO):
    """The bytes of a file, with its name for Pillow's messages."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self.name = name

    def __repr__(self) -> str:
        return repr(self.name) if self.name else super().__repr__()


def refusal(reason: str, name: str = "") -> Exception:
    """Makes the error for a picture that no decoder may get: Pillow's DecompressionBombError or, without
    Pillow, an Error."""
    text = f"{name}: {reason}" if name else reason
    try:
        from PIL import Image
    except ImportError:
        return Error(text)
    return Image.DecompressionBombError(text)


def pixel_limits() -> tuple[int, int]:
    """Returns the limits in pixels, as ``Image.MAX_IMAGE_PIXELS`` says now. A picture with more pixels
    than the first is worth a warning, and one with more than the second is refused."""
    # Code that has not imported it cannot have set it. While another thread imports it, it has no limit.
    module = sys.modules.get("PIL.Image")
    limit = getattr(module, "MAX_IMAGE_PIXELS", 89478485)
    if limit is None:
        return _NO_LIMIT, _NO_LIMIT
    try:
        return _whole(limit), _whole(2 * limit)
    except TypeError:
        raise TypeError(
            f"PIL.Image.MAX_IMAGE_PIXELS is {limit!r}: it is a number of pixels, or None for no limit"
        ) from None


_NO_LIMIT = (1 << 64) - 1


def _whole(limit: Any) -> int:
    """Returns the whole number that means the same limit."""
    if not limit < _NO_LIMIT:  # also for NaN, because nothing is more than that
        return _NO_LIMIT
    return math.floor(limit) if limit > 0 else 0


def warn_of_size(reason: str) -> None:
    """Gives Pillow's warning, which a filter may turn into an error."""
    try:
        from PIL import Image
    except ImportError:
        warnings.warn(reason, RuntimeWarning, stacklevel=2)
    else:
        warnings.warn(reason, Image.DecompressionBombWarning, stacklevel=2)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # or a pipe waits for its writer
