"""Transforms of tensors: RandomErasing, and MixUp and CutMix of a whole batch."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate

from fastloader.transforms import _arguments
from fastloader.transforms._deviates import PER_ELEMENT, deviates
from fastloader.transforms._erasing import Erasing
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.operations import OPERATIONS, NamedOperation, named, unnamed
from fastloader.transforms.transform import Transform

__all__ = ["RandomErasing", "MixUp", "CutMix", "named_steps"]

# ---- MixUp and CutMix with torchvision's distribution: how they are drawn, and what becomes of
# a batch.


Box = tuple[int, int, int, int]  # top, bottom, left, right


@dataclasses.dataclass(frozen=True)
class Drawn:
    """The draw for one batch: the share of its own that each image keeps, the same for its target, and
    the box, inside which all pixels are the partner's."""

    own: float
    target: float
    box: Box = (0, 0, 0, 0)


@dataclasses.dataclass(frozen=True)
class Rolled:
    """Mixes a batch by one of ``kinds``, drawn by ``weights``. A kind is ("mixup" or "cutmix", alpha).
    Image i is mixed with the image before it, and the first with the last. Targets become floats, (n,
    num_classes). ``before_normalize``: whether bytes are mixed."""

    kinds: tuple[tuple[str, float], ...]
    weights: tuple[float, ...]
    num_classes: int | None
    before_normalize: bool = False

    mode = "batch"
    enabled = True

    def partners(self, batch: int) -> npt.NDArray[np.int64]:
        return (np.arange(batch) - 1) % batch

    def check(self, batch: int) -> None:
        """Accepts batches of any size."""

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
        """Returns a new batch of mixed images, which are floats, or bytes that are rounded."""
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
        """Mixes targets from labels (n,) or dense targets (n, num_classes). ``weights`` is float32 (n,
        2): the weight of each target and that of its partner."""
        if target.dim() == 1:
            assert self.num_classes is not None
            target = torch.nn.functional.one_hot(target, self.num_classes)
        dense = target if target.is_floating_point() else target.float()
        own, partner = (weights[:, each : each + 1].to(dense.dtype) for each in (0, 1))
        return dense.roll(1, 0) * partner + dense * own


# ---- MixUp and CutMix: steps of a whole batch.


class BatchMixing:
    """Base class of MixUp and CutMix."""

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
        alpha: The parameter of the Beta distribution from which the share of the own image is drawn,
            once for each batch; default 1.
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
        alpha: The parameter of the Beta distribution from which the share of the own image is drawn,
            once for each batch; default 1.
        num_classes: The number of classes, of which labels (B,) become targets (B, num_classes). None
            (default) is for dense labels (B, classes).
        labels_getter: "default": the labels stand behind the images.

    Raises:
        TypeError, ValueError: for what cannot be drawn from, and for batches of another form.
    """

    _kind = "cutmix"


# ---- Random erasing of a tensor.


class RandomErasing(Transform):
    """Erases a random box of a tensor. It stands behind ToTensor or PILToTensor, and usually behind
    Normalize.

    Args:
        p: The probability that a picture is erased; default 0.5.
        scale: The range of the box's share of the area; default (0.02, 0.33).
        ratio: The range of the box's height / width, drawn log-uniformly; default (0.3, 3.3).
        value: The fill of the box, in the units of the tensor: a number (default 0), one number per
            channel, or "random" for a normal deviate of mean 0 and deviation 1 for each value.
        inplace: Whether the tensor itself is changed; default False.

    Raises:
        TypeError: for a value, a scale or a ratio of another type.
        ValueError: for what cannot be drawn from.
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0,
        inplace: bool = False,
    ) -> None:
        if not isinstance(value, numbers.Number | str | tuple | list):
            raise TypeError("Argument value should be either a number or str or a sequence")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        self.p = _arguments.probability(p)
        self.scale = _arguments.checked_range("scale", scale, 0.0)
        self.ratio = _arguments.checked_range("ratio", ratio, math.ulp(0.0))
        if self.scale[1] > 1:
            raise ValueError("Scale should be between 0 and 1")
        self.value = value
        self.inplace = inplace
        self.erasing(None)  # which looks at the value

    def erasing(self, channels: int | None) -> Erasing:
        """Describes what is drawn for pictures of ``channels`` channels; None checks nothing but the
        numbers.

        Raises:
            ValueError: for values of another number of channels.
        """
        given: Any = self.value if isinstance(self.value, list | tuple) else (self.value,)
        value = None
        if not isinstance(self.value, str):
            value = tuple(_arguments.finite("value", each) for each in given)
            if channels is not None and len(value) not in (1, channels):
                raise ValueError(
                    "If value is a sequence, it should have either a single value or "
                    f"{channels} (number of input channels)"
                )
            if len(value) == 1 and channels is not None:
                value *= channels
        low, high = self.ratio
        return Erasing(self.p, self.scale, (math.log(low), math.log(high)), value)

    def apply(self, image: Any, draw: Draw) -> torch.Tensor:
        if not isinstance(image, torch.Tensor):
            raise TypeError("RandomErasing takes a tensor: put ToTensor or PILToTensor before it")
        erasing = self.erasing(image.shape[-3])
        if erasing.value is None and not image.is_floating_point():
            raise TypeError(f"value='random' takes a float tensor, not one of {image.dtype}")
        return erased(image, erasing, draw.seed, draw.index, draw.picture, self.inplace)


def erased(
    image: torch.Tensor,
    erasing: Erasing,
    seed: int,
    sample: int,
    number: int = 0,
    inplace: bool = False,
) -> torch.Tensor:
    """Erases what is drawn for picture ``number`` of a sample."""
    height, width = image.shape[-2:]
    boxes, keys = erasing.draw([seed], [sample], height, width, number)
    result = image if inplace else image.clone()
    fill(result, erasing, boxes[0], keys)
    return result


def fill(image: torch.Tensor, erasing: Erasing, box: Any, key: Any) -> None:
    """Erases a box of a picture, in place. ``box`` and ``key``, an array of one, are as they were
    drawn."""
    top, bottom, left, right = box.tolist()
    if erasing.value is None:
        channel, y, x = np.ogrid[: image.shape[-3], top:bottom, left:right]
        height, width = image.shape[-2:]
        values = torch.from_numpy(deviates(key, PER_ELEMENT, (channel * height + y) * width + x))
    else:
        values = torch.tensor(erasing.value, dtype=torch.float32, device="cpu").view(-1, 1, 1)
    image[..., top:bottom, left:right] = values.to(image.device)


def erase(
    image: Any, top: int, left: int, height: int, width: int, value: Sequence[float] | None
) -> torch.Tensor:
    """Erases the box that `replay` lists, in a new tensor.

    Raises:
        TypeError: for a picture that is no tensor.
        ValueError: for normal deviates, which are not listed.
    """
    if not isinstance(image, torch.Tensor):
        raise TypeError(
            "'erase' is done to a tensor: do the steps before it, make the tensor, and then erase"
        )
    if value is None:
        raise ValueError("'erase' with normal deviates cannot be done again: they are not listed")
    result = image.clone()
    values = torch.tensor(value, dtype=torch.float32, device="cpu").view(-1, 1, 1)
    result[..., top : top + height, left : left + width] = values.to(image.device)
    return result


# ---- Steps of pictures as rows of a tensor.


_ERASE = len(OPERATIONS)  # the step that is no operation on a picture
_NAMES = tuple(OPERATIONS)


def named_steps(rows: Any) -> list[NamedOperation]:
    """Names the steps of one picture as ``loader.replay(index)["steps"]`` lists them, so that `apply`
    can do them again.

    Args:
        rows: a float64 tensor or array of shape (steps, numbers): the picture's row of the "steps" that
            ``EncodedImage(..., return_parameters=True)`` gives. In each row the first number says which
            operation it is. Its numbers follow, and NaN behind them. Rows of NaN stand for no step.

    Raises:
        ValueError: for a number that stands for no operation.
    """
    found: list[NamedOperation] = []
    for row in rows.tolist():
        numbers = [number for number in row if not math.isnan(number)]
        if not numbers:
            continue
        kind, *rest = numbers
        if kind == _ERASE:
            box = dict(zip(("top", "left", "height", "width"), map(int, rest[:4])))
            found.append(("erase", {**box, "value": tuple(rest[4:]) or None}))
        elif kind in range(len(_NAMES)):
            found.append(named((_NAMES[int(kind)], rest)))
        else:
            raise ValueError(f"there is no operation number {kind}; {_ERASE} is the last")
    return found


def numbered(step: NamedOperation) -> list[float]:
    """Writes a step as a row of numbers that `named_steps` reads, without the NaN at its end."""
    name, given = step
    if name == "erase":
        box = [given[each] for each in ("top", "left", "height", "width")]
        return [_ERASE, *box, *(given["value"] or ())]
    name, numbers = unnamed(name, given)
    return [_NAMES.index(name), *numbers]
