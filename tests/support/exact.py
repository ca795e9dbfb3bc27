"""Normalise by its definition, in exact arithmetic: slow, obvious, and sharing no code with
fastloader."""

import functools
import math
from fractions import Fraction

import numpy as np
import torch

# (bits of the significand, exponent of the smallest normal number)
_FORMATS = {torch.float32: (24, -126), torch.float16: (11, -14), torch.bfloat16: (8, -126)}


def round_to(value, dtype):
    """The Fraction nearest to ``value`` that ``dtype`` holds, ties to even."""
    if value == 0:
        return value
    bits, smallest = _FORMATS[dtype]
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, smallest) - bits + 1)
    return round(value / unit) * unit  # Python rounds ties to even


def table(mean, std, dtype):
    """(channels, 256) of ``dtype``: fma in float32, rounded once more to the output."""
    rows = []
    for m, s in zip(mean, std):
        scale = Fraction(float(np.float32(1.0 / (255.0 * s))))
        bias = Fraction(float(np.float32(-m / s)))
        exact = [x * scale + bias for x in range(256)]
        rounded = (round_to(round_to(value, torch.float32), dtype) for value in exact)
        # float() of these is exact: 24 bits at most. A Fraction has no -0.0, which is what a number
        # below 0 rounds to if it is too small.
        rows.append([math.copysign(float(y), value) for y, value in zip(rounded, exact)])
    return torch.tensor(rows, dtype=torch.float64).to(dtype)


_table = functools.lru_cache(table)


def normalised(images, mean, std, dtype):
    """``images`` are uint8 (N, C, H, W) of any strides."""
    rows = _table(tuple(mean), tuple(std), dtype)
    planes = [rows[c][images[:, c].long()] for c in range(images.shape[1])]
    return torch.stack(planes, dim=1)


def same_bits(one, other):
    """Distinguishes -0.0 from 0.0, as a comparison of floats does not."""
    assert one.dtype == other.dtype and one.shape == other.shape
    whole = torch.int32 if one.dtype == torch.float32 else torch.int16
    one, other = one.contiguous(), other.contiguous()
    assert torch.equal(one.view(whole), other.view(whole))
