"""The state of some blocks' threads while they run: registers, which threads are active, memory."""

from __future__ import annotations

import functools

import numpy as np

from .memory import UNSIGNED, LocalMemory, Memory
from .parser import SIZES, Address, Kernel, PtxError

WARP = 32
SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
# What a register holds before it is written is rubbish, not 0.
_RUBBISH = 0xDEADBEEFCAFEF00D


def integer_type(kind: str):
    """The numpy type of a PTX type; that of the bits for one that is not a signed integer."""
    return (SIGNED if kind[0] == "s" else UNSIGNED)[SIZES[kind]]


def bits_of(kind: str) -> str:
    return f"b{8 * SIZES[kind]}"


@functools.lru_cache(maxsize=4096)
def _immediate(text: str, kind: str):
    if text.startswith("0f"):
        return np.uint32(int(text[2:], 16))
    size = SIZES[kind]
    try:
        value = int(text.rstrip("U"), 0) & ((1 << 8 * size) - 1)
    except ValueError:
        raise PtxError(f"unknown operand {text}") from None
    return np.array(value, dtype=UNSIGNED[size]).view(integer_type(kind))[()]


# How nvcc writes a predicate that is known.
_TRUTHS = {"-1": True, "0": False}


class Threads:
    """`params` are the bytes of the kernel's parameters, `symbols` the addresses of its variables."""

    def __init__(
        self,
        kernel: Kernel,
        params: dict[str, bytes],
        memory: Memory,
        symbols: dict[str, int],
        *,
        first_block: int,
        blocks: int,
        grid: int,
        block: int,
    ) -> None:
        self.params, self.memory = params, memory
        self.count = blocks * block
        #: None for all threads, or the indices of those that run
        self.active = None
        self.all = np.arange(self.count)
        self.local = LocalMemory(self.count, kernel.local_bytes)
        linear = self.all.astype(np.uint32)
        self._registers = {
            "%tid.x": linear % np.uint32(block),
            "%ctaid.x": linear // np.uint32(block) + np.uint32(first_block),
            "%ntid.x": np.full(self.count, block, np.uint32),
            "%nctaid.x": np.full(self.count, grid, np.uint32),
        }
        for name, kind in kernel.registers.items():
            if kind == "pred":
                self._registers[name] = np.ones(self.count, np.bool_)
            else:
                rubbish = _RUBBISH & ((1 << 8 * SIZES[kind]) - 1)
                self._registers[name] = np.full(self.count, rubbish, UNSIGNED[SIZES[kind]])
        self._addresses = {name: np.uint64(each) for name, each in symbols.items()}
        for name, offset in kernel.local.items():
            self._addresses[name] = np.uint64(LocalMemory.BASE + offset)

    def warps(self) -> int:
        """How many warps have an active thread."""
        warp = self.running() // WARP
        return int(np.count_nonzero(np.diff(warp))) + 1

    def running(self):
        """The indices of the active threads."""
        return self.all if self.active is None else self.active

    def _register(self, name: str):
        try:
            register = self._registers[name]
        except KeyError:
            raise PtxError(f"unknown register {name}") from None
        return register if self.active is None else register[self.active]

    def predicate(self, name: str):
        if name in _TRUTHS:
            return np.full(self.running().shape, _TRUTHS[name])
        register = self._register(name)
        if register.dtype != np.bool_:
            raise PtxError(f"{name} is no predicate")
        return register

    def get(self, operand, kind: str):
        """The operand as its type says: of a wider register the low bits."""
        if not isinstance(operand, str):
            raise PtxError(f"the operand {operand} where a {kind} is due")
        if operand.startswith("%"):
            register = self._register(operand)
            size = SIZES[kind]
            if register.dtype == np.bool_ or register.dtype.itemsize < size:
                raise PtxError(f"{operand} is narrower than {kind}")
            return register.astype(UNSIGNED[size], copy=False).view(integer_type(kind))
        if operand in self._addresses:
            return self._addresses[operand]
        return _immediate(operand, kind)

    def set(self, name: str, value) -> None:
        if name == "_":
            return
        try:
            register = self._registers[name]
        except KeyError:
            raise PtxError(f"unknown register {name}") from None
        value = np.asarray(value)
        if register.dtype != value.dtype:
            if np.bool_ in (register.dtype, value.dtype):
                raise PtxError(f"{name} is of another kind than the result")
            if value.dtype.itemsize > register.dtype.itemsize:
                raise PtxError(f"{name} is narrower than the result")
            if value.dtype.kind == "i":
                value = value.astype(SIGNED[register.dtype.itemsize])  # extends the sign
            value = value.astype(register.dtype)
        if self.active is None:
            register[...] = value
        else:
            register[self.active] = value

    def address(self, operand):
        """One address for each active thread."""
        if not isinstance(operand, Address):
            raise PtxError(f"the operand {operand} where an address is due")
        offset = np.array(operand.offset, np.int64).view(np.uint64)
        # A new array also where the base is the same for all.
        return np.full(self.running().shape, self.get(operand.base, "u64"), np.uint64) + offset
