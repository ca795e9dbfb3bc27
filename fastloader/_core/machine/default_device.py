"""Draws for a loader on the CPU, whatever ``torch.set_default_device`` says.

With another default device torch's own draws would go there. But "meta" has no values to give, and torch
refuses the permutation that RandomSampler asks of a CPU generator. The user's own code keeps the device
that the user has set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import RandomSampler

from fastloader._core.machine import devices


def of(generator: torch.Generator | None) -> torch.device:
    """The device on which ``generator`` draws. It refuses any other."""
    return torch.device("cpu") if generator is None else generator.device


def drawn_seed(generator: torch.Generator | None) -> int:
    """Draws a seed as torch's iterators draw the seed of their workers."""
    drawn = torch.empty((), dtype=torch.int64, device=of(generator))
    return int(drawn.random_(generator=generator).item())


@contextlib.contextmanager
def for_draws(generator: torch.Generator | None) -> Iterator[None]:
    """Sets the device around torch code that draws from ``generator`` or the global one without naming
    a device."""
    if of(generator) == devices.default_device():
        yield
    else:
        with of(generator):
            yield


class UsersOwn:
    """An iterable whose ``iter()`` runs under the default device that was set when this was made, even
    inside `for_draws`."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._device = devices.default_device()

    def __iter__(self) -> Iterator[Any]:
        with self._device:
            return iter(self._source)


def drawn(sampler: Any, keys: Iterator[Any]) -> Iterator[Any]:
    """``keys`` of an iterator over torch's ``sampler``, or over batches of it, drawn on the right
    device."""
    if type(sampler) is not RandomSampler or devices.default_device().type == "cpu":
        return keys
    return _drawn(keys, of(sampler.generator))


def _drawn(keys: Iterator[Any], device: torch.device) -> Iterator[Any]:
    while True:
        with device:
            try:
                key = next(keys)
            except StopIteration:
                return
        yield key
