"""What the scripts here share: fastloader.bench's measuring, and the folder of the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastloader.bench import measure
from fastloader.bench.measure import Timing, interleaved, machine, ratio, spread

__all__ = ["RESULTS", "Timing", "interleaved", "machine", "ratio", "spread", "write"]

RESULTS = Path(__file__).parent / "results"


def write(name: str, results: dict[str, Any], folder: Path = RESULTS) -> Path:
    return measure.write(name, results, folder)
