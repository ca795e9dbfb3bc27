"""A loader as it is shown to torch's iterators."""

from __future__ import annotations

from typing import Any

from fastloader._core.order.loader import Loader


class LoaderView:
    """Shows a loader to torch's iterator with ``other`` attributes. They cannot be set on the loader,
    because a subclass may not allow it."""

    def __init__(self, loader: Loader, **other: Any) -> None:
        self._seen = loader
        self.__dict__.update(other)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._seen, name)
