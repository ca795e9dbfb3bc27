"""The names of the ``prefetch_generator`` package, and the ``DataLoaderX`` that tutorials build on it.

from fastloader.compat.prefetch_generator import BackgroundGenerator, background, DataLoaderX
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastloader.compat.prefetch_generator.background_generator import (
    BackgroundGenerator,
    background,
    prefetch,
)

if TYPE_CHECKING:
    from fastloader.compat.prefetch_generator.data_loader_x import DataLoaderX

__all__ = ["BackgroundGenerator", "DataLoaderX", "background", "prefetch"]


def __getattr__(name: str) -> Any:
    # Imported on first use, because only this name needs torch.
    if name == "DataLoaderX":
        from fastloader.compat.prefetch_generator.data_loader_x import DataLoaderX

        return DataLoaderX
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
