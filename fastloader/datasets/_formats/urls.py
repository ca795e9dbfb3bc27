"""URLs of objects: which there are, and what they name."""

from __future__ import annotations

import fnmatch
import re
from typing import NamedTuple

# The schemes that obstore has a driver for.
OBSTORE = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https")

_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
# What lends somebody's rights to whoever has the URL.
_SIGNED = re.compile(r"[?&](sig|token|signature|x-amz-\w+|x-goog-\w+)=", re.IGNORECASE)


class Place(NamedTuple):
    """``root``: scheme and bucket, or scheme and host. ``path``: that of the object there."""

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
    """Whether a web server has it."""
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
    """The longest URL of a folder in which everything lies that the pattern matches."""
    head = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    return head[: head.rindex("/")]


def matches(url: str, pattern: str) -> bool:
    """As a shell has it: a star matches no slash."""
    parts, wanted = url.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))
