"""Epochs, early breaks, streams and sizes for a while: device and pinned memory stay flat.

FASTLOADER_SOAK_SECONDS says for how long each of them runs: 2 unless said otherwise, 30 for a proof.
"""

import gc
import os
import random
import time

import pytest
import torch

from exact import normalised, same_bits
from fastloader import FastLoader
from support import MEAN, STD, Pictures, resident_bytes

SECONDS = float(os.environ.get("FASTLOADER_SOAK_SECONDS", "2"))
SLACK = 8 << 20  # of the process's own memory: what malloc does not give back


@pytest.mark.parametrize("kind", ["alone", "persistent workers"])
def test_memory_is_flat(gpu, way, kind):
    data = Pictures(64, size=(65, 63))
    rng = random.Random(1)
    streams = [gpu.current(), gpu.stream(), gpu.stream()]
    options = {} if kind == "alone" else {"num_workers": 2, "persistent_workers": True}
    loader = FastLoader(
        data, 4, device=gpu.name, mean=MEAN, std=STD, shuffle=True, depth=3, **options
    )

    def epoch(wanted=None):
        wanted = wanted or rng.choice([1, 2, 5, 16])
        for taken, (image, label) in enumerate(loader, 1):
            with gpu.using(streams[taken % 3]):
                image.mul_(1)
            if rng.random() < 0.02:
                same_bits(
                    image.cpu(), normalised(data.images[label.cpu()], MEAN, STD, torch.float32)
                )
            if taken == wanted:
                break

    def figures():
        gc.collect()
        gpu.synchronize()
        gpu.empty_cache()  # what the allocator keeps for later depends on the order of events
        reserved, allocated = gpu.memory()
        pinned = loader.stats().get("ring", {}).get("ring_bytes", 0)
        return reserved, allocated, pinned, resident_bytes()

    begin = time.monotonic()
    epoch(16)  # which makes all slots of the ring
    while time.monotonic() - begin < SECONDS / 4:
        epoch()
    reserved, allocated, pinned, resident = figures()
    epochs = 0
    while time.monotonic() - begin < SECONDS or not epochs:
        epoch()
        epochs += 1
    after = figures()
    print(f"{epochs} epochs: reserved, allocated, pinned, resident {after}, before {resident}")
    assert after[:3] == (reserved, allocated, pinned)
    assert after[3] <= resident + SLACK
    loader.close()


def test_device_memory_is_the_same_after_each_epoch(gpu, way):
    data = Pictures(64, size=(64, 64))
    loader = FastLoader(data, 4, device=gpu.name, mean=MEAN, std=STD)

    def epoch():
        for image, _ in loader:
            image.mul_(2)
        del image
        return gpu.memory()

    for _ in range(3):
        epoch()
    first = epoch()
    for _ in range(10):
        assert epoch() == first
    loader.close()
