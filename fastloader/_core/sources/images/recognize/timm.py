"""timm's ImageDataset."""

from __future__ import annotations

from typing import Any

from fastloader._core.machine import identity
from fastloader._core.machine.identity import Rows
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources.images.recognize.reading import Reading
from fastloader._core.sources.images.recognize.samples import copied, flat
from fastloader.errors import NotNative

READERS = Rows[str](
    {
        ("timm.data.readers.reader_image_folder", "ReaderImageFolder"): "folder",
        ("fastloader.compat.timm.dataset", "ReaderImageFolder"): "folder",
    }
)


def recognize_timm(dataset: Any, reading: Reading) -> NativeImages:
    """Recognises timm's own ImageDataset and that of compat.timm."""
    reader = type(dataset.reader)
    known = READERS.known(reader)
    if known is None:
        raise NotNative(f"the dataset's reader is a {reader.__module__}.{reader.__qualname__}")
    if changed := identity.change(reader, known, ("samples",)):
        raise NotNative(changed)
    plain = {
        "load_bytes": False,
        "input_img_mode": "RGB",
        "additional_features": None,
    }
    for name, value in plain.items():
        if getattr(dataset, name) != value:
            raise NotNative(f"the dataset has {name}={getattr(dataset, name)!r}")
    reading.target_transform(dataset.target_transform)
    attempts = getattr(dataset, "_max_retries", None)
    if not isinstance(attempts, int) or attempts < 1:
        raise NotNative("this version of timm treats bad samples by a rule that is not known")
    chain = reading.chain(dataset.transform)
    store, targets = flat(dataset, copied(dataset.reader.samples))
    return NativeImages(store, targets, None, chain, attempts=attempts)
