"""FFCV over a .beton of JPEGs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.fields.rgb_image import IMAGE_MODES
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image

from benchmarks.peers.scenarios import SIZE, Settings


def versions() -> dict[str, str]:
    # Its module's own __version__ is of a release long past.
    return {"ffcv": version("ffcv"), "numba": numba.__version__, "torch": torch.__version__}


class JpegBytes(RGBImageField):
    """Keeps the files' own bytes. RGBImageField would encode the pictures anew, which changes what
    there is to decode."""

    def encode(self, destination: Any, path: str, malloc: Any) -> None:
        with Image.open(path) as image:
            width, height = image.size
        jpeg = np.fromfile(path, np.uint8)
        destination["mode"] = IMAGE_MODES["jpg"]
        destination["height"], destination["width"] = height, width
        destination["data_ptr"], storage = malloc(jpeg.size)
        storage[:] = jpeg


class Paths:
    def __init__(self, samples: list[tuple[str, int]]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[str, int]:
        return self.samples[index]


def loader(settings: Settings) -> Callable[[], Iterator[int]]:
    beton = Path(settings.work, "pictures.beton")
    if not beton.exists():
        fields = {"image": JpegBytes(), "label": IntField()}
        DatasetWriter(str(beton), fields, num_workers=1).from_indexed_dataset(
            Paths(settings.samples())
        )
    batches = Loader(
        str(beton),
        batch_size=settings.batch_size,
        num_workers=settings.threads,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        custom_fields={"image": JpegBytes},
        pipelines={
            "image": [
                RandomResizedCropRGBImageDecoder((SIZE, SIZE)),
                RandomHorizontalFlip(),
                ToTensor(),
                ToTorchImage(),
            ],
            "label": [IntDecoder(), ToTensor(), Squeeze(1)],
        },
    )
    return lambda: (len(labels) for _images, labels in batches)
