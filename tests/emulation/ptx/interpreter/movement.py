"""The instructions that move values: loads, stores, moves and conversions."""

from __future__ import annotations

import re

import numpy as np

from . import floats
from .memory import UNSIGNED, MemoryFault
from .parser import SIZES, Address, Instruction, PtxError
from .threads import SIGNED, Threads, bits_of, integer_type

_VECTOR = re.compile(r"v[248]")
# How a load is cached: it changes no value where nothing is both read and written.
_CACHING = {"nc", "ca", "cg", "cs", "lu", "wb", "wt"}


def _access(instruction: Instruction) -> tuple[str, str, int]:
    """State space, type and number of elements."""
    parts = [each for each in instruction.parts[1:] if each not in _CACHING]
    vectors = [each for each in parts if _VECTOR.fullmatch(each)]
    space, kind = (each for each in parts if not _VECTOR.fullmatch(each))
    return space, kind, int(vectors[0][1:]) if vectors else 1


def _ld(threads: Threads, instruction: Instruction) -> None:
    space, kind, count = _access(instruction)
    target, source = instruction.operands
    targets = target if isinstance(target, tuple) else (target,)
    if len(targets) != count:
        raise PtxError("a vector of another length")
    size = SIZES[kind]
    if space == "param":
        values = _param(threads, source, kind, count)
    elif space == "local":
        values = threads.local.load(threads.running(), threads.address(source), size, count)
    elif space == "global":
        values = threads.memory.load(threads.address(source), size, count)
    else:
        raise PtxError("not interpreted")
    for name, value in zip(targets, values, strict=True):
        threads.set(name, value.view(integer_type(kind)))


def _param(threads: Threads, source: Address, kind: str, count: int) -> list:
    data, width = threads.params[source.base], SIZES[kind] * count
    if source.offset % width or not 0 <= source.offset <= len(data) - width:
        raise MemoryFault(f"an access of {width} bytes to a parameter of {len(data)}")
    return list(np.frombuffer(data, integer_type(kind), count, source.offset))


def _st(threads: Threads, instruction: Instruction) -> None:
    space, kind, count = _access(instruction)
    target, source = instruction.operands
    sources = source if isinstance(source, tuple) else (source,)
    if len(sources) != count:
        raise PtxError("a vector of another length")
    values = [np.asarray(threads.get(each, bits_of(kind))) for each in sources]
    address = threads.address(target)
    if space == "global":
        threads.memory.store(address, values, SIZES[kind])
    elif space == "local":
        threads.local.store(threads.running(), address, values, SIZES[kind])
    else:
        raise PtxError("not interpreted")


def _mov(threads: Threads, instruction: Instruction) -> None:
    _, kind = instruction.parts
    target, source = instruction.operands
    if kind == "pred":
        threads.set(target, threads.predicate(source))
    elif isinstance(source, tuple):
        threads.set(target, _packed(threads, source, kind))
    elif isinstance(target, tuple):
        whole = np.asarray(threads.get(source, bits_of(kind)))
        size = SIZES[kind] // len(target)
        for k, name in enumerate(target):
            part = whole >> whole.dtype.type(8 * size * k)
            threads.set(name, part.astype(UNSIGNED[size]))
    else:
        threads.set(target, threads.get(source, kind))


def _packed(threads: Threads, sources: tuple, kind: str):
    """The first lowest."""
    dtype = UNSIGNED[SIZES[kind]]
    size = SIZES[kind] // len(sources)
    whole = np.zeros((), dtype)
    for k, name in enumerate(sources):
        part = np.asarray(threads.get(name, f"b{8 * size}")).astype(dtype)
        whole = whole | part << dtype(8 * size * k)
    return whole


def _cvta(threads: Threads, instruction: Instruction) -> None:
    # An address is the same number in its state space and out of it.
    target, source = instruction.operands
    threads.set(target, threads.get(source, "u64"))


_FROM_FLOAT = {"f16": floats.to_f16, "bf16": floats.to_bf16}
_TO_FLOAT = {"f16": floats.from_f16, "bf16": floats.from_bf16}


def _cvt(threads: Threads, instruction: Instruction) -> None:
    *options, to, kind = instruction.parts[1:]
    target, *sources = instruction.operands
    if to in ("f16x2", "bf16x2") and kind == "f32" and options == ["rn"]:
        # The first source is the upper half.
        convert = _FROM_FLOAT[to[:-2]]
        high, low = (np.asarray(convert(threads.get(each, "b32"))) for each in sources)
        result = high.astype(np.uint32) << np.uint32(16) | low.astype(np.uint32)
    elif to in _FROM_FLOAT and kind == "f32" and options == ["rn"]:
        result = _FROM_FLOAT[to](threads.get(*sources, "b32"))
    elif to == "f32" and kind in _TO_FLOAT and not options:
        result = _TO_FLOAT[kind](threads.get(*sources, "b16"))
    elif to == "f32" and kind[0] in "us" and SIZES[kind] <= 4 and options == ["rn"]:
        result = floats.from_int(threads.get(*sources, kind))
    elif to[0] in "us" and kind[0] in "us" and not options:
        value = np.asarray(threads.get(*sources, kind))
        if kind[0] == "s" and SIZES[kind] < SIZES[to]:
            value = value.astype(SIGNED[SIZES[to]])
        result = value.astype(UNSIGNED[SIZES[to]]).view(integer_type(to))
    else:
        raise PtxError("not interpreted")
    threads.set(target, result)


OPCODES = {"cvt": _cvt, "cvta": _cvta, "ld": _ld, "mov": _mov, "st": _st}
