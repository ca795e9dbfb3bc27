"""SPDL's threads; FFmpeg decodes, crops, scales and flips."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import spdl.io
import torch
from spdl.pipeline import PipelineBuilder

from benchmarks.peers.scenarios import SIZE, Settings, random_box

spdl.io.demux_config()  # loads its library, which needs FFmpeg's


def versions() -> dict[str, str]:
    return {"spdl": version("spdl"), "torch": torch.__version__}


def decode(sample: tuple[str, int]) -> tuple[Any, int]:
    path, label = sample
    packets = spdl.io.demux_image(path)
    left, top, width, height = random_box(packets.width, packets.height)
    steps = [
        f"crop={width}:{height}:{left}:{top}:exact=1",
        f"scale={SIZE}:{SIZE}:flags=bilinear",
        *(["hflip"] if random.random() < 0.5 else []),
        "format=rgb24",
    ]
    return spdl.io.decode_packets(packets, filter_desc=",".join(steps)), label


def collate(samples: list[tuple[Any, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    frames = spdl.io.convert_frames([frame for frame, _ in samples])
    images = spdl.io.to_torch(frames).permute(0, 3, 1, 2)
    return images, torch.tensor([label for _, label in samples])


def loader(settings: Settings) -> Callable[[], Iterator[int]]:
    samples = settings.samples()

    def epoch() -> Iterator[int]:
        order = random.sample(samples, len(samples))
        pipeline = (
            PipelineBuilder()
            .add_source(order)
            .pipe(decode, concurrency=settings.threads)
            .aggregate(settings.batch_size)
            .pipe(collate)
            .add_sink(3)
            .build(num_threads=settings.threads)
        )
        with pipeline.auto_stop():
            for _images, labels in pipeline.get_iterator():
                yield len(labels)

    return epoch
