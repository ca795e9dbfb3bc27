"""The specs of normalise and augment as the C++ entry points take them."""

from __future__ import annotations

import ctypes
import itertools
from typing import NamedTuple

FLOAT32, FLOAT16, BFLOAT16 = range(3)
NCHW, NHWC = range(2)
FILLS = ZERO, PER_BOX, PER_ELEMENT, CONSTANT = range(4)
OF_FLOATS, OF_BYTES = range(2)  # blends
ELEMENT_BYTES = {FLOAT32: 4, FLOAT16: 2, BFLOAT16: 2}
MAX_CHANNELS = 4


class Kind(NamedTuple):
    type: int
    channels: int
    in_layout: int
    out_layout: int

    def __str__(self) -> str:
        layouts = ("nchw", "nhwc")
        return (
            f"{('float32', 'float16', 'bfloat16')[self.type]}-{self.channels}"
            f"-{layouts[self.in_layout]}-{layouts[self.out_layout]}"
        )


TYPES = (FLOAT32, FLOAT16, BFLOAT16)
KINDS = [Kind(*each) for each in itertools.product(TYPES, (1, 2, 3, 4), (0, 1), (0, 1))]


class NormalizeSpec(ctypes.Structure):
    _fields_ = [
        ("batch", ctypes.c_uint64),
        ("height", ctypes.c_uint64),
        ("width", ctypes.c_uint64),
        ("channels", ctypes.c_int32),
        ("in_layout", ctypes.c_int32),
        ("out_layout", ctypes.c_int32),
        ("type", ctypes.c_int32),
        ("scale", ctypes.c_float * MAX_CHANNELS),
        ("bias", ctypes.c_float * MAX_CHANNELS),
    ]

    @property
    def kind(self) -> Kind:
        return Kind(self.type, self.channels, self.in_layout, self.out_layout)

    @property
    def values(self) -> int:
        return self.batch * self.height * self.width * self.channels

    @property
    def out_bytes(self) -> int:
        return self.values * ELEMENT_BYTES[self.type]

    def __str__(self) -> str:
        constants = [
            [each.hex() for each in row][: self.channels] for row in (self.scale, self.bias)
        ]
        return f"{self.kind} of {self.batch}x{self.height}x{self.width}, scale, bias {constants}"


class AugmentSpec(ctypes.Structure):
    _fields_ = [
        ("normalize", NormalizeSpec),
        ("in_batch", ctypes.c_uint64),
        ("max_boxes", ctypes.c_uint64),
        ("fill", ctypes.c_int32),
        ("blend", ctypes.c_int32),
    ]

    def __str__(self) -> str:
        return f"{self.normalize}, fill {self.fill}, blend {self.blend}, boxes {self.max_boxes}"


def normalize_spec(kind: Kind, size, scale, bias) -> NormalizeSpec:
    spec = NormalizeSpec(*size, kind.channels, kind.in_layout, kind.out_layout, kind.type)
    # What lies above the channels is not read: a NaN that is would show.
    nan = [float("nan")] * (MAX_CHANNELS - kind.channels)
    spec.scale[:] = [float(each) for each in scale] + nan
    spec.bias[:] = [float(each) for each in bias] + nan
    return spec


def augment_spec(spec: NormalizeSpec, max_boxes: int, fill: int, blend: int) -> AugmentSpec:
    return AugmentSpec(spec, spec.batch, max_boxes, fill, blend)
