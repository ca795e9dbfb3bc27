"""One version of an object in a store."""

from __future__ import annotations

import dataclasses
import hashlib
import posixpath
import re

from fastloader.datasets._formats.urls import place_of
from fastloader.errors import Error

MOST_PICTURE = 1 << 30  # bytes


class ChangedObject(ValueError):
    """An object is no longer the one that its dataset was made of."""


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteObject:
    """``url``: where it is. ``size``: its bytes. ``etag``: what the store calls this version, without
    quotes, or None.
    ``modified``: when it was written, in nanoseconds since 1970; 0: the store does not tell."""

    url: str
    size: int
    etag: str | None
    modified: int

    def check(self, found: RemoteObject) -> None:
        """Raises ChangedObject if what was ``found`` at the URL is another version."""
        same_tag = self.etag == found.etag
        # Servers of one site may differ in times. A tag names the version, so it decides alone.
        same_time = self.etag is not None or self.modified == found.modified
        if self.size != found.size or not same_tag or not same_time:
            raise self.changed()

    def changed(self) -> ChangedObject:
        return ChangedObject(
            f"{self.url} has changed since its dataset was made: make the dataset anew"
        )

    def check_picture(self) -> None:
        """Raises Error if it is larger than any picture, which is read at once."""
        if self.size > MOST_PICTURE:
            raise Error(
                f"{self.url}: {self.size} bytes are no picture: at most {MOST_PICTURE} are read at once"
            )

    @property
    def path(self) -> str:
        """Where it is in its bucket."""
        return place_of(self.url).path

    @property
    def md5(self) -> str | None:
        """What the tag says that the MD5 of the contents is. A store may use a tag of this form for
        something else."""
        tag = (self.etag or "").lower()
        is_hash = len(tag) == 32 and not set(tag) - set("0123456789abcdef")
        return tag if is_hash else None

    @property
    def file_name(self) -> str:
        """The name of a file that holds this version, and no other one. Of the URL's own name it has
        what any file system takes, at most 100 bytes."""
        identity = "\0".join(map(str, (self.url, self.size, self.etag, self.modified)))
        hashed = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:24]
        shown = re.sub(r"[^\w.-]", "_", posixpath.basename(self.url), flags=re.ASCII)
        return f"{hashed}-{shown[-100:]}"
