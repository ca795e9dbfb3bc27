"""``loader.headspace()``: how fast the training loop would be if data were free."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from fastloader._core.batch.tree import cloned
from fastloader._core.machine import devices


@dataclasses.dataclass
class Measured:
    """The measurement of the loop alone. The loader keeps it, because a `Headspace` holds the loader."""

    steps: int = 0
    seconds: float = 0.0

    @property
    def steps_per_s(self) -> float | None:
        """The loop's steps per second; None before anything was measured."""
        return self.steps / self.seconds if self.steps and self.seconds > 0 else None


class Headspace(Iterable[Any]):
    """Gives one batch of ``loader``, ``batches`` times. ``measured`` has ``steps``, ``seconds`` and
    ``steps_per_s`` once the loop over it has ended, even by a ``break``."""

    def __init__(self, loader: Iterable[Any], batches: int, device: torch.device | None) -> None:
        if isinstance(batches, bool) or not isinstance(batches, int):
            raise TypeError(f"batches must be a whole number, got {batches!r}")
        if batches < 2:
            raise ValueError(f"batches={batches}: at least 2, of which the first is warm-up")
        self._loader = loader
        self._device = device
        self._batches = batches
        self.measured = Measured()

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[Any]:
        self.measured.steps, self.measured.seconds = 0, 0.0
        kept = self._first_batch()
        warm_up = max(1, self._batches // 10)
        left_out = started = ended = 0.0
        steps = 0
        on_cpu = self._device is None or self._device.type == "cpu"
        try:
            for number in range(self._batches):
                if number == warm_up:
                    devices.synchronize(self._device)
                    started = ended = time.perf_counter()
                begun = time.perf_counter()
                batch = cloned(kept)
                copying = time.perf_counter() - begun
                yield batch
                del batch  # so that only the loop holds it
                steps += 1
                ended = time.perf_counter()
                if number >= warm_up and on_cpu:
                    left_out += copying
        finally:  # also runs at a break; the step that broke off does not count then
            if steps > warm_up:
                if devices.synchronize(self._device):
                    ended = time.perf_counter()
                self.measured.seconds = ended - started - left_out
                self.measured.steps = steps - warm_up

    def _first_batch(self) -> Any:
        batches: Any = iter(self._loader)
        try:
            for batch in batches:
                return batch
        finally:
            if hasattr(batches, "close"):
                batches.close()
        raise ValueError("the loader has no batch to serve")
