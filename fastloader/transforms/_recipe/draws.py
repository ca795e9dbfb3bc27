"""Gives the random numbers of one step on one picture, as csrc/image/philox.h has them."""

from __future__ import annotations

from typing import Any

# ---- The counter-based generator of csrc/image/philox.h, for one number and for arrays.


MASK = 0xFFFFFFFF


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """Computes philox4x32. The counter's words are ints, or numpy arrays of 32-bit words kept in 64
    bits."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        first = 0xD2511F53 * a
        second = 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ k, second & MASK, (first >> 32) ^ d ^ m, first & MASK
        k = (k + 0x9E3779B9) & MASK
        m = (m + 0xBB67AE85) & MASK
    return a, b, c, d


# Where things stand in the word that tells the steps' random numbers apart, as
# csrc/image/draw_numbers.h says: 8 bits for the step's kind, 12 for how many of the kind come before it,
# 12 for the picture of the sample.
OCCURRENCE, PICTURE = 8, 20

# The kinds. Those of the head of a chain:
CROP, HORIZONTAL_FLIP, VERTICAL_FLIP, REPLACEMENT, INTERPOLATION, ERASING = range(6)
# Those of a recipe's steps, each followed by its place in the list of its kind:
FIRST_STEP, FIRST_SIZED, FIRST_OPERATION = 32, 48, 64


# ---- The random numbers of one step on one picture, as csrc/image/philox.h has them.


class Draws:
    """The random numbers of one step on one picture, which are a function of the arguments only."""

    def __init__(self, seed: int, index: int, stream: int) -> None:
        self._key = (seed & MASK, seed >> 32 & MASK)
        self._rest = (stream, index & MASK, index >> 32 & MASK)
        self._block = 0
        self._waiting: list[int] = []

    def bits(self) -> int:
        if not self._waiting:
            a, b, c, d = philox((self._block, *self._rest), self._key)
            self._block += 1
            self._waiting = [c | d << 32, a | b << 32]
        return self._waiting.pop()

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        return low + (high - low) * ((self.bits() >> 11) * 2.0**-53)

    def below(self, count: int) -> int:
        return self.bits() * count >> 64
