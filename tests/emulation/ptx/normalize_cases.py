"""What the normalise kernels are tried with: sizes, constants and inputs."""

from __future__ import annotations

import numpy as np
from specs import NHWC, Kind, NormalizeSpec, normalize_spec

# Around the edges of warps, blocks and vectors of 4 and 8; odd, even and empty.
SIZES = [
    (1, 1, 1), (1, 1, 2), (1, 1, 3), (2, 1, 1), (5, 1, 1), (3, 3, 5), (2, 7, 9), (1, 1, 127),
    (1, 1, 128), (1, 1, 129), (3, 8, 16), (1, 1, 255), (2, 16, 16), (1, 1, 257), (2, 4, 33),
    (3, 17, 31), (2, 16, 24), (1, 32, 33), (7, 20, 20), (2, 3, 171), (33, 2, 3), (1, 511, 1),
    (1, 1, 1023), (129, 1, 1), (300, 1, 2), (2, 32, 32), (1, 64, 65), (3, 60, 68), (0, 4, 4),
    (2, 0, 3),
]  # fmt: skip
LARGE_SIZES = [(4, 224, 224), (3, 223, 225), (2, 256, 320), (64, 32, 32)]
FAMILIES = ("mean", "any", "ties", "fused", "overflow")
_MEAN, _STD = (0.485, 0.456, 0.406, 0.5), (0.229, 0.224, 0.225, 0.25)


def constants(mean, std):
    """Scale and bias, as the loader makes them of a mean and a standard deviation."""
    mean, std = np.asarray(mean, np.float64), np.asarray(std, np.float64)
    with np.errstate(all="ignore"):
        return (1.0 / (255.0 * std)).astype(np.float32), (-mean / std).astype(np.float32)


def image_net(kind: Kind, size) -> NormalizeSpec:
    return normalize_spec(kind, size, *constants(_MEAN[: kind.channels], _STD[: kind.channels]))


def draw(rng, kind: Kind, size) -> NormalizeSpec:
    """Constants of a random family, as long as they are finite."""
    family = FAMILIES[rng.integers(len(FAMILIES))]
    while True:
        with np.errstate(all="ignore"):
            scale, bias = draw_constants(rng, kind.channels, family)
        if np.isfinite(scale).all() and np.isfinite(bias).all():
            return normalize_spec(kind, size, scale, bias)


def draw_constants(rng, channels: int, family: str):
    if family == "mean":
        return constants(*_draw_mean_and_std(rng, channels))
    if family == "any":
        bits = rng.integers(0, 0x7F800000, (2, channels), dtype=np.uint32)
        sign = rng.integers(0, 2, (2, channels), dtype=np.uint32) << np.uint32(31)
        return (bits | sign).view(np.float32)
    if family == "ties":  # sums that are ties of float16 or bfloat16, or one place beside
        exponent = rng.integers(-16, 16, channels)
        place = rng.choice([-11, -12, -8, -9], channels) + exponent
        scale = np.ldexp(rng.choice([1.0, -1.0, 3.0], channels), place).astype(np.float32)
        bias = np.ldexp(rng.choice([1.0, -0.5, 0.0, 1.5], channels), exponent).astype(np.float32)
        beside = (bias.view(np.int32) + rng.integers(-1, 2, channels).astype(np.int32)).view(
            np.float32
        )
        return scale, np.where(bias == 0, bias, beside)
    if family == "fused":  # ties of float32, which a sum of the rounded product misses
        whole = rng.integers(1 << 23, 1 << 24, channels).astype(np.float64)
        scale = np.ldexp(whole, rng.integers(-40, 0, channels)).astype(np.float32)
        factor = np.exp2(rng.integers(-60, 60, channels)).astype(np.float32)
        return scale, (scale * factor * rng.choice([-1, 1], channels)).astype(np.float32)
    # Around the largest float16, bfloat16 and float32.
    largest = rng.choice([65504.0, 65519.0, 65520.0, 65536.0, 3.3895e38, 3.4e38], channels)
    factor = rng.choice([1, 1.001, -1, 2], channels) / rng.integers(1, 256, channels)
    return (largest * factor).astype(np.float32), rng.choice([0.0, 7.0, -7.0], channels)


def _draw_mean_and_std(rng, channels: int):
    way = rng.integers(6)
    if way == 0:
        return rng.uniform(0, 1, channels), rng.uniform(0.05, 1, channels)
    if way == 1:  # so small a deviation that float16 overflows
        return rng.uniform(0, 1, channels), 10.0 ** rng.uniform(-8, -3, channels)
    if way == 2:
        return rng.uniform(-1e3, 1e3, channels), 10.0 ** rng.uniform(-3, 4, channels)
    if way == 3:  # to the ends of float32
        return rng.uniform(-1, 1, channels), 10.0 ** rng.uniform(-38, 36, channels)
    if way == 4:  # subnormal results
        return 10.0 ** rng.uniform(-8, 0, channels), 10.0 ** rng.uniform(30, 42, channels)
    return np.zeros(channels), 2.0 ** rng.integers(-20, 20, channels)


def pixels(rng, spec: NormalizeSpec):
    """Random bytes. Where an image has room, each channel of the first one takes all 256 values."""
    data = rng.integers(0, 256, spec.values, dtype=np.uint8)
    plane = spec.height * spec.width
    if spec.batch and plane >= 256:
        for channel in range(spec.channels):
            every = rng.permutation(256).astype(np.uint8)
            if spec.in_layout == NHWC:
                image = data[: plane * spec.channels].reshape(-1, spec.channels)
                image[:256, channel] = every
            else:
                data[channel * plane :][:256] = every
    return data
