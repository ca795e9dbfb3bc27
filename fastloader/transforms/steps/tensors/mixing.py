"""MixUp and CutMix: steps of a whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.data import default_collate

from fastloader.transforms import _arguments
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms.steps.tensors.rolled import Rolled


class BatchMixing:
    """What MixUp and CutMix have in common."""

    _kind: ClassVar[str]

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        num_classes: int | None = None,
        labels_getter: str = "default",
    ) -> None:
        self.alpha = _arguments.finite("alpha", alpha)
        if self.alpha <= 0:
            raise ValueError(f"alpha={alpha}: a number above 0 is needed to draw from")
        if labels_getter != "default":
            raise ValueError("labels_getter: the labels are what stands behind the images")
        self.num_classes = num_classes
        self.labels_getter = labels_getter

    @property
    def rolled(self) -> Rolled:
        return Rolled(((self._kind, self.alpha),), (1.0,), self.num_classes)

    def __call__(self, *inputs: Any) -> Any:
        if len(inputs) == 1:
            (given,) = inputs
            if not isinstance(given, list | tuple) or not given:
                raise TypeError(
                    f"{type(self).__name__} takes images and labels, or a list of samples"
                )
            if isinstance(given[0], torch.Tensor):
                return type(given)(self._mixed(*given))
            inputs = tuple(default_collate(list(given)))
        return self._mixed(*inputs)

    def _mixed(self, images: Any, labels: Any = None, *rest: Any) -> Sequence[Any]:
        self._check(images, labels)
        rolled = self.rolled
        random = np.random.Generator(np.random.Philox(key=Draw().seed))
        drawn = rolled.drawn(random, *images.shape[-2:])
        share = torch.tensor([[drawn.target, 1.0 - drawn.target]], dtype=torch.float32)
        weights = share.expand(len(labels), 2).to(labels.device)
        return (rolled.images(images, drawn), rolled.target(labels, weights), *rest)

    def _check(self, images: Any, labels: Any) -> None:
        # torchvision's words.
        if not isinstance(labels, torch.Tensor):
            raise ValueError(f"The labels must be a tensor, but got {type(labels)} instead.")
        if labels.ndim not in (1, 2):
            raise ValueError(
                "labels should be index based with shape (batch_size,) or probability based with shape "
                f"(batch_size, num_classes), but got a tensor of shape {labels.shape} instead."
            )
        if labels.ndim == 2 and self.num_classes not in (None, labels.shape[-1]):
            raise ValueError(
                "When passing 2D labels, the number of elements in last dimension must match "
                f"num_classes: {labels.shape[-1]} != {self.num_classes}. "
                "You can Leave num_classes to None."
            )
        if labels.ndim == 1 and self.num_classes is None:
            raise ValueError("num_classes must be passed if the labels are index-based (1D)")
        if not isinstance(images, torch.Tensor):
            raise TypeError(f"{type(self).__name__} takes a tensor of images, not {type(images)}")
        if not images.is_floating_point() and images.dtype != torch.uint8:
            raise TypeError(f"{type(self).__name__} takes floats or bytes, not {images.dtype}")
        if images.ndim != 4:
            raise ValueError(
                f"Expected a batched input with 4 dims, but got {images.ndim} dimensions instead."
            )
        if len(images) != len(labels):
            raise ValueError(
                "The batch size of the image or video does not match the batch size of the labels: "
                f"{len(images)} != {len(labels)}."
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(alpha={self.alpha}, num_classes={self.num_classes})"


class MixUp(BatchMixing):
    """Blends each image of a batch with the one before it, and their targets: ``images, targets =
    mixup(images, labels)``. As a loader's ``collate_fn`` it collates the samples first, and native
    batches of pictures are mixed while they are normalised.

    Args:
        alpha: of the Beta distribution from which the share of the own image is drawn, one for each
            batch; default 1.
        num_classes: The number of classes, of which labels (B,) become targets (B, num_classes). None
            (default) is for dense labels (B, classes).
        labels_getter: "default": the labels stand behind the images.

    Floats are blended as they are, and bytes are rounded. What stands behind the labels stays.

    Raises:
        TypeError, ValueError: for what cannot be drawn from, and for batches of another form.
    """

    _kind = "mixup"


class CutMix(BatchMixing):
    """Puts a box of the image before it into each image of a batch, and mixes their targets by the
    box's share: ``images, targets = cutmix(images, labels)``. It is used as `MixUp` is.

    Args:
        alpha: of the Beta distribution from which the share of the own image is drawn, one for each
            batch; default 1.
        num_classes: The number of classes, of which labels (B,) become targets (B, num_classes). None
            (default) is for dense labels (B, classes).
        labels_getter: "default": the labels stand behind the images.

    Raises:
        TypeError, ValueError: for what cannot be drawn from, and for batches of another form.
    """

    _kind = "cutmix"
