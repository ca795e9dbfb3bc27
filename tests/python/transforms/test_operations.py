"""Each row of the table of operations: its Pillow form gives the bytes of the native module, and the
size that it says, for random numbers of the kinds that its parameters take."""

import random

import numpy as np
import pytest
from operations import as_pillow_resizes, needs_pillows_x86_64_wheel
from pictures import picture

from fastloader._core.machine import extension
from fastloader.transforms._recipe.operations import (
    GEOMETRY,
    OF_MIX,
    OPERATIONS,
    apply_operation,
    named,
    size_after,
    unnamed,
)

native = extension.load()
pytestmark = needs_pillows_x86_64_wheel


def random_number(rng, parameter):
    if parameter.names:
        return rng.randrange(len(parameter.names))
    if parameter.read is float:
        return rng.choice([rng.uniform(-2, 2), rng.uniform(0, 1), rng.uniform(-300, 300)])
    return rng.randrange(2 if parameter.read is bool else 60)


def random_numbers(rng, kind):
    """Numbers of the right kinds, which the operation may refuse."""
    numbers = []
    for parameter in kind.parameters:
        length = rng.choice([parameter.least, parameter.length])
        numbers += [float(random_number(rng, parameter)) for _ in range(length)]
    return numbers


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in OF_MIX])
def test_pillow_and_the_native_module_do_the_same(name):
    seed = random.getrandbits(32)
    print(f"seed {seed}")  # which pytest shows where a test fails
    rng = random.Random(seed)
    kind = OPERATIONS[name]
    compared = 0
    for _ in range(3000):
        if compared == 30:
            break
        image = picture(rng, rng.randint(1, 60), rng.randint(1, 60))
        size, numbers = image.size[::-1], random_numbers(rng, kind)
        try:
            made, after = native.apply_operations(
                image.tobytes(), size, [(name, numbers)], **as_pillow_resizes()
            )
        except ValueError:
            continue
        assert size_after((name, numbers), size) == after
        assert after == size or kind.effect == GEOMETRY
        step = named((name, numbers))
        assert named(unnamed(*step)) == step
        theirs = np.asarray(apply_operation(image, name, numbers)).astype(int)
        ours = np.frombuffer(made, np.uint8).reshape(*after, 3)
        difference = np.abs(ours - theirs)
        # Torch computes the convolution, which now and then rounds otherwise.
        most = 1 if name == "gaussian_blur" else 0
        assert difference.max() <= most, (numbers, size)
        compared += 1
    assert compared == 30, "the native module refuses nearly all numbers of these kinds"
