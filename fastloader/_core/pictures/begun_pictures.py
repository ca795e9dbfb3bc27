"""Samples of a dataset of pictures whose transform the native path knows in part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset

from fastloader._core.machine import extension
from fastloader._core.machine.process import HomeProcess
from fastloader._core.pictures.native_images import NativeImages
from fastloader.transforms._pillow import image_module, pixel_limits


class BegunPictures(Dataset[Any]):
    """Stands in the place of ``dataset`` where samples are made: in workers, or on the loop's thread. A
    picture is decoded natively, and changed as far as ``images.chain`` goes. The rest of the
    transform is done to the Pillow picture that comes out.

    What the native path cannot decode, such as a damaged file, is the dataset's own sample, with the
    dataset's own errors. Random steps draw as they do in Python: torch's default generator gives one
    number a picture.
    """

    def __init__(
        self,
        dataset: Any,
        images: NativeImages,
        rest: list[Callable[[Any], Any]],
        target_transform: Callable[[Any], Any] | None,
    ) -> None:
        self._dataset = dataset
        self._images = images
        self._rest = rest
        self._target_transform = target_transform
        self._home: HomeProcess | None = None
        self._job: Any = None

    def __getattr__(self, name: str) -> Any:
        # Workers show the dataset to the user's code, which may ask it for anything. What decides how
        # samples are fetched, such as __getitems__, is this class's.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_home": None, "_job": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int) or not 0 <= index < len(self._images):
            return self._dataset[index]
        images = self._images
        file = index if images.indices is None else int(images.indices[index])
        picture = self._picture(file)
        if picture is None:
            return self._dataset[index]
        for step in self._rest:
            picture = step(picture)
        target = int(images.targets[file])
        of_target = self._target_transform
        return picture, target if of_target is None else of_target(target)

    def _picture(self, file: int) -> Any | None:
        """The picture that the native path makes; None if it does not."""
        if self._home is None or not self._home.here:
            self._job, self._home = self._made_job(), HomeProcess()
        chain = self._images.chain
        # As a chain in Python does it: a chain without draws leaves the generator alone.
        seed = int(torch.randint(0, 2**63 - 1, (), device="cpu").item()) if chain.random else 0
        try:
            pixels, (height, width) = self._job.picture(file, seed)
        except Exception:  # the dataset's own code says what is wrong, or knows how
            return None
        return image_module().frombytes("RGB", (width, height), pixels)

    def _made_job(self) -> Any:
        native = extension.load()
        assert native is not None
        images = self._images
        # A larger picture is left to Pillow, which warns of it.
        large, _most = pixel_limits()
        return native.ImageJob(
            source=images.store.opened(native).source,
            transform=images.chain.native(native),
            planar=False,
            recipe=images.chain.native_recipe(native),
            any_size=True,
            pixel_limit=large,
            large_pixels=large,
        )
