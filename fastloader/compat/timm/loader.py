"""The names of ``timm.data.loader``, for scripts that import from there.

from fastloader.compat.timm.loader import create_loader
"""

from __future__ import annotations

from fastloader.compat.timm.collate import fast_collate
from fastloader.compat.timm.create import create_loader
from fastloader.compat.timm.multi_epochs import MultiEpochsDataLoader
from fastloader.compat.timm.prefetch import PrefetchLoader

__all__ = ["MultiEpochsDataLoader", "PrefetchLoader", "create_loader", "fast_collate"]
