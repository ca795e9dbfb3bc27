"""What threads prepare ahead of a loop."""

from __future__ import annotations

import collections
import concurrent.futures
from collections.abc import Callable, Iterator
from typing import TypeVar

Prepared = TypeVar("Prepared")


def ahead(prepare: Callable[[int], Prepared], indices: range, workers: int) -> Iterator[Prepared]:
    """Gives ``prepare(index)`` for each index, in order. Threads are a few indices ahead each."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        flying: collections.deque[concurrent.futures.Future[Prepared]] = collections.deque()
        try:
            for index in indices:
                flying.append(pool.submit(prepare, index))
                if len(flying) > 4 * workers:
                    yield flying.popleft().result()
            while flying:
                yield flying.popleft().result()
        finally:
            for future in flying:
                future.cancel()
