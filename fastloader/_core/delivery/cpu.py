"""Delivers batches to the CPU: as they are, or normalised into recycled memory on the training
loop's thread."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data._utils import pin_memory

from fastloader._core.batch.augment_in_torch import apply
from fastloader._core.batch.augmentation import EpochDraws, Records, make_augment_spec
from fastloader._core.batch.image_leaves import Image, as_image, check_others, find_images
from fastloader._core.batch.tree import (
    Key,
    MaskLeaf,
    flatten,
    is_leaf,
    rebuild,
    unflatten,
)
from fastloader._core.delivery.path import (
    DeliveryIterator,
    DeliveryPath,
    DeliverySpec,
    stays_on_cpu,
)
from fastloader._core.handoff import Handoff, Plan
from fastloader._core.machine import extension
from fastloader._core.observation import trace
from fastloader._core.observation.statistics import LOOP, Figures, Stage, Statistics
from fastloader._core.order.epoch_order import EpochOrder
from fastloader.transforms._normalization import Normalization, make_spec

# ---- Delivery to the CPU: images are normalised into recycled memory on the training loop's
# thread.


class CpuPath(DeliveryPath):
    """Normalises images on the CPU, natively or with torch: the same tensors to the bit."""

    name = "cpu"
    words = "on the CPU"

    @classmethod
    def serves(cls, spec: DeliverySpec, device: torch.device | None) -> bool:
        return spec.normalization is not None and stays_on_cpu(device)

    def __init__(self, spec: DeliverySpec, statistics: Statistics) -> None:
        super().__init__(spec, statistics)
        assert spec.normalization is not None
        self._own_normalization: Normalization = spec.normalization
        self._pool = None if extension.load() is None else extension.native.BufferPool()
        # Whether a source has left its batches to this path, and not normalised them itself.
        self._delivers = False
        # Native specs by shape and strides, of images that need no copy first. A loop has few shapes,
        # and a spec is cheap to make again, so this cache may be cleared when it is full.
        # With each the shape of the clips, if its leaf holds clips.
        self._specs: dict[tuple[tuple[int, ...], tuple[int, ...]], Any] = {}

    def begin(
        self, plan: Plan, order: EpochOrder | None, draws: EpochDraws | None
    ) -> Iterator[Any]:
        if plan.normalizes and draws is None:  # while a picture is in cache
            handoff = Handoff(
                self.statistics,
                held_by_loop=True,
                normalization=self._normalization(plan),
                pin=True,
                depth=self._depth(),
            )
            return plan.open(order, handoff)
        self._delivers = True
        wanted = self._normalization(plan)
        assert wanted is not None  # or `serves` would have said no
        return CpuIterator(
            plan.open(order, self._handoff(plan, draws)),
            self,
            draws,
            plan.pins,
            plan.ahead,
            wanted.done,
        )

    def lay_out(self, batch: Any) -> Any:
        """Delivers a batch whose samples come normalised. A collate_fn may have made bytes of them."""
        tree = flatten(batch)
        done = dataclasses.replace(self._own_normalization, done=True)
        for index in find_images(tree, done, self.leaf_check):
            normalized = self._normalized(tree.leaves[index])
            assert normalized is not None  # it is an image
            tree.leaves[index] = normalized
        return unflatten(tree.template, tree.leaves, lambda value: value)

    def deliver(self, batch: Any, draws: EpochDraws | None = None) -> Any:
        if draws is not None:
            return self._deliver_augmented(batch, draws)
        # One pass over the containers is enough, because nothing but the images changes.
        normalization = self._own_normalization
        wanted = normalization.image_key
        # An image leaf as (key, leaf, its normalised form), apart from those that follow it: the usual
        # batch has one, for which nothing more is called.
        first: tuple[Key, torch.Tensor, torch.Tensor] | None = None
        later: list[tuple[Key, torch.Tensor, torch.Tensor]] = []
        others: list[tuple[Key, torch.Tensor]] = []

        def visit(value: Any, key: Key) -> Any:
            nonlocal first
            if type(value) is torch.Tensor and value.dtype is torch.uint8:
                if (wanted is None or normalization.names(key)) and is_leaf(value):
                    normalized = self._normalized(value)
                    if normalized is None:
                        others.append((key, value))
                        return value
                    if first is None:
                        first = key, value, normalized
                    else:
                        later.append((key, value, normalized))
                    return normalized
            elif type(value) is MaskLeaf:
                return value.as_subclass(torch.Tensor)
            return value

        delivered = rebuild(batch, visit)
        if first is None:
            find_images(flatten(batch), normalization)  # says what there is instead
        else:
            found = first, *later
            if others:
                check_others(others, normalization)
            if wanted is not None:
                if len(wanted) > len(found) or {*wanted} != {key for key, _, _ in found}:
                    find_images(flatten(batch), normalization)  # says what there is instead
            elif later or others:
                self.leaf_check.compare(
                    [(key, leaf, made.shape) for key, leaf, made in found], others, normalization
                )
        return delivered

    def _deliver_augmented(self, batch: Any, draws: EpochDraws) -> Any:
        tree = flatten(batch)
        outputs = list(tree.leaves)
        images = find_images(tree, self._own_normalization, self.leaf_check)
        index, target = draws.augmentation.leaves(tree, images)
        records = draws.next(images[index])
        outputs[index] = self._augmented(images[index], records)
        if target is not None:
            outputs[target] = records.mixed_target(tree.leaves[target])
        return unflatten(tree.template, outputs, lambda value: value)

    def _augmented(self, image: Image, records: Records) -> torch.Tensor:
        if self._pool is None:
            shape = (len(records), *image.shape[1:])
            out = self._own_normalization.output(shape, image.pixels.device)
            return apply(self._own_normalization, image.pixels, records, out)
        spec = make_augment_spec(image, self._own_normalization, records)
        packed = records.packed()
        capsule = self._pool.augmented(
            spec, source=image.pixels.data_ptr(), records=packed.data_ptr()
        )
        return torch.from_dlpack(capsule)

    def _normalized(self, leaf: torch.Tensor) -> torch.Tensor | None:
        """Returns the normalised image, or None if ``leaf`` is no image."""
        if self._pool is None:
            image = as_image(leaf, self._own_normalization)
            if image is None:
                return None
            made = self._own_normalization.applied(image.pixels)
            return made if image.clips is None else made.view(image.delivered)
        key = (leaf.shape, leaf.stride())
        found = self._specs.get(key)
        if found is not None:
            spec, clips = found
        else:
            image = as_image(leaf, self._own_normalization)
            if image is None:
                return None
            spec = make_spec(image.shape, image.nhwc, self._own_normalization)
            clips = None if image.clips is None else image.delivered
            if image.pixels.data_ptr() == leaf.data_ptr():
                if len(self._specs) >= 64:
                    self._specs.clear()
                self._specs[key] = spec, clips
            leaf = image.pixels
        normalized = torch.from_dlpack(self._pool.normalized(spec, source=leaf.data_ptr()))
        return normalized if clips is None else normalized.view(clips)

    def figures(self) -> Figures:
        seconds, count = self.statistics.total("normalise")
        stage = Stage("normalise", seconds, count, "batch", LOOP, bound="copy")
        return Figures((stage,) if count else ())

    def stats(self) -> dict[str, Any]:
        if self._pool is None or not self._delivers:
            return {}
        return {"buffers": self._pool.stats()}


class CpuIterator(DeliveryIterator):
    """Normalises each batch in ``next()``, without a thread or look-ahead of its own. Only torch's
    workers run ahead. ``pin``: whether each batch is put into torch's pinned memory, as DataLoader's
    pin_memory does. ``ahead``: whether the source runs ahead. ``done``: whether samples come
    normalised."""

    def __init__(
        self,
        source: Iterator[Any],
        path: CpuPath,
        draws: EpochDraws | None,
        pin: bool,
        ahead: bool,
        done: bool,
    ) -> None:
        super().__init__(source, path.statistics, path.leaf_check)
        self._pin = pin
        self._done = done
        self._ahead = ahead
        self._path = path
        self._draws = draws
        # The batch that the source gave and that is not delivered yet. It is kept here because Ctrl-C
        # may come in between.
        self._given: list[Any] = []

    def _check(self) -> None:
        if self._ahead:  # a forked child does not have the workers; without them it may go on
            super()._check()

    def _next(self) -> Any:
        source: Any = self._batches  # None: closed meanwhile, which `waiting` says
        if not self._given:
            try:
                self._given.append(next(source))
            except Exception:
                self._filled_place = getattr(source, "_filled_place", True)
                raise
        self._filled_place = True
        begun = time.perf_counter()
        drawn = 0 if self._draws is None else self._draws.samples
        try:
            if self._done:
                delivered = self._path.lay_out(self._given[0])
            else:
                delivered = self._path.deliver(self._given[0], self._draws)
            if self._pin:
                delivered = pin_memory.pin_memory(delivered)
        except BaseException as error:
            if self._draws is not None:  # the next batch gets these draws, or this one again
                self._draws.samples = drawn
            if isinstance(error, Exception):
                self._given.clear()  # the error takes the batch's place
            raise
        self._given.clear()
        if self._draws is not None:
            self._draws.delivered = self._draws.samples
        now = time.perf_counter()
        self._path.statistics.add_time("normalise", now - begun)
        if trace.active is not None:
            trace.add("normalise", begun, now)
        return delivered


# ---- Delivery of batches as they are.


class PlainPath(DeliveryPath):
    """Delivers batches as the source made them: the loop holds the source's own iterator."""

    # Users read the name in stats()["path"]. It has nothing to do with FASTLOADER_BACKEND=torch.
    name = "torch"
    words = "delivered as they are"

    @classmethod
    def serves(cls, spec: DeliverySpec, device: torch.device | None) -> bool:
        return spec.normalization is None and stays_on_cpu(device)

    def begin(
        self, plan: Plan, order: EpochOrder | None, draws: EpochDraws | None
    ) -> Iterator[Any]:
        handoff = Handoff(
            self.statistics,
            held_by_loop=True,
            normalization=plan.normalization,
            pin=True,
            depth=self._depth(),
        )
        return plan.open(order, handoff)
