"""A list of objects, which goes on where a page of it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastloader.datasets._remote.store.bucket import Bucket
from fastloader.datasets._remote.store.remote_object import RemoteObject


class Listing:
    """The objects below one URL. Memory holds those that ``wanted`` takes, and one page.

    Stores list by path. So what reads a list again asks for the paths behind the last one. A list that
    turns out to be in no order begins anew."""

    def __init__(self, wanted: Callable[[RemoteObject], bool], deep: bool) -> None:
        self.found: list[RemoteObject] = []
        self._wanted = wanted
        self._deep = deep
        self._pages: Iterator[list[RemoteObject]] | None = None
        self._last: str | None = None
        self._ascending = True

    def take_page(self, bucket: Bucket, path: str) -> bool:
        """Whether there was a page more. If it raises, the next call asks for the same page."""
        if self._pages is None:
            if not self._ascending:
                self.found, self._last = [], None
            self._pages = bucket.below(path, self._last, self._deep)
        try:
            page = next(self._pages, None)
        except BaseException:
            self._pages = None
            raise
        for each in page or ():
            self._ascending &= self._last is None or self._last < each.path
            self._last = each.path
            if self._wanted(each):
                self.found.append(each)
        return page is not None
