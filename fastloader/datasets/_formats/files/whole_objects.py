"""Files that are objects in a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class WholeObjects(Protocol):
    """Reads objects as a whole, by their URLs, and counts what it did."""

    def whole(self, urls: Sequence[str]) -> list[Any]: ...

    def counts(self) -> dict[str, int]: ...
