"""MixUp and CutMix with torchvision's distribution: how they are drawn, and what becomes of a batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Box = tuple[int, int, int, int]  # top, bottom, left, right


@dataclasses.dataclass(frozen=True)
class Drawn:
    """What is drawn for a batch: how much of each image is its own, and the same for its target. Inside
    the box all is the partner's."""

    own: float
    target: float
    box: Box = (0, 0, 0, 0)


@dataclasses.dataclass(frozen=True)
class Rolled:
    """One of ``kinds`` is done to a batch, which ``weights`` say how likely. A kind is ("mixup" or
    "cutmix", alpha). Image i is mixed with the image before it, and the first with the last. Targets
    become floats, (n, num_classes). ``before_normalize``: whether bytes are mixed."""

    kinds: tuple[tuple[str, float], ...]
    weights: tuple[float, ...]
    num_classes: int | None
    before_normalize: bool = False

    mode = "batch"
    enabled = True

    def partners(self, batch: int) -> npt.NDArray[np.int64]:
        return (np.arange(batch) - 1) % batch

    def check(self, batch: int) -> None:
        """Batches of any size can be mixed."""

    def drawn(self, random: np.random.Generator, height: int, width: int) -> Drawn:
        """Draws for a batch of images of that size."""
        share = np.cumsum(self.weights)
        which = int(np.searchsorted(share, random.random() * share[-1], "right"))
        kind, alpha = self.kinds[min(which, len(self.kinds) - 1)]
        lam = float(np.float32(random.beta(alpha, alpha)))
        if kind == "mixup":
            return Drawn(lam, lam)
        ratio = 0.5 * (1.0 - lam) ** 0.5
        sides: list[int] = []
        for edge in (height, width):
            centre, half = int(random.integers(edge)), int(ratio * edge)
            sides += [max(centre - half, 0), min(centre + half, edge)]
        top, bottom, left, right = sides
        area = (right - left) * (bottom - top)
        return Drawn(1.0, 1.0 - area / (width * height), (top, bottom, left, right))

    def draw(
        self,
        random: np.random.Generator,
        mix: npt.NDArray[Any],
        weights: npt.NDArray[np.float32],
        height: int,
        width: int,
    ) -> None:
        """Draws into the records of a batch, and into the weights of its targets."""
        drawn = self.drawn(random, height, width)
        mix["own_weight"], mix["partner_weight"] = drawn.own, 1.0 - drawn.own
        top, bottom, left, right = drawn.box
        if bottom > top and right > left:
            mix["cut"] = drawn.box
        weights[:] = drawn.target, 1.0 - drawn.target

    def images(self, images: torch.Tensor, drawn: Drawn) -> torch.Tensor:
        """A new batch of mixed images, which are floats, or bytes that are rounded."""
        if drawn.own == 1.0:
            mixed = images.clone()
        elif images.is_floating_point():
            mixed = images.roll(1, 0).mul_(1.0 - drawn.own).add_(images.mul(drawn.own))
        else:
            parts = images.float().mul_(drawn.own), images.roll(1, 0).float().mul_(1.0 - drawn.own)
            mixed = parts[0].add_(parts[1]).round_().to(images.dtype)
        top, bottom, left, right = drawn.box
        mixed[..., top:bottom, left:right] = images.roll(1, 0)[..., top:bottom, left:right]
        return mixed

    def target(self, target: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Mixed targets from labels (n,) or dense targets (n, num_classes). ``weights`` is float32
        (n, 2): the weight of each target and that of its partner."""
        if target.dim() == 1:
            assert self.num_classes is not None
            target = torch.nn.functional.one_hot(target, self.num_classes)
        dense = target if target.is_floating_point() else target.float()
        own, partner = (weights[:, each : each + 1].to(dense.dtype) for each in (0, 1))
        return dense.roll(1, 0) * partner + dense * own
