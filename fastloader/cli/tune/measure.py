"""How many samples a loader gives in a while."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from fastloader._core.machine import devices
from fastloader._core.machine.messages.progress import Progress
from fastloader.cli.tune.target import TuneError, told


@dataclasses.dataclass
class Rate:
    """What came of a loader. ``seconds`` go from the beginning of an epoch to the last batch that was
    taken, and leave out the wait for the first batch of each measurement, which is in
    ``first_batch_s``: the shortest. ``samples`` leaves out those first batches. ``epochs`` ended."""

    samples: int = 0
    batches: int = 0
    seconds: float = 0.0
    epochs: int = 0
    first_batch_s: float = float("inf")

    @property
    def per_s(self) -> float:
        return self.samples / self.seconds if self.seconds > 0 else 0.0

    @property
    def batch_ms(self) -> float:
        return 1000 * self.seconds / self.batches if self.batches else 0.0


def measure(
    loader: Any,
    seconds: float,
    rate: Rate,
    line: Progress,
    called: str,
    step: Callable[[Any], None],
) -> None:
    """Takes batches for so many seconds, over as many epochs as that takes, calls ``step`` with each,
    and adds them to ``rate``. The first batch is waited for however long it takes.

    Raises:
        TuneError: for what the loader raises, and if an epoch has no batch.
    """
    begun = time.perf_counter()
    first = ended = 0.0
    taken = samples = 0
    while not first or ended - first < seconds:
        before = taken
        with told(called):
            for batch in loader:
                arrived = time.perf_counter()
                count = samples_of(batch, loader)
                step(batch)
                ended = time.perf_counter()
                taken += 1
                line.step(count)
                if not first:
                    first = ended
                    rate.first_batch_s = min(rate.first_batch_s, arrived - begun)
                else:
                    samples += count
                    if ended - first >= seconds:
                        break
            else:
                rate.epochs += 1
        if taken == before:
            raise TuneError(
                f"{called}: the loader gave no batch in an epoch: its dataset is empty, or gives its "
                "samples only once"
            )
    if devices.synchronize(None):
        ended = time.perf_counter()
    rate.samples += samples
    rate.batches += taken - 1
    rate.seconds += ended - first


def samples_of(batch: Any, loader: Any) -> int:
    """How many samples are in a batch. Without a batch size, the dataset gives batches or samples: a
    tensor of four dimensions is of several pictures, and so are texts or numbers in a list as long as
    all that is beside it."""
    if getattr(loader, "batch_sampler", None) is None:
        return _pictures_in(batch)
    found = _first_length(batch)
    return 1 if found is None else found


def _pictures_in(batch: Any) -> int:
    """The samples of what the dataset gave itself."""
    parts = list(batch.values()) if isinstance(batch, Mapping) else batch
    parts = list(parts) if isinstance(parts, list | tuple) else [parts]
    lengths = [_first_length(each) for each in parts]
    several = lengths and all(each == lengths[0] for each in lengths)
    pictures = any(isinstance(each, torch.Tensor | np.ndarray) and each.ndim == 4 for each in parts)
    lists = any(isinstance(each, list | tuple) and each for each in parts)
    count = lengths[0] if several and (pictures or lists) else None
    return 1 if count is None else count


def _first_length(batch: Any) -> int | None:
    if isinstance(batch, torch.Tensor | np.ndarray):
        return len(batch) if batch.ndim else None
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        for each in batch:
            found = _first_length(each)
            if found is not None:
                return found
        return len(batch)
    return None
