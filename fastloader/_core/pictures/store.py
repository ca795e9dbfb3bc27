"""Where encoded pictures lie, as the decode pool sees it."""

from __future__ import annotations

from typing import Any, Protocol


class ImageStore(Protocol):
    def __len__(self) -> int: ...

    def same(self, other: Any) -> bool:
        """Whether they are the same files, so that what was built on those can be kept."""
        ...

    def opened(self, native: Any) -> Any:
        """These files with a native ``source`` of their own: what one loader looks up in it is nothing
        to another that recognised the same files."""
        ...

    def prepare(self, indices: list[int]) -> None:
        """Before a batch of these is submitted to the source."""
        ...

    def name(self, index: int) -> str: ...

    def open_rgb(self, index: int) -> Any:
        """Through Pillow."""
        ...
