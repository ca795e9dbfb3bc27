"""The folders below a folder, where links are followed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator


def walk(folder: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Does as ``os.walk(folder, followlinks=True)``, and warns of a link to a folder that it lies in:
    all that is below comes again and again, up to forty times, until the system ends it."""
    warned = False
    for parent, folders, names in os.walk(folder, followlinks=True):
        for link in (os.path.join(parent, name) for name in folders):
            if not warned and _is_circle(link):
                warned = True
                warnings.warn(
                    f"{link} is a link to a folder that it lies in: the files there are listed many "
                    "times, as torchvision lists them. Remove the link",
                    RuntimeWarning,
                    stacklevel=4,
                )
        yield parent, folders, names


def files_once(folder: str, note: Callable[[OSError], None]) -> Iterator[str]:
    """Gives the files at any depth, in the order of their names. Links to folders are followed, each
    folder once. ``note`` is told of folders that cannot be read."""
    seen = set()
    for parent, folders, names in os.walk(folder, followlinks=True, onerror=note):
        folders.sort()
        status = os.stat(parent)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        for name in sorted(names):
            yield os.path.join(parent, name)


def _is_circle(link: str) -> bool:
    if not os.path.islink(link):
        return False
    above = os.path.join(os.path.realpath(os.path.dirname(link)), "")
    return above.startswith(os.path.join(os.path.realpath(link), ""))
