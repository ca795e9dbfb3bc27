"""A batch whose pictures are not decoded yet."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from fastloader._core.sources.encoded.decoding.keys import DrawnBy
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
class MadePart:
    """What Pillow has made of the `Part` of a batch. ``pixels``: of each view. ``sizes``: the (height,
    width) of each sample's picture. ``failed``: why there is none, by the place in the part.
    """

    pixels: list[torch.Tensor]
    sizes: list[tuple[int, int]]
    failed: dict[int, str]


@dataclasses.dataclass
class EncodedBatch:
    """``tree`` is the collated batch with an `EncodedPlace` for each of ``columns``. ``chains`` are
    pickled, as they crossed. ``samples``: how many there are; None for one that is not collated.
    ``made``: how many pictures were decoded where the samples were made, ``why`` in words.
    ``parts``: the pictures of the columns, if a worker has made them, ``drawn_by`` what they are drawn
    by then.
    """

    tree: Any
    files: EncodedFiles
    columns: list[EncodedColumn]
    chains: list[bytes]
    samples: int | None
    made: int
    parts: list[MadePart] | None = None
    drawn_by: DrawnBy | None = None
    pending: Any = None  # the `PendingPictures`, once decoding has begun
    error: Exception | None = None  # that it could not begin with
    why: str = ""
