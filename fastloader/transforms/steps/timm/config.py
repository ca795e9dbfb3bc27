"""The strings by which timm's augmentations are configured: "rand-m9-mstd0.5-inc1"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


def sections(config: str, known: Mapping[str, type]) -> Iterator[tuple[str, float]]:
    """The parts behind the first one, as names with their numbers. A part without digits says nothing,
    as in timm.

    Raises:
        ValueError: for an unknown name, and for digits that are no number of the ``known`` type.
    """
    for part in config.split("-")[1:]:
        name, *digits = re.split(r"(\d.*)", part)
        if not digits:
            continue
        if name not in known:
            raise ValueError(
                f"{config!r}: unknown part {part!r}; use one of {', '.join(known)} and a number"
            )
        try:
            yield name, known[name](digits[0])
        except ValueError:
            raise ValueError(f"{config!r}: {digits[0]!r} is no {known[name].__name__}") from None
