"""``fastloader bench --sets``: the loaders over the same pictures, written again as people store them.

Predicted, from decoding one crop on one thread (benchmarks/jpeg_decode.py) and the peers' decoding of
whole pictures: the ratios to the peers stay what they are for pictures of fewer bytes, since both sides
decode in proportion to these. Of progressive files every peer reads all scans of the whole picture, and
FastLoader the rows down to the crop's lower edge, in 0.3 of libjpeg-turbo's time: at least 4 times the
fastest peer.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from PIL import Image

from fastloader.cli.bench.scenarios import SCENARIOS

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class PictureSet:
    """How Pillow writes the pictures, and what is promised: FastLoader's speed, in that of each peer."""

    label: str
    options: dict[str, Any]
    at_least: float | None = None

    @property
    def leaves_out(self) -> list[str]:
        """Scenarios that would repeat others: progressive pictures have no seek index."""
        return ["fastloader-index"] if self.options.get("progressive") else []


_420 = {"quality": 85, "subsampling": "4:2:0"}
SETS = {
    "444q90": PictureSet("4:4:4, quality 90", {"quality": 90, "subsampling": "4:4:4"}),
    "420q85": PictureSet("4:2:0, quality 85", _420),
    "420q85-progressive": PictureSet(
        "4:2:0, quality 85, progressive", {**_420, "progressive": True}, at_least=4.0
    ),
}


def write(pictures: list[Path], folder: Path, options: Json) -> list[Path]:
    """The pictures written again, in class folders of the same names."""
    made = []
    for number, path in enumerate(pictures):
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        made.append(folder / path.parent.name / f"{number}_{path.stem}.jpg")
        with Image.open(path) as picture:
            picture.convert("RGB").save(made[-1], "JPEG", **options)
    return made


def promised(rows: list[Json], at_least: float | None) -> list[Json]:
    """Ratios with the promise of a set. Those of the pictures as they are are none of its own."""
    made = []
    for row in rows:
        peer = SCENARIOS[row["slow"]].peer != "fastloader"  # and not the limit
        limit = at_least if peer else None
        met = None if limit is None else row["ratio"]["median"] >= limit
        made.append({**row, "at_least": limit, "aim": None, "met": met})
    return made
