"""Memory that is larger than this machine's: what is read is computed, what is written is kept as a
list of stores."""

from __future__ import annotations

import numpy as np

from .memory import UNSIGNED, Allocation, MemoryFault


def byte_at(index):
    """The byte of a ComputedInput at an index: the top of a 64-bit product, which every bit of the
    index reaches, so that an index without its upper half gives other bytes."""
    return (index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(56)).astype(
        np.uint8
    )


class ComputedInput(Allocation):
    def load(self, offset, size, count):
        loaded = []
        for k in range(count):
            word = np.zeros(offset.shape, np.uint64)
            for byte in range(size):
                part = byte_at(offset + np.uint64(k * size + byte)).astype(np.uint64)
                word |= part << np.uint64(8 * byte)
            loaded.append(word.astype(UNSIGNED[size]))
        return loaded


class RecordedOutput(Allocation):
    """Of elements of `element` bytes. A store is of one element, or of several as one wider value."""

    def __init__(self, name: str, size: int, element: int) -> None:
        super().__init__(name, size)
        self._element = element
        self._places, self._values = [], []

    def store(self, offset, values, size):
        if size % self._element:
            raise MemoryFault(f"a store of {size} bytes to elements of {self._element}")
        parts = size // self._element
        for k, value in enumerate(values):
            whole = np.full(offset.shape, value, UNSIGNED[size])
            for part in range(parts):
                shifted = whole >> UNSIGNED[size](8 * self._element * part)
                place = offset // np.uint64(self._element) + np.uint64(k * parts + part)
                self._places.append(place)
                self._values.append(shifted.astype(UNSIGNED[self._element]))

    def elements(self):
        """(places, values) of all that was stored."""
        places, values = np.concatenate(self._places), np.concatenate(self._values)
        if np.unique(places).size != places.size:
            raise MemoryFault(f"an element of {self.name} is written twice")
        return places, values
