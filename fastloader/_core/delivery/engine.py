"""Drives the native ring and prefetch thread: how batches are packed, the engine of a device, the
state of an epoch, and the thread that advances the source."""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fastloader._core.batch.augmentation import EpochDraws, Records, make_augment_spec
from fastloader._core.batch.image_leaves import Image, LeafCheck, find_images
from fastloader._core.batch.tree import flatten, is_dense
from fastloader._core.handoff import LoopFollower
from fastloader._core.machine import devices, extension
from fastloader._core.machine.limits import memory_budget
from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation import trace
from fastloader._core.observation.tuning import MOST_DEPTH, DepthRule
from fastloader.errors import Error
from fastloader.transforms._normalization import Normalization, make_spec

if TYPE_CHECKING:
    from fastloader import _native


# ---- How a batch is packed: its structure, and the bytes in their order.


@dataclasses.dataclass(frozen=True, eq=False)
class PackedLayout:
    """The structure of a packed batch: the native BatchLayout, and how to allocate its outputs."""

    native: _native.BatchLayout
    # (shape, dtype, strides) of each leaf; ((N, C, H, W), None, ()) of an image leaf,
    # with T behind N if it has clips.
    outputs: tuple[tuple[tuple[int, ...], torch.dtype | None, tuple[int, ...]], ...]
    # (leaf of the targets, leaf of their weights): what is mixed after delivery.
    mixed: tuple[int, int] | None = None
    records: bool = False  # whether the native BatchLayout has one more leaf, which has no output
    # The dtype that each leaf of a `StoredMask` gets on the device, by its number.
    stored: dict[int, torch.dtype] = dataclasses.field(default_factory=dict)


class Packing:
    """The layouts by which one engine packs."""

    def __init__(self, normalization: Normalization | None, leaf_check: LeafCheck) -> None:
        self.normalization = normalization
        self.leaf_check = leaf_check
        self._layouts: dict[Any, PackedLayout] = {}

    def pack(
        self, batch: Any, draws: EpochDraws | None = None
    ) -> tuple[Any, PackedLayout, list[torch.Tensor]]:
        """Returns (template, layout, tensors whose bytes are to be copied, in the layout's order). A
        layout is made once for each structure and kept. If it is made twice, that only costs a new
        credit."""
        tree = flatten(batch)
        images: dict[int, Image] = {}
        if self.normalization:
            images = find_images(tree, self.normalization, self.leaf_check)
        records, mixed = None, None
        if draws is not None:
            image_leaf, target = draws.augmentation.leaves(tree, images)
            records = draws.next(images[image_leaf])
            if target is not None:
                mixed = (target, len(tree.leaves))
                tree.leaves.append(torch.from_numpy(records.weights))
        key: list[Any] = []
        sources: list[torch.Tensor] = []
        outputs: list[tuple[tuple[int, ...], torch.dtype | None, tuple[int, ...]]] = []
        for index, leaf in enumerate(tree.leaves):
            image = images.get(index)
            if image is not None:
                sources.append(image.pixels)
                out = image.delivered if records is None else (len(records), *image.shape[1:])
                outputs.append((out, None, ()))
                key.append((image.shape, image.nhwc, out))
                continue
            if not is_dense(leaf):
                leaf = leaf.contiguous()
            sources.append(leaf)
            outputs.append((tuple(leaf.shape), leaf.dtype, leaf.stride()))
            key.append(outputs[-1])
        if records is not None:
            sources.append(records.packed())
            augmentation = records.augmentation
            key.append(
                (augmentation.max_boxes, augmentation.fill, augmentation.blends_bytes, mixed)
            )
        if tree.stored:
            key += tree.stored.items()
        wanted = tuple(key)
        layout = self._layouts.get(wanted)
        if layout is None:
            layout = self._make_layout(tuple(outputs), sources, images, records, mixed)
            if tree.stored:
                layout = dataclasses.replace(layout, stored=tree.stored)
            if len(self._layouts) >= 256:  # sizes that never repeat
                self._layouts.clear()
            self._layouts[wanted] = layout
        return tree.template, layout, sources

    def packed_bytes(self, leaves: Sequence[int], samples: int, draws: EpochDraws | None) -> int:
        """Returns the bytes that a batch of ``samples`` takes, whose leaves have ``leaves`` bytes
        each."""
        extra = [] if draws is None else draws.augmentation.extra_leaves(samples)
        layout = extension.native.BatchLayout([(size, None) for size in [*leaves, *extra]])
        return int(layout.packed_bytes)

    def _make_layout(
        self,
        outputs: Any,
        sources: list[torch.Tensor],
        images: Any,
        records: Records | None,
        mixed: tuple[int, int] | None,
    ) -> PackedLayout:
        leaves = []
        for index, source in enumerate(sources):
            spec: _native.NormalizeSpec | _native.AugmentSpec | None = None
            if index in images:
                assert self.normalization is not None
                if records is None:
                    spec = make_spec(images[index].shape, images[index].nhwc, self.normalization)
                else:
                    spec = make_augment_spec(images[index], self.normalization, records)
            leaves.append((source.numel() * source.element_size(), spec))
        return PackedLayout(
            extension.native.BatchLayout(leaves), outputs, mixed, records is not None
        )


# ---- Delivery through the native ring and prefetch thread: CUDA, or the host twin in tests.
#
# Native memory holds the bytes. An `Engine` holds what belongs to Python: the structure of the
# batches, and the outputs. Outputs are torch's memory, which is offered to the native thread as
# credits.


_log = logging.getLogger("fastloader")

# The batches that depth="auto" adds may take this part (1/16) of the device's free memory. The model
# needs the rest.
DEVICE_SHARE = 16


@dataclasses.dataclass
class Credit:
    """Memory offered for one batch. The epoch keeps it until the batch is delivered or cancelled.
    ``masks``: what comes out for the leaves of `StoredMask`s, by their numbers, which are to be filled
    from the outputs."""

    layout: PackedLayout
    outputs: list[torch.Tensor]
    staging: torch.Tensor | None
    stream: int
    masks: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)

    @property
    def memory(self) -> list[torch.Tensor]:
        own = [*self.outputs, *self.masks.values()]
        return own if self.staging is None else [*own, self.staging]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.memory)


class Engine:
    """One native prefetcher on one device. One iterator uses it at a time, and the next epoch's iterator
    after that, so that threads, pinned slots and streams are made once."""

    def __init__(
        self,
        device: torch.device,
        normalization: Normalization | None,
        leaf_check: LeafCheck,
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
        self.packing = Packing(normalization, leaf_check)
        live_engines.add(self)

    def make_credit(self, layout: PackedLayout) -> Credit:
        """Allocates the memory of one batch on the training loop's current stream. Each leaf gets a
        storage of its own: views of one base would share a version counter, and a training loop that
        keeps one label would keep the whole batch."""
        outputs = []
        masks = {}
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
            for index in layout.stored:
                masks[index] = torch.empty_like(outputs[index], dtype=layout.stored[index])
            size = layout.native.staging_bytes
            if size > 0:
                staging = torch.empty(size, dtype=torch.uint8, device=self.device)
        return Credit(layout, outputs, staging, devices.consumer_stream(self.device), masks)

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
live_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def max_slot_bytes(depth: int) -> int:
    """Returns the most bytes of one batch: the slots together may fill half of the machine's memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(total // 2 // depth)


# ---- The state of one epoch in the ring.


_LAST_PATIENCE = 15.0  # seconds, for a source that hangs in its own code and not in torch's


@dataclasses.dataclass
class PackedBatch:
    """An entry of the ring that is not delivered yet: the structure of a batch, or an error."""

    template: Any = None
    layout: PackedLayout | None = None
    error: BaseException | None = None
    took: bool = True  # whether the error takes a batch's place
    drawn: int = 0  # how many samples were drawn with this batch


class RingEpoch:
    """The state of one epoch in the ring, shared by the iterator, the pump thread and the finalizer. It
    is also the `Slots` of a source that makes its batches in place. It must not refer to the iterator:
    the epoch ends when the training loop drops its last reference to that."""

    def __init__(self, engine: Engine, draws: EpochDraws | None) -> None:
        self.engine = engine
        self.draws = draws
        self.home = HomeProcess()
        # A reference of its own, because the engine drops its prefetcher when it is closed.
        prefetcher = engine.prefetcher
        assert prefetcher is not None  # a closed engine begins no epoch
        self.prefetcher: _native.Prefetcher | None = prefetcher
        # The number of the batch that the loop gets next, and of the one that is put next.
        self.number, self.next_seq = prefetcher.open_epoch()
        self.fill_seq: int = self.next_seq
        # Entries by batch number. An entry is made before its batch is put into the ring, so that the
        # thread that sees the batch finds the entry.
        self.pending: dict[int, PackedBatch] = {}
        self.credits: dict[int, Credit] = {}
        # Guards what the training loop does to the ring and its credits against `end` on another thread.
        # After `end` the ring may be another epoch's. Reentrant, because a finalizer or a signal handler
        # may end the epoch while the loop's own thread holds the lock.
        self.turn = threading.RLock()
        self.stream = devices.consumer_stream(engine.device)
        self.over = False
        self.pump: threading.Thread | None = None
        # The source, while a pump thread is in it. Without a pump only the iterator may hold the source:
        # the finalizer keeps the epoch alive, so a dataset that refers to its own iterator could not
        # be collected.
        self.pumped: Iterator[Any] | None = None
        # Keeps that source's sampler in step with the loop, if the source needs that.
        self.follower: LoopFollower | None = None
        # The reservation of the slot in which the source made what its next() gave or raised last.
        self._presented: Any = None
        self._stop_source: Callable[[], None] | None = None

    @property
    def depth(self) -> int:
        return self.engine.depth

    def reserve_for(self, leaves: Sequence[int], samples: int) -> Any | None:
        return self.reserve(self.engine.packing.packed_bytes(leaves, samples, self.draws))

    def reserve(self, size: int) -> Any | None:
        prefetcher = self.prefetcher
        return None if prefetcher is None else prefetcher.reserve(self.number, size)

    def present(self, reservation: Any) -> None:
        self._presented = reservation

    def on_end(self, stop: Callable[[], None]) -> None:
        self._stop_source = stop

    def put_batch(self, batch: Any) -> bool:
        """Packs a batch into the ring, after waiting for a slot. Returns False once the epoch is over.
        If the batch cannot be packed, raises the reason and leaves the ring as it was."""
        prefetcher, reservation, seq = self.prefetcher, self._presented, self.fill_seq
        self._presented = None
        if prefetcher is None:
            return False
        drawn = self._drawn()
        try:
            template, layout, sources = self.engine.packing.pack(batch, self.draws)
            addresses = [source.data_ptr() for source in sources]
            self.engine.last_layout = layout
            self.pending[seq] = PackedBatch(template, layout, drawn=self._drawn())
            if reservation is None:
                put = prefetcher.push(self.number, layout.native, addresses)
            else:
                put = reservation.commit(layout.native, addresses)
            self.fill_seq = seq + 1
        except BaseException:
            # Ctrl-C may arrive when the batch is in the ring already.
            self.fill_seq = prefetcher.progress()[1]
            if self.fill_seq == seq:
                self._presented = reservation  # for the error, which comes next
                if self.draws is not None:
                    self.draws.samples = drawn
                self.pending.pop(seq, None)
            raise
        return bool(put)

    def put_error(self, error: BaseException, took: bool) -> bool:
        """Puts an error into the ring. Returns False once the epoch is over. ``took``: whether the error
        takes a batch's place."""
        prefetcher, reservation, seq = self.prefetcher, self._presented, self.fill_seq
        self._presented = None
        if prefetcher is None:
            return False
        self.pending[seq] = PackedBatch(error=error, took=took, drawn=self._drawn())
        if reservation is None:
            put = prefetcher.put_error(self.number)
        else:
            put = reservation.commit_error()
        self.fill_seq = seq + 1
        return bool(put)

    def _drawn(self) -> int:
        return 0 if self.draws is None else self.draws.samples

    def put_end(self) -> None:
        prefetcher = self.prefetcher
        if prefetcher is not None:
            prefetcher.put_end(self.number)

    def end(self) -> None:
        """Ends the epoch. Idempotent. Afterwards nothing new is written into undelivered memory, and the
        stream that owns the memory waits for copies that are still on their way."""
        if not self.home.here:
            return
        with self.turn:
            if self.over:
                return
            self.over = True
            # Every stream on which memory was made must wait for what may still be written there. A
            # training loop that has changed its stream has credits of both streams, and each credit
            # goes back to the stream where it was made.
            streams = {self.stream, *(credit.stream for credit in [*self.credits.values()])}
            assert self.prefetcher is not None  # until the epoch is over
            self.prefetcher.cancel([*streams])
            self.prefetcher = None
            self.credits.clear()
            self.pending.clear()
        # Outside of `turn`, because this takes locks of the source, and garbage collection may run while
        # the source holds them.
        if self._stop_source is not None:
            self._stop_source()
        if self.follower is not None:
            self.follower.leave()
        # Workers shut down with the last reference to the source, here or on the pump thread.
        self.pumped = self.follower = None

    def stop_pump(self, patience: float) -> bool:
        """Ends the epoch, and waits ``patience`` seconds at most for the pump thread to leave the
        source. Returns whether it has left."""
        pump = self.pump
        self.end()
        if pump is None or not self.home.here or pump is threading.current_thread():
            return True
        pump.join(patience)
        return not pump.is_alive()

    def interrupt_pump(self) -> None:
        """Raises SystemExit in the pump thread as soon as that is back in Python, and waits a last time.
        For a source that hangs in its own code."""
        pump = self.pump
        assert pump is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(pump.ident or 0), ctypes.py_object(SystemExit)
        )
        pump.join(_LAST_PATIENCE)
        if pump.is_alive():
            _log.warning("the source of a loader did not return; its thread is left to itself")


# ---- The pump thread, which advances a source ahead of the loop, and the end of all of them at
# exit.


def pump(epoch: RingEpoch, source: Iterator[Any]) -> None:
    """Advances the source until the source or the epoch ends."""
    while not epoch.over and _pump_one(epoch, source):
        pass


def _pump_one(epoch: RingEpoch, source: Iterator[Any]) -> bool:
    """Puts the source's next batch into the ring, and returns whether there may be another. An error
    takes its batch's place and, as with DataLoader, does not end the epoch."""
    # Each batch has a call of its own. The traceback of an error holds this frame, and a user who keeps
    # the error must not keep the slot of a later batch. And a batch's shared memory goes back before the
    # pump thread waits for the next batch.
    try:
        begun = time.perf_counter()
        batch = next(source)
        trace.add("receive", begun, time.perf_counter())
        return epoch.put_batch(batch)
    except StopIteration as stop:
        # A StopIteration with arguments comes from a dataset in a worker. As with DataLoader, more
        # batches may follow it.
        if stop.args and epoch.put_error(stop, True):
            return True
        epoch.put_end()
        return False
    except BaseException as error:
        return epoch.put_error(error, getattr(source, "_filled_place", True))


def drain_log() -> None:
    messages, dropped = extension.native.drain_log()
    for message in messages:
        _log.warning("%s", message)
    if dropped:
        _log.warning("%d more native warnings were dropped", dropped)


# Epochs whose pump thread may still run.
live_pumps: weakref.WeakSet[RingEpoch] = weakref.WeakSet()


def end_all_at_exit() -> None:
    """Ends all pump threads at interpreter exit, which no thread of ours may outlive."""
    for epoch in list(live_pumps):
        if not epoch.stop_pump(patience=1):
            epoch.interrupt_pump()


def end_everything() -> None:
    end_all_at_exit()
    for engine in list(live_engines):
        engine.close()
