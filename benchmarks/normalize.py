"""CPU normalise on one thread against what users write and against the memory's speed.

    python benchmarks/normalize.py [--repeats 15]

64 pictures of 3x224x224, uint8 -> float. Predicted: 2.5 times the preallocated torch chain and 6
times the allocating one, since both are bound by memory: torch reads or writes the 38 MB of float32
five times and, allocating, faults in every page; one pass writes them once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from measure import interleaved, ratio, write

from fastloader._core.machine import extension
from fastloader.transforms._normalization import Normalization, make_spec

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    native = extension.load()
    if native is None:
        raise SystemExit("this benchmark measures the native kernels, and they are not in use")
    torch.set_num_threads(1)

    shape = (64, 3, 224, 224)
    m = (torch.tensor(MEAN) * 255).view(1, 3, 1, 1)
    s = (torch.tensor(STD) * 255).view(1, 3, 1, 1)
    nchw = torch.randint(0, 256, shape, dtype=torch.uint8)
    nhwc = nchw.contiguous(memory_format=torch.channels_last)
    out = torch.zeros(shape)
    half = torch.zeros(shape, dtype=torch.float16)
    brain = torch.zeros(shape, dtype=torch.bfloat16)
    last = torch.zeros(shape).contiguous(memory_format=torch.channels_last)
    pool = native.BufferPool()

    def kernel(source: torch.Tensor, destination: torch.Tensor) -> Callable[[], None]:
        in_nhwc = not source.is_contiguous()
        normalization = Normalization(
            MEAN, STD, destination.dtype, not destination.is_contiguous(), None
        )
        spec = make_spec(shape, in_nhwc, normalization)
        return lambda: native.normalize(
            spec, source=source.data_ptr(), destination=destination.data_ptr()
        )

    delivery_spec = make_spec(shape, True, Normalization(MEAN, STD, torch.float32, False, None))
    copied = torch.zeros_like(out)
    contenders = {
        "torch x.float().sub_(m).div_(s), NCHW": lambda: nchw.float().sub_(m).div_(s),
        "torch x.float().sub_(m).div_(s), NHWC": lambda: nhwc.float().sub_(m).div_(s),
        "torch out.copy_(x).sub_(m).div_(s), NCHW": lambda: out.copy_(nchw).sub_(m).div_(s),
        "torch out.copy_(x).sub_(m).div_(s), NHWC": lambda: out.copy_(nhwc).sub_(m).div_(s),
        "limit: fill 38.5 MB": lambda: out.fill_(1.0),
        "limit: copy 38.5 MB": lambda: copied.copy_(out),
        "fastloader NCHW -> float32 NCHW": kernel(nchw, out),
        "fastloader NHWC -> float32 NCHW": kernel(nhwc, out),
        "fastloader NHWC -> float32 channels_last": kernel(nhwc, last),
        "fastloader NHWC -> float16 NCHW": kernel(nhwc, half),
        "fastloader NHWC -> bfloat16 NCHW": kernel(nhwc, brain),
        "fastloader NHWC -> float32 NCHW, into the pool": lambda: torch.from_dlpack(
            pool.normalized(delivery_spec, source=nhwc.data_ptr())
        ),
    }
    timings = interleaved(contenders, arguments.repeats)
    for name, timing in timings.items():
        print(f"{timing.median * 1e3:8.2f} ms  {name}")

    ratios = {}
    for layout in ("NCHW", "NHWC"):
        mine = timings[f"fastloader {layout} -> float32 NCHW"]
        for theirs in ("out.copy_(x).sub_(m).div_(s)", "x.float().sub_(m).div_(s)"):
            name = f"{layout}: fastloader against {theirs}"
            ratios[name] = ratio(timings[f"torch {theirs}, {layout}"], mine)
        ratios[f"{layout}: of the speed of a fill"] = ratio(timings["limit: fill 38.5 MB"], mine)
        ratios[f"{layout}: of the speed of a copy"] = ratio(timings["limit: copy 38.5 MB"], mine)
    for name, value in ratios.items():
        print(f"{value['median']:8.2f} x   {name}  ({value['min']:.2f} to {value['max']:.2f})")
    results = {
        "threads": 1,
        "shape": list(shape),
        "timings": {name: timing.as_json() for name, timing in timings.items()},
        "ratios": ratios,
    }
    print("written:", write("normalize", results))


if __name__ == "__main__":
    main()
