"""``EncodedImage``: a picture that a dataset gives as it is encoded."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from fastloader.datasets._encoded.keeping import keeping
from fastloader.datasets._encoded.parameters import parameters, stacked
from fastloader.datasets._encoded.picture_source import PictureSource
from fastloader.datasets._encoded.single import Single
from fastloader.datasets._encoded.wanted import wanted


class EncodedImage:
    """A picture that is still encoded, anywhere in a sample of any dataset. ::

        class Captions(Dataset):
            def __getitem__(self, i):
                return fastloader.EncodedImage(self.path[i], self.transform), self.tokens[i]

    `FastLoader` decodes and transforms it on its C++ threads, straight into the batch, which is
    collated as default_collate collates the tensors. Several pictures of a sample that have the same
    source are decoded once where that is cheaper. Random steps draw by the seed of the epoch, the sample
    and which picture of the sample it is, so a picture comes out the same for any number of workers.

    The worker makes the picture if the transform is not known to the end, or does not give tensors of
    one shape: it decodes and begins natively, and Python does the rest. The same happens in a plain
    DataLoader, and for a collate_fn of your own, which gets tensors. Then torch's default generator
    gives the seed.

    Args:
        source: A path (str or os.PathLike), or the encoded bytes: bytes, bytearray, memoryview, a numpy
            array or a tensor of uint8. Nothing is copied unless the picture crosses to another process.
        transform: What is done to the RGB picture: a transform of torchvision, of timm or of
            `fastloader.transforms`, or a callable that takes a Pillow picture. None (default) gives its
            pixels, uint8 0..255 of shape (3, H, W), which collate only if all pictures have one size.
        return_parameters: True gives a pair (tensor, parameters) in its place. The parameters say what
            was drawn, for the part of the transform that is done natively. They are a dict of tensors:
            "size" (height, width) of the picture, "box" (left, top, width, height) of the part that was
            used, "hflip", "vflip", "interpolation" (Pillow's number) and "steps", which
            `fastloader.transforms.named_steps` reads. False (default) gives the tensor alone.

    Raises:
        TypeError: for a source of another type.
        ValueError: for a path with a null character.
    """

    __slots__ = ("_source", "return_parameters", "transform")

    any_made = False  # whether this process has made one; loaders of other datasets need not look

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes | bytearray | memoryview | Any,
        transform: Callable[[Any], Any] | None = None,
        return_parameters: bool = False,
    ) -> None:
        self._source = source if isinstance(source, PictureSource) else PictureSource(source)
        self.transform = transform
        self.return_parameters = bool(return_parameters)
        EncodedImage.any_made = True

    @property
    def source(self) -> str | Any:
        """The path, or an array of the encoded bytes."""
        return self._source.data if self._source.path is None else os.fsdecode(self._source.path)

    @property
    def encoded(self) -> PictureSource:
        """Where the picture lies, as the loader sees it."""
        return self._source

    def decode(self) -> Any:
        """What the transform makes of the picture, on this thread and without the GIL while it is
        native. One draw from torch's default generator gives the seed. With ``return_parameters`` a pair
        of that and the parameters of this picture.

        Raises:
            OSError: for a file that cannot be read or decoded.
        """
        made, rows = self._made()
        return made if rows is None else (made, {name: row[0] for name, row in rows.items()})

    def _made(self) -> tuple[Any, dict[str, torch.Tensor] | None]:
        """What the transform makes; and the parameters in one row, if they are asked for."""
        its = wanted(self.transform)
        seed = 0
        if its.chain.random or its.chain.erasing is not None:
            seed = int(torch.randint(0, 2**63 - 1, (), device="cpu").item())
        single = Single(self._source, its, seed)
        made = single.made()
        if not self.return_parameters:
            return made, None
        return made, parameters([its.chain], [single.drawn()], [(seed, 0)], 0)

    def __reduce__(self) -> Any:
        return EncodedImage, (self._source, self.transform, self.return_parameters)

    def __repr__(self) -> str:
        return f"EncodedImage({self._source.name!r}, {self.transform!r})"


def collated(column: list[Any], collate_fn_map: Any) -> Any:
    """A column of encoded pictures, made on this thread and collated."""
    made = [each._made() for each in column]
    pictures = collate([picture for picture, _row in made], collate_fn_map=collate_fn_map)
    rows = [row for _picture, row in made if row is not None]
    return [pictures, stacked(rows)] if rows else pictures


def collate_encoded(column: list[Any], *, collate_fn_map: Any = None) -> Any:
    """What default_collate makes of a column of encoded pictures."""
    for each in column:
        if type(each) is not EncodedImage:
            raise TypeError(f"a batch of EncodedImages has a {type(each).__qualname__} among them")
    if len({each.return_parameters for each in column}) > 1:
        raise TypeError("a batch has EncodedImages with return_parameters, and others without")
    kept = keeping()
    if kept is not None and kept.keeps():
        return kept.keep(column)
    if kept is not None:
        kept.made += len(column)
    return collated(column, collate_fn_map)


default_collate_fn_map[EncodedImage] = collate_encoded
