"""Parquet's hybrid of repeated and packed numbers, in which levels and indices of dictionaries lie."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastloader.datasets._formats.parquet.compact import varint
from fastloader.datasets._formats.parquet.header import DamagedParquet

_TOGETHER = 1 << 16  # numbers that are unpacked at a time, a multiple of 8


def read_runs(data: Any, begin: int, end: int, count: int, width: int) -> Any:
    """The first ``count`` numbers of ``width`` bits, int64, which lie in these bytes.

    Raises:
        DamagedParquet: which names the byte, if there are fewer, or they are wider than 32 bits.
    """
    numbers = np.zeros(count, np.int64)
    if width > 32:
        raise DamagedParquet(f"at byte {begin}: numbers of {width} bits")
    have, at = 0, begin
    try:
        while have < count:
            head, at = varint(data, at, end)
            packed = head & 1
            length = (head >> 1) * (8 if packed else 1)
            size = (head >> 1) * width if packed else (width + 7) // 8
            if length == 0 or size > end - at:
                raise ValueError("a run beyond its page, or of no length")
            run = numbers[have : have + length]
            if packed:
                _unpack(data, at, width, run)
            else:
                run[:] = int.from_bytes(data[at : at + size], "little")
            have += len(run)
            at += size
    except ValueError as error:
        raise DamagedParquet(f"at byte {at}: {error}") from None
    return numbers


def _unpack(data: Any, at: int, width: int, out: Any) -> None:
    """Numbers that lie bit behind bit, the lowest first."""
    if width == 0:
        return  # they are all 0
    weights = np.int64(1) << np.arange(width, dtype=np.int64)
    for begin in range(0, len(out), _TOGETHER):
        part = out[begin : begin + _TOGETHER]
        size = -(-len(part) * width // 8)
        raw = np.frombuffer(data, np.uint8, size, at + begin * width // 8)
        bits = np.unpackbits(raw, bitorder="little")[: len(part) * width]
        part[:] = bits.reshape(-1, width) @ weights
