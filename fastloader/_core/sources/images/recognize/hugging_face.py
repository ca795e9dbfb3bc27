"""Data sets of Hugging Face's ``datasets`` that were given a transform of ours."""

from __future__ import annotations

import weakref
from typing import Any

from fastloader._core.machine.identity import change, found, function_change, is_a, said
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources.images.recognize.ours import recognize_mapped
from fastloader._core.sources.images.recognize.reading import Reading
from fastloader.datasets._formats.sample_form import SampleForm
from fastloader.datasets.hugging_face import CLASS_LABEL, IMAGE, HFImages
from fastloader.errors import NotNative
from fastloader.transforms._reader.kinds import is_ours

# What gives the rows of a data set to its transform.
FORMATTER = ("datasets.formatting.formatting", "CustomFormatter")

# The pictures of a data set, as long as its transform is the same.
_found: weakref.WeakKeyDictionary[Any, HFImages] = weakref.WeakKeyDictionary()


def has_our_transform(dataset: Any) -> bool:
    """Whether ``with_transform`` gave it a transform of ours, which is one of pictures: any other data
    set may hold text, or anything."""
    return is_ours(_transform_of(dataset))


def _transform_of(dataset: Any) -> Any:
    format = dataset.format
    return format["format_kwargs"].get("transform") if format["type"] == "custom" else None


def recognize_hugging_face(dataset: Any, reading: Reading) -> NativeImages:
    """A sample is a dict of the columns, in which the picture is a tensor."""
    transform = _transform_of(dataset)
    decode = getattr(found(*IMAGE), "decode_example", None)
    if changed := function_change(decode, IMAGE[0], "Image.decode_example"):
        raise NotNative(changed)
    if changed is None:
        raise NotNative(f"datasets.Image.decode_example was replaced by {said(decode)}")
    formatter = found(*FORMATTER)
    if formatter is not None and (changed := change(formatter, formatter)):
        raise NotNative(changed)
    images = _found.get(dataset)
    if images is None or images.transform is not transform:
        images = _found[dataset] = _images(dataset, transform)
    return recognize_mapped(images, reading)


def _images(dataset: Any, transform: Any) -> HFImages:
    columns = list(dataset.format["columns"])
    pictures = [name for name in columns if is_a(dataset.features[name], IMAGE)]
    if len(pictures) != 1 or dataset.format["output_all_columns"]:
        raise NotNative(f"the data set has {len(pictures)} columns of pictures: one is native")
    (picture,) = pictures
    label = next((name for name in columns if is_a(dataset.features[name], CLASS_LABEL)), None)
    rest = [name for name in columns if name not in (picture, label)]
    try:
        images = HFImages(dataset, transform, image=picture, label=label, columns=rest)
    except (TypeError, ValueError) as error:  # a mode, labels that are null
        raise NotNative(str(error)) from None
    images.form = SampleForm((picture, label, *rest), images.form.reader, tuple(columns))
    return images
