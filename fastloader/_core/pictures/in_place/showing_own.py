"""The user's dataset, as its worker shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import get_worker_info


class ShowingOwn:
    """A worker_init_fn. `get_worker_info` shows the user's code the loader's own dataset from then on;
    ``init``, the loader's, is called next."""

    def __init__(self, in_place: Any, init: Callable[[int], None] | None) -> None:
        self._in_place = in_place
        self._init = init

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        if info is not None:
            # It refuses to have its attributes set, because the user's code is to leave them alone.
            object.__setattr__(info, "dataset", self._in_place.own)
        if self._init is not None:
            self._init(worker)
