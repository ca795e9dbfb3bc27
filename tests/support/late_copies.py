"""An accelerator whose copies run as late as they may, for the path through torch's streams.

Everything is computed on the CPU. A copy that was asked for with ``non_blocking`` is queued with the
address of its source alone, as a driver would know it, and runs when a thread waits for it: by then it
reads garbage if the source is gone.
"""

import contextlib
import ctypes

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from fastloader._core.machine import devices

_GARBAGE = 0xAB


class LateDevice:
    """``install`` it, run a loader with device="cpu" and FASTLOADER_BACKEND=torch, then ``finish``."""

    def __init__(self, tells=True):
        self.queue = []  # (number, copy), oldest first
        self.queued = self.done = self.blocking = 0
        self.lost = 0  # sources that were gone when they were read
        if tells:
            self.Stream = lambda **_: Stream(self)
            self.Event = lambda: Event(self)
            self.current_stream = lambda *_: Stream(self)
            self.stream = lambda _stream: contextlib.nullcontext()

    def install(self, monkeypatch):
        copy_, to = torch.Tensor.copy_, torch.Tensor.to

        def copy(target, source, non_blocking=False):
            if not non_blocking:
                self.blocking += 1
                return copy_(target, source)
            self._enqueue(target, source)
            return target

        def moved(tensor, *arguments, non_blocking=False, **named):
            if not non_blocking:
                return to(tensor, *arguments, **named)
            target = torch.empty_like(tensor)
            self._enqueue(target, tensor)
            return target

        module = devices._module
        monkeypatch.setattr(
            devices, "_module", lambda kind: self if kind == "cpu" else module(kind)
        )
        if not hasattr(self, "Stream"):
            side = devices.StreamSide

            class Streamless(side):  # as where torch has no streams for the device
                def __init__(self, device):
                    super().__init__(torch.device("meta"))

            monkeypatch.setattr(devices, "StreamSide", Streamless)
        monkeypatch.setattr(torch.Tensor, "copy_", copy)
        monkeypatch.setattr(torch.Tensor, "to", moved)

    def _enqueue(self, target, source):
        assert target.stride() == source.stride() and source.is_contiguous()
        alive = StorageWeakRef(source.untyped_storage())
        address, size = source.data_ptr(), source.numel() * source.element_size()

        def run():
            if alive.expired():
                self.lost += 1
                ctypes.memset(target.data_ptr(), _GARBAGE, size)
            else:
                ctypes.memmove(target.data_ptr(), address, size)

        self.queued += 1
        self.queue.append((self.queued, run))

    def finish(self, number=None):
        """Runs the copies up to ``number``, or all."""
        while self.queue and (number is None or self.queue[0][0] <= number):
            self.done, run = self.queue.pop(0)
            run()


class Stream:
    def __init__(self, device):
        self.device = device

    def __eq__(self, other):
        return type(other) is Stream

    __hash__ = None

    def wait_stream(self, other):
        """On the device: nobody here waits."""


class Event:
    def __init__(self, device):
        self.device = device
        self.behind = 0

    def record(self, _stream):
        self.behind = self.device.queued

    def query(self):
        return self.device.done >= self.behind

    def synchronize(self):
        self.device.finish(self.behind)
