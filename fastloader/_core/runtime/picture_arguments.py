"""Arguments of a loader that its pictures, which are known, contradict."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.utils.data import Dataset

from fastloader._core.machine.identity import is_a
from fastloader._core.order.loader import Loader
from fastloader._core.pictures.in_place import parts_of
from fastloader._core.sources.arguments import check_batches
from fastloader._core.sources.collation import container
from fastloader._core.sources.recognize import holds_images, own_part
from fastloader._core.sources.recognize_torchvision import STANDARD
from fastloader.datasets._formats.sample_form import PLAIN, SampleForm
from fastloader.errors import NotNative
from fastloader.transforms._normalization import Normalization, check_same_values
from fastloader.transforms._reader.chain import own_normalization, step_to_floats
from fastloader.transforms.transform import shown


def check_picture_arguments(loader: Loader) -> None:
    """Raises, when the loader is made, what `find_images` would raise for its first batch. Only
    pictures of a known dataset are looked at and, unless their transform normalises them, with a known
    ``collate_fn``: any other batch shows what is in it when it comes.

    Raises:
        TypeError: if the transform gives floats, and mean, std or dtype ask for bytes.
        ValueError: if it normalises by other values than these, or ``image_key`` names something else
            than the picture.
    """
    wanted = loader._runtime.delivery.normalization
    if wanted is None or not holds_images(loader.dataset):
        return
    collated = _is_collation_known(loader)
    for dataset in parts_of(loader.dataset):
        form = _form_of(dataset)
        if form is None:
            continue
        if collated:
            _check_key(dataset, form, wanted.image_key)
        # A column may be an image leaf, too.
        if form.reader is None and _transforms_alone(dataset):
            _check_floats(dataset, wanted, collated)


def come_normalized(loader: Loader) -> Normalization | None:
    """What is left to do to samples that Python makes, if they come normalised by the loader's own mean
    and std; None if they do not. The ``collate_fn`` may be anybody's: it gets these samples."""
    wanted = loader._runtime.delivery.normalization
    if wanted is None or loader._runtime.delivery.augmentation is not None:
        return None
    for dataset in parts_of(loader.dataset):
        form = _form_of(dataset)
        if form is None or form.reader is not None or not _transforms_alone(dataset):
            return None
        own = own_normalization(step_to_floats(getattr(dataset, "transform", None)))
        if own is None or not own.same_values(wanted):
            return None
    return dataclasses.replace(wanted, done=True)


def _is_collation_known(loader: Loader) -> bool:
    """Whether it is known what becomes of samples in a batch before there is one."""
    try:
        check_batches(loader)
        container(loader.collate_fn)
    except NotNative:
        return False
    return True


def _form_of(dataset: Any) -> SampleForm | None:
    if not holds_images(dataset) or own_part(dataset):  # its samples may be anything
        return None
    # torchvision's and timm's have none. Those of Hugging Face have columns of any name.
    form = getattr(dataset, "form", PLAIN if isinstance(dataset, Dataset) else None)
    return form if isinstance(form, SampleForm) else None


def _check_key(dataset: Any, form: SampleForm, key: int | str | None) -> None:
    picture = 0 if form.keys is None else form.keys[0]
    if form.reader is None and key not in (None, picture):
        raise ValueError(
            f"image_key={key!r}: the picture of a sample of {type(dataset).__name__} is under "
            f"{picture!r}. Leave image_key out, or give image_key={picture!r}"
        )


def _transforms_alone(dataset: Any) -> bool:
    """Whether ``transform`` is all that is done to a picture."""
    both = getattr(
        dataset, "transforms", None
    )  # torchvision's function of a picture and its target
    return both is None or is_a(both, STANDARD)


def _check_floats(dataset: Any, wanted: Normalization, collated: bool) -> None:
    step = step_to_floats(getattr(dataset, "transform", None))
    own = own_normalization(step)
    if own is not None:
        check_same_values(own, wanted, f"the transform of {type(dataset).__name__}", shown(step))
    elif step is not None and collated:
        raise TypeError(
            "mean, std or dtype asks for normalised images, but the transform of "
            f"{type(dataset).__name__} makes floats: {shown(step)}. Let the dataset return uint8 (end "
            "its transform in PILToTensor() instead of ToTensor() and Normalize(...)), or drop mean, "
            "std and dtype here."
        )
