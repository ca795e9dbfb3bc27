"""The instructions that compute: integers of every width, float32."""

from __future__ import annotations

import numpy as np

from . import floats
from .memory import UNSIGNED, MemoryFault
from .parser import SIZES, Instruction, PtxError
from .threads import SIGNED, Threads


def _kind(instruction: Instruction) -> str:
    """The type. Of floats only what rounds to the nearest and keeps subnormals passes."""
    *options, kind = instruction.parts[1:]
    allowed = [[], ["rn"]] if kind == "f32" else [[], ["lo"]]
    if options not in allowed or kind[0] not in "usfb" or kind == "f64":
        raise PtxError("not interpreted")
    return kind


def _of_two(whole, single):
    def run(threads: Threads, instruction: Instruction) -> None:
        kind = _kind(instruction)
        target, a, b = instruction.operands
        if kind == "f32":
            result = single(threads.get(a, "b32"), threads.get(b, "b32"))
        else:
            result = whole(threads.get(a, kind), threads.get(b, kind))
        threads.set(target, result)

    return run


_multiply = _of_two(np.multiply, floats.mul)


def _wide_type(kind: str):
    return (SIGNED if kind[0] == "s" else UNSIGNED)[2 * SIZES[kind]]


def _mul(threads: Threads, instruction: Instruction) -> None:
    kind = instruction.parts[-1]
    target, *sources = instruction.operands
    if instruction.parts[1] == "wide":
        a, b = (threads.get(each, kind).astype(_wide_type(kind)) for each in sources)
        threads.set(target, a * b)
    elif instruction.parts[1] == "hi":
        threads.set(target, _upper_half(kind, *(threads.get(each, kind) for each in sources)))
    else:
        _multiply(threads, instruction)


def _upper_half(kind: str, a, b):
    if kind in ("u32", "s32"):
        product = a.astype(_wide_type(kind)) * b.astype(_wide_type(kind))
        return (product >> product.dtype.type(32)).astype(a.dtype)
    if kind != "u64":
        raise PtxError("not interpreted")
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    first = (a & low) * (b & low)
    second = (a >> half) * (b & low) + (first >> half)
    third = (a & low) * (b >> half) + (second & low)
    return (a >> half) * (b >> half) + (second >> half) + (third >> half)


def _mad(threads: Threads, instruction: Instruction) -> None:
    _, form, kind = instruction.parts
    target, *sources = instruction.operands
    if form == "lo":
        a, b, c = (threads.get(each, kind) for each in sources)
    elif form == "wide":
        a, b = (threads.get(each, kind).astype(_wide_type(kind)) for each in sources[:2])
        c = threads.get(sources[2], kind[0] + str(16 * SIZES[kind]))
    else:
        raise PtxError("not interpreted")
    threads.set(target, a * b + c)


def _fma(threads: Threads, instruction: Instruction) -> None:
    if instruction.parts[1:] != ("rn", "f32"):
        raise PtxError("not interpreted")
    target, *sources = instruction.operands
    threads.set(target, floats.fma(*(threads.get(each, "b32") for each in sources)))


def _division(function):
    def run(threads: Threads, instruction: Instruction) -> None:
        kind = _kind(instruction)
        if kind[0] != "u":
            raise PtxError("not interpreted")
        target, a, b = instruction.operands
        divisor = threads.get(b, kind)
        if (divisor == 0).any():
            raise MemoryFault("a division by 0")
        threads.set(target, function(threads.get(a, kind), divisor))

    return run


def _neg(threads: Threads, instruction: Instruction) -> None:
    kind = _kind(instruction)
    target, source = instruction.operands
    if kind == "f32":
        threads.set(target, threads.get(source, "b32") ^ np.uint32(0x80000000))
    elif kind[0] == "s":
        threads.set(target, -threads.get(source, kind))
    else:
        raise PtxError("not interpreted")


def _abs(threads: Threads, instruction: Instruction) -> None:
    kind = _kind(instruction)
    target, source = instruction.operands
    if kind == "f32":
        threads.set(target, threads.get(source, "b32") & np.uint32(0x7FFFFFFF))
    elif kind[0] == "s":
        threads.set(target, np.abs(threads.get(source, kind)))
    else:
        raise PtxError("not interpreted")


OPCODES = {
    "abs": _abs,
    "add": _of_two(np.add, floats.add),
    "div": _division(np.floor_divide),
    "fma": _fma,
    "mad": _mad,
    "max": _of_two(np.maximum, floats.maximum),
    "min": _of_two(np.minimum, floats.minimum),
    "mul": _mul,
    "neg": _neg,
    "rem": _division(np.remainder),
    "sub": _of_two(np.subtract, floats.sub),
}
