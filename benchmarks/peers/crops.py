"""Plain crops (RandomResizedCrop to 224, flip) through every loader that is installed.

Predicted, two threads on photographs of 470x400, uint8 unless said otherwise:
- 3.9 times DataLoader + Pillow. Pillow decodes the whole picture (1.9 ms) and resamples (0.5 ms) in
  scalar code; only the crop is decoded here, in 0.55 of libjpeg-turbo's 1.21 ms, and vector code
  resamples it in 0.11 ms.
- 4.6 times DataLoader + torchvision in float32, which adds ToTensor and Normalize, some five passes
  over the pixels and a batch of 38 MB through shared memory.
- 3.3 times Pillow-SIMD and torchvision v2, 3.2 times DALI, 3.5 times FFCV: all but DALI decode the
  whole picture, and all with libjpeg-turbo.
- 1.95 times libjpeg-turbo's decode of whole pictures: of its time the crop's decode takes 0.41, the
  resample 0.07, reading the file 0.01, and the rest 0.03.
- With a seek index 3.9 times the fastest peer: decoding the crop takes 0.47 of libjpeg-turbo's time in
  place of 0.55, and the hash of the file 0.01 ms.
- First batch of a new loader: 1.1 steady batches, since threads share its samples.
- Scaling from one thread to two 0.98 of the bare decode's: threads share nothing but a queue.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.peers.scenarios import Row, Scenario, with_threads


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


def chosen(only: list[str], device: str | None) -> dict[str, Scenario]:
    """The scenarios of the comparison; ``only`` names peers or scenarios."""
    return {
        name: scenario
        for name, scenario in (SCENARIOS if device is None else ON_DEVICE).items()
        if not only or {name, scenario.peer} & set(only)
    }


def left_out(only: list[str], device: str | None) -> dict[str, str]:
    """Peers that have no scenario for a device, with the reason."""
    if device is None:
        return {}
    return {name: why for name, why in NOT_ON_DEVICE.items() if not only or name in only}


PEERS = list(dict.fromkeys(scenario.peer for scenario in SCENARIOS.values()))


def _row(slow: str, fast: str, at_least: float | None = None) -> Row:
    return Row(slow, f"{fast}, of {slow}", fast, slow, at_least)


ROWS = [
    _row("dataloader-pillow", "fastloader-uint8", 3.7),
    _row("dataloader-torchvision", "fastloader-float32", 3.7),
    _row("dataloader-torchvision-v2", "fastloader-uint8", 3.1),
    _row("dataloader-pillow-simd", "fastloader-uint8", 3.1),
    _row("dali", "fastloader-uint8", 3.1),
    _row("ffcv", "fastloader-uint8", 3.1),
    _row("spdl", "fastloader-uint8"),
    _row("timm", "fastloader-float32"),
    _row("bare-decode", "fastloader-uint8", 1.9),
    _row("bare-roi", "fastloader-uint8"),
    *(_row(name, "fastloader-device") for name in ON_DEVICE if name != "fastloader-device"),
]


@dataclasses.dataclass(frozen=True)
class PictureSet:
    """The same pictures, written again by Pillow as people store them. ``at_least`` is promised of
    FastLoader's speed, in that of each peer.

    Predicted, from decoding one crop on one thread (benchmarks/jpeg_decode.py) and the peers'
    decoding of whole pictures: the ratios to the peers stay what they are for pictures of fewer
    bytes, since both sides decode in proportion to these. Of progressive files every peer reads all
    scans of the whole picture, and FastLoader the rows down to the crop's lower edge, in 0.3 of
    libjpeg-turbo's time: at least 4 times the fastest peer.
    """

    label: str
    options: dict[str, Any]
    at_least: float | None = None

    def scenarios(self, all_of_them: dict[str, Scenario]) -> dict[str, Scenario]:
        """The loaders, without what would repeat others: progressive pictures have no seek index."""
        without = ["fastloader-index"] if self.options.get("progressive") else []
        return {
            name: each
            for name, each in all_of_them.items()
            if each.output and "@" not in name and name not in without
        }

    @property
    def rows(self) -> list[Row]:
        """What is promised of the pictures as they are is not promised of these."""
        return [
            dataclasses.replace(
                row, at_least=None if row.slow in ("bare-decode", "bare-roi") else self.at_least
            )
            for row in ROWS
        ]


_420 = {"quality": 85, "subsampling": "4:2:0"}
SETS = {
    "444q90": PictureSet("4:4:4, quality 90", {"quality": 90, "subsampling": "4:4:4"}),
    "420q85": PictureSet("4:2:0, quality 85", _420),
    "420q85-progressive": PictureSet(
        "4:2:0, quality 85, progressive", {**_420, "progressive": True}, at_least=4.0
    ),
}
