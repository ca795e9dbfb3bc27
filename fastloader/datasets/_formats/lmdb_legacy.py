"""LMDB files of the well-known recipe, in which every value is a pickle."""

from __future__ import annotations

import io
import pickle
import re
from typing import Any, ClassVar

import numpy as np

from fastloader.datasets._formats.lmdb_files import Environment
from fastloader.datasets.encoded import EncodedImage
from fastloader.datasets.picture_source import PictureSource
from fastloader.transforms._pillow import decoded_rgb, image_module

# These classes take numbers and text only. numpy's own constructors are not used: their __setstate__
# believes what a pickle says about the layout of memory, so a crafted dtype turns bytes into pointers.


class _Dtype:
    """A dtype of a pickle: a letter, a size, a byte order."""

    def __init__(self, code: Any) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[biufcSU][0-9]{1,6}", code):
            raise pickle.UnpicklingError(
                f"arrays of {code!r} are not read, only of numbers and text"
            )
        self.code = code
        self.order = "="

    def __setstate__(self, state: Any) -> None:
        _version, order, *inner = state[:5]
        if order not in ("<", ">", "=", "|") or any(each is not None for each in inner):
            raise pickle.UnpicklingError("arrays of records are not read, only of numbers and text")
        self.order = order

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.code)


class _Array(np.ndarray[Any, Any]):
    """An array that its pickle fills after it was made."""

    def __setstate__(self, state: Any) -> None:
        shape, dtype, fortran, data = state[-4:]
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array of a kind that is not read")
        checked: Any = (1, shape, dtype.numpy, bool(fortran), data)
        super().__setstate__(checked)


class _Constructors:
    """The constructors for one pickle of ``size`` bytes. They are bound methods, because a pickle may
    set attributes of what it names, and functions have some. Each pickle has its own, which limit what
    is made: a pickle can make other values of a remembered one any number of times, at a few bytes
    each."""

    __slots__ = ("_left", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        # Four times the size is enough: text becomes bytes, and bytes become a number or an array, once.
        self._left = 4 * size

    def charge(self, data: Any) -> Any:
        """Counts ``data``, of which a value is made, and returns it."""
        if not isinstance(data, str | bytes | bytearray):
            raise pickle.UnpicklingError(f"a {type(data).__name__} in the place of text or bytes")
        self._left -= len(data)
        if self._left < 0:
            raise pickle.UnpicklingError(
                f"a pickle of {self._size} bytes makes more than {4 * self._size} bytes of its values"
            )
        return data

    def dtype(self, code: Any, _align: Any = None, _copy: Any = None) -> _Dtype:
        return _Dtype(code)

    def array(self, _kind: Any, _shape: Any, _typecode: Any) -> _Array:
        return np.empty(0, np.uint8).view(_Array)

    def scalar(self, dtype: _Dtype, data: bytes) -> Any:
        (number,) = np.frombuffer(self.charge(data), dtype.numpy)
        return number

    def from_buffer(
        self, data: Any, dtype: _Dtype, shape: Any, order: Any, axes: Any = None
    ) -> Any:
        made = np.frombuffer(self.charge(data), dtype.numpy)
        if order == "K" and axes is not None:
            return made.reshape(shape).transpose(axes)
        return made.reshape(shape, order=order)

    def encode(self, text: str, _encoding: Any) -> bytes:
        return self.charge(text).encode("latin-1")  # because protocols up to 2 write bytes as text


# The names in pickled arrays and numpy numbers, of numpy 1 and numpy 2, with the constructor for each.
_ALLOWED: dict[tuple[str, str], str] = {
    ("numpy", "ndarray"): "",  # which is only an argument
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
}
for _core in ("core", "_core"):
    _ALLOWED[f"numpy.{_core}.multiarray", "_reconstruct"] = "array"
    _ALLOWED[f"numpy.{_core}.multiarray", "scalar"] = "scalar"
    _ALLOWED[f"numpy.{_core}.numeric", "_frombuffer"] = "from_buffer"


# The unpickler in Python, because a few bytes may stand for endless lists within lists, or for a tuple
# that takes hours to hash. The one in C makes room for any number of remembered values and hashes
# whatever is a key, and neither can be forbidden there.
_Python: Any = pickle._Unpickler

_KEYS = (str, bytes, int, float, bool, type(None))


class _Unpickler(_Python):
    dispatch: ClassVar[dict[int, Any]] = dict(_Python.dispatch)
    for _opcode in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.NEXT_BUFFER):
        del dispatch[_opcode[0]]

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._constructors = _Constructors(len(data))

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(
                f"the pickle asks for {module}.{name}, which is not among the types that are allowed "
                "(tuples, lists, dicts, numbers, text, bytes, numpy arrays)"
            )
        made_by = _ALLOWED[module, name]
        return getattr(self._constructors, made_by) if made_by else None

    def _check_keys(self, keys: list[Any]) -> None:
        for key in keys:
            if type(key) not in _KEYS:
                raise pickle.UnpicklingError(f"a {type(key).__name__} as the key of a dict")

    def load_build(self) -> None:
        state, inst = self.stack[-1], self.stack[-2]
        if isinstance(inst, _Array) and isinstance(state, tuple) and isinstance(state[-1], bytes):
            self._constructors.charge(state[-1])  # because numpy copies data of another byte order
        _Python.load_build(self)

    def load_dict(self) -> None:
        self._check_keys(self.stack[::2])
        _Python.load_dict(self)

    def load_setitem(self) -> None:
        self._check_keys(self.stack[-2:-1])
        _Python.load_setitem(self)

    def load_setitems(self) -> None:
        self._check_keys(self.stack[::2])
        _Python.load_setitems(self)

    def load_bytearray8(self) -> None:  # of protocol 5; no room before the bytes are there
        self.append(bytearray(self.read(int.from_bytes(self.read(8), "little"))))

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems


class _Plain:
    """Gives a value with ordinary arrays in the place of `_Array`, when it is called. It makes ``most``
    values in all, and counts a value that the pickle remembers each time that it is used."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def __call__(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise pickle.UnpicklingError(f"a pickle of {self._most} bytes stands for more values")
        if isinstance(value, _Array):
            return value.view(np.ndarray)
        if type(value) in (list, tuple):
            return type(value)(map(self, value))
        if type(value) is dict:
            return {key: self(inner) for key, inner in value.items()}
        return value


def _unpickled(environment: Environment, key: bytes) -> Any:
    data = environment.read(key)
    if data is None:
        raise ValueError(f"{environment.path}: the key {key!r} is missing")
    try:
        return _Plain(len(data))(_Unpickler(data).load())
    except Exception as error:
        raise ValueError(f"{environment.path}: the value of key {key!r}: {error}") from error


def read_keys(environment: Environment) -> list[bytes]:
    """Reads the keys of the samples, from ``__keys__`` or counted up to ``__len__``."""
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
    count = _unpickled(environment, b"__len__")
    if isinstance(count, np.generic | np.ndarray) and count.size == 1:
        count = count.item()
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ValueError(f"{environment.path}: __len__ is {count!r}, not a number of samples")
    # Checked against the file, which may claim any number: the key of the last record must be there.
    if count > environment.entries() or (
        count and environment.get(str(count - 1).encode()) is None
    ):
        raise ValueError(
            f"{environment.path}: __len__ is {count}, but the file holds "
            f"{environment.entries()} records at most, key {str(count - 1).encode()!r} not among them"
        )
    return [str(index).encode() for index in range(count)]


def _as_bytes(environment: Environment, key: Any) -> bytes:
    if isinstance(key, bytes):
        return key
    if isinstance(key, int):
        return str(key).encode()
    raise ValueError(f"{environment.path}: __keys__ holds a {type(key).__name__}")


def read_sample(environment: Environment, key: bytes) -> tuple[Any, Any]:
    """Returns (Pillow image in RGB, label). A sample without a label has -1."""
    value = _unpickled(environment, key)
    image, label = (value[0], value[1]) if isinstance(value, list | tuple) else (value, -1)
    if isinstance(label, np.generic | np.ndarray) and label.size == 1:
        label = label.item()
    name = f"{environment.path}: the image of key {key!r}"
    return _decoded(image, name), label


def _decoded(image: Any, name: str) -> Any:
    if isinstance(image, np.ndarray) and image.ndim == 1 and image.dtype == np.uint8:
        image = image.tobytes()  # an encoded file as an array of bytes
    if isinstance(image, bytes | bytearray):
        return decoded_rgb(io.BytesIO(image), name)
    if not isinstance(image, np.ndarray):
        raise ValueError(f"{name}: a {type(image).__name__} is neither bytes nor an array")
    try:
        return image_module().fromarray(image).convert("RGB")
    except Exception as error:
        raise ValueError(f"{name}: {error}") from error


def read_stored(environment: Environment, key: bytes, transform: Any) -> Any:
    """Reads what was pickled: arrays, numbers, text, in tuples, lists and dicts. The bytes of a JPEG,
    PNG or WebP become an `EncodedImage` with this transform."""
    return _stored(_unpickled(environment, key), f"{key!r} in {environment.path}", transform)


def _stored(value: Any, name: str, transform: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_stored(each, name, transform) for each in value)
    if isinstance(value, dict):
        return {key: _stored(each, name, transform) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        if value.ndim != 1 or value.dtype != np.uint8 or not _is_picture(value[:12].tobytes()):
            return np.array(value)  # which torch may write into
        value = value.tobytes()
    if isinstance(value, bytes | bytearray) and _is_picture(bytes(value[:12])):
        return EncodedImage(PictureSource(value, name), transform)
    return value


def _is_picture(beginning: bytes) -> bool:
    """Returns whether a file that begins so is one that the native decoders know."""
    if beginning.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")):
        return True
    return beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP"
