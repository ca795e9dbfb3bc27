"""Arguments of a loader that its pictures, which are known, contradict."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

from fastloader._core.order.loader import Loader
from fastloader._core.sources.arguments import check_batches
from fastloader._core.sources.collation import container
from fastloader._core.sources.images.recognize import first_part, holds_images, own_part
from fastloader.datasets._formats.sample_form import PLAIN, SampleForm
from fastloader.errors import NotNative
from fastloader.transforms._reader.chain import step_to_floats
from fastloader.transforms.steps.transform import shown


def check_picture_arguments(loader: Loader) -> None:
    """Raises, when the loader is made, what `find_images` would raise for its first batch. Only
    pictures of a known dataset, with a known ``collate_fn``, are looked at: any other batch shows
    what is in it when it comes.

    Raises:
        TypeError: if the transform gives floats, and mean, std or dtype ask for bytes.
        ValueError: if ``image_key`` names something else than the picture.
    """
    wanted = loader._runtime.delivery.normalization
    if wanted is None or not holds_images(loader.dataset):
        return
    try:
        check_batches(loader)
        container(loader.collate_fn)
    except NotNative:
        return
    dataset = first_part(loader.dataset)
    if own_part(dataset):  # of the subclass: its samples may be anything
        return
    # torchvision's and timm's have none. Those of Hugging Face have columns of any name.
    form = getattr(dataset, "form", PLAIN if isinstance(dataset, Dataset) else None)
    if not isinstance(form, SampleForm):
        return
    _check_key(dataset, form, wanted.image_key)
    # A column may be an image leaf, too.
    if form.plain and _transforms_alone(dataset):
        _check_floats(dataset)


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
    return both is None or type(both).__qualname__ == "StandardTransform"


def _check_floats(dataset: Any) -> None:
    step = step_to_floats(getattr(dataset, "transform", None))
    if step is not None:
        raise TypeError(
            "mean, std or dtype asks for normalised images, but the transform of "
            f"{type(dataset).__name__} makes floats: {shown(step)}. Let the dataset return uint8 (end "
            "its transform in PILToTensor() instead of ToTensor() and Normalize(...)), or drop mean, "
            "std and dtype here."
        )
