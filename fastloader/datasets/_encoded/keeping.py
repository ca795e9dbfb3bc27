"""Where a batch is collated whose encoded pictures stay encoded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class EncodedPlace:
    """Stands in a batch in the place of column number ``column`` of encoded pictures. It is no
    dataclass, because those are opened like other containers."""

    __slots__ = ("column",)

    def __init__(self, column: int) -> None:
        self.column = column


class Keeping:
    """While it is entered, what this thread collates keeps its encoded pictures: a place stands for each
    column of them. Attributes: ``columns``, the `EncodedImage`s of each that is kept; ``made``, how many
    pictures were made meanwhile; ``why``, what ``refusal`` said. That is asked at the first picture, and
    says why all of them are to be made; nothing if they are to be kept."""

    def __init__(self, refusal: Callable[[], str] = str) -> None:
        self.columns: list[list[Any]] = []
        self.made = 0
        self.why: str | None = None  # before the first picture
        self._refusal = refusal
        self._passing_on = False  # while a function runs that knows no places

    def keeps(self) -> bool:
        """Whether pictures that are collated now stay encoded."""
        if self.why is None:
            self.why = self._refusal()
        return not self.why and not self._passing_on

    def keep(self, column: list[Any]) -> EncodedPlace:
        self.columns.append(column)
        return EncodedPlace(len(self.columns) - 1)

    def making(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of somebody who knows no places: while it runs, pictures are made."""

        def made(*args: Any, **options: Any) -> Any:
            before, self._passing_on = self._passing_on, True
            try:
                return function(*args, **options)
            finally:
                self._passing_on = before

        return made

    def __enter__(self) -> Keeping:
        _of_thread.keeping = self
        return self

    def __exit__(self, *_error: object) -> None:
        _of_thread.keeping = None


def keeping() -> Keeping | None:
    """That of this thread."""
    found: Keeping | None = getattr(_of_thread, "keeping", None)
    return found


_of_thread = threading.local()
