"""The interpreter's float32 arithmetic against C's and against rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from interpreter import floats
from specs import BFLOAT16, FLOAT16

_SPECIAL = np.array(
    [0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3F7FFFFF, 0x3F800001, 0x7F7FFFFF,
     0x7F800000, 0x7FC00000, 0x4B800000, 0x33800000], dtype=np.uint32)  # fmt: skip


def hard(rng, count):
    """Bits of floats of every size. Many have few or nearly all bits of the mantissa set."""
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    mask = np.uint32(0xFFFFFFFF) << rng.integers(0, 24, count, dtype=np.uint32)
    few = np.where(rng.random(count) < 0.5, bits & mask, bits | ~mask)
    special = rng.choice(_SPECIAL, count) | (bits & np.uint32(0x80000000))
    way = rng.random(count)
    return np.where(way < 0.3, bits, np.where(way < 0.8, few, special))


def operands(rng, round_number, count=1 << 16):
    a, b, c = (hard(rng, count) for _ in range(3))
    if round_number % 4 == 3:  # as normalise has it
        a = floats.from_int(rng.integers(0, 256, count, dtype=np.uint32))
    if round_number % 2:
        # c near -a * b, half a unit of it, or far below its last place: cancellation and ties.
        with np.errstate(all="ignore"):
            product = floats.as_float(a) * floats.as_float(b)
            factor = np.exp2(rng.integers(-60, 60, count)).astype(np.float32)
            near = np.where(rng.random(count) < 0.5, -product, product * factor)
        c = near.astype(np.float32).view(np.uint32) ^ rng.integers(0, 2, count, dtype=np.uint32)
    return a, b, c


def test_fma_is_that_of_c(device, rng, many):
    differ_when_rounded_twice = 0
    for round_number in range(many(160, 12)):
        a, b, c = operands(rng, round_number)
        x, y, z = (floats.as_float(each) for each in (a, b, c))
        expected = floats.to_bits(device.fmaf(x, y, z))
        assert np.array_equal(floats.fma(a, b, c), expected)
        with np.errstate(all="ignore"):
            twice = (x.astype(np.float64) * y + z).astype(np.float32)
        differ_when_rounded_twice += int((floats.to_bits(twice) != expected).sum())
    assert differ_when_rounded_twice > 100  # so the operands are hard enough to tell


def test_fma_is_that_of_the_rationals(rng, many):
    for _ in range(many(4000, 400)):
        a, b, c = (hard(rng, 1) for _ in range(3))
        x, y, z = (float(floats.as_float(each)[0]) for each in (a, b, c))
        if not np.isfinite((x, y, z)).all():
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        got = floats.as_float(floats.fma(a, b, c))[0]
        if np.isinf(got):
            assert abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103
            continue
        error = abs(Fraction(float(got)) - exact)
        for way in (-np.inf, np.inf):
            with np.errstate(over="ignore"):
                neighbour = np.nextafter(got, np.float32(way))
            if np.isinf(neighbour):
                continue
            distance = abs(Fraction(float(neighbour)) - exact)
            assert error < distance or (error == distance and got.view(np.uint32) % 2 == 0)


@pytest.mark.parametrize("convert, kind", [("to_f16", FLOAT16), ("to_bf16", BFLOAT16)])
def test_rounding_to_16_bits_is_that_of_the_kernels_on_the_cpu(device, rng, many, convert, kind):
    for _ in range(many(64, 6)):
        bits = np.concatenate([hard(rng, 1 << 16), rng.integers(0, 1 << 32, 1 << 16, np.uint32)])
        numbers = bits[~np.isnan(floats.as_float(bits))]
        # Ties of both types and one place beside.
        ties = numbers & np.uint32(0xFFFF0000) | np.uint32(0x8000)
        close = numbers & np.uint32(0xFFFFE000) | np.uint32(0x1000)
        beside = [each + np.uint32(k) for each in (ties, close) for k in (-1 % 2**32, 0, 1)]
        for each in (numbers, *beside):
            each = each[~np.isnan(floats.as_float(each))]
            got = getattr(floats, convert)(each)
            assert np.array_equal(got, device.round_to(kind, floats.as_float(each)))


def test_every_nan_is_the_gpus():
    nans = np.array([0x7F800001, 0xFFC00000, 0x7FC12345], np.uint32)
    one, infinity = np.uint32(0x3F800000), np.uint32(0x7F800000)
    minus = np.uint32(0xFF800000)
    for result in (floats.add(nans, one), floats.mul(nans, one), floats.fma(one, nans, one)):
        assert (result == 0x7FFFFFFF).all()
    assert floats.add(infinity, minus) == floats.mul(infinity, np.uint32(0)) == 0x7FFFFFFF
    assert (floats.to_f16(nans) == 0x7FFF).all() and (floats.to_bf16(nans) == 0x7FFF).all()


def test_subnormals_are_kept():
    smallest = np.uint32(1)
    assert floats.add(smallest, np.uint32(0)) == 1
    assert floats.mul(np.uint32(2), np.uint32(0x3F000000)) == 1  # 2 units by one half
    assert floats.fma(smallest, np.uint32(0x3F800000), smallest) == 2


def test_whole_numbers():
    every = np.arange(1 << 16, dtype=np.uint16)
    assert np.array_equal(floats.from_int(every), every.astype(np.float32).view(np.uint32))
    ties = np.array([2**24 + 1, 2**24 + 3, -(2**31), 2**31 - 1], np.int32)
    expected = np.array([2**24, 2**24 + 4, -(2**31), 2**31], np.float32)
    assert np.array_equal(floats.from_int(ties), expected.view(np.uint32))
