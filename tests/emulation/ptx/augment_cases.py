"""What the augmenting kernels are tried with, beside the native tests' own cases."""

from __future__ import annotations

import numpy as np
from specs import OF_BYTES, AugmentSpec, NormalizeSpec

SIZES = [
    (1, 1, 1), (2, 1, 3), (2, 3, 5), (4, 7, 9), (3, 16, 16), (1, 8, 33), (6, 2, 2), (33, 1, 1),
    (2, 31, 17), (0, 4, 4), (2, 0, 3), (2, 16, 112), (2, 29, 71), (3, 140, 9), (2, 300, 3),
    (3, 257, 1), (3, 513, 1),
]  # fmt: skip

# As csrc/image/normalize/augment.h lays them out.
MIX_RECORD = np.dtype(
    [
        ("own", np.uint32),
        ("partner", np.uint32),
        ("own_weight", np.float32),
        ("partner_weight", np.float32),
        ("cut", np.int32, 4),
        ("boxes", np.uint32),
        ("key", np.uint32, 2),
    ]
)
CONSTANTS = (-1.25, 0.3, 1e-6, 7e4)  # of the constant fill, as in the native tests' own cases


def pack(mix, boxes):
    header = np.array(CONSTANTS, np.float32)
    return np.concatenate([part.reshape(-1).view(np.uint8) for part in (header, mix, boxes)])


def wild_case(rng, normalize: NormalizeSpec, fill: int, blend: int):
    """Whatever validate_records lets through: any images, weights, boxes beside the image, many boxes.
    Gives (spec, records, input)."""
    batch, max_boxes = normalize.batch, int(rng.integers(0, 6))
    in_batch = int(rng.integers(1, 2 * batch + 2)) if blend == OF_BYTES else batch
    mix = np.zeros(batch, MIX_RECORD)
    mix["own"], mix["partner"] = rng.integers(0, in_batch, (2, batch))
    mix["own_weight"] = rng.random(batch)
    if rng.random() < 0.3:
        mix["own_weight"] = rng.choice([0.0, 1.0, 0.5, 1e-40, 0.25, 0.75], batch)
    mix["partner_weight"] = np.float32(1) - mix["own_weight"]
    edge = max(normalize.height, normalize.width)
    mix["cut"] = rng.integers(-3, edge + 4, (batch, 4)) * (rng.random((batch, 1)) < 0.6)
    mix["boxes"] = rng.integers(0, max_boxes + 1, batch)
    boxes = rng.integers(-3, edge + 4, (batch, max_boxes, 4)).astype(np.int32)
    for edges in (boxes, mix["cut"]):
        if rng.random() < 0.2:
            edges[rng.random(edges.shape) < 0.2] = rng.choice([-(2**31), 2**31 - 1])
    mix["key"] = rng.integers(0, 2**32, (batch, 2))
    image = normalize.height * normalize.width * normalize.channels
    source = rng.integers(0, 256, in_batch * image, dtype=np.uint8)
    spec = AugmentSpec(normalize, in_batch, max_boxes, fill, blend)
    return spec, pack(mix, boxes), source
