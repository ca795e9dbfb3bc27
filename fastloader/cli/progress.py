"""A bar for commands that take long."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def progress(total: int, begun: int, what: str) -> Iterator[Any]:
    """tqdm's bar (rate and time left) where it is installed and stderr is a terminal."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda _count: None
        return
    with tqdm(total=total, initial=begun, desc=what, unit="pictures", disable=None) as bar:
        yield bar.update
