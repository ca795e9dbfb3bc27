"""Files of the well-known recipe: every value a pickle."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from fastloader.datasets._lmdb_file import Environment
from fastloader.datasets._pillow import image_module

# What pickled arrays and numpy numbers are made of, under numpy 1's names and numpy 2's.
_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
    *(
        (f"numpy.{core}.{module}", name)
        for core in ("core", "_core")
        for module, name in (
            ("multiarray", "_reconstruct"),
            ("multiarray", "scalar"),
            ("numeric", "_frombuffer"),
        )
    ),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(
                f"the pickle asks for {module}.{name}, which is not among the types that are allowed "
                "(tuples, lists, dicts, numbers, text, bytes, numpy arrays)"
            )
        return super().find_class(module, name)


def _unpickled(environment: Environment, key: bytes) -> Any:
    data = environment.get(key)
    if data is None:
        raise ValueError(f"{environment.path}: the key {key!r} is missing")
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except Exception as error:
        raise ValueError(f"{environment.path}: the value of key {key!r}: {error}") from error


def read_keys(environment: Environment) -> list[bytes]:
    """The samples' keys, from ``__keys__``, or counted up to ``__len__``."""
    if environment.get(b"__keys__") is not None:
        keys = _unpickled(environment, b"__keys__")
        if not isinstance(keys, list | tuple):
            raise ValueError(f"{environment.path}: __keys__ is a {type(keys).__name__}, not a list")
        return [
            key.encode() if isinstance(key, str) else _as_bytes(environment, key) for key in keys
        ]
    if environment.get(b"__len__") is None:
        raise ValueError(
            f"{environment.path} has neither __keys__ nor __len__: it is not of the recipe that "
            "legacy=True reads"
        )
    return [str(index).encode() for index in range(int(_unpickled(environment, b"__len__")))]


def _as_bytes(environment: Environment, key: Any) -> bytes:
    if isinstance(key, bytes):
        return key
    if isinstance(key, int):
        return str(key).encode()
    raise ValueError(f"{environment.path}: __keys__ holds a {type(key).__name__}")


def read_sample(environment: Environment, key: bytes) -> tuple[Any, Any]:
    """(Pillow image in RGB, label); -1 where there is no label."""
    value = _unpickled(environment, key)
    image, label = (value[0], value[1]) if isinstance(value, list | tuple) else (value, -1)
    if isinstance(label, np.generic | np.ndarray) and label.size == 1:
        label = label.item()
    try:
        return _decoded(image), label
    except Exception as error:
        raise ValueError(f"{environment.path}: the image of key {key!r}: {error}") from error


def _decoded(image: Any) -> Any:
    if isinstance(image, np.ndarray) and image.ndim == 1 and image.dtype == np.uint8:
        image = image.tobytes()  # an encoded file, read as an array
    if isinstance(image, bytes | bytearray):
        with image_module().open(io.BytesIO(image)) as opened:
            return opened.convert("RGB")
    if isinstance(image, np.ndarray):
        return image_module().fromarray(image).convert("RGB")
    raise TypeError(f"a {type(image).__name__} is neither bytes nor an array")
