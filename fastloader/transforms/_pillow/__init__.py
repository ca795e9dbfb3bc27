"""Pillow, imported where it is needed."""

from __future__ import annotations

import io
import math
import os
import re
import stat
import sys
import warnings
from typing import Any

from fastloader.errors import Error
from fastloader.transforms._pillow import containers, jpeg_work
from fastloader.transforms._pillow.counted_jpeg import LARGE, CountedJpeg
from fastloader.transforms._pillow.naming import naming

LARGEST_FILE = 1 << 30  # as csrc/source/source.h has it


def image_module() -> Any:
    """``PIL.Image`` of Pillow or Pillow-SIMD. Raises ImportError, which names both, without either."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "this needs PIL: pip install pillow, or pip install pillow-simd (faster, but it resizes "
            "otherwise)"
        ) from error
    return Image


def pass_order(version: str | None = None) -> str:
    """The member of the native module's PassOrder for ``version`` of Pillow; None is the installed one.
    It says in which order Pillow's resize makes its two passes. Each pass rounds, so that only Pillow's
    own order gives its pixels. The order is Pillow 13's without Pillow, and also with Pillow-SIMD,
    which resizes otherwise anyhow."""
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
    """The first frame of the picture at ``path``, decoded and converted as by torchvision's default
    loader. ``upright``: turned as EXIF says. Raises what `regular_file` raises."""
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
    """The bytes of a picture's file. Raises what `regular_file` raises, and OSError for a file that is
    larger than any picture, which may be larger than the memory."""
    with regular_file(path) as file:
        return rest_of(file, path)


def rest_of(file: Any, path: str) -> bytes:
    """What is still to be read of such a file."""
    if os.fstat(file.fileno()).st_size > LARGEST_FILE:
        raise OSError(f"more than 1 GiB: {path!r}")
    return bytes(file.read())


def decoded_rgb(file: Any, name: str = "", upright: bool = False) -> Any:
    """The first frame of an open file, decoded. What is raised names the file, by ``name`` if it has no
    name of its own. ``upright``: turned as EXIF says."""
    with naming(name or str(getattr(file, "name", "")), repr(file)), opened(file, name) as image:
        if not upright:
            return image.convert("RGB")
        from PIL import ImageOps

        return ImageOps.exif_transpose(image).convert("RGB")


def opened(file: Any, name: str = "") -> Any:
    """The Pillow image of an open file, or of the path of one, not decoded yet. Raises what `refusal`
    gives if decoding the picture would take too much. A JPEG is read once and into memory, so that the
    bytes that are decoded are those that were counted. A large file is read as far as Pillow wants."""
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
    reason = containers.reason_to_refuse(image, pixel_limits()[1])
    if reason is not None:
        image.close()
        raise refusal(reason, name)
    return image


def _jpeg_in(file: Any, name: str, owned: bool = False) -> _Bytes | CountedJpeg | None:
    """The bytes of a file, which are looked at before Pillow gets them; None if it does not begin as
    what Pillow takes for a JPEG. ``owned``: whether nobody else closes the file."""

    def check(data: Any) -> None:
        reason = jpeg_work.excess(data, pixel_limits()[1])
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
    """0 for a file that does not tell, as a stream need not."""
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
    """The error for a picture that no decoder may get: Pillow's DecompressionBombError or, without
    Pillow, an Error."""
    text = f"{name}: {reason}" if name else reason
    try:
        from PIL import Image
    except ImportError:
        return Error(text)
    return Image.DecompressionBombError(text)


def pixel_limits() -> tuple[int, int]:
    """The limits in pixels, as ``Image.MAX_IMAGE_PIXELS`` says now. A picture with more pixels than the
    first is worth a warning, and one with more than the second is refused."""
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
    """The whole number that means the same limit."""
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
