"""Makes pictures whose masks stay as they are stored until the delivery brings them to a device."""

from __future__ import annotations

from typing import Any

from fastloader._core.batch.tree import StoredMask
from fastloader.datasets.companions import EncodedMask
from fastloader.datasets.encoded import EncodedImage


def without_dtypes(image: EncodedImage) -> EncodedImage:
    """Returns the picture with masks that are made as they are stored."""
    if not _has_dtypes(image):
        return image
    followed = {
        key: EncodedMask(of.encoded, of.classes, of.ignore, None, of.bits)
        if isinstance(of, EncodedMask)
        else of
        for key, of in image.with_.items()
    }
    with_ = followed if image.named else tuple(followed.values())
    return EncodedImage(image.encoded, image.transform, image.return_parameters, with_)


def with_stored_masks(made: Any, image: EncodedImage) -> Any:
    """Returns what was made of ``image``, or of a column of its kind, `without_dtypes`: with a
    `StoredMask` in the place of each mask that has a dtype."""
    if not _has_dtypes(image):
        return made
    if image.return_parameters:
        pictures, parameters = made
        return type(made)((_marked(pictures, image), parameters))
    return _marked(made, image)


def _has_dtypes(image: EncodedImage) -> bool:
    # A JointImage's masks go into its target, and what somebody has seen has its dtypes.
    known = type(image) is EncodedImage and image.kept is None
    return known and any(of.dtype is not None for of in image.with_.values())


def _marked(made: Any, image: EncodedImage) -> Any:
    marked: Any = dict(made) if image.named else list(made)
    for key, of in image.with_.items():
        if isinstance(of, EncodedMask):
            marked[key] = StoredMask.of(made[key], of.dtype)
    return type(made)(marked)
