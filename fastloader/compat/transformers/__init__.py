"""``transformers.Trainer`` with a FastLoader.

from fastloader.compat.transformers import FastTrainerMixin
"""

from __future__ import annotations

from fastloader.compat.transformers.fast_trainer_mixin import FastTrainerMixin

__all__ = ["FastTrainerMixin"]
