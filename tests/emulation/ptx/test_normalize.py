"""Every normalise kernel, with the grid and the parameters that the host code passes, against the CPU's
results."""

import numpy as np
import pytest
from interpreter.memory import MemoryFault
from normalize_cases import LARGE_SIZES, SIZES, draw, image_net, pixels
from specs import ELEMENT_BYTES, KINDS


def test_each_kernel_of_each_flavour_is_launched(device, comparison, rng):
    for flavour in range(len(device.flavours["normalize"])):
        device.flavour = flavour
        launched = set()
        for kind in KINDS:
            spec = image_net(kind, (2, 3, 5))
            source = pixels(rng, spec)
            before = device.launches.copy()
            got = device.normalize(spec, source)
            assert np.array_equal(got, device.cpu_normalize(spec, source, device.isas[0]))
            launched |= {name for _, name in device.launches - before}
        assert launched == {
            name for name in device.registered if device.file_of(name) == "normalize"
        }


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_sizes(comparison, rng, share, kind):
    for size in share(SIZES, 5):
        spec = image_net(kind, size)
        comparison.normalize(spec, pixels(rng, spec))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_starts_of_any_alignment(comparison, rng, share, kind):
    element = ELEMENT_BYTES[kind.type]
    skews = [(1, 0), (4, 0), (8, 0), (0, element), (3, 8), (2, 16 - element), (12, 4), (7, 12)]
    sizes = [(1, 1, 7), (2, 16, 16), (3, 8, 24), (2, 5, 67)]
    for size, skew in share([(size, skew) for size in sizes for skew in skews], 4):
        spec = image_net(kind, size)
        comparison.normalize(spec, pixels(rng, spec), skew)


def test_large_images(comparison, rng, share):
    cases = share([(kind, size) for kind in KINDS for size in LARGE_SIZES], 4)
    for kind, size in cases:
        spec = image_net(kind, size)
        comparison.normalize(spec, pixels(rng, spec))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_constants(comparison, rng, many, kind):
    for _ in range(many(600, 6)):
        size = ((1, 16, 16), (1, 1, 257), (2, 16, 17), (3, 16, 32))[rng.integers(4)]
        if rng.random() < 0.15:
            size = tuple(int(each) for each in rng.integers(1, 40, 3))
        spec = draw(rng, kind, size)
        comparison.normalize(spec, pixels(rng, spec))


def test_a_start_that_is_not_aligned_to_its_element_is_noticed(device, rng):
    spec = image_net(KINDS[0], (1, 4, 4))
    with pytest.raises(MemoryFault, match="misaligned store of 4 bytes"):
        device.normalize(spec, pixels(rng, spec), 0, 2)
