"""torch's DataLoader with worker processes that stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from fastloader.bench.scenarios import Settings


def epochs(dataset: Any, settings: Settings) -> Callable[[], Iterator[int]]:
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=settings.batch_size,
        shuffle=True,
        num_workers=settings.threads,
        persistent_workers=True,
    )
    return lambda: (len(labels) for _images, labels in loader)
