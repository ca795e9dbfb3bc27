"""The project's host code with an interpreter in the place of a GPU, and its CPU code beside it."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np
from interpreter.machine import Machine
from interpreter.memory import Allocation, Input, Memory, Output
from interpreter.parser import Kernel, Module, parse
from kernel_build import Build
from specs import AugmentSpec, NormalizeSpec

_OnLaunch = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, *[ctypes.c_uint] * 6, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)
)


class _PlainCase(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("in_batch", "records", "in_", "out")]
    _fields_ += [(f"{name}_at", ctypes.c_void_p) for name in ("records", "in_", "out")]


class AugmentCase(NamedTuple):
    spec: AugmentSpec
    records: np.ndarray
    source: np.ndarray
    expected: np.ndarray


@dataclasses.dataclass
class Flavour:
    """A text of a file's kernels and the targets that nvcc wrote it for."""

    targets: list[str]
    module: Module

    def __post_init__(self) -> None:
        as_bytes = {
            name: np.frombuffer(data, np.uint8) for name, data in self.module.variables.items()
        }
        self.variables = {name: Input(name[-20:], data) for name, data in as_bytes.items()}


def read_flavours(texts: list[Path]) -> list[Flavour]:
    """Texts that differ in nothing but the target are one flavour."""
    found: dict[str, list[str]] = {}
    for path in texts:
        lines = path.read_text().split("\n")
        (target,) = (line.split()[1] for line in lines if line.startswith(".target"))
        same = "\n".join(line for line in lines if not line.startswith(".target"))
        found.setdefault(same, []).append(target)
    return [Flavour(sorted(targets), parse(text)) for text, targets in found.items()]


class InterpretedDevice:
    """Each file of kernels has one flavour or several; `flavour` says which of them the next launches
    run, counted around where a file has fewer."""

    def __init__(self, build: Build) -> None:
        self.flavours = {name: read_flavours(texts) for name, texts in build.ptx.items()}
        self.flavour = 0
        #: the number of blocks of the last launch
        self.grid = 0
        #: launches by flavour and kernel, and the basic blocks that ran
        self.launches: collections.Counter[tuple[int, str]] = collections.Counter()
        self.ran: dict[tuple[int, str], set[int]] = collections.defaultdict(set)
        self.values = 0
        #: instructions that the warps of the last launch ran
        self.executed = 0
        self._memory: list[Allocation] = []
        self._blocks: list[range] | None = None
        self._error: BaseException | None = None
        self._library = ctypes.CDLL(str(build.library))
        for name in ("last_failure", "isa_names", "kernel_names"):
            getattr(self._library, name).restype = ctypes.c_char_p
        self._callback = _OnLaunch(self._launch)
        self._library.set_on_launch(self._callback)
        self.isas = self._library.isa_names().decode().split()
        #: the kernels that nvcc's host code registers with the runtime
        self.registered = set(self._library.kernel_names().decode().split())

    def of_turn(self, file: str, name: str) -> tuple[int, Flavour, Kernel]:
        flavours = self.flavours[file]
        number = self.flavour % len(flavours)
        return number, flavours[number], flavours[number].module.kernels[name]

    def file_of(self, name: str) -> str:
        (file,) = (f for f, each in self.flavours.items() if name in each[0].module.kernels)
        return file

    def _launch(self, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, args):
        try:
            if (grid_y, grid_z, block_y, block_z, shared) != (1, 1, 1, 1, 0):
                raise ValueError("a launch of several dimensions or with shared memory")
            name = name.decode()
            number, flavour, kernel = self.of_turn(self.file_of(name), name)
            params = [ctypes.string_at(args[i], p.size) for i, p in enumerate(kernel.params)]
            memory = Memory([*self._memory, *flavour.variables.values()])
            symbols = {each: allocation.base for each, allocation in flavour.variables.items()}
            machine = Machine(kernel, params, memory, symbols)
            self.launches[number, name] += 1
            self.grid = grid_x
            machine.run(grid_x, block_x, only=self._blocks)
            self.ran[number, name] |= machine.ran
            self.executed = machine.executed
        except BaseException as error:  # ctypes would print it and go on
            self._error = error

    def _call(self, function: str, *args) -> None:
        self._error = None
        status = getattr(self._library, function)(*args)
        if self._error is not None:
            raise self._error
        if status < 0:
            raise ValueError(self._library.last_failure().decode())
        if status > 0:
            raise RuntimeError(f"{function}: CUDA error {status}")

    def _place(self, *memory: Allocation, blocks=None) -> list[ctypes.c_void_p]:
        self._memory, self._blocks = list(memory), blocks
        Memory(self._memory)
        return [ctypes.c_void_p(each.base) for each in memory]

    # ---- Normalise

    def normalize(self, spec: NormalizeSpec, source, in_skew: int = 0, out_skew: int = 0):
        """The bytes of the output. A start that is no multiple of 16 is beyond the stream's contract,
        not beyond the kernels'."""
        into = Input("the input", source, in_skew)
        out = Output("the output", spec.out_bytes, out_skew)
        self.launch_normalize(spec, into, out, aligned=in_skew % 16 == out_skew % 16 == 0)
        out.require_complete()
        self.values += spec.values
        return out.data

    def launch_normalize(
        self, spec: NormalizeSpec, into, out, *, aligned=True, blocks=None
    ) -> None:
        """`blocks` are those to run of a grid that is too large for all, also in launch_augment()."""
        places = self._place(into, out, blocks=blocks)
        self._call("gpu_normalize", ctypes.byref(spec), *places, int(aligned))

    def cpu_normalize(self, spec: NormalizeSpec, source, isa: str):
        out = np.zeros(spec.out_bytes, np.uint8)
        pointers = _pointers(source, out)
        self._call("cpu_normalize", ctypes.byref(spec), isa.encode(), *pointers)
        return out

    def twin_normalize(self, spec: NormalizeSpec, source):
        # A start that the vector path takes, as the backends' memory has it.
        out = _aligned(spec.out_bytes)
        into = _aligned(source.size)
        into[:] = source
        self._call("twin_normalize", ctypes.byref(spec), *_pointers(into, out))
        return out

    def reference_tables(self, spec: NormalizeSpec):
        """For each channel what the 256 bytes become, by the reference of the native tests."""
        tables = np.zeros((spec.channels, 256), np.uint32)
        for table, scale, bias in zip(tables, spec.scale, spec.bias):
            self._library.reference_table(
                ctypes.c_float(scale), ctypes.c_float(bias), spec.type, *_pointers(table)
            )
        return tables

    # ---- Augment

    def augment(self, spec: AugmentSpec, records, source):
        out = Output("the output", spec.normalize.out_bytes)
        self.launch_augment(spec, records, Input("the input", source), out)
        out.require_complete()
        self.values += spec.normalize.values
        return out.data

    def launch_augment(self, spec: AugmentSpec, records, into, out, *, blocks=None) -> None:
        places = self._place(Input("the records", records), into, out, blocks=blocks)
        self._call("gpu_augment", ctypes.byref(spec), *_pointers(records), *places)

    def cpu_augment(self, spec: AugmentSpec, records, source):
        out = np.zeros(spec.normalize.out_bytes, np.uint8)
        aligned = _aligned(records.size)
        aligned[:] = records
        self._call("cpu_augment", ctypes.byref(spec), *_pointers(aligned, source, out))
        return out

    def native_case(self, spec: AugmentSpec, seed: int) -> AugmentCase:
        """A random case of the native tests."""
        case = _PlainCase()
        self._call("augment_case", ctypes.byref(spec), ctypes.c_uint32(seed), ctypes.byref(case))
        arrays = []
        for name in ("records", "in_", "out"):
            data = ctypes.string_at(getattr(case, f"{name}_at") or 0, getattr(case, name))
            arrays.append(np.array(bytearray(data), np.uint8))
        made = AugmentSpec.from_buffer_copy(spec)
        made.in_batch = case.in_batch
        return AugmentCase(made, *arrays)

    # ---- C's floats

    def fmaf(self, a, b, c):
        out = np.empty(a.size, np.float32)
        self._library.c_fmaf(*_pointers(a, b, c, out), ctypes.c_size_t(out.size))
        return out

    def round_to(self, kind: int, values):
        out = np.empty(values.size, np.uint16)
        self._library.c_round_to(kind, *_pointers(values, out), ctypes.c_size_t(out.size))
        return out


def _pointers(*arrays) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(each.ctypes.data) for each in arrays]


def _aligned(size: int):
    raw = np.zeros(size + 16, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + size]
