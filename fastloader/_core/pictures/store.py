"""A store of encoded pictures, as the decode pool sees it."""

from __future__ import annotations

from typing import Any, Protocol


class ImageStore(Protocol):
    def __len__(self) -> int: ...

    def same(self, other: Any) -> bool:
        """Whether ``other`` has the same files, so that what was built on them can be kept."""
        ...

    def opened(self, native: Any) -> Any:
        """These files with their own native ``source``. What one loader looks up in it must not reach
        another loader that recognised the same files."""
        ...

    def prepare(self, indices: list[int]) -> None:
        """Prepares these files, before a batch of them is submitted to the source."""
        ...

    def name(self, index: int) -> str: ...

    def open_rgb(self, index: int) -> Any:
        """Opens a picture through Pillow."""
        ...
