"""DALI without a GPU: the decoder that decodes only the crop, threads of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from nvidia import dali
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from benchmarks.peers.scenarios import SIZE, Settings


def versions() -> dict[str, str]:
    return {"dali": dali.__version__, "torch": torch.__version__}


@pipeline_def
def pictures(samples: list[tuple[str, int]]) -> Any:
    jpegs, labels = fn.readers.file(
        files=[path for path, _ in samples],
        labels=[label for _, label in samples],
        random_shuffle=True,
        name="reader",
    )
    images = fn.decoders.image_random_crop(
        jpegs, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
    )
    images = fn.resize(images, size=(SIZE, SIZE), antialias=True)
    images = fn.crop_mirror_normalize(
        images,
        dtype=types.UINT8,
        output_layout="CHW",
        mirror=fn.random.coin_flip(probability=0.5),
    )
    return images, labels


def loader(settings: Settings) -> Callable[[], Iterator[int]]:
    pipeline = pictures(
        settings.samples(),
        batch_size=settings.batch_size,
        num_threads=settings.threads,
        device_id=None,  # no GPU
    )
    pipeline.build()
    batches = DALIGenericIterator(
        [pipeline],
        ["images", "labels"],
        reader_name="reader",
        last_batch_policy=LastBatchPolicy.PARTIAL,
        auto_reset=True,
    )
    return lambda: (len(batch[0]["labels"]) for batch in batches)
