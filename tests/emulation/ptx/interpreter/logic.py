"""The instructions that compare, choose, and move single bits."""

from __future__ import annotations

import numpy as np

from . import floats
from .parser import SIZES, Instruction, PtxError
from .threads import Threads, bits_of

_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def _setp(threads: Threads, instruction: Instruction) -> None:
    _, compare, kind = instruction.parts
    target, a, b = instruction.operands
    if kind == "f32":
        x, y = (floats.as_float(threads.get(each, "b32")) for each in (a, b))
        nan = np.isnan(x) | np.isnan(y)
        if compare in ("num", "nan"):
            result = nan if compare == "nan" else ~nan
        elif compare.endswith("u"):  # true where the operands have no order
            result = _COMPARE[compare[:-1]](x, y) | nan
        else:
            result = _COMPARE[compare](x, y) & ~nan
    elif kind[0] in "usb":
        result = _COMPARE[compare](threads.get(a, kind), threads.get(b, kind))
    else:
        raise PtxError("not interpreted")
    threads.set(target, result)


def _selp(threads: Threads, instruction: Instruction) -> None:
    _, kind = instruction.parts
    target, a, b, predicate = instruction.operands
    first, second = (threads.get(each, bits_of(kind)) for each in (a, b))
    threads.set(target, np.where(threads.predicate(predicate), first, second))


def _bitwise(function):
    def run(threads: Threads, instruction: Instruction) -> None:
        _, kind = instruction.parts
        target, *sources = instruction.operands
        if kind == "pred":
            values = [threads.predicate(each) for each in sources]
        else:
            values = [threads.get(each, kind) for each in sources]
        threads.set(target, function(*values))

    return run


def _lop3(threads: Threads, instruction: Instruction) -> None:
    if instruction.parts[1:] != ("b32",):
        raise PtxError("not interpreted")
    target, *sources, table = instruction.operands
    a, b, c = (threads.get(each, "b32") for each in sources)
    whole = np.zeros((), np.uint32)
    for k in range(8):
        if int(table, 0) >> k & 1:
            x, y, z = (each if k >> s & 1 else ~each for each, s in ((a, 2), (b, 1), (c, 0)))
            whole = whole | x & y & z
    threads.set(target, whole)


def _shift(left: bool):
    def run(threads: Threads, instruction: Instruction) -> None:
        _, kind = instruction.parts
        target, source, amount = instruction.operands
        value = threads.get(source, kind)
        bits = 8 * SIZES[kind]
        by = np.asarray(threads.get(amount, "u32"))
        most = np.minimum(by, bits - 1).astype(value.dtype)
        shifted = value << most if left else value >> most
        if left or kind[0] != "s":
            shifted = np.where(by >= bits, value.dtype.type(0), shifted)
        threads.set(target, shifted)

    return run


def _funnel(threads: Threads, instruction: Instruction) -> None:
    """shf: 32 bits out of 64, of which the second operand is the upper half."""
    _, way, mode, kind = instruction.parts
    if kind != "b32" or mode not in ("wrap", "clamp"):
        raise PtxError("not interpreted")
    target, low, high, amount = instruction.operands
    pair = np.asarray(threads.get(low, "b32")).astype(np.uint64)
    pair = pair | np.asarray(threads.get(high, "b32")).astype(np.uint64) << np.uint64(32)
    by = np.asarray(threads.get(amount, "u32"))
    by = (by & np.uint32(31) if mode == "wrap" else np.minimum(by, 32)).astype(np.uint64)
    result = pair << by >> np.uint64(32) if way == "l" else pair >> by
    threads.set(target, (result & np.uint64(0xFFFFFFFF)).astype(np.uint32))


def _prmt(threads: Threads, instruction: Instruction) -> None:
    if instruction.parts[1:] != ("b32",):
        raise PtxError("not interpreted")
    target, *sources = instruction.operands
    a, b, select = (np.asarray(threads.get(each, "b32")).astype(np.uint64) for each in sources)
    pair = a | b << np.uint64(32)
    whole = np.zeros((), np.uint64)
    for k in range(4):
        nibble = select >> np.uint64(4 * k) & np.uint64(15)
        byte = pair >> (nibble & np.uint64(7)) * np.uint64(8) & np.uint64(255)
        sign = np.where(byte >> np.uint64(7), np.uint64(255), np.uint64(0))
        byte = np.where(nibble & np.uint64(8), sign, byte)
        whole = whole | byte << np.uint64(8 * k)
    threads.set(target, whole.astype(np.uint32))


def _bfe(threads: Threads, instruction: Instruction) -> None:
    if instruction.parts[1:] != ("u32",):
        raise PtxError("not interpreted")
    target, *sources = instruction.operands
    value, start, length = (np.asarray(threads.get(each, "u32")) for each in sources)
    start, length = start & np.uint32(255), length & np.uint32(255)
    mask = (np.uint64(1) << np.minimum(length, 32).astype(np.uint64)) - np.uint64(1)
    field = value.astype(np.uint64) >> np.minimum(start, 32).astype(np.uint64) & mask
    threads.set(target, field.astype(np.uint32))


def _bfi(threads: Threads, instruction: Instruction) -> None:
    """The low bits of the first operand in the place of some of the second's."""
    if instruction.parts[1:] != ("b32",):
        raise PtxError("not interpreted")
    target, *sources = instruction.operands
    field, value, start, length = (np.asarray(threads.get(each, "u32")) for each in sources)
    start, length = start & np.uint32(255), length & np.uint32(255)
    start, length = (np.minimum(each, 32).astype(np.uint64) for each in (start, length))
    mask = (np.uint64(1) << length) - np.uint64(1) << start
    placed = field.astype(np.uint64) << start & mask | value.astype(np.uint64) & ~mask
    threads.set(target, (placed & np.uint64(0xFFFFFFFF)).astype(np.uint32))


OPCODES = {
    "and": _bitwise(np.bitwise_and),
    "bfe": _bfe,
    "bfi": _bfi,
    "lop3": _lop3,
    "not": _bitwise(np.invert),
    "or": _bitwise(np.bitwise_or),
    "prmt": _prmt,
    "selp": _selp,
    "setp": _setp,
    "shf": _funnel,
    "shl": _shift(left=True),
    "shr": _shift(left=False),
    "xor": _bitwise(np.bitwise_xor),
}
