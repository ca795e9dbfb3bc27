"""How many PTX instructions the warps of an augmenting kernel run for each element, on what people
train with: pictures of 3x224x224, and of the 3x299x299 that Inception wants. An upper bound for what
ptxas makes of them, which tests/emulation/profile counts where it can."""

import numpy as np
import pytest
from augment_cases import MIX_RECORD, pack
from normalize_cases import image_net
from specs import KINDS, OF_BYTES, OF_FLOATS, PER_BOX, PER_ELEMENT, ZERO, augment_spec

BOX = (50, 120, 60, 130)  # a tenth of 224x224
CUT = (50, 160, 60, 170)  # a quarter
# What the records do, and at most how many instructions an element that costs. Where nothing else is
# said they do it to every image.
MOST = {
    "nothing": 14,
    "mixup of floats": 25,
    "mixup of bytes": 25,
    "mixup of odd images": 48,
    "cutmix": 25,
    "erased with zeros": 25,
    "erased with a deviate an element, one in four": 25,
    "erased with a deviate a box": 62,
    "erased with a deviate an element": 64,
}


def augmented(what, kind, rng):
    """Spec, records and input."""
    size = (
        (2, 299, 299)
        if "odd" in what
        else (4, 224, 224)
        if "one in four" in what
        else (2, 224, 224)
    )
    mix = np.zeros(size[0], MIX_RECORD)
    mix["own"], mix["own_weight"] = np.arange(size[0]), 1
    mix["partner"] = mix["own"][::-1]
    boxes = np.zeros((size[0], 1, 4), np.int32)
    if what.startswith("mixup"):
        mix["own_weight"], mix["partner_weight"] = 0.75, 0.25
    elif what == "cutmix":
        mix["cut"] = CUT
    elif what.startswith("erased"):
        mix["boxes"][: 1 if "one in four" in what else None] = 1
        boxes[:] = BOX
    fill = PER_ELEMENT if "an element" in what else PER_BOX if "a box" in what else ZERO
    blend = OF_FLOATS if what == "mixup of floats" else OF_BYTES
    spec = augment_spec(image_net(kind, size), 1, fill, blend)
    mix["key"] = rng.integers(0, 2**32, (size[0], 2))
    source = rng.integers(0, 256, spec.normalize.values, dtype=np.uint8)
    return spec, pack(mix, boxes), source


@pytest.mark.parametrize("what", MOST)
def test_instructions_an_element(device, rng, share, what):
    # Before sm_80 a bfloat16 is rounded by a dozen instructions.
    targets = [flavour.targets for flavour in device.flavours["augment"]]
    (device.flavour,) = (i for i, each in enumerate(targets) if "sm_90" in each)
    for kind in share([kind for kind in KINDS if kind.channels == 3], 2):
        case = augmented(what, kind, rng)
        assert np.array_equal(device.augment(*case), device.cpu_augment(*case))
        executed = device.executed * 32 / case[0].normalize.values
        print(f"{kind}, {what}: {executed:.1f}")
        # No kernel gets by with what a load, an fma, a rounding and their addresses take.
        assert 6 < executed <= MOST[what], kind
