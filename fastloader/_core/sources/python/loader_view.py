"""A loader as it is shown to torch's iterators."""

from __future__ import annotations

from typing import Any

from fastloader._core.order.loader import Loader


class LoaderView:
    """A loader as torch's iterator is to see it: with ``other`` attributes, which a subclass of the
    loader's may not let us set."""

    def __init__(self, loader: Loader, **other: Any) -> None:
        self._seen = loader
        self.__dict__.update(other)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._seen, name)
