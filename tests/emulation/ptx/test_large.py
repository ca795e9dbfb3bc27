"""Some blocks of grids whose input or output is larger than 4 GiB: index arithmetic beyond 32 bits."""

import numpy as np
import pytest
from augment_cases import MIX_RECORD, pack
from interpreter.sparse import ComputedInput
from large_grids import check_blocks
from normalize_cases import image_net
from specs import KINDS, OF_FLOATS, ZERO, augment_spec

# Many images for the numbers of images, and one image whose pixels alone are more than 2^31.
NORMALIZE_SIZES = {
    1: (90000, 224, 224),
    2: (1, 70001, 40003),
    3: (36000, 224, 224),
    4: (27000, 224, 223),
}
AUGMENT_SIZES = {
    1: (90000, 224, 224),
    2: (45001, 223, 225),
    3: (30000, 224, 224),
    4: (4, 20000, 26800),
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_normalize(device, comparison, rng, kind):
    spec = image_net(kind, NORMALIZE_SIZES[kind.channels])
    assert spec.values > 1 << 32

    def launch(device, spec, out, blocks):
        device.launch_normalize(spec, ComputedInput("the input", spec.values), out, blocks=blocks)

    for _ in comparison.flavours("normalize"):
        made = check_blocks(device, rng, launch, spec, own=lambda image: image)
        comparison.counts["comparisons"] += made


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_augment(device, comparison, rng, kind):
    normalize = image_net(kind, AUGMENT_SIZES[kind.channels])
    assert normalize.values > 1 << 32
    chosen = rng.permutation(normalize.batch)
    mix = np.zeros(normalize.batch, MIX_RECORD)
    mix["own"], mix["own_weight"] = chosen, 1
    # Every other image comes from its partner, by a box that covers it.
    mix["own"][1::2], mix["partner"][1::2] = chosen[::-1][1::2], chosen[1::2]
    mix["cut"][1::2] = (0, normalize.height, 0, normalize.width)
    records = pack(mix, np.zeros(0, np.int32))
    spec = augment_spec(normalize, 0, ZERO, OF_FLOATS)

    def launch(device, normalize, out, blocks):
        source = ComputedInput("the input", normalize.values)
        device.launch_augment(spec, records, source, out, blocks=blocks)

    for _ in comparison.flavours("augment"):
        made = check_blocks(device, rng, launch, normalize, own=lambda image: chosen[image])
        comparison.counts["comparisons"] += made
