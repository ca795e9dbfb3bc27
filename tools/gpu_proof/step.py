"""One step of the proof, and what all of them are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

Commands = Iterator[list[str]]


class StepFailed(Exception):
    """Its text is the step's last word."""


@dataclass
class Step:
    name: str
    part: int
    limit: int  # seconds
    about: str
    commands: Callable[[Options], Commands]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Options:
    out: Path
    carry: Path | None
    data: Path | None
    quick: bool
    dry: bool = False
