"""A training step of ResNet-50's shape in bfloat16, channels_last, in blocks with batches of a loader
and with one batch again and again."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import timeline
import torch
from device import Device
from plan import Plan
from resnet import ResNet
from torch.nn import functional

from benchmarks.measure import Timing

Batch = tuple[torch.Tensor, torch.Tensor]


class Training:
    """``lead``: steps at the beginning of a loader's block that are not timed, in which what it made
    ready while it was not asked is used up."""

    def __init__(self, device: Device, plan: Plan, batches: Iterator[Batch], lead: int) -> None:
        torch.backends.cudnn.benchmark = True  # every batch has the same shape
        torch.manual_seed(0)
        self._device, self._plan, self._batches, self._lead = device, plan, batches, lead
        model = ResNet(plan.width, plan.blocks).to(device.torch_device, torch.bfloat16)
        self._model = model.to(memory_format=torch.channels_last).train()
        # A rate at which weights stay finite, whatever the labels.
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-4, momentum=0.9)
        images, labels = next(batches)
        # The loader's memory goes back; the copy has the same strides.
        self._cached: Batch = images.clone(), labels.clone()
        wanted = (plan.batch, torch.bfloat16, device.torch_device.type)
        if (len(images), images.dtype, images.device.type) != wanted:
            raise RuntimeError(f"a batch of {images.shape}, {images.dtype} on {images.device}")
        if not images.is_contiguous(memory_format=torch.channels_last):
            raise RuntimeError(f"images are not channels_last: strides {images.stride()}")
        for _ in range(plan.lead):
            self.step(*self._cached)
        device.synchronize()

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(self._model(images).float(), labels).backward()
        self._optimizer.step()

    def block(self, batches: Iterator[Batch], lead: int) -> float:
        """Seconds for a step, by the device's clock, which nothing in a step makes the host wait for."""
        for _ in range(lead):
            self.step(*next(batches))
        begin = self._device.mark()
        for _ in range(self._plan.steps):
            self.step(*next(batches))
        end = self._device.mark()
        self._device.synchronize()
        return self._device.between(begin, end) / self._plan.steps

    def pair(self, loader_first: bool) -> tuple[float, float]:
        """Seconds for a step (with the loader, with the cached batch), one block each."""
        blocks: dict[str, Callable[[], float]] = {
            "loader": lambda: self.block(self._batches, self._lead),
            "cached": lambda: self.block(itertools.repeat(self._cached), self._plan.lead),
        }
        order = ["loader", "cached"] if loader_first else ["cached", "loader"]
        taken = {name: blocks[name]() for name in order}
        return taken["loader"], taken["cached"]

    def pairs(self, count: int) -> tuple[Timing, Timing]:
        """The same for many pairs, in turns."""
        taken = [self.pair(loader_first=number % 2 == 0) for number in range(count)]
        return Timing([loader for loader, _ in taken]), Timing([cached for _, cached in taken])

    def trace(self) -> dict[str, Any]:
        """What the profiler shows of steps with the loader; see timeline.read."""
        for _ in range(self._lead):
            self.step(*next(self._batches))
        with torch.profiler.profile(activities=self._device.activities) as profiler:
            for _ in range(self._plan.traced_steps):
                with torch.profiler.record_function(timeline.STEP):
                    self.step(*next(self._batches))
            with torch.profiler.record_function(timeline.CONTROL):
                self._device.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            profiler.export_chrome_trace(str(path))
            return timeline.read(path)


def endless(epoch: Callable[[], Iterator[Batch]]) -> Iterator[Batch]:
    while True:
        yield from epoch()
