"""Random erasing, Mixup and CutMix on whole batches, with timm 1.0.31's distributions.

What becomes of each image is drawn here, for a whole batch at a time, by numpy's counter-based
generator; `Records` is the result. The kernel applies it while it normalises (csrc/image/augment.h is
the definition); `augmentation/in_torch.py` does the same in torch operations.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastloader._core.batch.tree import Image, Parts

Key = int | str
Floats = npt.NDArray[np.float64]

_FILLS = ("const", "rand", "pixel")
_MODES = ("batch", "pair", "elem", "half")
_ATTEMPTS = 10

# csrc/image/augment.h: MixRecord, EraseBox, and the operations that random bits are drawn for.
_MIX = np.dtype(
    [
        ("own", np.uint32),
        ("partner", np.uint32),
        ("own_weight", np.float32),
        ("partner_weight", np.float32),
        ("cut", np.int32, (4,)),  # top, bottom, left, right
        ("boxes", np.uint32),
        ("unused", np.uint32),
    ]
)
_HEADER = 16


@dataclasses.dataclass(frozen=True)
class RandomErasing:
    """timm's RandomErasing: same names, defaults and meaning.

    ``probability`` that an image is erased at all; then ``min_count`` to ``max_count`` boxes, each
    of ``min_area`` to ``max_area`` of the image divided by their number, of log-uniform aspect ratio;
    a box that does not fit is drawn again, ten times at most. ``mode``: "const" (0, the mean), "rand"
    (one normal deviate for each box and channel) or "pixel" (one for each value). With ``num_splits``
    above 1 the first ``batch // num_splits`` images stay as they are.

    Raises ValueError for what cannot be drawn.
    """

    probability: float = 0.5
    min_area: float = 0.02
    max_area: float = 1 / 3
    min_aspect: float = 0.3
    max_aspect: float | None = None
    mode: str = "const"
    min_count: int = 1
    max_count: int | None = None
    num_splits: int = 0

    def __post_init__(self) -> None:
        if self.fill not in _FILLS:
            raise ValueError(f"mode={self.mode!r}: random erasing fills 'const', 'rand' or 'pixel'")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability={self.probability} of random erasing is not in 0..1")
        if not 0 <= self.min_area <= self.max_area:
            raise ValueError(
                f"min_area={self.min_area} and max_area={self.max_area} of random erasing: "
                "0 <= min_area <= max_area is needed"
            )
        if self.min_aspect <= 0 or (self.max_aspect or 1) <= 0:
            raise ValueError(
                f"min_aspect={self.min_aspect} and max_aspect={self.max_aspect} of random erasing "
                "must be positive"
            )
        if not 1 <= self.min_count <= self.most:
            raise ValueError(
                f"min_count={self.min_count} and max_count={self.max_count} of random erasing: "
                "1 <= min_count <= max_count is needed"
            )

    @property
    def fill(self) -> str:
        return self.mode.lower() or "const"

    @property
    def most(self) -> int:
        return self.max_count or self.min_count


@dataclasses.dataclass
class Mixing:
    """timm's Mixup, or with ``before_normalize`` its FastCollateMixup, which blends bytes: same names,
    defaults and meaning. ``mode`` "half" is FastCollateMixup's alone and delivers half the batch.
    ``enabled=False`` (timm's ``mixup_enabled``) leaves images alone and still makes float targets; it
    acts on batches that are not drawn yet, so set it between epochs.

    Raises ValueError for what cannot be drawn.
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

    def target(self, target: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """timm's mixup_target: float32 (n, num_classes) of the labels (B,), or dense targets (B,
        num_classes) with ``multi_label``. ``weights`` is float32 (n, 2), n <= B: of each image and
        of its partner."""
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


class Records:
    """What becomes of each image of one batch.

    ``mix`` and ``boxes`` are arrays of ``_MIX`` (n,) and int32 (n, max_boxes, 4), ``weights`` float32
    (n, 2): of each target and of its partner's.
    """

    def __init__(
        self,
        augmentation: Augmentation,
        key: int,
        mix: npt.NDArray[Any],
        boxes: npt.NDArray[np.int32],
        weights: npt.NDArray[np.float32],
        in_batch: int,
    ) -> None:
        self.augmentation = augmentation
        self.key = key
        self.mix = mix
        self.boxes = boxes
        self.weights = weights
        self.in_batch = in_batch

    def __len__(self) -> int:
        return len(self.mix)

    def packed(self) -> torch.Tensor:
        """The bytes that cross the bus."""
        whole = np.empty(self.augmentation.record_bytes(self.in_batch), dtype=np.uint8)
        whole[:_HEADER].view(np.uint64)[:] = (self.key, 0)
        middle = _HEADER + self.mix.nbytes
        whole[_HEADER:middle] = self.mix.view(np.uint8).reshape(-1)
        whole[middle:] = self.boxes.reshape(-1).view(np.uint8)
        return torch.from_numpy(whole)

    def mixed_target(self, target: torch.Tensor) -> torch.Tensor:
        """timm's mixup_target for this batch, on the target's device."""
        mixing = self.augmentation.mixing
        assert mixing is not None
        return mixing.target(target, torch.from_numpy(self.weights).to(target.device))


class Augmentation:
    """What to do with the batches of a loader; `Delivery.augment` takes it.

    The leaf under ``target_key`` (an outermost index or key) becomes float targets if there is
    ``mixing``.
    """

    def __init__(
        self, erasing: RandomErasing | None, mixing: Mixing | None, target_key: Key = 1
    ) -> None:
        if erasing is None and mixing is None:
            raise ValueError("an augmentation erases or mixes; both are None")
        self.erasing = erasing
        self.mixing = mixing
        self.target_key = target_key
        self._epochs = 0

    @property
    def max_boxes(self) -> int:
        return 0 if self.erasing is None else self.erasing.most

    @property
    def fill(self) -> str:
        return "const" if self.erasing is None else self.erasing.fill

    @property
    def blends_bytes(self) -> bool:
        # Without a blend the order makes no difference, and this is the cheaper one.
        return self.mixing is None or self.mixing.before_normalize

    def out_batch(self, in_batch: int) -> int:
        half = self.mixing is not None and self.mixing.mode == "half"
        return in_batch // 2 if half else in_batch

    def leaves(self, parts: Parts, images: dict[int, Image]) -> tuple[int, int | None]:
        """(the image leaf, the target leaf if there is mixing). Raises ValueError where a batch has
        none of them or several."""
        if len(images) != 1:
            raise ValueError(
                f"a batch with {len(images)} image leaves cannot be erased or mixed; name the one "
                "that is meant by image_key"
            )
        (image,) = images
        if self.mixing is None:
            return image, None
        found = [i for i, key in enumerate(parts.keys) if key == self.target_key and i != image]
        if len(found) != 1:
            raise ValueError(
                f"mixing needs the targets as one tensor under {self.target_key!r} of the batch; the "
                f"tensors of this batch are under {parts.keys}"
            )
        (target,) = found
        leaf = parts.leaves[target]
        batch = images[image].shape[0]
        if leaf.dim() < 1 or len(leaf) != batch:
            raise ValueError(
                f"the targets under {self.target_key!r} have shape {tuple(leaf.shape)}; mixing needs "
                f"one for each of the {batch} images"
            )
        return image, target

    def record_bytes(self, in_batch: int) -> int:
        return _HEADER + self.out_batch(in_batch) * (_MIX.itemsize + self.max_boxes * 16)

    def extra_leaves(self, in_batch: int) -> list[int]:
        """Bytes of the leaves that travel with a batch: the targets' weights, then the records."""
        weights = [] if self.mixing is None else [self.out_batch(in_batch) * 8]
        return [*weights, self.record_bytes(in_batch)]

    def begin(self, saved: Mapping[str, Any] | None = None) -> EpochDraws:
        """The draws of one epoch, or of the rest of the one that `state` told of. The seed is read off
        the state of torch's global generator, which stays as it is: to draw from it would change the
        order of samples that DataLoader gives. So the number of the epoch joins the key."""
        if saved is not None:
            self._epochs = saved["epoch"]
            if saved["seed"] is not None:
                return EpochDraws(self, saved["seed"], saved["epoch"], saved["batch"])
        generator = torch.Generator()
        generator.set_state(torch.get_rng_state())
        seed = int(
            torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator).item()
        )
        self._epochs += 1
        return EpochDraws(self, seed, self._epochs)

    def state(self) -> dict[str, Any]:
        """For `begin` of the next epoch."""
        return {"epoch": self._epochs, "seed": None, "batch": 0}


class EpochDraws:
    """Batch number i is a function of (seed, epoch, i)."""

    def __init__(self, augmentation: Augmentation, seed: int, epoch: int, batch: int = 0) -> None:
        self.augmentation = augmentation
        self.seed = seed
        self.epoch = epoch
        self._key = np.array([seed, epoch], dtype=np.uint64)
        self.batch = batch  # of the next one; set back by who draws once more for the same batch
        # Of the one that the loop gets next, which may be behind: set on the loop's thread by who
        # delivers, before the batch, or what is raised in its place, is counted as received.
        self.delivered = batch

    def state(self, batch: int) -> dict[str, Any]:
        """For `Augmentation.begin` of the rest of the epoch, from number ``batch`` on."""
        return {"epoch": self.epoch, "seed": self.seed, "batch": batch}

    def state_of_any(self) -> dict[str, Any]:
        """The same without what is this process's own: the rest of the epoch gets another seed."""
        return {"epoch": self.epoch - 1, "seed": None, "batch": 0}

    def next(self, image: Image) -> Records:
        """The records of the next batch. Raises ValueError for an odd one where images are mixed."""
        batch, _, height, width = image.shape
        return self.records(batch, height, width)

    def records(self, batch: int, height: int, width: int) -> Records:
        """The same for ``batch`` images of that size."""
        augmentation = self.augmentation
        mixing, erasing = augmentation.mixing, augmentation.erasing
        if mixing is not None and batch % 2 != 0:
            raise ValueError(
                f"a batch of {batch} images cannot be mixed: image i is mixed with image -1-i, so "
                "the number must be even; use drop_last=True"
            )
        counter = np.array([0, 0, self.batch, 0], dtype=np.uint64)
        random = np.random.Generator(np.random.Philox(key=self._key, counter=counter))
        self.batch += 1
        n = augmentation.out_batch(batch)
        key = int(random.integers(0, 2**64, dtype=np.uint64))
        mix = np.zeros(n, dtype=_MIX)
        mix["own"] = np.arange(n)
        mix["partner"] = batch - 1 - np.arange(n)
        mix["own_weight"] = 1.0
        weights = np.zeros((n, 2), dtype=np.float32)
        weights[:, 0] = 1.0
        if mixing is not None and mixing.enabled:
            _draw_mixing(mixing, random, mix, weights, height, width)
        boxes = np.zeros((n, augmentation.max_boxes, 4), dtype=np.int32)
        if erasing is not None:
            mix["boxes"] = _draw_boxes(erasing, random, boxes, height, width)
        return Records(augmentation, key, mix, boxes, weights, batch)


def _draw_mixing(
    mixing: Mixing,
    random: np.random.Generator,
    mix: npt.NDArray[Any],
    weights: npt.NDArray[np.float32],
    height: int,
    width: int,
) -> None:
    """timm's _params_per_batch and _params_per_elem, cutmix_bbox_and_lam, and what the modes do with
    them."""
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
        lam = lam.astype(np.float32).astype(np.float64)  # as timm keeps them
    cuts &= lam != 1.0
    boxes = _cut_boxes(mixing, random, lam, height, width)
    if mixing.correct_lam or mixing.cutmix_minmax is not None:
        area = (boxes[:, 1] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 2])
        lam = np.where(cuts, 1.0 - area / float(height * width), lam)
    pairs = np.empty((count, 2), dtype=np.float32)
    pairs[:, 0] = lam
    # A whole batch's weight is a Python float in timm, that of an image a float32.
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
    """timm's rand_bbox and rand_bbox_minmax: (count, 4), top, bottom, left, right."""
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


def _draw_boxes(
    erasing: RandomErasing,
    random: np.random.Generator,
    boxes: npt.NDArray[np.int32],
    height: int,
    width: int,
) -> npt.NDArray[np.uint32]:
    """timm's RandomErasing._erase for all images at once. Returns how many boxes each has; one that
    never fitted stays empty."""
    n, most = len(boxes), erasing.most
    chosen = random.random(n) <= erasing.probability
    chosen[: n // erasing.num_splits if erasing.num_splits > 1 else 0] = False
    counts = random.integers(erasing.min_count, most, size=n, endpoint=True)
    shape = (n, most, _ATTEMPTS)
    area = random.uniform(erasing.min_area, erasing.max_area, shape) * (height * width)
    area /= counts[:, None, None]
    max_aspect = erasing.max_aspect or 1 / erasing.min_aspect
    aspect = np.exp(random.uniform(math.log(erasing.min_aspect), math.log(max_aspect), shape))
    h = np.rint(np.sqrt(area * aspect)).astype(np.int64)
    w = np.rint(np.sqrt(area / aspect)).astype(np.int64)
    fits = (w < width) & (h < height)
    first = fits.argmax(axis=2)[:, :, None]
    h = np.take_along_axis(h, first, axis=2)[:, :, 0]
    w = np.take_along_axis(w, first, axis=2)[:, :, 0]
    used = fits.any(axis=2) & chosen[:, None] & (np.arange(most) < counts[:, None])
    h, w = np.where(used, h, 0), np.where(used, w, 0)
    top = random.integers(0, height - h + 1)
    left = random.integers(0, width - w + 1)
    boxes[:] = np.stack((top, top + h, left, left + w), axis=2)
    return np.where(chosen, counts, 0).astype(np.uint32)
