"""What a recipe makes of a picture is the same on every instruction set that this processor has."""

import random

import pytest

from fastloader._core.machine import extension
from support import run_script

native = extension.load()
pytestmark = pytest.mark.skipif(native is None, reason="the native module is not in use")

# Odd sizes, one pixel, one row and one column, and sizes around the widths of vector registers.
APPLIED = """
    import hashlib, random, sys
    from fastloader._core.machine import extension
    native = extension.load()
    rng = random.Random(SEED)
    sizes = [(1, 1), (1, 17), (23, 1), (2, 3), (3, 3), (5, 9), (7, 31), (16, 16), (9, 33), (61, 67)]
    resampling = lambda: rng.choice([0, 2, 3])
    colour = lambda: [rng.randrange(256) for _ in range(3)]
    affine = lambda: [rng.uniform(-1.5, 1.5) for _ in range(6)]
    factor = lambda: [rng.choice([0, 1, -1, 300, rng.uniform(0, 3)])]
    drawn = {
        "brightness": factor, "contrast": factor, "saturation": factor, "sharpness": factor,
        "hue": lambda: [rng.uniform(-0.5, 0.5)],
        "grayscale": list, "invert": list, "autocontrast": list, "equalize": list,
        "posterize": lambda: [rng.randrange(9)],
        "solarize": lambda: [rng.uniform(0, 256)],
        "solarize_add": lambda: [rng.randrange(-110, 111)],
        "pillow_blur": lambda: [rng.uniform(0, 3), rng.uniform(0, 90)],
        "gaussian_blur": lambda: [1 + 2 * rng.randrange(min(w, 9) // 2 + w % 2),
                                  1 + 2 * rng.randrange(min(h, 9) // 2 + h % 2),
                                  rng.uniform(0.1, 3)],
        "affine": lambda: [*affine(), resampling(), *colour()],
        "perspective": lambda: [*affine(), rng.uniform(0, 0.01), 0, resampling(), *colour()],
        "rotate": lambda: [rng.uniform(-180, 180), resampling(), rng.randrange(2), *colour()],
        "pad": lambda: [*(rng.randrange(5) for _ in range(4)), rng.randrange(4), *colour()],
        "resize": lambda: [rng.randrange(1, 80), rng.randrange(1, 80), rng.randrange(6)],
        "hflip": list, "vflip": list,
    }
    digest = hashlib.sha256()
    for h, w in sizes:
        for name, numbers in drawn.items():
            for _ in range(5):
                picture = rng.randbytes(h * w * 3)
                made, size = native.apply_operations(picture, (h, w), [(name, numbers())])
                digest.update(made)
                digest.update(repr((name, size)).encode())
    print(native.build_info()["cpu"]["isa"], digest.hexdigest())
"""


@pytest.mark.processes
def test_instruction_sets_agree(record_property):
    seed = random.SystemRandom().getrandbits(32)
    record_property("seed", seed)
    print(f"seed {seed}")
    script = APPLIED.replace("SEED", str(seed))
    names = native.build_info()["cpu"]["available"]
    assert "scalar" in names
    found = {}
    for name in names:
        used, digest = run_script(script, env={"FASTLOADER_FORCE_ISA": name}).stdout.split()
        assert used == name
        found[name] = digest
    assert len(set(found.values())) == 1, (seed, found)
