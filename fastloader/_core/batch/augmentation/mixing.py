"""Mixup and CutMix, with timm 1.0.31's distributions: their arguments, the partner's share of each
image, and the targets."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Floats = npt.NDArray[np.float64]

_MODES = ("batch", "pair", "elem", "half")


@dataclasses.dataclass
class Mixing:
    """timm's Mixup or, with ``before_normalize``, its FastCollateMixup, which blends bytes. Names,
    defaults and meaning are timm's.

    Only FastCollateMixup has ``mode="half"``, which delivers half the batch. ``enabled=False`` (timm's
    ``mixup_enabled``) leaves images alone and still makes float targets. It acts on batches that are not
    drawn yet, so set it between epochs.

    Raises:
        ValueError: for what cannot be drawn.
    """

    mixup_alpha: float = 1.0
    cutmix_alpha: float = 0.0
    cutmix_minmax: tuple[float, float] | None = None
    prob: float = 1.0
    switch_prob: float = 0.5
    mode: str = "batch"
    correct_lam: bool = True
    label_smoothing: float = 0.1
    num_classes: int = 1000
    multi_label: bool = False
    before_normalize: bool = False
    enabled: bool = True

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ValueError(
                f"mode={self.mode!r}: Mixup mixes by 'batch', 'pair', 'elem' or 'half'"
            )
        if self.mode == "half" and not self.before_normalize:
            raise ValueError("mode='half' halves the batch, which FastCollateMixup does, Mixup not")
        if self.cutmix_minmax is not None:
            low, high = self.cutmix_minmax
            if not 0 <= low < high <= 1:
                raise ValueError(
                    f"cutmix_minmax={self.cutmix_minmax}: 0 <= min < max <= 1 is needed"
                )
            self.cutmix_alpha = 1.0
        if self.mixup_alpha <= 0 and self.cutmix_alpha <= 0:
            raise ValueError(
                "one of mixup_alpha > 0, cutmix_alpha > 0 and cutmix_minmax is needed to mix images"
            )

    def partners(self, batch: int) -> npt.NDArray[np.int64]:
        """The image with which each image of a batch is mixed."""
        return batch - 1 - np.arange(batch)

    def check(self, batch: int) -> None:
        """Raises ValueError for a batch that cannot be mixed."""
        if batch % 2 != 0:
            raise ValueError(
                f"a batch of {batch} images cannot be mixed: image i is mixed with image -1-i, so "
                "the number must be even; use drop_last=True"
            )

    def draw(
        self,
        random: np.random.Generator,
        mix: npt.NDArray[Any],
        weights: npt.NDArray[np.float32],
        height: int,
        width: int,
    ) -> None:
        """Draws into the records of a batch, and into the weights of its targets."""
        draw_mixing(self, random, mix, weights, height, width)

    def target(self, target: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """timm's mixup_target: float32 (n, num_classes) from the labels (B,) or, with ``multi_label``,
        from dense targets (B, num_classes). ``weights`` is float32 (n, 2), n <= B: the weight of each
        image and that of its partner."""
        if self.multi_label:
            if target.dim() != 2 or target.shape[1] != self.num_classes:
                raise ValueError(
                    f"multi_label mixes dense targets of shape (batch, {self.num_classes}), not "
                    f"{tuple(target.shape)}"
                )
            dense = target.float() * (1.0 - self.label_smoothing) + 0.5 * self.label_smoothing
        else:
            off = self.label_smoothing / self.num_classes
            labels = target.long().view(-1, 1)
            dense = torch.full((len(labels), self.num_classes), off, device=target.device)
            dense.scatter_(1, labels, 1.0 - self.label_smoothing + off)
        n = len(weights)
        return dense[:n] * weights[:, :1] + dense.flip(0)[:n] * weights[:, 1:]


def draw_mixing(
    mixing: Mixing,
    random: np.random.Generator,
    mix: npt.NDArray[Any],
    weights: npt.NDArray[np.float32],
    height: int,
    width: int,
) -> None:
    """Draws as timm's _params_per_batch, _params_per_elem and cutmix_bbox_and_lam, and does what the
    modes do with them."""
    n = len(mix)
    per_batch = mixing.mode == "batch"
    count = 1 if per_batch else n // 2 if mixing.mode == "pair" else n
    both = mixing.mixup_alpha > 0 and mixing.cutmix_alpha > 0
    if both:
        cuts = random.random(count) < mixing.switch_prob
    else:
        cuts = np.full(count, mixing.cutmix_alpha > 0)
    alphas = np.where(cuts, mixing.cutmix_alpha, mixing.mixup_alpha)
    applied = random.random(count) < mixing.prob
    lam = np.where(applied, random.beta(alphas, alphas), 1.0)
    if not per_batch:
        lam = lam.astype(np.float32).astype(np.float64)  # rounded as in timm
    cuts &= lam != 1.0
    boxes = _cut_boxes(mixing, random, lam, height, width)
    if mixing.correct_lam or mixing.cutmix_minmax is not None:
        area = (boxes[:, 1] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 2])
        lam = np.where(cuts, 1.0 - area / float(height * width), lam)
    pairs = np.empty((count, 2), dtype=np.float32)
    pairs[:, 0] = lam
    # In timm the weight of a whole batch is a Python float, and the weight of an image a float32.
    pairs[:, 1] = 1.0 - (lam if per_batch else pairs[:, 0])
    pixels = np.where(cuts[:, None], np.array([1.0, 0.0], dtype=np.float32), pairs)
    boxes = np.where(cuts[:, None], boxes, 0)
    if per_batch:
        which = np.zeros(n, dtype=np.intp)
    elif mixing.mode == "pair":
        first = np.arange(count)
        which = np.concatenate((first, first[::-1]))
    else:
        which = np.arange(n)
    mix["own_weight"], mix["partner_weight"] = pixels[which].T
    mix["cut"] = boxes[which]
    weights[:] = pairs[which]


def _cut_boxes(
    mixing: Mixing, random: np.random.Generator, lam: Floats, height: int, width: int
) -> npt.NDArray[np.int64]:
    """Draws as timm's rand_bbox and rand_bbox_minmax: (count, 4), top, bottom, left, right."""
    count = len(lam)
    if mixing.cutmix_minmax is not None:
        sides = []
        for edge in (height, width):
            low, high = (int(edge * ratio) for ratio in mixing.cutmix_minmax)
            if low >= high:
                raise ValueError(
                    f"cutmix_minmax={mixing.cutmix_minmax} leaves no box for images of "
                    f"{height} x {width}: from {low} to less than {high} pixels"
                )
            length = random.integers(low, high, size=count)
            start = random.integers(0, edge - length + 1)
            sides += [start, start + length]
        return np.stack(sides, axis=1)
    ratio = np.sqrt(1.0 - lam)
    sides = []
    for edge in (height, width):
        length = (edge * ratio).astype(np.int64)
        centre = random.integers(0, edge, size=count)
        sides += [
            np.clip(centre - length // 2, 0, edge),
            np.clip(centre + (length + 1) // 2, 0, edge),
        ]
    return np.stack(sides, axis=1)
