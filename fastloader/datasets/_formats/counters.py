"""What is counted in several processes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import get_worker_info

from fastloader._core.machine.process import ProcessLock

_PROCESSES = 1024


class Counters:
    """Numbers by name, which worker processes add to and the main process reads. Each process has a row
    of its own in memory that they share, so none waits for another."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._rows = torch.zeros((_PROCESSES, len(names)), dtype=torch.int64).share_memory_()
        self._adding = ProcessLock()  # guards this process's row

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_adding": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._adding = ProcessLock()

    def add(self, name: str, amount: int = 1) -> None:
        worker = get_worker_info()
        row = 0 if worker is None else 1 + worker.id % (_PROCESSES - 1)
        with self._adding.lock:
            self._rows[row, self._names.index(name)] += amount

    def totals(self) -> dict[str, int]:
        return dict(zip(self._names, self._rows.sum(0).tolist(), strict=True))
