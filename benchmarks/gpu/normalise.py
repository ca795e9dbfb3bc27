"""The normalise kernel against a copy within the device that moves the same number of bytes.

uint8 NHWC, as decoders leave it, to each dtype and layout. The cache is flushed before every call, and
time is the device's own, from events around the call.
"""

from __future__ import annotations

from typing import Any

import torch
from ceilings import DeviceCopy
from device import Device, timed
from plan import Plan
from slots import MEAN, STD

from benchmarks.measure import ratio, spread
from fastloader._core.machine import extension
from fastloader.transforms._normalization import Normalization, make_spec

AT_LEAST = 0.90
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
LAYOUTS = {"NCHW": False, "channels_last": True}
PREDICTED = (
    "0.92 in float32 and 0.90 in the 16-bit types, in both layouts: the stores are of full width, and "
    "by the count of the instructions (docs/gpu.md) each kernel could be at least twice as fast as a "
    "copy, so that memory alone bounds it; less than a copy because of the first loads' latency"
)

Json = dict[str, Any]


def measure(device: Device, plan: Plan) -> Json:
    results: Json = {}
    for dtype in DTYPES:
        results[dtype] = {}
        for layout in LAYOUTS:
            results[dtype][layout] = {
                str(batch): against_copy(device, plan, batch, dtype, layout)
                for batch in plan.normalise_batches
            }
    return results


def against_copy(device: Device, plan: Plan, batch: int, dtype: str, layout: str) -> Json:
    native = extension.load()
    if native is None:
        raise RuntimeError("the native module is not in use")
    shape = (batch, 3, plan.side, plan.side)
    pixels = torch.randint(
        0, 256, (batch, plan.side, plan.side, 3), dtype=torch.uint8, device=device.torch_device
    )
    images = pixels.permute(0, 3, 1, 2)
    normalization = Normalization(MEAN, STD, DTYPES[dtype], LAYOUTS[layout], None)
    out = normalization.output(shape, device.torch_device)
    spec = make_spec(shape, True, normalization)

    def kernel() -> None:
        native.normalize_on_device(
            spec,
            backend=device.backend,
            device=device.number,
            stream=device.stream(),
            source=pixels.data_ptr(),
            destination=out.data_ptr(),
        )

    check(kernel, images, out, normalization)
    moved = spec.in_bytes + spec.out_bytes
    timings = timed(
        device, {"kernel": kernel, "copy": DeviceCopy(device, moved).run}, plan.normalise_repeats
    )
    return {
        "moved_bytes": moved,
        "tb_per_s": {name: moved / timing.median / 1e12 for name, timing in timings.items()},
        "seconds": {name: spread(timing.seconds) for name, timing in timings.items()},
        "of_copy": ratio(timings["copy"], timings["kernel"]),
    }


def check(
    kernel: Any, images: torch.Tensor, out: torch.Tensor, normalization: Normalization
) -> None:
    """What is timed is right, to the bit, wherever it was to be written."""
    bits = torch.int32 if out.dtype == torch.float32 else torch.int16
    out.fill_(float("nan"))
    kernel()
    for first in range(0, len(images), 64):  # the definition needs memory of its own
        part = images[first : first + 64]
        wanted = normalization.apply(part, normalization.output(part.shape, images.device))
        if not torch.equal(out[first : first + 64].view(bits), wanted.view(bits)):
            raise RuntimeError(f"the kernel is wrong: {normalization}, images from {first} on")
