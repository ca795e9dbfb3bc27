"""Says what URLs, patterns of shards and folders name."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

# ---- URLs of objects: which there are, and what they name.


# The schemes that obstore has a driver for.
OBSTORE = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https")

_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
# What lends somebody's rights to whoever has the URL.
_SIGNED = re.compile(r"[?&](sig|token|signature|x-amz-\w+|x-goog-\w+)=", re.IGNORECASE)


class Place(NamedTuple):
    """The place of an object in a store. ``root``: scheme and bucket, or scheme and host. ``path``: that
    of the object there."""

    root: str
    path: str


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


def scheme_of(url: str) -> str:
    found = _URL.match(url)
    if found is None:
        raise ValueError(f"{url} is no URL")
    return found[1].lower()


def is_http(url: str) -> bool:
    """Returns whether a web server has it."""
    return scheme_of(url) in ("http", "https")


def place_of(url: str) -> Place:
    """Raises ValueError for a URL with user, password, query or signature, whose message does not show
    these, and for a pattern in the bucket's name."""
    scheme = scheme_of(url)
    rest = url.partition("://")[2]
    authority, _slash, path = rest.partition("/")
    # `abfss://container@account...` names no user.
    user = "" if scheme.startswith("abfs") else authority.rpartition("@")[0]
    shown = f"{scheme}://{re.split('[?#&]', rest.removeprefix(user).removeprefix('@'))[0]}"
    if user:
        raise ValueError(
            f"{shown} was given with user or password in it: credentials go by the environment, or by "
            "ShardCache(storage_options=...)"
        )
    # Elsewhere a question mark stands for any character.
    if (is_http(url) and ("?" in rest or "#" in rest)) or _SIGNED.search(rest):
        raise ValueError(
            f"{shown} was given with a query behind it: URLs that are signed one by one are not "
            "supported. Give the store's own URL (s3://, gs://, az://) and its credentials"
        )
    if not authority:
        raise ValueError(f"{url} names no bucket and no host")
    # The brackets of https://[::1] are no pattern.
    if any(each in authority for each in ("*?" if is_http(url) else "*?[")):
        raise ValueError(f"{url} has a pattern in the name of its bucket: name the bucket itself")
    return Place(f"{scheme}://{authority}", path)


def is_pattern(url: str) -> bool:
    return any(each in place_of(url).path for each in "*?[")


def folder_of(pattern: str) -> str:
    """Returns the longest URL of a folder in which everything lies that the pattern matches."""
    head = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    return head[: head.rindex("/")]


def matches(url: str, pattern: str) -> bool:
    """Matches a URL with a pattern as a shell does: a star matches no slash."""
    parts, wanted = url.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


# ---- Shards by pattern.


_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"^(\d+)\.\.(\d+)$")


def paths_of(shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Iterator[str]:
    """Gives the paths that are named, and URLs as they are but for braces. Raises FileNotFoundError for
    a pattern that no file matches, and ValueError for a program's output."""
    for each in [shards] if isinstance(shards, str | os.PathLike) else shards:
        text = os.path.expanduser(os.fspath(each))
        if text.startswith("pipe:"):
            raise ValueError(
                f"{text}: shards are files or URLs, since a program's output cannot be read in any order"
            )
        if is_url(text):
            yield from _expanded(text)
            continue
        for path in [text] if os.path.exists(text) else _expanded(text):
            if os.path.exists(path):
                yield path
                continue
            found = sorted(glob.glob(path, recursive=True))
            if not found:
                raise FileNotFoundError(f"{path}: no file matches")
            yield from found


def _expanded(text: str) -> Iterator[str]:
    """Expands ``a{0..2}`` and ``a{x,y}``, as a shell and WebDataset do."""
    found = _BRACES.search(text)
    if found is None:
        yield text
        return
    before, behind = text[: found.start()], text[found.end() :]
    numbers = _RANGE.match(found[1])
    if numbers is None:
        inner = found[1].split(",")
    else:
        first, last = int(numbers[1]), int(numbers[2])
        inner = [f"{number:0{len(numbers[1])}}" for number in range(first, last + 1)]
    for each in inner:
        yield from _expanded(before + each + behind)


# ---- The folders below a folder, where links are followed.


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
