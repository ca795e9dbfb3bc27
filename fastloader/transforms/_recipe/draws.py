"""The random numbers of one operation on one sample, as csrc/image/philox.h has them."""

from __future__ import annotations

from fastloader.transforms._recipe.philox import MASK, philox


class Draws:
    """The random numbers of one operation on one sample, which are a function of the arguments only."""

    def __init__(self, seed: int, index: int, operation: int) -> None:
        self._key = (seed & MASK, seed >> 32 & MASK)
        self._rest = (operation, index & MASK, index >> 32 & MASK)
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
