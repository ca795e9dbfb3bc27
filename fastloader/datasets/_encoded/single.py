"""One encoded picture, made on the calling thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fastloader._core.machine import extension
from fastloader.datasets._encoded.picture_source import PictureSource
from fastloader.datasets._encoded.wanted import Wanted
from fastloader.errors import Error
from fastloader.transforms import _pillow
from fastloader.transforms._chain import Chain
from fastloader.transforms._pillow import made_picture, naming, picture_job
from fastloader.transforms._recipe import draw
from fastloader.transforms.tensors import erased

if TYPE_CHECKING:
    from fastloader import _native


class Single:
    """A picture that is decoded and transformed without the loader's threads.

    Args:
        wanted: what its transform makes of it.
        seed, sample, number: what is drawn for it: the seed, its sample, and which picture of that it
    is."""

    def __init__(
        self, source: PictureSource, wanted: Wanted, seed: int, sample: int = 0, number: int = 0
    ) -> None:
        self._source = source
        self._wanted = wanted
        self._key = (seed, sample, number)

    def made(self) -> Any:
        """What the transform makes.

        Raises:
            OSError: for a picture that Pillow cannot decode either.
        """
        wanted = self._wanted
        picture: Any = self._picture()
        if wanted.rest and wanted.chain.grey:
            picture = picture.getchannel(0)
        for step in wanted.rest:
            picture = step(picture)
        if not (wanted.chain.tensor or wanted.whole):
            return picture
        return finished(wanted.chain, _tensor(picture)[: wanted.chain.channels], self._key)

    def drawn(self) -> Mapping[str, Any]:
        """What is drawn for it, as the native module's ``ImageJob.draw`` gives it."""
        seed, sample, number = self._key
        if extension.load() is not None:
            try:
                job = _job(self._wanted.chain, self._source)
                return dict(job.draw(0, seed, sample=sample, number=number))
            except (Error, ValueError):  # a file of another kind, whose size Pillow knows
                pass
        width, height = self._source.open_rgb().size
        return draw.draw(self._wanted.chain, (height, width), seed, sample, number)

    def _picture(self) -> Any:
        """The Pillow picture that comes out of the chain."""
        seed, sample, number = self._key
        chain = self._wanted.chain
        if extension.load() is not None:
            try:
                job = _job(chain, self._source)
                with naming(self._source.name):
                    pixels, (height, width) = made_picture(job, 0, seed, sample, number)
                return _pillow.image_module().frombytes("RGB", (width, height), pixels)
            except (Error, ValueError):  # Pillow says what is wrong, or knows how
                pass
        return draw.made(chain, self._source.open_rgb(), seed, sample, number)


def finished(chain: Chain, pixels: torch.Tensor, key: tuple[int, int, int]) -> torch.Tensor:
    """The end of a chain: normalised as the loader does it, and erased. ``pixels`` is uint8 (3, H,
    W)."""
    if chain.floating:
        normalization = chain.normalization
        out = normalization.output((1, *pixels.shape), pixels.device)
        pixels = normalization.apply(pixels[None], out)[0]
    if chain.erasing is None:
        return pixels
    seed, sample, number = key
    return erased(pixels, chain.erasing, seed, sample, number)


def _tensor(picture: Any) -> torch.Tensor:
    pixels = torch.from_numpy(np.array(picture))
    return pixels.permute(2, 0, 1).contiguous()


def _job(chain: Chain, source: PictureSource) -> _native.ImageJob:
    return picture_job(
        source=source.opened(), transform=chain.native(), recipe=chain.native_recipe()
    )
