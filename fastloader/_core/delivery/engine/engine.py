"""Delivery through the native ring and prefetch thread: CUDA, or the host twin in tests.

Native memory holds the bytes. An `Engine` holds what belongs to Python: the structure of the batches,
and the outputs. Outputs are torch's memory, which is offered to the native thread as credits.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import weakref
from typing import TYPE_CHECKING, Any

import torch

from fastloader._core.delivery.engine.packing import PackedLayout, Packing
from fastloader._core.machine import devices, extension
from fastloader._core.machine.limits import memory_budget
from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation.tuning import MOST_DEPTH, DepthRule
from fastloader.errors import Error
from fastloader.transforms._normalization import Normalization

if TYPE_CHECKING:
    from fastloader import _native


_log = logging.getLogger("fastloader")

# The batches that depth="auto" adds may take this part (1/16) of the device's free memory. The model
# needs the rest.
DEVICE_SHARE = 16


@dataclasses.dataclass
class Credit:
    """Memory offered for one batch. The epoch keeps it until the batch is delivered or cancelled."""

    layout: PackedLayout
    outputs: list[torch.Tensor]
    staging: torch.Tensor | None
    stream: int

    @property
    def nbytes(self) -> int:
        own = self.outputs if self.staging is None else [*self.outputs, self.staging]
        return sum(tensor.nbytes for tensor in own)


class Engine:
    """One native prefetcher on one device. One iterator uses it at a time, and the next epoch's iterator
    after that, so that threads, pinned slots and streams are made once."""

    def __init__(
        self,
        device: torch.device,
        normalization: Normalization | None,
        depth: int,
        rule: DepthRule | None = None,
    ) -> None:
        if extension.load() is None:
            raise Error("the native engine was asked for, but the native module is not in use")
        self.device = device
        self.normalization = normalization
        self.depth = depth
        # The rule of depth="auto", which all engines of the loader share.
        self.rule = rule
        most = depth if rule is None else MOST_DEPTH
        self._home = HomeProcess()
        backend, options = ("host", _twin_options) if device.type == "cpu" else ("cuda", {})
        self.prefetcher: _native.Prefetcher | None = extension.native.Prefetcher(
            backend=backend,
            device=device.index or 0,
            depth=depth,
            max_slot_bytes=max_slot_bytes(depth),
            max_depth=most,
            **options,
        )
        # Which it reads where it lies.
        self.memory: _native.PinnedPool | None = self.prefetcher.memory
        # False once the device had no memory for even one batch besides the one that the loop has.
        self.looks_ahead = True
        self.last_layout: PackedLayout | None = None
        self.packing = Packing(normalization)
        live.add(self)

    def make_credit(self, layout: PackedLayout) -> Credit:
        """Allocates the memory of one batch on the training loop's current stream. Each leaf gets a
        storage of its own: views of one base would share a version counter, and a training loop that
        keeps one label would keep the whole batch."""
        outputs = []
        staging = None
        with devices.ordinary_tensors():
            for shape, dtype, strides in layout.outputs:
                if dtype is None:
                    assert self.normalization is not None
                    outputs.append(self.normalization.output(shape, self.device))
                else:
                    outputs.append(
                        torch.empty_strided(shape, strides, dtype=dtype, device=self.device)
                    )
            size = layout.native.staging_bytes
            if size > 0:
                staging = torch.empty(size, dtype=torch.uint8, device=self.device)
        return Credit(layout, outputs, staging, devices.consumer_stream(self.device))

    def lower(self, ahead: int) -> None:
        """Lowers the depth to ``ahead`` batches, for which the device has memory besides the one that
        the loop has. The depth stays low for good: otherwise every step would ask for the memory again,
        which on CUDA empties the allocator's cache."""
        self.looks_ahead = ahead > 0
        self.depth = max(1, ahead)
        assert self.prefetcher is not None  # nobody looks ahead for a closed engine
        self.prefetcher.lower(self.depth)
        if self.rule is not None:
            self.rule.limit(self.depth)
        _log.warning(
            "fastloader: out of memory on %s while looking ahead: depth %d from now on%s",
            self.device,
            self.depth,
            "" if ahead else ", and memory for a batch only when it is asked for",
        )

    def watch_depth(self, credit: Credit, epoch: object) -> None:
        """Lets depth="auto" follow the loop, after each batch of ``epoch`` that came. ``credit`` is the
        memory of that batch."""
        rule, prefetcher = self.rule, self.prefetcher
        if rule is None or prefetcher is None:
            return
        if rule.note_ready(prefetcher.ready_last(), epoch):
            room = memory_budget() // max(1, credit.layout.native.packed_bytes)
            free = devices.free_memory(self.device)
            if free is not None:
                room = min(room, free // DEVICE_SHARE // max(1, credit.nbytes) + rule.depth)
            if rule.deepen(room):
                _log.info("fastloader: depth %d now: %s", rule.depth, rule.why)
        if self.depth < rule.depth:
            prefetcher.deepen(rule.depth)
            self.depth = rule.depth

    def close(self) -> None:
        """Frees the ring, even if the training loop still holds a finished iterator. Idempotent."""
        prefetcher, self.prefetcher, self.memory = self.prefetcher, None, None
        if prefetcher is not None and self._home.here:
            prefetcher.close()


# Options by which tests make the twin slow or faulty; see the native module's Prefetcher.
_twin_options: dict[str, Any] = {}

# Engines whose threads the exit hook has to end.
live: weakref.WeakSet[Engine] = weakref.WeakSet()


def max_slot_bytes(depth: int) -> int:
    """The most bytes of one batch: the slots together may fill half of the machine's memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(total // 2 // depth)
