"""``create_loader``: timm's factory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch.utils.data import DistributedSampler, IterableDataset, RandomSampler

from fastloader._core.batch.augmentation.erasing import RandomErasing
from fastloader._core.machine.ranks import own_threads
from fastloader.compat.timm.collate import WorkerSeeding, fast_collate
from fastloader.compat.timm.erasing import ErasingLoader, ErasingMultiEpochsLoader
from fastloader.compat.timm.multi_epochs import MultiEpochsDataLoader
from fastloader.compat.timm.original import import_timm
from fastloader.compat.timm.prefetch import (
    IMAGENET_DEFAULT_MEAN,
    IMAGENET_DEFAULT_STD,
    PrefetchLoader,
    adapt_to_chs,
)
from fastloader.compat.timm.samplers import OrderedDistributedSampler, RepeatAugSampler
from fastloader.compat.timm.transforms import create_transform, what_needs_timm
from fastloader.loader import FastLoader

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
    """timm 1.0.31's ``create_loader``, with its arguments, over a FastLoader.

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
