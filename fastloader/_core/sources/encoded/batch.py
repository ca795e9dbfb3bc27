"""A batch whose pictures are not decoded yet."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastloader._core.sources.encoded.files import EncodedFiles


@dataclasses.dataclass
class EncodedColumn:
    """The pictures that stand in one place of every sample.

    ``number``: which pictures of their samples they are. ``files``: the file of each sample's picture.
    ``chains``: the number of the chain of each. ``parameters``: whether what was drawn is wanted, too.
    """

    number: int
    files: list[int]
    chains: list[int]
    parameters: bool


@dataclasses.dataclass
class EncodedBatch:
    """``tree`` is the collated batch with an `EncodedPlace` for each of ``columns``. ``chains`` are
    pickled, as they crossed. ``samples``: how many there are; None for one that is not collated.
    ``made``: how many pictures were decoded where the samples were made.
    """

    tree: Any
    files: EncodedFiles
    columns: list[EncodedColumn]
    chains: list[bytes]
    samples: int | None
    made: int
    pending: Any = None  # the `PendingPictures`, once decoding has begun
    error: Exception | None = None  # that it could not begin with
