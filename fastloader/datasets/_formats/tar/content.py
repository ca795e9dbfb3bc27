"""What the files of a sample hold that are no pictures."""

from __future__ import annotations

import json
from typing import Any

# By extension, as WebDataset's own decoder has it.
_NUMBERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
_TEXTS = ("txt", "text", "transcript")
_JSON = ("json", "jsn")


def content_of(data: bytes, extension: str) -> Any:
    """A whole number, text, or what JSON says; of a compound extension (``seg.json``) the last part
    counts. Bytes for any other.

    Raises:
        ValueError: if the bytes are of another kind.
    """
    last = extension.rsplit(".", 1)[-1]
    if last in _NUMBERS:
        return int(data)
    if last in _TEXTS:
        return data.decode()
    if last in _JSON:
        return json.loads(data)
    return data
