"""What ``fastloader bench`` compares: one scenario per loader, each run in its own process.

A scenario is a function ``make(settings)`` in a module of its peer's name. It constructs the loader
and returns a function that starts an epoch: an iterator that yields each batch's number of pictures.
With a device, loaders yield the batches, (images, labels), as they lie in its memory.
Importing the module imports the peer, so what is missing shows there and nowhere else.
"""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path

SIZE = 224
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def random_box(width: int, height: int) -> tuple[int, int, int, int]:
    """(left, top, width, height), drawn as torchvision's RandomResizedCrop does."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


@dataclasses.dataclass(frozen=True)
class Settings:
    """What every scenario is told. ``root`` is a folder of class folders with JPEGs."""

    root: str
    work: str  # an empty folder that the scenario may fill
    threads: int  # or worker processes
    batch_size: int
    device: str | None = None  # None: batches stay where the loader makes them
    recipe: str = ""  # which, of those in bench/recipes
    mongodb: str = ""  # the URI of the server and database that have the pictures
    collection: str = ""  # in which of its collections
    processor: int | None = None  # on which those run who ask that server

    def samples(self) -> list[tuple[str, int]]:
        """(path, class) in torchvision's order."""
        folders = sorted(folder for folder in Path(self.root).iterdir() if folder.is_dir())
        return [
            (str(path), number)
            for number, folder in enumerate(folders)
            for path in sorted(folder.iterdir())
        ]


@dataclasses.dataclass(frozen=True)
class Scenario:
    label: str
    peer: str  # what --python and --only call it
    module: str
    function: str
    output: str = ""  # of the loaders
    remark: str = ""
    # Batches to take before the clock starts: those that are made ahead between epochs.
    lead: int = 0
    threads: int | None = None  # whatever --threads says


def with_threads(scenario: Scenario, count: int) -> Scenario:
    label = f"{scenario.label}, {count} thread{'s' if count > 1 else ''}"
    return dataclasses.replace(scenario, label=label, threads=count)


def _scenarios() -> dict[str, Scenario]:
    fast, loader = "fastloader", "DataLoader"
    scenarios = {
        "fastloader-uint8": Scenario("FastLoader", fast, "fast", "uint8", "uint8"),
        "fastloader-float32": Scenario(
            "FastLoader, ToTensor, Normalize", fast, "fast", "float32", "float32"
        ),
        "fastloader-index": Scenario(
            "FastLoader with a seek index", fast, "fast", "indexed", "uint8"
        ),
        "dataloader-pillow": Scenario(f"{loader} + Pillow", "pillow", "pillow", "loader", "uint8"),
        "dataloader-torchvision": Scenario(
            f"{loader} + torchvision on PIL, ToTensor, Normalize",
            "torchvision",
            "torchvision_pil",
            "loader",
            "float32",
        ),
        "dataloader-torchvision-v2": Scenario(
            f"{loader} + torchvision v2, decode_image",
            "torchvision-v2",
            "torchvision_v2",
            "loader",
            "uint8",
        ),
        "dataloader-pillow-simd": Scenario(
            f"{loader} + Pillow-SIMD", "pillow-simd", "pillow_simd", "loader", "uint8"
        ),
        "dali": Scenario(
            "DALI, CPU pipeline",
            "dali",
            "dali",
            "loader",
            "uint8",
            "the batches made between two epochs are taken before the clock starts",
            lead=2,
        ),
        "ffcv": Scenario(
            "FFCV, jpg mode",
            "ffcv",
            "ffcv",
            "loader",
            "uint8",
            "the .beton, written beforehand, holds the same JPEG bytes; its resize is OpenCV's area",
        ),
        "spdl": Scenario(
            "SPDL, FFmpeg filters", "spdl", "spdl", "loader", "uint8", "its resize is FFmpeg's"
        ),
        "timm": Scenario(
            "timm create_loader without prefetcher",
            "timm",
            "timm",
            "loader",
            "float32",
            "leaves out the incomplete batch, which is not counted",
        ),
        "bare-decode": Scenario(
            "libjpeg-turbo's decode of whole pictures from memory", fast, "stages", "decode_whole"
        ),
        "bare-roi": Scenario(
            "libjpeg-turbo's decode of the crops from memory", fast, "stages", "decode_crops"
        ),
    }
    for name in ("fastloader-uint8", "fastloader-float32", "bare-decode", "bare-roi"):
        scenarios[f"{name}@1"] = with_threads(scenarios[name], 1)
    scenarios |= {
        "read@1": Scenario("read the files", fast, "stages", "read", threads=1),
        "own-roi@1": Scenario(
            "FastLoader's decode of the crops from memory",
            fast,
            "stages",
            "decode_crops_ourselves",
            threads=1,
        ),
        "resample@1": Scenario(
            "resample the crops from memory", fast, "stages", "resample", threads=1
        ),
        "resize-fastloader@1": Scenario(
            "resize 340x300 to 224x224", fast, "stages", "resize", threads=1
        ),
        "resize-pillow@1": Scenario(
            "resize 340x300 to 224x224, Pillow", "pillow", "pillow", "resize", threads=1
        ),
        "resize-pillow-simd@1": Scenario(
            "resize 340x300 to 224x224, Pillow-SIMD",
            "pillow-simd",
            "pillow_simd",
            "resize",
            threads=1,
        ),
    }
    return scenarios


SCENARIOS = _scenarios()


def _on_device() -> dict[str, Scenario]:
    fast, loader, output = "fastloader", "DataLoader", "bfloat16, channels_last"
    moved = "pin_memory, .to(non_blocking), normalised there"

    def scenario(label: str, peer: str, module: str) -> Scenario:
        return Scenario(label, peer, module, "on_device", output)

    return {
        "fastloader-device": scenario("FastLoader", fast, "fast"),
        "dataloader-pillow-device": scenario(f"{loader} + Pillow, {moved}", "pillow", "pillow"),
        "dataloader-torchvision-device": scenario(
            f"{loader} + torchvision on PIL, ToTensor, Normalize, pin_memory, .to(non_blocking)",
            "torchvision",
            "torchvision_pil",
        ),
        "dataloader-torchvision-v2-device": scenario(
            f"{loader} + torchvision v2, {moved}", "torchvision-v2", "torchvision_v2"
        ),
        "dataloader-pillow-simd-device": scenario(
            f"{loader} + Pillow-SIMD, {moved}", "pillow-simd", "pillow_simd"
        ),
        "timm-device": dataclasses.replace(
            scenario("timm create_loader with its PrefetchLoader", "timm", "timm"),
            remark="leaves out the incomplete batch, which is not counted",
        ),
        **{name: SCENARIOS[name] for name in ("bare-decode", "bare-roi")},
    }


# Into the memory of a device, normalised, as a training step in bfloat16 wants its images.
ON_DEVICE = _on_device()
NOT_ON_DEVICE = {
    name: "has no scenario here that ends in a device's memory" for name in ("dali", "ffcv", "spdl")
}


def offered(device: str | None) -> dict[str, Scenario]:
    return SCENARIOS if device is None else ON_DEVICE


PEERS = list(dict.fromkeys(scenario.peer for scenario in SCENARIOS.values()))
