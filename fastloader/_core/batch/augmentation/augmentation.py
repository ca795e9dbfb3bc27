"""Random erasing, Mixup and CutMix on whole batches, with timm 1.0.31's distributions.

Counter-based generators draw here what becomes of each image, for a whole batch at a time, and `Records`
is the result. The kernel applies it while it normalises (csrc/image/normalize/augment.h is the
definition). `augmentation/in_torch.py` does the same in torch operations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fastloader._core.batch.augmentation.erasing import RandomErasing, draw_boxes
from fastloader._core.batch.augmentation.mixing import Mixing
from fastloader._core.batch.images import Image
from fastloader._core.batch.tree import BatchTree
from fastloader._core.machine import extension
from fastloader.transforms._erasing import Erasing
from fastloader.transforms._normalization import Normalization, make_spec
from fastloader.transforms._recipe.draws import MASK, philox
from fastloader.transforms.tensors import Rolled

if TYPE_CHECKING:
    from fastloader import _native


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
    """What becomes of each image of one batch.

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
        """The records as the bytes that go to the device."""
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
        """timm's mixup_target for this batch, on the target's device."""
        mixing = self.augmentation.mixing
        assert mixing is not None
        return mixing.target(target, torch.from_numpy(self.weights).to(target.device))


class Augmentation:
    """What is erased and mixed in the batches of a loader, for `Delivery.augment`.

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
        """What "const" fills with: a number for each channel."""
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
            ValueError: if a batch has none of them or several.
        """
        if len(images) != 1:
            raise ValueError(
                f"a batch with {len(images)} image leaves cannot be erased or mixed; name the one "
                "that is meant by image_key"
            )
        (image,) = images
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
        """The bytes of the leaves that travel with a batch: the targets' weights and the records."""
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
        """Returns the state for `begin` without a seed, which is that of the ranks or of another epoch.
        ``begun``: whether it is of the middle of an epoch."""
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
        """Returns the state for `Augmentation.begin` of the rest, behind so many samples."""
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
    """The records and the targets' weights of ``n`` images that stay as they are."""
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
