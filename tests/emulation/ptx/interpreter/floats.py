"""float32 arithmetic on arrays of bits (uint32) with PTX's results: an operation rounds to the nearest,
ties to even, keeps subnormals, and gives 0x7fffffff for every NaN."""

from __future__ import annotations

import numpy as np

NAN = np.uint32(0x7FFFFFFF)
NAN16 = np.uint16(0x7FFF)


def as_float(bits):
    return np.asarray(bits, dtype=np.uint32).view(np.float32)


def to_bits(values):
    values = np.asarray(values, dtype=np.float32)
    return np.where(np.isnan(values), NAN, values.view(np.uint32))


def add(a, b):
    with np.errstate(all="ignore"):
        return to_bits(as_float(a) + as_float(b))


def sub(a, b):
    with np.errstate(all="ignore"):
        return to_bits(as_float(a) - as_float(b))


def mul(a, b):
    with np.errstate(all="ignore"):
        return to_bits(as_float(a) * as_float(b))


def minimum(a, b):
    """The other operand where one is a NaN, and -0 below +0."""
    return _chosen(a, b, lambda x, y: x < y, 0x80000000)


def maximum(a, b):
    return _chosen(a, b, lambda x, y: x > y, 0)


def _chosen(a, b, first, zero):
    a, b = np.broadcast_arrays(np.asarray(a, np.uint32), np.asarray(b, np.uint32))
    x, y = as_float(a), as_float(b)
    zeros = (x == 0) & (y == 0)
    chosen = np.where(first(x, y) | (zeros & (a == np.uint32(zero))), a, b)
    chosen = np.where(np.isnan(x), b, np.where(np.isnan(y), a, chosen))
    return np.where(np.isnan(as_float(chosen)), NAN, chosen)


def fma(a, b, c):
    """a * b + c, rounded once.

    The product is exact in float64: it has 48 bits of 53, and no exponent is too large or too small.
    The sum is rounded to odd there: two-sum gives the error, and an even last bit is moved towards
    it. Rounding that to 24 bits is as rounding the exact sum, since 53 >= 24 + 2."""
    a, b, c = np.broadcast_arrays(as_float(a), as_float(b), as_float(c))
    with np.errstate(all="ignore"):
        product = a.astype(np.float64) * b.astype(np.float64)
        c = c.astype(np.float64)
        total = product + c
        part = total - product
        error = (product - (total - part)) + (c - part)
        bits = total.view(np.int64)
        inexact = np.isfinite(total) & (error != 0) & ((bits & 1) == 0)
        outwards = (error > 0) == (total > 0)  # the total is not 0 where there is an error
        odd = np.where(inexact, bits + np.where(outwards, 1, -1), bits)
        return to_bits(odd.view(np.float64).astype(np.float32))


def from_int(values):
    """Of integers of up to 32 bits, which float64 holds exactly."""
    return np.asarray(values).astype(np.float64).astype(np.float32).view(np.uint32)


def to_f16(bits):
    """float32 to float16 as uint16."""
    with np.errstate(all="ignore"):
        value = as_float(bits)
        return np.where(np.isnan(value), NAN16, value.astype(np.float16).view(np.uint16))


def to_bf16(bits):
    """float32 to bfloat16 as uint16."""
    wide = np.asarray(bits, dtype=np.uint32).astype(np.uint64)
    rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16
    return np.where(np.isnan(as_float(bits)), NAN16, rounded).astype(np.uint16)


def from_f16(bits):
    return to_bits(np.asarray(bits, dtype=np.uint16).view(np.float16).astype(np.float32))


def from_bf16(bits):
    return to_bits(as_float(np.asarray(bits, dtype=np.uint16).astype(np.uint32) << np.uint32(16)))
