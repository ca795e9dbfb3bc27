"""The names of ``timm.data.loader``, for scripts that import from there.

from fastloader.compat.timm.loader import create_loader
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch.utils.data import DistributedSampler, IterableDataset, RandomSampler

from fastloader._core.batch.augmentation import Augmentation, RandomErasing
from fastloader._core.machine import devices
from fastloader._core.machine.limits import own_threads
from fastloader._core.order import generators
from fastloader.compat.timm.mixup import FastCollateMixup, WorkerSeeding, fast_collate
from fastloader.compat.timm.samplers import OrderedDistributedSampler, RepeatAugSampler
from fastloader.compat.timm.transforms import create_transform, import_timm, what_needs_timm
from fastloader.loader import FastLoader
from fastloader.prefetcher import DevicePrefetcher

# ---- ``PrefetchLoader``: batches on the device, normalised, under timm's interface.


_log = logging.getLogger("fastloader")

IMAGENET_DEFAULT_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEFAULT_STD = (0.229, 0.224, 0.225)


class PrefetchLoader:
    """Gives ``(input, target)`` on the device, with normalised inputs, while the next are on their way.

    Args:
        loader: Gives pairs. Inputs are uint8 (N, C, H, W), as `fast_collate` makes them, or NHWC. A
            FastLoader with its own device, mean, std and dtype is taken as it is if they are those
            below. Otherwise it is a ValueError.
        mean, std: A number, or one per channel, in 0..1; default ImageNet's. With another number of
            channels their average is taken, with a warning.
        channels: The number of channels of the inputs, 1 to 4; default 3.
        device: "auto" (default) takes an accelerator if there is one, else the CPU. Others are as in
            FastLoader: a device that is given and does not exist is a ValueError. (timm's default is
            "cuda".)
        img_dtype: The type of the inputs: torch.float32 (default, also for None), float16 or bfloat16.
            ``fp16=True`` is float16 and wins.
        re_prob: The probability that parts of an input are erased, after normalisation; default 0.
        re_mode: "const" (default: 0, the mean), "rand" (a normal deviate per channel) or "pixel" (one
            per value).
        re_count: The most boxes; default 1.
        re_num_splits: If it is above 1, the first ``1 / re_num_splits`` of a batch stays whole; default
            0.

    Inputs arrive as ``(x/255 - mean)/std``, computed in float32 and rounded once. Targets arrive as
    they are. If the loader's collate_fn is a `FastCollateMixup`, it only collates from now on, and the
    kernel that normalises also mixes: targets then arrive as float32 (B, num_classes). Inputs and
    targets belong to the stream that is current when they are taken.

    Attributes: ``loader``, ``device``, ``img_dtype``, ``random_erasing``; ``mean``, ``std``: tensors
    (1, C, 1, 1) on the device, in 0..255; ``is_cuda``, ``is_npu``; ``stream``: the stream on which the
    batches are ordered, None on the CPU; ``sampler``, ``batch_sampler``, ``dataset``: the loader's.

    Raises:
        TypeError, ValueError: for arguments that cannot work, at once; for a batch that is no pair or
            has no image, in the batch's place.
        Exception: what the loader raises, in its place.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        mean: float | Sequence[float] = IMAGENET_DEFAULT_MEAN,
        std: float | Sequence[float] = IMAGENET_DEFAULT_STD,
        channels: int = 3,
        device: str | int | torch.device = "auto",
        img_dtype: torch.dtype | None = None,
        fp16: bool = False,
        re_prob: float = 0.0,
        re_mode: str = "const",
        re_count: int = 1,
        re_num_splits: int = 0,
    ) -> None:
        means, stds = adapt_to_chs(mean, channels), adapt_to_chs(std, channels)
        self.loader: Any = loader
        self.img_dtype = torch.float16 if fp16 else img_dtype or torch.float32
        if device is None:
            raise TypeError("device=None: name a device, or 'auto'")
        self._means, self._stds = means, stds
        self._inside: FastLoader[Any] | DevicePrefetcher[Any]
        if isinstance(loader, FastLoader) and loader._runtime.normalization is not None:
            _check_delivery(loader, device, means, stds, self.img_dtype)
            self._inside, delivery = loader, loader._runtime.delivery
        else:
            self._inside = DevicePrefetcher(
                _Pairs(loader), device, mean=means, std=stds, dtype=self.img_dtype, image_key=0
            )
            delivery = self._inside._delivery
        self._delivery = delivery
        self.random_erasing = None
        if re_prob > 0:
            self.random_erasing = RandomErasing(
                re_prob, mode=re_mode, max_count=re_count, num_splits=re_num_splits
            )
        mixing = getattr(loader, "collate_fn", None)
        if isinstance(mixing, FastCollateMixup):
            mixing.in_kernel = True
        else:
            mixing = None
        if self.random_erasing is not None or mixing is not None:
            # timm's AugMixDataset
            splits = getattr(getattr(loader, "dataset", None), "num_splits", 0)
            delivery.augment(Augmentation(self.random_erasing, mixing, splits=splits))

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        # No generator that closes the epoch: one that a module keeps may end when the process does, and
        # then the names of other modules are None. An epoch that nobody keeps ends by itself.
        return map(_pair, iter(self._inside))

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def sampler(self) -> Any:
        return self.loader.sampler

    @property
    def batch_sampler(self) -> Any:
        return self.loader.batch_sampler

    @property
    def dataset(self) -> Any:
        return self.loader.dataset

    @property
    def mixup_enabled(self) -> bool:
        """Whether a FastCollateMixup, ours or timm's, is the loader's collate_fn and mixes. Setting it
        affects batches that are not drawn yet. Without such a collate_fn it does nothing, as in timm."""
        return bool(getattr(self.loader.collate_fn, "mixup_enabled", False))

    @mixup_enabled.setter
    def mixup_enabled(self, enabled: bool) -> None:
        if hasattr(self.loader.collate_fn, "mixup_enabled"):
            self.loader.collate_fn.mixup_enabled = enabled

    @property
    def device(self) -> torch.device:
        """The device that batches go to. It may lack its number before the first ``iter()``."""
        return self._delivery.device or torch.device("cpu")

    @property
    def mean(self) -> torch.Tensor:
        return self._on_device(self._means)

    @property
    def std(self) -> torch.Tensor:
        return self._on_device(self._stds)

    def _on_device(self, values: tuple[float, ...]) -> torch.Tensor:
        scaled = [value * 255 for value in values]
        return torch.tensor(scaled, dtype=self.img_dtype, device=self.device).view(1, -1, 1, 1)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def is_npu(self) -> bool:
        return self.device.type == "npu"

    @property
    def stream(self) -> Any:
        return None if self.device.type == "cpu" else devices.StreamSide(self.device).consumer()

    def stats(self) -> dict[str, Any]:
        """Returns the counters; see `FastLoader.stats`."""
        return {**self._inside.stats()}

    def close(self) -> None:
        """Ends live iterators and threads, and frees pinned memory. Idempotent. Iterating afterwards
        starts anew."""
        self._inside.close()


def adapt_to_chs(values: float | Sequence[float], channels: int) -> tuple[float, ...]:
    """Returns one number per channel; see `PrefetchLoader`."""
    if not isinstance(values, Sequence):
        return (float(values),) * channels
    if len(values) == channels:
        return tuple(float(value) for value in values)
    adapted = (float(sum(values) / len(values)),) * channels
    _log.warning(
        "Pretrained mean/std different shape than model, using avg value %s.", adapted
    )  # timm's words
    return adapted


def _check_delivery(
    loader: FastLoader[Any],
    device: str | int | torch.device,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    dtype: torch.dtype,
) -> None:
    delivery = loader._runtime.delivery
    made = delivery.normalization
    assert made is not None
    target = delivery.spec.given
    own: tuple[Any, ...] = ("cpu" if target is None else target, made.mean, made.std, made.dtype)
    if own[0] != device:  # perhaps two names of the same device
        own = (devices.resolve_device(own[0]), *own[1:])
        device = devices.resolve_device(device) or torch.device("cpu")
    if own != (device, mean, std, dtype):
        raise ValueError(
            "the loader's batches are delivered and normalised by itself, to "
            f"device={own[0]}, mean={own[1]}, std={own[2]}, dtype={own[3]}, and PrefetchLoader was "
            f"asked for device={device}, mean={mean}, std={std}, dtype={dtype}: drop those arguments "
            "there, or give the same here"
        )


class _Pairs:
    """A loader whose batches are checked before they are delivered."""

    def __init__(self, loader: Iterable[Any]) -> None:
        if not hasattr(loader, "__iter__"):
            raise TypeError(f"loader must yield batches, got {type(loader).__name__}")
        self.loader = loader
        self.num_workers = getattr(loader, "num_workers", 0)
        self.persistent_workers = getattr(loader, "persistent_workers", False)

    def __iter__(self) -> Iterator[Any]:
        return map(_pair, self.loader)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]


def _pair(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, list | tuple) and len(batch) == 2:
        return batch[0], batch[1]
    what = type(batch).__name__
    if isinstance(batch, list | tuple):
        what += f" of {len(batch)}"
    raise TypeError(
        f"PrefetchLoader takes batches of (input, target), the loader gave a {what}; "
        "fastloader.DevicePrefetcher takes batches of any structure"
    )


# ---- ``MultiEpochsDataLoader``, which has one iterator for life.


class MultiEpochsDataLoader(FastLoader[Any]):
    """timm's loader whose workers, and the batches under way, live on from one epoch to the next, so
    that an epoch begins with batches that are ready. The next epoch's order is drawn before this epoch
    has ended. A sampler with ``set_epoch`` is advanced by one for each epoch, from the number that was
    set last before the first epoch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.iterator: Iterator[Any] | None = None  # made late, so that set_epoch() counts
        self._received = 0  # batches of this epoch
        self._loaded = 0  # those of the epoch that goes on from a state, before the next iter()
        # Cleared for a moment, because torch forbids another sampler once it is initialised.
        self._DataLoader__initialized = False
        if self.batch_sampler is None:
            self.sampler = _Forever(self.sampler)
        else:
            self.batch_sampler = _Forever(self.batch_sampler)
        self._DataLoader__initialized = True

    @property
    def _forever(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __len__(self) -> int:
        return len(self._forever)

    def __iter__(self) -> Any:
        length = len(self)
        if length and self.iterator is None:  # without batches there is no endless sequence
            self.iterator = super().__iter__()
        self._received, self._loaded = self._loaded, 0
        while self._received < length:
            assert self.iterator is not None
            batch = next(self.iterator)
            self._received += 1
            yield batch
        self._received = 0
        progress = self._runtime.position.current
        if progress is not None and progress.sampler_state is not None:
            self._forever.begun_since(progress.sampler_state["epoch"])

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        drawn = state["sampler_state"]
        if "received" not in drawn:  # in one that was loaded
            received = self._received if state["begun"] else 0
            state["sampler_state"] = {
                **drawn,
                "received": received,
                "begun": self._forever.begun_since(drawn["epoch"]),
            }
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state and state.get("begun") and "received" not in (state.get("sampler_state") or {}):
            raise ValueError(
                "the state was saved in the middle of an epoch, by a version of fastloader whose "
                "MultiEpochsDataLoader could not go on there: load a state from between two epochs"
            )
        super().load_state_dict(state)
        if state:
            if (
                self.iterator is not None
            ):  # which may be drawing orders ahead, from the user's generator
                self.close()
            self._received = self._loaded = state["sampler_state"]["received"]

    def close(self) -> None:
        """Does as `FastLoader.close`. The next epoch starts anew."""
        super().close()
        self.iterator = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "iterator": None, "_received": self._loaded}


class _Forever:
    """Gives the epochs of a sampler one behind the other. Its state says which batch of which epoch was
    given last. It keeps how an epoch drew its order as soon as that is drawn, which may be before the
    loop has come there: `begun_since` gives it, for the state."""

    draws_again = True  # see `order.samplers.Samplers`

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self._given = (0, 0)  # the epoch, and how many of its batches
        self._number = self._numbered()  # of that epoch, as the sampler counts
        self._begun: dict[int, list[str | None]] = {}  # the generators before each epoch's draw
        self._loaded: dict[str, Any] = {}
        self._texts = generators.Texts()

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        loaded, self._loaded = self._loaded, {}
        first, given = loaded.get("epoch", 0), loaded.get("given", 0)
        self._begun = {int(epoch): drawn for epoch, drawn in loaded.get("begun", {}).items()}
        number = loaded.get("number", self._numbered())
        for epoch in itertools.count(first):
            self._given, self._number = (epoch, given), number
            if number is not None:
                self._sampler.set_epoch(number)
            for batch in itertools.islice(self._drawn(epoch), given, None):
                self._given = epoch, self._given[1] + 1
                yield batch
            given, number = 0, None if number is None else number + 1

    @property
    def _sampler(self) -> Any:
        """The sampler inside a batch sampler, or the sampler itself."""
        return getattr(self.sampler, "sampler", self.sampler)

    def _numbered(self) -> Any:
        """Returns the number of the sampler's next epoch, if the sampler takes a number."""
        sampler = self._sampler
        return getattr(sampler, "epoch", None) if hasattr(sampler, "set_epoch") else None

    def _drawn(self, epoch: int) -> Iterator[Any]:
        """Gives the batches of an epoch, and notes how they are drawn, or draws them again as was noted.
        Drawing again leaves the global generator as it is, because it is the user's."""
        owners = (self._sampler, self.sampler)
        sources = generators.distinct(*[getattr(each, "generator", None) for each in owners])
        before = generators.states_of(sources)
        known = self._begun.get(epoch)
        if known is not None:
            generators.put_back(sources, generators.decoded(known))
        batches = iter(self.sampler)
        first = [*itertools.islice(batches, 1)]  # with which torch's samplers draw
        if known is None:
            states = generators.changed(before, generators.states_of(sources))
            self._begun[epoch] = self._texts.of_states(states)
        else:
            generators.put_back(sources[:1], before[:1])
        return itertools.chain(first, batches)

    def begun_since(self, epoch: int) -> dict[str, Any]:
        """Returns how each epoch from ``epoch`` on drew its order, of those that have begun. It forgets
        earlier epochs, which the loop has passed."""
        # In place: another thread may be drawing the next one.
        for past in [each for each in list(self._begun) if each < epoch]:
            del self._begun[past]
        return {str(each): drawn for each, drawn in list(self._begun.items())}

    def state_dict(self) -> dict[str, Any]:
        (epoch, given), begun = self._given, bool(self._begun)
        number = self._number if begun else self._numbered()
        return {"epoch": epoch, "given": given, "number": number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loaded = state


# ---- The loader of ``create_loader`` without prefetcher, which erases while it normalises.


class ErasingLoader(FastLoader[Any]):
    """A FastLoader with one more argument, ``random_erasing``, which needs mean and std, or dtype. It is
    an argument because frameworks make a loader again from its arguments."""

    def __init__(
        self, *args: Any, random_erasing: RandomErasing | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.random_erasing = random_erasing
        if random_erasing is not None:
            self._runtime.augment(Augmentation(random_erasing, None))


class ErasingMultiEpochsLoader(ErasingLoader, MultiEpochsDataLoader):
    """An `ErasingLoader` for ``use_multi_epochs_loader``."""


# ---- ``create_loader``: timm's factory.


Size = int | Sequence[int]


def create_loader(
    dataset: Any,
    input_size: Size,
    batch_size: int,
    is_training: bool = False,
    no_aug: bool = False,
    re_prob: float = 0.0,
    re_mode: str = "const",
    re_count: int = 1,
    re_split: bool = False,
    train_crop_mode: str | None = None,
    scale: tuple[float, float] | None = None,
    ratio: tuple[float, float] | None = None,
    hflip: float = 0.5,
    vflip: float = 0.0,
    color_jitter: float | Sequence[float] | None = 0.4,
    color_jitter_prob: float | None = None,
    grayscale_prob: float = 0.0,
    gaussian_blur_prob: float = 0.0,
    auto_augment: str | None = None,
    num_aug_repeats: float = 0,
    num_aug_splits: int = 0,
    interpolation: str = "bilinear",
    mean: Sequence[float] = IMAGENET_DEFAULT_MEAN,
    std: Sequence[float] = IMAGENET_DEFAULT_STD,
    num_workers: int | Literal["auto"] = 1,
    distributed: bool = False,
    crop_pct: float | None = None,
    crop_mode: str | None = None,
    crop_border_pixels: int | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    pin_memory: bool = False,
    fp16: bool = False,
    img_dtype: torch.dtype = torch.float32,
    device: str | int | torch.device = "auto",
    use_prefetcher: bool = True,
    use_multi_epochs_loader: bool = False,
    persistent_workers: bool = True,
    worker_seeding: str | Callable[[Any], int] = "all",
    tf_preprocessing: bool = False,
    input_size_choices: Sequence[Size] | None = None,
    batch_size_choices: Sequence[int] | None = None,
    batch_choice_weights: Sequence[float] | None = None,
    batch_choice_seed: int = 0,
    batch_choice_schedule: str = "constant",
    batch_schedule_epochs: int | None = None,
    batch_schedule_spread: float = 0.65,
    batch_schedule_random_mix: float = 0.1,
    num_batches: int | None = None,
) -> PrefetchLoader | FastLoader[Any]:
    """Makes a loader over a FastLoader, with the arguments of timm 1.0.31's ``create_loader``.

    Native are RandomResizedCrop, flips, resize and centre crop in all of timm's crop modes: C++ threads
    decode, crop, resize and normalise the pictures of folder datasets. Colour jitter, grayscale, blur,
    AutoAugment, RandAugment, AugMix, "rkrc", "rkrr" and ``crop_border_pixels`` need no timm either. The
    installed timm does all other changes of pictures in worker processes: ``num_aug_splits`` and
    TensorFlow's preprocessing.
    ``loader.loader.plan()``, or ``loader.plan()`` without prefetcher, says which path it is.

    Args:
        dataset: Anything with a ``transform``, which is replaced: `ImageDataset`, timm's own,
            torchvision's or fastloader's ImageFolder.
        input_size: (channels, height, width), (height, width) or an edge.
        is_training: Random transforms, shuffled samples, and no last, smaller batch.
        no_aug: Training without randomness in the pictures.
        re_prob, re_mode, re_count, re_split: Random erasing, in training.
        train_crop_mode: "rrc" (default), a random part of the picture; "rkrc" and "rkrr" scale it in
            shape, and cut or pad it in the middle or at a random place.
        scale, ratio, hflip, vflip: The ranges of the random crop, and the probabilities of the flips.
        color_jitter, color_jitter_prob, grayscale_prob, gaussian_blur_prob, auto_augment: The
            augmentation in training.
        num_aug_repeats: Takes a `RepeatAugSampler`, in distributed training only.
        num_aug_splits: The splits of timm's AugMixDataset.
        interpolation: The filter: "nearest", "bilinear" (default), "bicubic", "box", "hamming",
            "lanczos" or, in training, "random": bilinear or bicubic for each picture.
        mean, std: One number per channel, in 0..1.
        num_workers: The number of worker processes. On the native path it is that of decode threads, 0
            for one per processor. "auto" does as in `FastLoader`.
        distributed: Takes a DistributedSampler in training, and else an `OrderedDistributedSampler`.
        crop_pct: For evaluation, the crop's share of the resized picture's edge; 0.875 if None.
        crop_mode: "center" (None), "squash" (resize out of shape) or "border" (fit in, with the mean
            colour around).
        crop_border_pixels: For evaluation, how much is cut off all around first.
        collate_fn: Takes a list of samples. The kernel does what a `FastCollateMixup` asks.
        fp16, img_dtype, device: As in `PrefetchLoader`; not used without prefetcher.
        use_prefetcher: Whether a `PrefetchLoader` delivers to ``device``, also to the CPU. With False,
            the loader is a FastLoader of normalised float32 CPU batches.
        use_multi_epochs_loader: See `MultiEpochsDataLoader`.
        persistent_workers: Whether workers live on over the epochs.
        worker_seeding: "all", "part", or a function of torch's worker info, which runs only in workers.
        input_size_choices, batch_size_choices, batch_choice_*, batch_schedule_*, num_batches: Sizes
            that timm's ScheduledBatchSampler chooses for each batch, in training.

    Raises:
        ImportError: for an argument that needs timm, which it names, if timm is not installed.
        TypeError, ValueError: for arguments that cannot work.
    """
    if img_dtype is None:
        img_dtype = torch.float32
    re_num_splits = (num_aug_splits or 2) if re_split else 0
    erases = re_prob > 0 and is_training and not no_aug
    transform_options = {
        "is_training": is_training,
        "no_aug": no_aug,
        "train_crop_mode": train_crop_mode,
        "scale": scale,
        "ratio": ratio,
        "hflip": hflip,
        "vflip": vflip,
        "color_jitter": color_jitter,
        "color_jitter_prob": color_jitter_prob,
        "grayscale_prob": grayscale_prob,
        "gaussian_blur_prob": gaussian_blur_prob,
        "auto_augment": auto_augment,
        "interpolation": interpolation,
        "mean": mean,
        "std": std,
        "crop_pct": crop_pct,
        "crop_mode": crop_mode,
        "crop_border_pixels": crop_border_pixels,
        "re_prob": re_prob,
        "re_mode": re_mode,
        "re_count": re_count,
        "re_num_splits": re_num_splits,
        "tf_preprocessing": tf_preprocessing,
        "use_prefetcher": use_prefetcher,
        "separate": num_aug_splits > 0,
    }
    # Without prefetcher timm erases picture by picture, at the end of its transforms. If these are not
    # needed, whole batches are normalised and erased instead, unless a collate_fn looks at the pictures.
    in_batches: dict[str, Any] = {}
    if (
        erases
        and not use_prefetcher
        and collate_fn is None
        and not what_needs_timm({**transform_options, "re_prob": 0})
    ):
        transform_options["use_prefetcher"] = True
        in_batches = {"device": "cpu", "mean": mean, "std": std, "image_key": 0}
    of_three = isinstance(input_size, Sequence) and len(input_size) == 3
    channels = input_size[0] if of_three else len(mean)  # type: ignore[index]
    iterable = isinstance(dataset, IterableDataset)
    if input_size_choices is None:
        dataset.transform = create_transform(input_size, transform_options)
    else:
        if use_multi_epochs_loader:
            raise ValueError("use_multi_epochs_loader does not go with input_size_choices")
        dataset, batch_size_choices = _scheduled(
            dataset,
            input_size_choices,
            batch_size_choices or [batch_size] * len(input_size_choices),
            batch_choice_weights,
            channels,
            transform_options,
        )
    if hasattr(dataset, "set_loader_cfg"):  # timm estimates lengths by it
        dataset.set_loader_cfg(num_workers=own_threads() if num_workers == "auto" else num_workers)

    sampler = _sampler(dataset, is_training, distributed and not iterable, num_aug_repeats)
    options: dict[str, Any] = {
        "num_workers": num_workers,
        "collate_fn": collate_fn or (fast_collate if use_prefetcher else None),
        "pin_memory": pin_memory,
        "worker_init_fn": WorkerSeeding(worker_seeding),
        "persistent_workers": persistent_workers and num_workers != 0,
    }
    if input_size_choices is None:
        options["batch_size"] = batch_size
        options["shuffle"] = not iterable and sampler is None and is_training
        options["sampler"] = sampler
        options["drop_last"] = is_training
    else:
        options["batch_sampler"] = import_timm("input_size_choices").ScheduledBatchSampler(
            sampler or RandomSampler(dataset),
            batch_sizes=batch_size_choices,
            choice_weights=batch_choice_weights,
            seed=batch_choice_seed,
            drop_last=is_training,
            num_batches=num_batches,
            choice_schedule=batch_choice_schedule,
            schedule_epochs=batch_schedule_epochs,
            schedule_spread=batch_schedule_spread,
            schedule_random_mix=batch_schedule_random_mix,
        )
    kind = MultiEpochsDataLoader if use_multi_epochs_loader else FastLoader
    if not use_prefetcher:
        if in_batches:
            kind = ErasingMultiEpochsLoader if use_multi_epochs_loader else ErasingLoader
            erasing = RandomErasing(re_prob, mode=re_mode, max_count=re_count)
            in_batches["random_erasing"] = erasing
        return kind(dataset, **options, **in_batches)
    dtype = torch.float16 if fp16 else img_dtype
    means, stds = adapt_to_chs(mean, channels), adapt_to_chs(std, channels)
    loader = kind(dataset, **options, device=device, mean=means, std=stds, dtype=dtype, image_key=0)
    return PrefetchLoader(
        loader,
        mean=means,
        std=stds,
        channels=channels,
        device=device,
        img_dtype=dtype,
        re_prob=re_prob if erases else 0.0,
        re_mode=re_mode,
        re_count=re_count,
        re_num_splits=re_num_splits,
    )


def _sampler(
    dataset: Any, is_training: bool, distributed: bool, num_aug_repeats: float
) -> Any | None:
    if not distributed:
        if num_aug_repeats:
            raise ValueError(
                f"num_aug_repeats={num_aug_repeats} is for distributed training over a dataset with "
                "indices"
            )
        return None
    if not is_training:
        return OrderedDistributedSampler(dataset)
    if num_aug_repeats:
        return RepeatAugSampler(dataset, num_repeats=num_aug_repeats)
    return DistributedSampler(dataset)


def _scheduled(
    dataset: Any,
    sizes: Sequence[Size],
    batch_sizes: Sequence[int],
    weights: Sequence[float] | None,
    channels: int,
    options: dict[str, Any],
) -> tuple[Any, Sequence[int]]:
    """Returns timm's dataset that takes (index, number of the size), and the batch sizes. timm does the
    scheduling. The checks come first, so that they raise without timm too."""
    if not options["is_training"]:
        raise ValueError("input_size_choices is for training")
    if isinstance(dataset, IterableDataset):
        raise TypeError("input_size_choices needs a dataset with indices, this one is iterable")
    if options["separate"]:
        raise ValueError("num_aug_splits does not go with input_size_choices")
    if not sizes:
        raise ValueError("input_size_choices is empty")
    for name, values in (("batch_size_choices", batch_sizes), ("batch_choice_weights", weights)):
        if values is not None and len(values) != len(sizes):
            raise ValueError(
                f"{name} has {len(values)} values, input_size_choices has {len(sizes)}"
            )
    full = [_full_size(size, channels) for size in sizes]
    scheduled = import_timm("input_size_choices").ScheduledTransformDataset
    transforms = [create_transform(size, options) for size in full]
    dataset.transform = None
    return scheduled(dataset, transforms), batch_sizes


def _full_size(size: Size, channels: int) -> tuple[int, ...]:
    given = (size, size) if isinstance(size, int) else tuple(size)
    full = given if len(given) == 3 else (channels, *given)
    if len(full) != 3 or full[0] != channels or min(full) < 1:
        raise ValueError(
            f"input_size_choices holds {size!r}: an edge, (height, width) or "
            f"({channels}, height, width), all above 0"
        )
    return full


__all__ = ["MultiEpochsDataLoader", "PrefetchLoader", "create_loader", "fast_collate"]
