"""Why Python makes the batches, and the warning for users who may expect the native path."""

from __future__ import annotations

import warnings
from typing import Any

from torch.utils.data import ConcatDataset, Subset, default_convert

from fastloader._core.machine.messages import users_level
from fastloader._core.machine.torch_datasets import kind_of
from fastloader._core.order.loader import Loader
from fastloader._core.sources.arguments import check_batches, check_extension, check_native
from fastloader._core.sources.arrays import holds_arrays
from fastloader._core.sources.collation import container
from fastloader._core.sources.recognize import (
    READERS,
    first_part,
    holds_images,
    own_part,
    refusals,
    unknown,
)
from fastloader.errors import NotNative, PythonPathWarning


def why_no_source(loader: Loader) -> str:
    """Why no source but Python's makes the batches, if none of them knows the dataset."""
    try:
        check_native(loader)
        check_extension()
        check_batches(loader)
        container(loader.collate_fn)
    except NotNative as refusal:
        return str(refusal)
    return unknown(first_part(loader.dataset))


def obstacles(loader: Loader, first: str) -> str:
    """Every reason for Python's batches that can be seen, ``first`` in front: who takes one away is not
    to meet the next one only then."""
    try:
        check_native(loader)
        check_extension()
    except NotNative:
        return first  # which says it all
    found = [first]
    for check in (lambda: check_batches(loader), lambda: container(loader.collate_fn)):
        try:
            check()
        except NotNative as refusal:
            found.append(str(refusal))
        if loader.collate_fn is default_convert:  # torch's own, where samples are not collated
            break
    dataset = first_part(loader.dataset)
    if not holds_images(dataset):
        if not holds_arrays(loader.dataset):
            found.append(unknown(dataset))
    else:
        found += refusals(dataset).found
    text = "; also ".join(dict.fromkeys(found))
    other = native_form(dataset)
    return f"{text}; in its place {other} is native" if other else text


# What is native in the place of others' datasets, by their package.
_FORMS = {
    "datasets": "fastloader.datasets.HFImages(dataset, transform)",
    "webdataset": "fastloader.datasets.TarImages(shards, transform)",
    "wids": "fastloader.datasets.TarImages(shards, transform)",
}


def native_form(dataset: Any) -> str:
    """What to write in the place of a data set of Hugging Face or WebDataset; empty for any other."""
    home = type(dataset).__module__.partition(".")[0] if type(dataset).__module__ else ""
    if home == "datasets" and not hasattr(dataset, "features"):  # a package of the user's
        return ""
    return _FORMS.get(home, "")


def holds_pictures(dataset: Any) -> bool:
    """Whether another transform, or another setting of the loader, could make the dataset native. That
    is so for a known kind, a subclass of one, and a selection of these."""
    kind = kind_of(dataset)
    if kind is Subset:
        return holds_pictures(dataset.dataset)
    if kind is ConcatDataset:
        return all(holds_pictures(each) for each in dataset.datasets)
    if not holds_images(dataset) or getattr(dataset, "legacy", False) is True:
        return False
    # timm's ImageDataset may read from something else than a folder.
    reader = getattr(dataset, "reader", None)
    return reader is None or READERS.known(type(reader)) is not None


def warn_if_pictures(dataset: Any, reason: str) -> None:
    """Warns if the dataset `holds_pictures`: at the line of the user's code that asked for the iterator,
    even through code of ours."""
    if not holds_pictures(dataset):
        return
    text = f"these pictures take the Python path, which is slower than the native one: {reason}."
    if own_part(first_part(dataset)):  # its samples may be anything
        text = (
            f"Python makes these samples: {reason}. What they give as EncodedImage is decoded natively "
            "all the same."
        )
    warnings.warn(
        f"{text} Leave that out, or put a step of your own at the end of the transform, before "
        "PILToTensor(): docs/native.md has the table of what is native. If Python is wanted, say "
        "native=False, which silences this.",
        PythonPathWarning,
        stacklevel=users_level(),
    )
