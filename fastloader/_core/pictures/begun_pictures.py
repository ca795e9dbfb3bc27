"""Samples of a dataset of pictures whose transform the native path knows in part."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset, Subset, get_worker_info

from fastloader._core.machine import extension
from fastloader._core.machine.process import HomeProcess
from fastloader._core.pictures.native_images import NativeImages
from fastloader.transforms._pillow import image_module, pixel_limits


class BegunPictures(Dataset[Any]):
    """Stands in the place of ``dataset`` where samples are made: in workers, or on the loop's thread. A
    picture is decoded natively, and changed as far as ``images.chain`` goes. The rest of the
    transform is done to the Pillow picture that comes out.

    What the native path cannot decode, such as a damaged file, is the dataset's own sample, with the
    dataset's own errors. So is everything, once somebody has put another transform or other samples
    into the dataset. Random steps draw as they do in Python: torch's default generator gives one number
    a picture.

    Args:
        dataset: the loader's.
        images: its pictures, with the beginning of their transform.
        rest: the steps behind that, one after the other.
        target_transform: what is done to a target.
        shows_header: whether a step may look at what stands in a file beside its pixels, as
            ``Image.info``: the orientation, a colour profile.
    """

    def __init__(
        self,
        dataset: Any,
        images: NativeImages,
        rest: list[Callable[[Any], Any]],
        target_transform: Callable[[Any], Any] | None,
        shows_header: bool,
    ) -> None:
        self._dataset = dataset
        self._images = images
        self._rest = rest
        self._target_transform = target_transform
        self._shows_header = shows_header
        self._read = _attributes(dataset)
        self._home: HomeProcess | None = None
        self._store: Any = None
        self._job: Any = None

    @property
    def own(self) -> Any:
        """The dataset, as workers are to show it."""
        return self._dataset

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_home": None, "_store": None, "_job": None}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        images = self._images
        try:
            number = operator.index(index)
        except TypeError:
            return self._dataset[index]
        if not 0 <= number < len(images) or not _same(self._read, _attributes(self._dataset)):
            return self._dataset[index]
        file = number if images.indices is None else int(images.indices[number])
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
            self._store = self._images.store.opened(extension.load())
            self._job, self._home = self._made_job(), HomeProcess()
        chain = self._images.chain
        # As a chain in Python does it: a chain without draws leaves the generator alone.
        seed = int(torch.randint(0, 2**63 - 1, (), device="cpu").item()) if chain.random else 0
        try:
            pixels, (height, width) = self._job.picture(file, seed)
        except Exception:  # the dataset's own code says what is wrong, or knows how
            return None
        picture = image_module().frombytes("RGB", (width, height), pixels)
        if chain.grey:
            picture = picture.getchannel(0)
        if self._shows_header:
            picture.info = self._store.info(file)
        return picture

    def _made_job(self) -> Any:
        native = extension.load()
        assert native is not None
        images = self._images
        # A larger picture is left to Pillow, which warns of it.
        large, _most = pixel_limits()
        return native.ImageJob(
            source=self._store.source,
            transform=images.chain.native(native),
            planar=False,
            recipe=images.chain.native_recipe(native),
            any_size=True,
            pixel_limit=large,
            large_pixels=large,
        )


class ShowingOwn:
    """A worker_init_fn. `get_worker_info` shows the user's code the loader's own dataset from then on;
    ``init``, the loader's, is called next."""

    def __init__(self, in_place: Any, init: Callable[[int], None] | None) -> None:
        self._in_place = in_place
        self._init = init

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        if info is not None:
            # It refuses to have its attributes set, because the user's code is to leave them alone.
            object.__setattr__(info, "dataset", self._in_place.own)
        if self._init is not None:
            self._init(worker)


def _attributes(dataset: Any) -> dict[str, Any]:
    """The dataset's own attributes, below the selections of its samples."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return dict(vars(dataset))


def _same(some: dict[str, Any], others: dict[str, Any]) -> bool:
    """Whether the attributes are the same objects."""
    return len(some) == len(others) and all(others.get(name, some) is some[name] for name in some)
