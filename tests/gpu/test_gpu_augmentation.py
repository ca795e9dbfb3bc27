"""Erasing and mixing on a CUDA device: the same bits as on the CPU, from the same seed."""

import pytest
import torch
from augmenting import ERASINGS, KINDS, MIXINGS, batches_of, delivered

from exact import same_bits
from fastloader._core.batch.augmentation import Augmentation


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("erasing", "mixed"), KINDS)
def test_same_bits_as_on_the_cpu(gpu, way, monkeypatch, erasing, mixed, dtype):
    for channels_last, size in ((False, (33, 31)), (True, (64, 48))):
        options = {"dtype": dtype, "channels_last": channels_last}
        batches = batches_of(3, 8, *size)
        both = [Augmentation(ERASINGS[erasing], MIXINGS[mixed]) for _ in range(2)]
        on_gpu = delivered(batches, both[0], device=gpu.name, **options)
        with monkeypatch.context() as here:
            here.delenv("FASTLOADER_BACKEND")
            on_cpu = delivered(batches, both[1], **options)
        for one, other in zip(on_gpu, on_cpu, strict=True):
            assert gpu.holds(one[0], one[1]) and one[0].stride() == other[0].stride()
            same_bits(one[0].cpu(), other[0])
            torch.testing.assert_close(one[1].cpu(), other[1], rtol=0, atol=1e-7)
