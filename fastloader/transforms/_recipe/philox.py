"""The counter-based generator of csrc/image/philox.h, for one number and for arrays."""

from __future__ import annotations

from typing import Any

MASK = 0xFFFFFFFF


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """philox4x32. The counter's words are ints, or numpy arrays of 32-bit words kept in 64 bits."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        first = 0xD2511F53 * a
        second = 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ k, second & MASK, (first >> 32) ^ d ^ m, first & MASK
        k = (k + 0x9E3779B9) & MASK
        m = (m + 0xBB67AE85) & MASK
    return a, b, c, d
