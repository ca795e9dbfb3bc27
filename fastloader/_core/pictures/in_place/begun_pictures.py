"""Samples of a dataset of pictures whose transform the native path knows in part."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fastloader._core.machine import extension
from fastloader._core.machine.process import HomeProcess
from fastloader._core.pictures.in_place.in_place import InPlace
from fastloader._core.pictures.native_images import NativeImages
from fastloader.transforms._pillow import image_module, made_picture, picture_job, pixel_limits
from fastloader.transforms._recipe import draw

if TYPE_CHECKING:
    from fastloader import _native


# A packed file is opened anew in another process; timm's datasets count bad files.
_CHANGING = ("_environment", "skipped", "_consecutive_errors")

Steps = Sequence[Callable[[Any], Any]]


class BegunPictures(InPlace):
    """A picture is decoded and changed as far as ``images.chain`` goes: natively or, where that cannot
    be, by Pillow, with the same draws and the same pixels. The rest of the transform is done to the
    Pillow picture that comes out.

    What cannot be decoded is the dataset's own sample, with the dataset's own errors. So is everything,
    once somebody has put another transform or other samples into the dataset.

    Args:
        rests: the steps behind the beginning, one after the other, of each dataset that was
            concatenated.
        target_transforms: what is done to a target, of each of them.
        shows_header: whether a step may look at what stands in a file beside its pixels, as
            ``Image.info``: the orientation, a colour profile.
    """

    def __init__(
        self,
        dataset: Any,
        images: NativeImages,
        rests: Sequence[Steps],
        target_transforms: Sequence[Callable[[Any], Any] | None],
        shows_header: bool,
        began: Callable[[InPlace], None] | None = None,
    ) -> None:
        super().__init__(dataset, images, began)
        self._rests = rests
        self._target_transforms = target_transforms
        self._shows_header = shows_header
        self._read = [_attributes(part) for part in self.parts]
        self._made_here: HomeProcess | None = None
        self._made_for: tuple[int, int] | None = None
        self._job: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_made_here": None, "_job": None}

    def sample(self, key: Any, number: int, seed: int) -> Any:
        file = self.file(number)
        part = self.part(file)
        if not _same(self._read[part], _attributes(self.parts[part])):
            return self.own[key]
        picture = self._picture(file, seed)
        if picture is None:
            return self.own[key]
        for step in self._rests[part]:
            picture = step(picture)
        target = int(self.images.targets[file])
        of_target = self._target_transforms[part]
        label = target if of_target is None else of_target(target)
        sample = self.images.form.sample(picture, label, file)
        if (look := self.store.begin_look([file])) is not None:
            look.check()
        return sample

    def _picture(self, file: int, seed: int) -> Any | None:
        """The picture with which the rest goes on; None for one that cannot be decoded."""
        picture, info = self._natively(file, seed), None
        if picture is None:
            try:
                opened = self.store.open_rgb(file)
                info = opened.info
                picture = draw.made(self.images.chain, opened, seed, file)
            except Exception:  # the dataset's own code says what is wrong, or knows how
                return None
        if self.images.chain.grey:
            picture = picture.getchannel(0)
        if self._shows_header:
            picture.info = self.store.info(file) if info is None else info
        return picture

    def _natively(self, file: int, seed: int) -> Any | None:
        if extension.load() is None:
            return None
        store = self.store
        limits = pixel_limits()  # any code may set Image.MAX_IMAGE_PIXELS
        if self._made_here is None or not self._made_here.here or self._made_for != limits:
            self._job, self._made_here = self._made_job(), HomeProcess()
            self._made_for = limits
        store.prepare([file])
        try:
            # Where the header is shown, Pillow opens the file besides, and warns.
            make = (
                self._job.picture
                if self._shows_header
                else functools.partial(made_picture, self._job)
            )
            pixels, (height, width) = make(file, seed)[:2]
        except Warning:  # of a large picture, which the user's filter made an error
            raise
        except Exception:  # Pillow may know how
            return None
        return image_module().frombytes("RGB", (width, height), pixels)

    def _made_job(self) -> _native.ImageJob:
        chain = self.images.chain
        return picture_job(
            source=self.store.source,
            transform=chain.native(),
            recipe=chain.native_recipe(),
            seek_indices=self.store.seek_indices,
            upright=self.store.upright,
        )


def _attributes(dataset: Any) -> dict[str, Any]:
    """The dataset's own attributes, but for those that it changes itself."""
    return {name: value for name, value in vars(dataset).items() if name not in _CHANGING}


def _same(some: dict[str, Any], others: dict[str, Any]) -> bool:
    """Whether the attributes are the same objects."""
    return len(some) == len(others) and all(others.get(name, some) is some[name] for name in some)
