"""Writes csrc/image/normalize/normal_table.inc, the quantiles of the normal distribution that random
erasing fills with: ``python tools/make_normal_table.py``.

A table and no formula, because mathematical libraries differ in the last bit and the fill must not:
entry i is the quantile of 1/2 + (i + 1/2) / 4096 in units of 2^-16, rounded; the sign is one more
random bit.
"""

from __future__ import annotations

import statistics
from pathlib import Path

ENTRIES = 2048
TABLE = Path(__file__).resolve().parents[1] / "csrc" / "image" / "normalize" / "normal_table.inc"


def entries() -> list[int]:
    normal = statistics.NormalDist()
    return [round(normal.inv_cdf(0.5 + (i + 0.5) / (2 * ENTRIES)) * 2**16) for i in range(ENTRIES)]


def text() -> str:
    numbers = entries()
    rows = [numbers[i : i + 12] for i in range(0, len(numbers), 12)]
    lines = [", ".join(str(number) for number in row) + "," for row in rows]
    return (
        "// Made by tools/make_normal_table.py, which says what this is.\n"
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    TABLE.write_text(text())
