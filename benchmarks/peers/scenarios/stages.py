"""The stages of fastloader's native path one at a time: the limits, and what a picture's time is
made of.

The bare decode is libjpeg-turbo, the one that the module is linked with, row by row as Pillow calls
it, from files in memory; no crop, no resize, and the rows go nowhere. FastLoader's own decoder is
measured in the same way.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import fastloader
from benchmarks.peers.scenarios import SIZE, Settings, random_box
from fastloader._core.machine import extension

MOST_CROPS = 500  # kept as pixels, some 250 kB each

if extension.load() is None:
    raise ImportError("fastloader's native module is not in use")
native = extension.native


def versions() -> dict[str, str]:
    info = fastloader.build_info()
    libjpeg = info["jpeg"]
    return {
        "fastloader": info["version"],
        "libjpeg-turbo": "none" if libjpeg is None else libjpeg["compiled_version"],
    }


def decode_whole(settings: Settings) -> Callable[[], Iterator[int]]:
    return _decode(settings, crops=False, own=False)


def decode_crops(settings: Settings) -> Callable[[], Iterator[int]]:
    return _decode(settings, crops=True, own=False)


def decode_crops_ourselves(settings: Settings) -> Callable[[], Iterator[int]]:
    return _decode(settings, crops=True, own=True)


def _decode(settings: Settings, crops: bool, own: bool) -> Callable[[], Iterator[int]]:
    if not own and extension.lacks_libjpeg():
        raise ImportError("this build of fastloader has no libjpeg-turbo")
    pictures = _in_memory(settings)
    threads = ThreadPoolExecutor(settings.threads)
    decoders = threading.local()

    def work(jobs: Iterator[tuple[bytes, int, int]]) -> int:
        if not hasattr(decoders, "own"):
            decoders.own = native.PictureDecoder()
        decode, count = decoders.own.decode, 0
        for jpeg, height, width in jobs:
            decode(jpeg, box=random_box(width, height) if crops else None, own=own)
            count += 1
        return count

    def epoch() -> Iterator[int]:
        jobs = iter(pictures)  # one for all threads: a free thread takes the next
        for share in [threads.submit(work, jobs) for _ in range(settings.threads)]:
            yield share.result()

    return epoch


def _in_memory(settings: Settings) -> list[tuple[bytes, int, int]]:
    """(bytes, height, width) of each sample. Links to one file share its bytes."""
    files: dict[str, tuple[bytes, int, int]] = {}
    decoder = native.PictureDecoder()
    samples = [os.path.realpath(path) for path, _ in settings.samples()]
    for path in samples:
        if path not in files:
            jpeg = Path(path).read_bytes()
            files[path] = (jpeg, *decoder.decode(jpeg))
    return [files[path] for path in samples]


def read(settings: Settings) -> Callable[[], Iterator[int]]:
    paths = [path for path, _ in settings.samples()]
    room = bytearray(max(os.path.getsize(path) for path in paths))

    def epoch() -> Iterator[int]:
        for path in paths:
            file = os.open(path, os.O_RDONLY)
            os.readv(file, [room])
            os.close(file)
        yield len(paths)

    return epoch


def resample(settings: Settings) -> Callable[[], Iterator[int]]:
    pictures = _in_memory(settings)
    decoder, resizer = native.PictureDecoder(), native.Resizer()
    crops = []
    for jpeg, height, width in pictures[:: -(-len(pictures) // MOST_CROPS)]:
        box = random_box(width, height)
        crop = np.empty((box[3], box[2], 3), np.uint8)
        decoder.decode(jpeg, box=box, destination=crop.ctypes.data)
        crops.append((crop, crop.ctypes.data, crop.shape[:2]))
    finished = np.empty((SIZE, SIZE, 3), np.uint8)
    destination = finished.ctypes.data

    def epoch() -> Iterator[int]:
        for _crop, source, size in crops:
            resizer.resize(
                source=source, source_size=size, destination=destination, size=(SIZE, SIZE)
            )
        yield len(crops)

    return epoch


def resize(settings: Settings) -> Callable[[], Iterator[int]]:
    pixels = np.random.default_rng(0).integers(0, 256, (300, 340, 3), dtype=np.uint8)
    finished = np.empty((SIZE, SIZE, 3), np.uint8)
    resizer = native.Resizer()
    source, destination = pixels.ctypes.data, finished.ctypes.data

    def epoch() -> Iterator[int]:
        assert finished.nbytes and pixels.nbytes  # both addresses stay valid
        for _ in range(400):
            resizer.resize(
                source=source, source_size=(300, 340), destination=destination, size=(SIZE, SIZE)
            )
        yield 400

    return epoch
