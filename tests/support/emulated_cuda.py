"""The tests of the way "twin" on the CUDA backend, with an emulated CUDA runtime and without a GPU.

With FASTLOADER_TEST_CUDA=emulated, Python imports the native module of the preset
``cuda-emulated-python``, and what asks for the twin gets the CUDA backend. torch does not know of any
CUDA device then: its CPU tensors lie in the emulator's device memory, where the tests read them. The
native code gets the device addresses of that memory, which no process can touch.

This imports the standard library only, because every program that a test starts imports it first.
"""

import ctypes
import functools
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

VARIABLE = "FASTLOADER_TEST_CUDA"
BUILD = Path(__file__).resolve().parents[2] / "build" / "cuda-emulated-python"


def wanted():
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "emulated"):
        raise ValueError(f"{VARIABLE}={value!r}: use 'emulated' or nothing")
    return value == "emulated"


def install():
    """Lets fastloader's modules be changed when they are imported, if the environment asks for it."""
    if wanted() and not any(isinstance(each, Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, Finder())


def require():
    """Raises unless the preset's native module is the one that runs: another one would run the twin,
    and every test of it would pass."""
    import fastloader._native

    if BUILD not in Path(fastloader._native.__file__).parents:
        raise RuntimeError(f"{VARIABLE}=emulated, but {fastloader._native.__file__} was imported")


class Finder:
    """Finds the native module in the preset's folder, and changes the two classes that meet torch's
    memory."""

    def find_spec(self, name, path, target=None):
        if name == "fastloader._native":
            file = BUILD / f"_native{importlib.machinery.EXTENSION_SUFFIXES[0]}"
            if not file.exists():
                raise RuntimeError(
                    f"{VARIABLE}=emulated, but {file} was not built: see tests/emulation"
                )
            return _then(importlib.util.spec_from_file_location(name, file), _change_native)
        if name == "fastloader._core.delivery.engine":
            return _then(importlib.machinery.PathFinder.find_spec(name, path), _change_engine)
        return None


def _then(spec, change):
    execute = spec.loader.exec_module

    def exec_module(module):
        execute(module)
        change(module)

    spec.loader.exec_module = exec_module
    return spec


@functools.cache
def _emulator():
    library = ctypes.CDLL(str(BUILD / "tests/emulation/runtime/libcuda_emulated_torch.so"))
    library.emulated_torch_allocate.restype = ctypes.c_void_p
    library.emulated_torch_allocate.argtypes = [ctypes.c_size_t]
    library.emulated_torch_real.restype = ctypes.c_void_p
    library.emulated_torch_real.argtypes = [ctypes.c_void_p]
    library.emulated_torch_fill.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.emulated_torch_misuses.restype = ctypes.c_size_t
    return library


def misuses():
    """How often the process has used CUDA as no program may, and what came first."""
    text = ctypes.create_string_buffer(1000)
    number = _emulator().emulated_torch_misuses(text, ctypes.c_size_t(1000))
    return number, text.value.decode()


def synchronize():
    assert _emulator().emulated_torch_synchronize() == 0


# {bytes: device addresses} of what no tensor refers to any more. As in torch's allocator, the next
# tensor gets it at once, whatever is still queued.
_free = {}

# {real address: (device address, bytes)}, of all memory.
_blocks = {}


def _on_device(real):
    """The device address of what torch has at this address; 0, the address of nothing, for others."""
    if real in _blocks:
        return _blocks[real][0]
    inside = (each for each in _blocks if each < real < each + _blocks[each][1])
    return next((_blocks[each][0] + real - each for each in inside), 0)


class Block:
    """Device memory as numpy sees it."""

    def __init__(self, size):
        self.size = size
        recycled = _free.get(size)
        try:
            self.device = recycled.pop() if recycled else None
        except IndexError:  # another thread was faster
            self.device = None
        if self.device is None:
            self.device = _emulator().emulated_torch_allocate(size)
            if not self.device:
                raise RuntimeError("the emulated device is out of memory")
        assert _emulator().emulated_torch_fill(self.device, size) == 0
        real = _emulator().emulated_torch_real(self.device)
        _blocks[real] = (self.device, size)
        self.__array_interface__ = {
            "data": (real, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self):
        if getattr(self, "device", None):
            _free.setdefault(self.size, []).append(self.device)


def on_device(tensor):
    """An empty tensor in device memory with the shape, strides and dtype of ``tensor``."""
    import numpy
    import torch

    size = tensor.untyped_storage().nbytes()
    if size == 0:
        return tensor
    storage = torch.from_numpy(numpy.asarray(Block(size))).untyped_storage()
    return torch.empty(0, dtype=tensor.dtype).set_(storage, 0, tensor.shape, tensor.stride())


def _change_engine(module):
    make = module.Engine.make_credit

    @functools.wraps(make)
    def make_credit(engine, layout):
        credit = make(engine, layout)
        with module.devices.ordinary_tensors():
            credit.outputs = [on_device(output) for output in credit.outputs]
            if credit.staging is not None:
                credit.staging = on_device(credit.staging)
        return credit

    module.Engine.make_credit = make_credit


def _change_native(native):
    class Prefetcher(native.Prefetcher):
        def __init__(self, *, backend, **options):
            for name in [each for each in options if each.startswith("twin_")]:
                if options.pop(name):
                    import pytest

                    pytest.skip(f"{name} is the twin's own")
            super().__init__(backend="cuda" if backend == "host" else backend, **options)

        def give_credit(self, *, outputs, staging, **others):
            super().give_credit(
                outputs=[_on_device(each) for each in outputs],
                staging=_on_device(staging),
                **others,
            )

        def deliver(self, stream):
            super().deliver(stream)
            synchronize()

    native.Prefetcher = Prefetcher
