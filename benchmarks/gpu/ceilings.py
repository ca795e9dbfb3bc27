"""What the hardware does at best, measured beside what is held against it."""

from __future__ import annotations

import time

import torch
from device import Device

BUFFERS = 3  # as the ring has slots


class PinnedCopy:
    """Bare copies of one size from pinned memory to the device, one behind the other."""

    def __init__(self, device: Device, size: int) -> None:
        self._device = device
        self._pinned = [device.pinned(size).random_(0, 256) for _ in range(BUFFERS)]
        self._there = [torch.empty_like(each, device=device.torch_device) for each in self._pinned]

    def run(self, count: int) -> float:
        """Seconds from the first call until the last byte is there."""
        self._device.synchronize()
        begin = time.perf_counter()
        for number in range(count):
            number %= BUFFERS
            self._there[number].copy_(self._pinned[number], non_blocking=True)
        self._device.synchronize()
        return time.perf_counter() - begin


class DeviceCopy:
    """A copy within the device's memory that moves ``moved`` bytes: half of them read, half written."""

    def __init__(self, device: Device, moved: int) -> None:
        self._from = torch.empty(moved // 2, dtype=torch.uint8, device=device.torch_device).random_(
            0, 256
        )
        self._to = torch.empty_like(self._from)

    def run(self) -> None:
        self._to.copy_(self._from)
