"""Samples and batches of any shape: a collate_fn of the user's own, which gets natively made pictures.

    python -m benchmarks.samples [--data DIR] [--rounds 5] [--seconds 6] [--only NAME] [--workers 2]

Each recipe is DataLoader beside FastLoader: the same dataset, transform and function, so that only the
import differs, unless its name says EncodedImage. Two worker processes each, one thread for torch's
operators; DIR holds class folders of JPEGs, else photographs of 500 x 375 are made up. Rounds are
interleaved. An epoch is timed from its third batch on, by the clock and by the processor time of the
process and its workers, for each sample.

Predicted, of processor time: a dict within 1.25 of the default collate; ten views with masks 4;
512 x 512 4.5; I-JEPA's masks 2.3; tokens 4; tuple(zip(*batch)) 4; buckets of three shapes 5; masks 5,
boxes 4, pairs 2, clips of frames 4, clips of bytes 2. Two transforms in one batch are compared with
FastLoader over one: at most 1.15 of its time. (A dict is 4.2 times as cheap where the default collate
is 5.6: the rest is the function's own stack, and a copy of that into the memory that the loop reads.)
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Sampler, Subset, default_collate

from benchmarks.measure import RESULTS, make_photographs, spread, write
from benchmarks.peers.scenarios.recipes import import_torchvision
from fastloader import Companion, EncodedClip, EncodedImage, EncodedMask, FastLoader, transformed

import_torchvision()
from torchvision import transforms as T  # noqa: E402
from torchvision import tv_tensors  # noqa: E402
from torchvision.datasets import ImageFolder  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BICUBIC = T.InterpolationMode.BICUBIC
NORMALIZED = [T.ToTensor(), T.Normalize(MEAN, STD)]
CROPS = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), *NORMALIZED])


# ---- The functions.


def to_dict(samples: list[Any]) -> dict[str, Any]:
    return {
        "pixel_values": torch.stack([picture for picture, _ in samples]),
        "labels": torch.tensor([label for _, label in samples]),
    }


def zipped(samples: list[Any]) -> tuple[Any, ...]:
    return tuple(zip(*samples, strict=True))


def padded(samples: list[Any]) -> tuple[Any, ...]:
    """Pads as DETR does."""
    pictures = [picture for picture, _ in samples]
    height, width = (max(each.shape[side] for each in pictures) for side in (1, 2))
    tensor = torch.zeros(len(pictures), 3, height, width)
    mask = torch.ones(len(pictures), height, width, dtype=torch.bool)
    for picture, place, of_place in zip(pictures, tensor, mask, strict=True):
        place[:, : picture.shape[1], : picture.shape[2]].copy_(picture)
        of_place[: picture.shape[1], : picture.shape[2]] = False
    return tensor, mask, torch.tensor([label for _, label in samples])


class KeepsSamples:
    """Has a state: it keeps the last picture of each batch."""

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []

    def __call__(self, samples: list[Any]) -> Any:
        self.kept = [*self.kept[-15:], samples[-1][0]]
        return to_dict(samples), len(self.kept)


def closure(scale: float) -> Callable[[list[Any]], Any]:
    """Returns a function that knows what is around it."""

    def collate(samples: list[Any]) -> Any:
        return to_dict(samples)["pixel_values"], [label * scale for _, label in samples]

    return collate


def mixed(classes: int) -> Callable[[list[Any]], Any]:
    """Returns the collate_fn of torchvision's references for classification."""
    choice = v2.RandomChoice([v2.MixUp(num_classes=classes), v2.CutMix(num_classes=classes)])

    def collate(samples: list[Any]) -> Any:
        return choice(*default_collate(samples))

    return collate


class Tokens:
    """Makes numbers of words, in Python, as a tokenizer does that has no other language."""

    def __init__(self, length: int = 77) -> None:
        self.length = length

    def __call__(self, samples: list[Any]) -> Any:
        pictures, texts = zip(*samples, strict=True)
        rows = []
        for text in texts:
            numbers = [49406]
            for word in text.lower().split():
                number = 0
                for character in word:
                    number = (number * 31 + ord(character)) % 49000
                numbers.append(number)
            rows.append((numbers + [49407] * self.length)[: self.length])
        return torch.stack(pictures), torch.tensor(rows)


class BlockMasks:
    """DINOv2's masks for iBOT, in our words: blocks of patches for half of the pictures."""

    def __init__(self, side: int = 16) -> None:
        self.side = side

    def one(self, count: int) -> np.ndarray:
        mask, done = np.zeros((self.side, self.side), bool), 0
        for _ in range(40):
            if done >= count:
                break
            area = random.uniform(4, max(4.1, count - done))
            aspect = math.exp(random.uniform(math.log(0.3), math.log(1 / 0.3)))
            height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if height < self.side and width < self.side:
                top = random.randint(0, self.side - height)
                left = random.randint(0, self.side - width)
                block = mask[top : top + height, left : left + width]
                fresh = height * width - int(block.sum())
                if 0 < fresh <= count - done:
                    block[:] = True
                    done += fresh
        return mask

    def __call__(self, samples: list[Any]) -> dict[str, Any]:
        large = torch.stack([each[0]["global"][view] for view in range(2) for each in samples])
        small = torch.stack([each[0]["local"][view] for view in range(8) for each in samples])
        masks = []
        for number in range(len(large)):
            share = random.uniform(0.1, 0.5) if number % 2 else 0.0
            masks.append(torch.from_numpy(self.one(int(self.side**2 * share))))
        return {
            "global": large.half(),
            "local": small.half(),
            "masks": torch.stack(masks).flatten(1),
        }


class ContextMasks:
    """I-JEPA's masks, in our words: four targets and a context without them for each picture."""

    def __init__(self, side: int = 14) -> None:
        self.side = side

    def block(self, low: float, high: float) -> tuple[int, int]:
        patches = int(self.side**2 * random.uniform(low, high))
        aspect = random.uniform(0.75, 1.5)
        size = math.sqrt(patches * aspect), math.sqrt(patches / aspect)
        return min(self.side - 1, round(size[0])), min(self.side - 1, round(size[1]))

    def draw(self, size: tuple[int, int], allowed: torch.Tensor | None = None) -> torch.Tensor:
        mask = torch.zeros((self.side, self.side), dtype=torch.int32)
        top = int(torch.randint(0, self.side - size[0], (1,)))
        left = int(torch.randint(0, self.side - size[1], (1,)))
        mask[top : top + size[0], left : left + size[1]] = 1
        return mask if allowed is None else mask * allowed

    def __call__(self, samples: list[Any]) -> Any:
        batch = default_collate(samples)
        target, context = self.block(0.15, 0.2), self.block(0.85, 1.0)
        targets, contexts = [], []
        for _ in samples:
            own = [self.draw(target) for _ in range(4)]
            left = 1 - torch.stack(own).amax(0)
            targets.append([torch.nonzero(each.flatten()).squeeze(1) for each in own])
            contexts.append(torch.nonzero(self.draw(context, left).flatten()).squeeze(1))
        shortest = min(len(each) for each in contexts)
        return (
            batch,
            default_collate([each[:shortest] for each in contexts]),
            default_collate(targets),
        )


# ---- The datasets.


class Captioned(Dataset[Any]):
    """Rows of a CSV: a file and a caption."""

    def __init__(self, paths: list[str]) -> None:
        self.rows = [
            (path, f"a photo, number {number} of many, taken outside on a sunny day")
            for number, path in enumerate(paths)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        path, caption = self.rows[index]
        return EncodedImage(path, CROPS), caption


class Decoded(Captioned):
    """The same, as it is written for DataLoader."""

    def __getitem__(self, index: int) -> Any:
        path, caption = self.rows[index]
        with open_rgb(path) as opened:
            return CROPS(opened.convert("RGB")), caption


def open_rgb(path: str) -> Any:
    from PIL import Image

    return Image.open(path)


class TenViews(Dataset[Any]):
    """DINOv2's two large and eight small views. ``encoded``: left to the loader."""

    def __init__(self, paths: list[str], encoded: bool) -> None:
        self.paths, self.encoded = paths, encoded
        jitter = [T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8), T.RandomGrayscale(0.2)]

        def chain(size: int, scale: tuple[float, float], blur: float, *more: Any) -> Any:
            crop = T.RandomResizedCrop(size, scale=scale, interpolation=BICUBIC)
            blurred = T.RandomApply([T.GaussianBlur(9, (0.1, 2.0))], blur)
            steps = [crop, T.RandomHorizontalFlip(), *jitter, blurred, *more, *NORMALIZED]
            return T.Compose(steps)

        self.first = chain(224, (0.32, 1.0), 1.0)
        self.second = chain(224, (0.32, 1.0), 0.1, T.RandomSolarize(128, 0.2))
        self.small = chain(96, (0.05, 0.32), 0.5)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        path = self.paths[index]
        if self.encoded:
            make: Callable[[Any], Any] = lambda chain: EncodedImage(path, chain)  # noqa: E731
        else:
            with open_rgb(path) as opened:
                picture = opened.convert("RGB")
            make = lambda chain: chain(picture)  # noqa: E731
        large = [make(self.first), make(self.second)]
        return {"global": large, "local": [make(self.small) for _ in range(8)]}, ()


class Bucketed(Dataset[Any]):
    """Pictures in one of three shapes of as many pixels, by their number. ``encoded``: left to the
    loader."""

    SHAPES = ((256, 256), (192, 336), (336, 192))

    def __init__(self, paths: list[str], encoded: bool) -> None:
        self.paths, self.encoded = paths, encoded
        self.chains = [
            T.Compose([T.RandomResizedCrop(shape), T.RandomHorizontalFlip(), *NORMALIZED])
            for shape in self.SHAPES
        ]

    def __len__(self) -> int:
        # As many of each shape, or `repeated` would shift them.
        return len(self.paths) // len(self.chains) * len(self.chains)

    def __getitem__(self, index: int) -> Any:
        chain = self.chains[index % len(self.chains)]
        if self.encoded:
            return EncodedImage(self.paths[index], chain), index
        with open_rgb(self.paths[index]) as opened:
            return chain(opened.convert("RGB")), index


class Buckets(Sampler[list[int]]):
    """Batches of one shape each, in any order."""

    def __init__(self, count: int, batch: int) -> None:
        self.count, self.batch = count, batch

    def __iter__(self) -> Iterator[list[int]]:
        batches = []
        for shape in range(len(Bucketed.SHAPES)):
            indices = list(range(shape, self.count, len(Bucketed.SHAPES)))
            random.shuffle(indices)
            batches += [indices[i : i + self.batch] for i in range(0, len(indices), self.batch)]
        batches = [batch for batch in batches if len(batch) == self.batch]
        random.shuffle(batches)
        return iter(batches)


class Segmented(Dataset[Any]):
    """Pictures with palette PNGs of classes, through torchvision's v2. ``encoded``: left to the
    loader."""

    def __init__(self, paths: list[str], masks: Path, encoded: bool) -> None:
        self.paths, self.masks, self.encoded = paths, masks, encoded
        self.joint = v2.Compose(
            [
                v2.RandomResizedCrop(384, scale=(0.25, 1.0), antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.4, 0.4, 0.2),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        path, png = self.paths[index], str(self.masks / f"{index}.png")
        if self.encoded:
            return EncodedImage(path, self.joint, with_=[EncodedMask(png, dtype=torch.int64)])
        with open_rgb(path) as opened, open_rgb(png) as mask:
            picture, classes = self.joint(opened.convert("RGB"), tv_tensors.Mask(mask))
        return picture, classes[0].long()


class Detected(Segmented):
    """The same with seven boxes each, through one call for all; in lists."""

    def __init__(self, paths: list[str], masks: Path, encoded: bool) -> None:
        super().__init__(paths, masks, encoded)
        steps = [v2.RandomResizedCrop((384, 384), antialias=True), v2.RandomHorizontalFlip()]
        end = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        self.joint = v2.Compose([*steps, v2.SanitizeBoundingBoxes(), *end])

    def __getitem__(self, index: int) -> Any:
        path, png = self.paths[index], str(self.masks / f"{index}.png")
        corners = torch.rand(7, 2, 2).sort(dim=1).values * 200
        target: dict[str, Any] = {"labels": torch.arange(7)}
        if self.encoded:
            image: Any = EncodedImage(path)
            size, target["masks"] = image.size, EncodedMask(png)
        else:
            with open_rgb(path) as opened, open_rgb(png) as mask:
                image, target["masks"] = opened.convert("RGB"), tv_tensors.Mask(mask)
            size = image.size[::-1]
        target["boxes"] = tv_tensors.BoundingBoxes(
            corners.flatten(1), format="XYXY", canvas_size=size
        )
        return transformed(self.joint, image, target)


class Pairs(Dataset[Any]):
    """PNGs at a quarter of the size of others, of which a crop is taken. ``encoded``: left to the
    loader."""

    def __init__(self, folder: Path, encoded: bool) -> None:
        self.folder, self.encoded = folder, encoded
        self.chain = T.Compose([T.RandomCrop(48), T.RandomHorizontalFlip(), T.ToTensor()])
        self.count = len(list(folder.glob("*_1.png")))

    def __len__(self) -> int:
        return 4 * self.count

    def __getitem__(self, index: int) -> Any:
        low, high = (str(self.folder / f"{index % self.count}_{scale}.png") for scale in (1, 4))
        if self.encoded:
            return EncodedImage(low, self.chain, with_=[Companion(high, scale=4)])
        with open_rgb(low) as small, open_rgb(high) as large:
            pictures = [small.convert("RGB"), large.convert("RGB")]
        top, left, height, width = T.RandomCrop.get_params(pictures[0], (48, 48))
        flip, made = random.random() < 0.5, []
        for picture, by in zip(pictures, (1, 4), strict=True):
            part = T.functional.crop(picture, top * by, left * by, height * by, width * by)
            made.append(T.functional.to_tensor(T.functional.hflip(part) if flip else part))
        return tuple(made)


class Clips(Dataset[Any]):
    """Clips of 16 frames in a folder each, one crop a clip. ``encoded``: left to the loader."""

    def __init__(self, folder: Path, encoded: bool) -> None:
        self.clips = sorted(folder.iterdir())
        self.encoded = encoded
        mean, std = (0.45,) * 3, (0.225,) * 3
        self.crop = T.RandomResizedCrop(224, (0.5, 1.0))
        end = [T.ToTensor(), T.Normalize(mean, std)]
        self.chain = T.Compose([self.crop, T.RandomHorizontalFlip(), *end])
        self.normalize = T.Normalize(mean, std)

    def __len__(self) -> int:
        return 4 * len(self.clips)

    def __getitem__(self, index: int) -> Any:
        clip = self.clips[index % len(self.clips)]
        frames = [str(clip / f"{number:03}.jpg") for number in range(16)]
        if self.encoded:
            return EncodedClip(frames, self.chain), index
        box = T.RandomResizedCrop.get_params(
            torch.empty(3, 256, 340), self.crop.scale, self.crop.ratio
        )
        flip, made = random.random() < 0.5, []
        for frame in frames:
            with open_rgb(frame) as opened:
                picture = opened.convert("RGB")
            part = T.functional.resized_crop(picture, *box, [224, 224])
            made.append(T.functional.to_tensor(T.functional.hflip(part) if flip else part))
        return self.normalize(torch.stack(made)), index


class Frames(Dataset[Any]):
    """Clips of bytes, as a reader of videos gives them, (T, C, H, W). ``floats``: normalised here."""

    def __init__(self, floats: bool) -> None:
        self.frames = torch.randint(0, 256, (64, 16, 3, 224, 224), dtype=torch.uint8)
        self.floats = floats

    def __len__(self) -> int:
        return 4 * len(self.frames)

    def __getitem__(self, index: int) -> Any:
        clip = self.frames[index % len(self.frames)].clone()
        return (clip.float().div(255).sub(0.45).div(0.225) if self.floats else clip), index


def make_masks(paths: list[str], folder: Path) -> None:
    """Writes a palette PNG of blobs for each picture, of its size."""
    from PIL import Image

    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number, path in enumerate(paths):
        with open_rgb(path) as opened:
            size = opened.size
        small = rng.integers(0, 21, (7, 9), dtype=np.uint8)
        mask = Image.fromarray(small).resize(size, Image.Resampling.NEAREST)
        palette = Image.fromarray(np.array(mask), "P")
        palette.putpalette(rng.integers(0, 256, 768, dtype=np.uint8).tolist())
        palette.save(folder / f"{number}.png")


def make_pairs(paths: list[str], folder: Path) -> None:
    """Writes PNGs of 480 x 480 pixels, and of a quarter of that."""
    folder.mkdir(parents=True)
    for number, path in enumerate(paths):
        with open_rgb(path) as opened:
            large = opened.convert("RGB").resize((480, 480))
        large.save(folder / f"{number}_4.png")
        large.resize((120, 120)).save(folder / f"{number}_1.png")


def make_clips(paths: list[str], folder: Path) -> None:
    """Writes clips of 16 JPEGs of 340 x 256 pixels."""
    for clip in range(len(paths) // 16):
        (folder / f"{clip:03}").mkdir(parents=True)
        for number, path in enumerate(paths[clip * 16 : clip * 16 + 16]):
            with open_rgb(path) as opened:
                frame = opened.convert("RGB").resize((340, 256))
            frame.save(folder / f"{clip:03}" / f"{number:03}.jpg", quality=90)


def targeted(label: int) -> dict[str, Any]:
    return {"label": label, "boxes": [[0, 0, 9, 9]]}


def halves(*makers: Callable[[], Dataset[Any]]) -> Iterator[Dataset[Any]]:
    """Gives the first half of the first dataset, the second of the second."""
    for number, made in enumerate(make() for make in makers):
        share = len(made) // len(makers)  # type: ignore[arg-type]
        yield Subset(made, range(number * share, (number + 1) * share))


LEAST = 4000  # samples of an epoch: with few batches, beginning an epoch would be most of it


def repeated(dataset: Any) -> ConcatDataset[Any]:
    """Returns the dataset as often as an epoch needs it."""
    parts = dataset.datasets if isinstance(dataset, ConcatDataset) else [dataset]
    return ConcatDataset([*parts] * max(1, -(-LEAST // len(dataset))))


# ---- The recipes.


Made = dict[str, tuple[Callable[[], Dataset[Any]], Any]]


def recipes(root: str, scratch: str) -> dict[str, Made]:
    """By name: what each contender's dataset and collate_fn, or layout, are. The first is
    DataLoader's. ``scratch``: a folder for what is made of the pictures in ``root``."""
    paths = sorted(str(path) for path in Path(root).glob("*/*") if path.is_file())
    masks, pairs, clips = (Path(scratch) / name for name in ("masks", "pairs", "clips"))
    make_masks(paths, masks)
    make_pairs(paths[:128], pairs)
    make_clips(paths[:512], clips)
    classes = len(list(Path(root).iterdir()))

    def folder(chain: Any = CROPS, **more: Any) -> Callable[[], Dataset[Any]]:
        return lambda: ImageFolder(root, chain, **more)

    def both(dataset: Callable[[], Dataset[Any]], collate_fn: Any) -> Made:
        return {"DataLoader": (dataset, collate_fn), "FastLoader": (dataset, collate_fn)}

    square = [T.Resize(512), T.CenterCrop(512), T.RandomHorizontalFlip()]
    large = T.Compose([*square, T.ToTensor(), T.Normalize([0.5], [0.5])])
    context = T.Compose([T.RandomResizedCrop(224, scale=(0.3, 1.0)), *NORMALIZED])
    whole = T.Compose([T.Resize(256), T.RandomHorizontalFlip(), *NORMALIZED])
    other = T.Compose([T.RandomResizedCrop(224), T.RandomVerticalFlip(), *NORMALIZED])
    return {
        "default collate": both(folder(), None),
        "into a dict": both(folder(), to_dict),
        "a function with a state": both(folder(), KeepsSamples()),
        "a closure": both(folder(), closure(0.5)),
        "mixup(*default_collate(batch))": both(folder(), mixed(classes)),
        "tuple(zip(*batch)) with a target dict": both(folder(target_transform=targeted), zipped),
        "512 x 512 into a dict": both(folder(large), to_dict),
        "I-JEPA's masks": both(folder(context), ContextMasks()),
        "two transforms in one batch": {
            "FastLoader, one transform": (folder(), None),
            "FastLoader": (lambda: ConcatDataset([*halves(folder(), folder(other))]), None),
        },
        "sizes of their own, in a list": {
            "DataLoader": (folder(whole), zipped),
            "FastLoader": (folder(whole), "list"),
        },
        "sizes of their own, padded": {
            "DataLoader": (folder(whole), padded),
            "FastLoader": (folder(whole), "pad"),
        },
        "buckets of three shapes, EncodedImage": {
            "DataLoader": (lambda: Bucketed(paths, encoded=False), None),
            "FastLoader": (lambda: Bucketed(paths, encoded=True), None),
        },
        "tokens, EncodedImage": {
            "DataLoader": (lambda: Decoded(paths), Tokens()),
            "FastLoader": (lambda: Captioned(paths), Tokens()),
        },
        "ten views with masks, EncodedImage": {
            "DataLoader": (lambda: TenViews(paths, encoded=False), BlockMasks()),
            "FastLoader": (lambda: TenViews(paths, encoded=True), BlockMasks()),
        },
        "pictures with masks, EncodedMask": {
            "DataLoader": (lambda: Segmented(paths, masks, encoded=False), None),
            "FastLoader": (lambda: Segmented(paths, masks, encoded=True), None),
        },
        "boxes and masks, transformed": {
            "DataLoader": (lambda: Detected(paths, masks, encoded=False), zipped),
            "FastLoader": (lambda: Detected(paths, masks, encoded=True), zipped),
        },
        "pairs of two sizes, Companion": {
            "DataLoader": (lambda: Pairs(pairs, encoded=False), None),
            "FastLoader": (lambda: Pairs(pairs, encoded=True), None),
        },
        "clips of 16 frames, EncodedClip": {
            "DataLoader": (lambda: Clips(clips, encoded=False), None),
            "FastLoader": (lambda: Clips(clips, encoded=True), None),
        },
        "clips of bytes, mean and std": {
            "DataLoader": (lambda: Frames(floats=True), None),
            "FastLoader": (lambda: Frames(floats=False), None),
        },
    }


# ---- The measurement.


def processes() -> Iterator[int]:
    """Gives this process and its children."""
    yield os.getpid()
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)


def processor_seconds() -> float:
    total = 0
    for process in processes():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def peak_bytes() -> tuple[int, int]:
    """The peak of this process's memory since `forget_peak`, and the largest of a worker."""
    peaks = {}
    for process in processes():
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        peaks[process] = int(status.partition("VmHWM:")[2].split()[0]) << 10
    loop = peaks.pop(os.getpid())
    return loop, max(peaks.values(), default=0)


def forget_peak() -> None:
    """Sets the peak of this process to what it has now."""
    Path("/proc/self/clear_refs").write_text("5")


FEWEST = 12  # batches that are timed, so that those that were begun before count for little


class Epoch(NamedTuple):
    """What was measured of one, from the third batch on: when both workers are under way."""

    rate: float  # samples a second
    processor: float  # milliseconds a sample
    loop: int  # peak bytes of this process
    worker: int  # the same of a worker


def epoch(loader: Any, batch: int, seconds: float) -> Epoch:
    gc.collect()
    forget_peak()
    batches, peak, worker = -3, 0, 0
    for _ in loader:
        now = time.perf_counter()
        batches += 1
        if batches == 0:
            begun, before = now, processor_seconds()
        if batches > 0:
            last, used = now, processor_seconds() - before
            peak, of_workers = peak_bytes()
            worker = max(worker, of_workers)
        if batches >= FEWEST and now > begun + seconds:
            break
    if batches < FEWEST:
        raise SystemExit(f"{batches} batches were timed, of {FEWEST}: more pictures are needed")
    samples = batches * batch
    return Epoch(samples / (last - begun), used / samples * 1e3, peak, worker)


def measure(made: Made, arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, list[Epoch]] = {name: [] for name in made}
    plan = ""
    for number in range(arguments.rounds):
        for name in list(made)[:: -1 if number % 2 else 1]:
            make, collate_fn = made[name]
            dataset = repeated(make())
            kind: Any = DataLoader if name == "DataLoader" else FastLoader
            options: dict[str, Any] = {"num_workers": arguments.workers}
            options |= {"batch" if isinstance(collate_fn, str) else "collate_fn": collate_fn}
            batch = arguments.batch
            one = dataset.datasets[0]
            if isinstance(one, Clips | Frames):
                batch = min(batch, 8)
            if isinstance(one, Frames) and not one.floats:
                options |= {"mean": (0.45,) * 3, "std": (0.225,) * 3}
            if isinstance(one, Bucketed):
                options["batch_sampler"] = Buckets(len(dataset), batch)
            else:
                options |= {"batch_size": batch, "shuffle": True, "drop_last": True}
            loader = kind(dataset, **options)
            found[name].append(epoch(loader, batch, arguments.seconds))
            if name == "FastLoader":
                plan = loader.plan()
    theirs, ours = found.values()
    return {
        "samples_per_s": {
            name: spread([each.rate for each in done]) for name, done in found.items()
        },
        "cpu_ms": {name: spread([each.processor for each in done]) for name, done in found.items()},
        "worker_peak_mib": {
            name: max(each.worker for each in done) >> 20 for name, done in found.items()
        },
        "loop_peak_mib": {
            name: max(each.loop for each in done) >> 20 for name, done in found.items()
        },
        "cpu_ratio": spread([a.processor / b.processor for a, b in zip(theirs, ours, strict=True)]),
        "rate_ratio": spread([b.rate / a.rate for a, b in zip(theirs, ours, strict=True)]),
        "plan": plan,
    }


def draw(results: dict[str, Any]) -> Path:
    """Draws the processor time of a sample, of each recipe that was measured beside DataLoader."""
    from matplotlib.figure import Figure

    shown = {name: each for name, each in results.items() if "DataLoader" in each["cpu_ms"]}
    figure = Figure(figsize=(9, 0.6 * len(shown) + 1), layout="constrained")
    axes = figure.add_subplot()
    for place, name in enumerate(reversed(shown)):
        times = shown[name]["cpu_ms"]
        for row, (who, colour) in enumerate(
            {"DataLoader": "0.7", "FastLoader": "tab:green"}.items()
        ):
            time_of = times[who]
            width, low, high = time_of["median"], time_of["min"], time_of["max"]
            error = [[width - low], [high - width]]
            label = who if place == 0 else None
            y = place + 0.2 - 0.4 * row
            axes.barh(y, width, 0.38, color=colour, xerr=error, capsize=2, label=label)
        ratio = shown[name]["cpu_ratio"]["median"]
        axes.text(times["DataLoader"]["max"] * 1.02, place, f"{ratio:.1f} x", va="center")
    axes.set_yticks(range(len(shown)), list(reversed(shown)))
    axes.set_xlabel("processor milliseconds a sample (median, least and most of the rounds)")
    axes.margins(x=0.1)
    axes.legend(loc="lower right")
    path = RESULTS / "samples.png"
    figure.savefig(path, dpi=110)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        root = arguments.data
        if root is None:
            root = os.path.join(scratch, "photographs")
            for label in range(4):
                make_photographs(
                    Path(root) / str(label), 256, 375, 500, np.random.default_rng(label)
                )
        results: dict[str, Any] = {}
        for name, made in recipes(root, scratch).items():
            if arguments.only not in name:
                continue
            got = results[name] = measure(made, arguments)
            cpu, rate = got["cpu_ratio"], got["rate_ratio"]
            times = ", ".join(
                f"{who} {each['median']:.2f} ms" for who, each in got["cpu_ms"].items()
            )
            print(
                f"{cpu['median']:5.2f} x CPU ({cpu['min']:.2f} to {cpu['max']:.2f}), "
                f"{rate['median']:5.2f} x rate  {name}: {times}"
            )
            print(f"      {got['plan']}")
        if not arguments.only:
            default = results["default collate"]["cpu_ms"]["FastLoader"]["median"]
            of_dict = results["into a dict"]["cpu_ms"]["FastLoader"]["median"]
            print(
                f"into a dict: {of_dict / default:.2f} times the default collate's processor time"
            )
            beside = [each for each in results.values() if "DataLoader" in each["cpu_ms"]]
            median = statistics.median(each["cpu_ratio"]["median"] for each in beside)
            print(f"median of the ratios to DataLoader: {median:.2f}")
            data = arguments.data and Path(arguments.data).name  # where it lies is this machine's
            options = {**vars(arguments), "data": data}
            print("written:", write("samples", {"options": options, "recipes": results}))
            print("written:", draw(results))
        else:
            print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
