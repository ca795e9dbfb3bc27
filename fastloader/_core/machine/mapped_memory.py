"""Reads memory that a file is mapped to. If the file was cut off, or its disk fails, reading it ends the
process (SIGBUS), so the native module has the system read it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastloader._core.machine import extension
from fastloader.errors import Error

LOST = "the file that it is mapped from was cut off, or its disk fails"


def read_at(address: int, size: int, called: str) -> bytes:
    """Reads the bytes at an address. Raises OSError if they cannot be read, and ``called`` names them in
    its message."""
    if extension.load() is None:
        import ctypes

        return ctypes.string_at(address, size)
    try:
        return extension.native.read_mapped(address, size)
    except Error as error:
        raise OSError(f"{called} cannot be read: {error}") from None


def read_view(view: Any, called: str) -> bytes:
    """Reads the bytes of a buffer."""
    return read_at(address_of(view), len(view), called) if len(view) else b""


def address_of(view: Any) -> int:
    """Returns the address of the bytes of a buffer, which is not empty."""
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address


def file_at(address: int, size: int) -> str:
    """Returns the path of a file that is mapped to a part of this memory; "" without one, and without
    the native module, which would read it."""
    return "" if extension.load() is None else extension.native.mapped_file(address, size)
