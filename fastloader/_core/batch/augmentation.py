"""Random erasing, Mixup and CutMix on whole batches, with timm 1.0.31's distributions: their
arguments, their draws, and what they do."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fastloader._core.batch.image_leaves import Image
from fastloader._core.batch.tree import BatchTree
from fastloader._core.machine import extension
from fastloader.transforms._erasing import Erasing, below, between, numbers_of, uniform_of
from fastloader.transforms._normalization import Normalization, make_spec
from fastloader.transforms._recipe.draws import ERASING, MASK, OCCURRENCE, PICTURE, philox
from fastloader.transforms.tensors import Rolled

if TYPE_CHECKING:
    from fastloader import _native


# ---- Random erasing: its arguments, and the boxes that are erased, with timm 1.0.31's
# distributions.


_FILLS = ("const", "rand", "pixel")
_ATTEMPTS = 10
_STREAM = ERASING | 1 << OCCURRENCE  # that of a chain, which may have the same seed, is without


@dataclasses.dataclass(frozen=True)
class RandomErasing:
    """timm's RandomErasing, with the same names, defaults and meaning.

    An image is erased at all with ``probability``. It then gets ``min_count`` to ``max_count`` boxes.
    Each has ``min_area`` to ``max_area`` of the image divided by their number, and a log-uniform aspect
    ratio. A box that does not fit is drawn again, ten times at most. ``mode`` fills with "const" (0,
    the mean), "rand" (one normal deviate for each box and channel) or "pixel" (one for each value).
    With ``num_splits`` above 1 the first ``batch // num_splits`` images stay as they are.

    Raises:
        ValueError: for what cannot be drawn.
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


def draw_boxes(
    erasing: RandomErasing, seed: int, places: Any, splits: Any, height: int, width: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
    """Draws as timm's RandomErasing._erase, for all images at once: of each a function of the seed, its
    place in the order, and the split of the batch in which it stands.

    Returns:
        The boxes of each image, int32 (n, most, 4); how many it has; the key of its deviates. A box that
        never fitted stays empty.
    """
    n, most = len(places), erasing.most
    streams = _STREAM | splits << PICTURE
    # Whether it is erased, how many boxes, the deviates' key, and one that is not used.
    numbers = numbers_of([seed], places, streams, 2)
    chosen = uniform_of(numbers[:, 0]) <= erasing.probability
    chosen[: n // erasing.num_splits if erasing.num_splits > 1 else 0] = False
    spread = np.full(n, most - erasing.min_count + 1)
    counts = np.where(chosen, erasing.min_count + below(numbers[:, 1], spread), 0)
    boxes = np.zeros((n, most, 4), dtype=np.int32)
    rows = chosen.nonzero()[0]
    if len(rows):
        # Of each box area and aspect of each attempt, top and left.
        words = numbers_of([seed], places[rows], streams[rows], most * (_ATTEMPTS + 1), first=2)
        boxes[rows] = _boxes(
            erasing, words.reshape(len(rows), most, -1), counts[rows], height, width
        )
    return boxes, counts.astype(np.uint32), numbers[:, 2]


def _boxes(
    erasing: RandomErasing,
    numbers: npt.NDArray[np.uint64],
    counts: npt.NDArray[np.int64],
    height: int,
    width: int,
) -> npt.NDArray[np.int64]:
    """Draws the boxes of images that are erased, as many for each as ``counts`` says."""
    uniform = uniform_of(numbers[:, :, : 2 * _ATTEMPTS])
    area = between((erasing.min_area, erasing.max_area), uniform[:, :, ::2]) * (height * width)
    area /= counts[:, None, None]
    max_aspect = erasing.max_aspect or 1 / erasing.min_aspect
    ends = math.log(erasing.min_aspect), math.log(max_aspect)
    aspect = np.exp(between(ends, uniform[:, :, 1::2]))
    h = np.rint(np.sqrt(area * aspect)).astype(np.int64)
    w = np.rint(np.sqrt(area / aspect)).astype(np.int64)
    fits = (w < width) & (h < height)
    first = fits.argmax(axis=2)[:, :, None]
    h = np.take_along_axis(h, first, axis=2)[:, :, 0]
    w = np.take_along_axis(w, first, axis=2)[:, :, 0]
    used = fits.any(axis=2) & (np.arange(numbers.shape[1]) < counts[:, None])
    h, w = np.where(used, h, 0), np.where(used, w, 0)
    top = below(numbers[:, :, -2], height - h + 1)
    left = below(numbers[:, :, -1], width - w + 1)
    return np.stack((top, top + h, left, left + w), axis=2)


# ---- Mixup and CutMix, with timm 1.0.31's distributions: their arguments, the partner's share
# of each image, and the targets.


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
        """Returns the number of the image with which each image of a batch is mixed."""
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
        """Mixes targets as timm's mixup_target: float32 (n, num_classes) from the labels (B,) or, with
        ``multi_label``, from dense targets (B, num_classes). ``weights`` is float32 (n, 2), n <= B: the
        weight of each image and that of its partner."""
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


# ---- Random erasing, Mixup and CutMix on whole batches, with timm 1.0.31's distributions.
#
# Counter-based generators draw here what becomes of each image, for a whole batch at a time,
# and `Records` is the result. The kernel applies it while it normalises
# (csrc/image/normalize/augment.h is the definition). `augment_in_torch.py` does the same
# in torch operations.


Key = int | str


# The beginning of the records, and MixRecord, of csrc/image/normalize/augment.h.
_HEADER = np.dtype([("constants", np.float32, (4,))])
_MIX = np.dtype(
    [
        ("own", np.uint32),
        ("partner", np.uint32),
        ("own_weight", np.float32),
        ("partner_weight", np.float32),
        ("cut", np.int32, (4,)),  # top, bottom, left, right
        ("boxes", np.uint32),
        ("key", np.uint64),
    ]
)


class Records:
    """The draws of one batch: what becomes of each of its images.

    ``mix`` and ``boxes`` are arrays of ``_MIX`` (n,) and int32 (n, max_boxes, 4). ``weights`` is float32
    (n, 2): the weight of each target and that of its partner.
    """

    def __init__(
        self,
        augmentation: Augmentation,
        mix: npt.NDArray[Any],
        boxes: npt.NDArray[np.int32],
        weights: npt.NDArray[np.float32],
        in_batch: int,
    ) -> None:
        self.augmentation = augmentation
        self.mix = mix
        self.boxes = boxes
        self.weights = weights
        self.in_batch = in_batch

    def __len__(self) -> int:
        return len(self.mix)

    @property
    def keys(self) -> npt.NDArray[np.uint64]:
        """Returns the key of each image's random fill."""
        keys: npt.NDArray[np.uint64] = self.mix["key"]
        return keys

    def packed(self) -> torch.Tensor:
        """Packs the records into the bytes that go to the device."""
        whole = np.empty(self.augmentation.record_bytes(self.in_batch), dtype=np.uint8)
        header = np.zeros(1, dtype=_HEADER)
        values = self.augmentation.values or ()
        header["constants"][0, : len(values)] = values
        begin, middle = _HEADER.itemsize, _HEADER.itemsize + self.mix.nbytes
        whole[:begin] = header.view(np.uint8)
        whole[begin:middle] = self.mix.view(np.uint8).reshape(-1)
        whole[middle:] = self.boxes.reshape(-1).view(np.uint8)
        return torch.from_numpy(whole)

    def mixed_target(self, target: torch.Tensor) -> torch.Tensor:
        """Mixes this batch's targets as timm's mixup_target, on the target's device."""
        mixing = self.augmentation.mixing
        assert mixing is not None
        return mixing.target(target, torch.from_numpy(self.weights).to(target.device))


class Augmentation:
    """Erases and mixes in the batches of a loader, for `Delivery.augment`.

    An `Erasing` is of single pictures, whose boxes the source draws. With ``mixing``, the leaf under
    ``target_key`` (an outermost index or key) becomes float targets. ``splits``: how many pictures of
    each sample are in a batch, all first ones before all second ones; 0 for as many as ``erasing``
    says.
    """

    def __init__(
        self,
        erasing: RandomErasing | Erasing | None,
        mixing: Mixing | Rolled | None,
        target_key: Key = 1,
        splits: int = 0,
    ) -> None:
        if erasing is None and mixing is None:
            raise ValueError("an augmentation erases or mixes; both are None")
        self.erasing = erasing
        self.mixing = mixing
        self.target_key = target_key
        of_erasing = erasing.num_splits if isinstance(erasing, RandomErasing) else 0
        self.splits = max(1, splits or of_erasing)
        self._epochs = 0

    @property
    def max_boxes(self) -> int:
        return 0 if self.erasing is None else self.erasing.most

    @property
    def fill(self) -> str:
        """The native Fill, in small letters."""
        if self.erasing is None or (self.erasing.fill == "const" and self.values is None):
            return "zero"
        return self.erasing.fill

    @property
    def values(self) -> tuple[float, ...] | None:
        """The numbers with which "const" fills, one for each channel."""
        return self.erasing.values if isinstance(self.erasing, Erasing) else None

    @property
    def blends_bytes(self) -> bool:
        # True without mixing too: the order makes no difference then, and this one is cheaper.
        return self.mixing is None or self.mixing.before_normalize

    def out_batch(self, in_batch: int) -> int:
        half = self.mixing is not None and self.mixing.mode == "half"
        return in_batch // 2 if half else in_batch

    def leaves(self, tree: BatchTree, images: dict[int, Image]) -> tuple[int, int | None]:
        """Returns (the image leaf, the target leaf or None without mixing).

        Raises:
            ValueError: if a batch has none of them or several, or clips in the place of images.
        """
        if len(images) != 1:
            raise ValueError(
                f"a batch with {len(images)} image leaves cannot be erased or mixed; name the one "
                "that is meant by image_key"
            )
        (image,) = images
        if images[image].clips is not None:
            raise ValueError(
                f"clips cannot be erased or mixed, only images: the leaf under {tree.keys[image]!r} has "
                f"shape {tuple(tree.leaves[image].shape)}; erase and mix clips in the training loop"
            )
        if self.mixing is None:
            return image, None
        found = [i for i, key in enumerate(tree.keys) if key == self.target_key and i != image]
        if len(found) != 1:
            raise ValueError(
                f"mixing needs the targets as one tensor under {self.target_key!r} of the batch; the "
                f"tensors of this batch are under {tree.keys}"
            )
        (target,) = found
        leaf = tree.leaves[target]
        batch = images[image].shape[0]
        if leaf.dim() < 1 or len(leaf) != batch:
            raise ValueError(
                f"the targets under {self.target_key!r} have shape {tuple(leaf.shape)}; mixing needs "
                f"one for each of the {batch} images"
            )
        return image, target

    def record_bytes(self, in_batch: int) -> int:
        images = self.out_batch(in_batch) * (_MIX.itemsize + self.max_boxes * 16)
        return _HEADER.itemsize + images

    def extra_leaves(self, in_batch: int) -> list[int]:
        """Returns the bytes of the leaves that travel with a batch: the targets' weights and the
        records."""
        weights = [] if self.mixing is None else [self.out_batch(in_batch) * 8]
        return [*weights, self.record_bytes(in_batch)]

    def begin(
        self,
        saved: Mapping[str, Any] | None = None,
        first: int = 0,
        step: int = 1,
        seed: int | None = None,
    ) -> EpochDraws:
        """Begins the draws of one epoch, or of the rest of the epoch from which ``saved`` is. ``first``
        and ``step``: as `EpochDraws` has them. ``seed``: of the epoch, if all ranks have one.

        Any other seed comes from the state of torch's global generator, which stays as it is: a draw
        from it would change the order of samples that DataLoader gives. Several epochs may therefore
        have the same seed, and so the number of the epoch joins the key."""
        samples = 0
        if saved is not None:
            self._epochs = saved["epoch"]
            samples = saved.get("samples", 0)
            # A state of an older version counts batches, of which nothing here is a function.
            if saved["seed"] is not None and "samples" in saved:
                return EpochDraws(self, saved["seed"], saved["epoch"], samples, first, step)
        self._epochs += 1
        if seed is not None:
            return EpochDraws(self, seed, 0, samples, first, step)
        generator = torch.Generator()
        generator.set_state(torch.get_rng_state())
        drawn = torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator)
        return EpochDraws(self, int(drawn.item()), self._epochs, samples, first, step)

    def state(self, samples: int = 0, begun: bool = False) -> dict[str, Any]:
        """Returns the state for `begin`, without its seed, which is that of the ranks or of another
        epoch. ``begun``: whether the state is of the middle of an epoch."""
        return {"epoch": self._epochs - begun, "seed": None, "samples": samples}


class EpochDraws:
    """The draws of one epoch. What is erased of an image is a function of (seed, epoch, the sample's
    place in the order); what is mixed in a batch, of (seed, epoch, the place of its first sample).

    ``samples``: how many samples of the epoch came before, among those that this loader gives. Its
    first one has the place ``first``, and each one ``step`` more than the one before."""

    def __init__(
        self,
        augmentation: Augmentation,
        seed: int,
        epoch: int,
        samples: int = 0,
        first: int = 0,
        step: int = 1,
    ) -> None:
        self.augmentation = augmentation
        self.seed = seed
        self.epoch = epoch
        self._first, self._step = first, step
        a, b, _, _ = philox((epoch, 0, 0, 0), (seed & MASK, seed >> 32 & MASK))
        self._key = a | b << 32
        self.samples = samples  # before the next draws; set back to draw them again
        # Before the draws that the loop gets next, which may be smaller. The delivery sets it on the
        # loop's thread, before the batch, or what is raised in its place, counts as received.
        self.delivered = samples

    def state(self, samples: int) -> dict[str, Any]:
        """Returns the state for `Augmentation.begin` of the rest of the epoch, behind ``samples``
        samples."""
        return {"epoch": self.epoch, "seed": self.seed, "samples": samples}

    def next(self, image: Image) -> Records:
        """Draws the records of the next batch.

        Raises:
            ValueError: if images are mixed and their number is odd.
        """
        batch, _, height, width = image.shape
        return self.records(batch, height, width)

    def records(self, batch: int, height: int, width: int) -> Records:
        """Draws the records of the next batch, for ``batch`` images of that size."""
        augmentation = self.augmentation
        mixing, erasing = augmentation.mixing, augmentation.erasing
        if mixing is not None:
            mixing.check(batch)
        splits = augmentation.splits
        samples = batch // splits if batch % splits == 0 else batch
        before, self.samples = self.samples, self.samples + samples
        n = augmentation.out_batch(batch)
        mix, weights = unchanged(n)
        if mixing is not None and mixing.enabled:
            mix["partner"] = mixing.partners(batch)[:n]
            key = np.array([self._key, self._place(before)], dtype=np.uint64)
            random = np.random.Generator(np.random.Philox(key=key))
            mixing.draw(random, mix, weights, height, width)
        if not isinstance(erasing, RandomErasing):
            boxes = np.zeros((n, augmentation.max_boxes, 4), dtype=np.int32)
            return Records(augmentation, mix, boxes, weights, batch)
        split, sample = np.divmod(np.arange(n), max(1, samples))
        places = self._place(before + sample)
        boxes, mix["boxes"], mix["key"] = draw_boxes(
            erasing, self._key, places, split, height, width
        )
        return Records(augmentation, mix, boxes, weights, batch)

    def _place(self, sample: Any) -> Any:
        return self._first + self._step * sample


def unchanged(n: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """Makes the records and the targets' weights of ``n`` images that stay as they are."""
    mix = np.zeros(n, dtype=_MIX)
    mix["own"] = mix["partner"] = np.arange(n)
    mix["own_weight"] = 1.0
    weights = np.zeros((n, 2), dtype=np.float32)
    weights[:, 0] = 1.0
    return mix, weights


# Gives the draws with which an epoch's erasing and mixing begins.
BeginDraws = Callable[[Augmentation], EpochDraws]


def make_augment_spec(
    image: Image, normalization: Normalization, records: Records
) -> _native.AugmentSpec:
    native = extension.native
    augmentation = records.augmentation
    out = dataclasses.replace(image, shape=(len(records), *image.shape[1:]))
    return native.AugmentSpec(
        normalize=make_spec(out.shape, out.nhwc, normalization),
        in_batch=image.shape[0],
        max_boxes=augmentation.max_boxes,
        fill=getattr(native.Fill, augmentation.fill.upper()),
        blend_bytes=augmentation.blends_bytes,
    )


# ---- What is erased and mixed in batches whose source knows it: boxes are drawn by the
# samples' own seeds, and what is mixed by that of a batch's first sample.


class SampleDraws(EpochDraws):
    """The draws of one epoch, which are a function of the seeds and the numbers of a batch's samples.
    The source tells which they are before it gives the batch."""

    def __init__(self, augmentation: Augmentation) -> None:
        super().__init__(augmentation, 0, 0)
        self._numbers: Sequence[int] = ()
        self._seeds: Sequence[int] = ()

    def give(self, samples: Sequence[int], seeds: Sequence[int]) -> None:
        """Tells the samples of the next batch, and the seed of each, or one for all."""
        self._numbers, self._seeds = samples, seeds

    def records(self, batch: int, height: int, width: int) -> Records:
        augmentation, mixing = self.augmentation, self.augmentation.mixing
        if mixing is not None:
            mixing.check(batch)
        self.samples += batch
        n = augmentation.out_batch(batch)
        mix, weights = unchanged(n)
        if mixing is not None and mixing.enabled:
            mix["partner"] = mixing.partners(batch)[:n]
            mixing.draw(self._random(), mix, weights, height, width)
        boxes = np.zeros((n, augmentation.max_boxes, 4), dtype=np.int32)
        if isinstance(augmentation.erasing, Erasing):
            drawn, keys = augmentation.erasing.draw(self._seeds, self._numbers, height, width)
            boxes[:, 0] = drawn
            mix["boxes"] = drawn[:, 1] > drawn[:, 0]
            mix["key"] = keys
        return Records(augmentation, mix, boxes, weights, batch)

    def _random(self) -> np.random.Generator:
        first = np.array([self._seeds[0] % 2**64, self._numbers[0]], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=first))
