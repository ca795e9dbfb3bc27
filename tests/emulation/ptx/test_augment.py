"""Every augmenting kernel, as test_normalize.py has it of the others."""

import itertools

import numpy as np
import pytest
from augment_cases import SIZES, wild_case
from normalize_cases import draw, image_net
from specs import FILLS, KINDS, OF_BYTES, OF_FLOATS, augment_spec

WAYS = list(itertools.product(FILLS, (OF_FLOATS, OF_BYTES)))


def test_each_kernel_of_each_flavour_is_launched(device):
    for flavour in range(len(device.flavours["augment"])):
        device.flavour = flavour
        launched = set()
        for kind, (fill, blend) in zip(KINDS, itertools.cycle(WAYS)):
            before = device.launches.copy()
            case = device.native_case(augment_spec(image_net(kind, (2, 2, 3)), 2, fill, blend), 1)
            assert np.array_equal(device.augment(*case[:3]), case.expected)
            launched |= {name for _, name in device.launches - before}
        assert launched == {name for name in device.registered if device.file_of(name) == "augment"}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_cases_of_the_native_tests(device, comparison, rng, share, kind):
    for size, (fill, blend) in share(itertools.product(SIZES, WAYS), 4):
        spec = augment_spec(image_net(kind, size), int(rng.integers(4)), fill, blend)
        case = device.native_case(spec, int(rng.integers(1 << 31)))
        comparison.augment(*case)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_any_records(comparison, rng, many, kind):
    for _ in range(many(100, 3)):
        size = (int(rng.integers(1, 9)), *(int(each) for each in rng.integers(1, 40, 2)))
        fill, blend = WAYS[rng.integers(len(WAYS))]
        normalize = image_net(kind, size) if rng.random() < 0.5 else draw(rng, kind, size)
        comparison.augment(*wild_case(rng, normalize, fill, blend))
