"""The memory of the interpreted device: allocations with exact bounds and permissions. Every access is
checked for bounds, alignment and permission, and raises MemoryFault.

Addresses exist in the interpreter only. Each allocation begins a terabyte after the one before, so
no wrong offset reaches another one by accident."""

from __future__ import annotations

import numpy as np

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SPACING = 1 << 40


class MemoryFault(Exception):
    """A thread touched memory that it must not touch, or in a way that it must not."""


class Allocation:
    """`size` bytes, the first of them `skew` bytes after a multiple of 256."""

    def __init__(self, name: str, size: int, skew: int = 0) -> None:
        self.name, self.size, self.skew = name, size, skew
        self.base = 0  # Memory gives it

    def contains(self, address, width: int):
        if self.size < width:
            return np.zeros(address.shape, dtype=bool)
        # Unsigned: an address below the base becomes large.
        return (address - np.uint64(self.base)) <= np.uint64(self.size - width)

    def load(self, offset, size: int, count: int) -> list:
        """`count` arrays of elements of `size` bytes, from each offset on."""
        raise MemoryFault(f"{self.name} is only written, and a thread loads from it")

    def store(self, offset, values: list, size: int) -> None:
        raise MemoryFault(f"{self.name} is only read, and a thread stores to it")


class _Backed(Allocation):
    def __init__(self, name: str, size: int, skew: int = 0) -> None:
        super().__init__(name, size, skew)
        self._backing = np.full(-(-(size + skew) // 16) * 16, 0xA5, np.uint8)
        self.data = self._backing[skew : skew + size]

    def _view(self, offset, size: int):
        """The whole as elements of that size, and the places of the offsets in it."""
        place = (offset.astype(np.intp) + self.skew) // size
        return self._backing.view(UNSIGNED[size]), place


class Input(_Backed):
    """Memory that threads only read."""

    def __init__(self, name: str, data, skew: int = 0) -> None:
        super().__init__(name, len(data), skew)
        self.data[:] = data

    def load(self, offset, size, count):
        view, place = self._view(offset, size)
        return [view[place + k] for k in range(count)]


class Output(_Backed):
    """Memory that threads only write, each byte once."""

    def __init__(self, name: str, size: int, skew: int = 0) -> None:
        super().__init__(name, size, skew)
        self._writer = np.full(self._backing.size, -1, np.int32)

    def store(self, offset, values, size):
        width = size * len(values)
        row = (offset.astype(np.intp) + self.skew) // width
        writer = self._writer.reshape(-1, width)
        if (writer[row] >= 0).any():
            raise MemoryFault(f"a byte of {self.name} is written twice")
        # Of threads that write the same row one remains, so the others do not find themselves.
        own = np.arange(row.size, dtype=np.int32)
        writer[row] = own[:, None]
        if (writer[row, 0] != own).any():
            raise MemoryFault(f"two threads write the same byte of {self.name}")
        view, place = self._view(offset, size)
        for k, value in enumerate(values):
            view[place + k] = value

    def require_complete(self) -> None:
        left = np.flatnonzero(self._writer[self.skew : self.skew + self.size] < 0)
        if left.size:
            raise MemoryFault(f"{left.size} bytes of {self.name} are not written, first {left[0]}")


class Memory:
    def __init__(self, allocations: list[Allocation]) -> None:
        self.allocations = allocations
        for number, allocation in enumerate(allocations, start=1):
            allocation.base = number * _SPACING + allocation.skew

    def _pieces(self, address, width: int, what: str):
        """(allocation, None for all or the indices of its part) for all of `address`."""
        if (odd := address % np.uint64(width)).any():
            bad = int(address[odd != 0][0])
            raise MemoryFault(f"a misaligned {what} of {width} bytes at {self._name(bad)}")
        left = np.ones(address.shape, bool)
        for allocation in self.allocations:
            inside = allocation.contains(address, width)
            if inside.all():
                yield allocation, None
                return
            if inside.any():
                yield allocation, np.flatnonzero(inside)
                left &= ~inside
        if left.any():
            where = self._name(int(address[left][0]))
            raise MemoryFault(f"a {what} of {width} bytes at {where}, by {left.sum()} threads")

    def _name(self, address: int) -> str:
        near = min(self.allocations, key=lambda each: abs(address - each.base))
        return f"{near.name} {address - near.base:+d}, which has {near.size} bytes"

    def load(self, address, size: int, count: int) -> list:
        loaded = None
        for allocation, some in self._pieces(address, size * count, "load"):
            if some is None:
                return allocation.load(address - np.uint64(allocation.base), size, count)
            if loaded is None:
                loaded = [np.empty(address.shape, UNSIGNED[size]) for _ in range(count)]
            part = allocation.load(address[some] - np.uint64(allocation.base), size, count)
            for whole, values in zip(loaded, part, strict=True):
                whole[some] = values
        return loaded

    def store(self, address, values: list, size: int) -> None:
        for allocation, some in self._pieces(address, size * len(values), "store"):
            offset = (address if some is None else address[some]) - np.uint64(allocation.base)
            chosen = values
            if some is not None:
                chosen = [value if value.ndim == 0 else value[some] for value in values]
            allocation.store(offset, chosen, size)


class LocalMemory:
    """Of each thread its own: an access is checked for bounds and alignment, and a load for bytes that
    the thread has written."""

    BASE = 1 << 60  # above every other address

    def __init__(self, threads: int, size: int) -> None:
        self._size = size
        self._bytes = np.full((threads, max(size, 1)), 0xA5, np.uint8)
        self._known = np.zeros(self._bytes.shape, np.bool_)

    def _place(self, threads, address, width: int):
        offset = address - np.uint64(self.BASE)
        if self._size < width or (offset > np.uint64(self._size - width)).any():
            raise MemoryFault(f"an access of {width} bytes outside {self._size} of local memory")
        if (offset % np.uint64(width)).any():
            raise MemoryFault(f"a misaligned access of {width} bytes to local memory")
        return threads[:, None], offset.astype(np.intp)[:, None] + np.arange(width)

    def load(self, threads, address, size: int, count: int) -> list:
        place = self._place(threads, address, size * count)
        if not self._known[place].all():
            raise MemoryFault("local memory is read before it is written")
        whole = np.ascontiguousarray(self._bytes[place]).view(UNSIGNED[size])
        return [np.ascontiguousarray(whole[:, k]) for k in range(count)]

    def store(self, threads, address, values: list, size: int) -> None:
        place = self._place(threads, address, size * len(values))
        columns = [np.broadcast_to(each, address.shape).astype(UNSIGNED[size]) for each in values]
        self._bytes[place] = np.ascontiguousarray(np.stack(columns, axis=1)).view(np.uint8)
        self._known[place] = True
