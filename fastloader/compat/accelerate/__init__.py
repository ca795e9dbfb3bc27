"""Hugging Face's Accelerate: its prepared loaders, with a FastLoader inside.

from fastloader.compat.accelerate import prepare, skip_first_batches
"""

from __future__ import annotations

from fastloader.compat.accelerate.prepare import prepare
from fastloader.compat.accelerate.prepared import (
    FastDataLoaderDispatcher,
    FastDataLoaderShard,
    PreparedLoader,
)
from fastloader.compat.accelerate.skip import skip_first_batches

__all__ = [
    "FastDataLoaderDispatcher",
    "FastDataLoaderShard",
    "PreparedLoader",
    "prepare",
    "skip_first_batches",
]
