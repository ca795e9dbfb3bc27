"""How a batch is packed: its structure, and the bytes in their order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from fastloader._core.batch.augmentation import EpochDraws, Records, make_augment_spec
from fastloader._core.batch.tree import find_images, flatten, is_dense
from fastloader._core.machine import extension
from fastloader.transforms._normalization import Normalization, make_spec

if TYPE_CHECKING:
    from fastloader import _native


@dataclasses.dataclass(frozen=True, eq=False)
class PackedLayout:
    """The structure of a packed batch: the native BatchLayout, and how to allocate its outputs."""

    native: _native.BatchLayout
    # (shape, dtype, strides) of each leaf; ((N, C, H, W), None, ()) of an image leaf.
    outputs: tuple[tuple[tuple[int, ...], torch.dtype | None, tuple[int, ...]], ...]
    # (leaf of the targets, leaf of their weights): what is mixed after delivery.
    mixed: tuple[int, int] | None = None
    records: bool = False  # whether the native BatchLayout has one more leaf, which has no output


class Packing:
    """The layouts by which one engine packs."""

    def __init__(self, normalization: Normalization | None) -> None:
        self.normalization = normalization
        self._layouts: dict[Any, PackedLayout] = {}

    def pack(
        self, batch: Any, draws: EpochDraws | None = None
    ) -> tuple[Any, PackedLayout, list[torch.Tensor]]:
        """Returns (template, layout, tensors whose bytes are to be copied, in the layout's order). A
        layout is made once for each structure and kept. If it is made twice, that only costs a new
        credit."""
        tree = flatten(batch)
        images = find_images(tree, self.normalization) if self.normalization else {}
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
                out = image.shape if records is None else (len(records), *image.shape[1:])
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
        wanted = tuple(key)
        layout = self._layouts.get(wanted)
        if layout is None:
            layout = self._make_layout(tuple(outputs), sources, images, records, mixed)
            if len(self._layouts) >= 256:  # sizes that never repeat
                self._layouts.clear()
            self._layouts[wanted] = layout
        return tree.template, layout, sources

    def packed_bytes(self, leaves: Sequence[int], samples: int, draws: EpochDraws | None) -> int:
        """The bytes that a batch of ``samples`` takes, whose leaves have so many bytes each."""
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
