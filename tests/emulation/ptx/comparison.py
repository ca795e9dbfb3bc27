"""Launches kernels and compares what they write with the CPU's results, bit for bit."""

from __future__ import annotations

import collections

import numpy as np
from interpreted_device import InterpretedDevice
from specs import FLOAT16, FLOAT32, NCHW, NHWC, OF_FLOATS, AugmentSpec, NormalizeSpec

_BITS = {2: np.uint16, 4: np.uint32}


class Comparison:
    """In the sample the flavours of the kernels take turns, in the whole every launch runs each."""

    def __init__(self, device: InterpretedDevice, whole: bool) -> None:
        self.device, self.whole = device, whole
        self.counts: collections.Counter[str] = collections.Counter()

    def flavours(self, file: str):
        """Sets the device's flavour to each that is to run a launch."""
        every = range(len(self.device.flavours[file]))
        self.counts["cases"] += 1
        for number in every if self.whole else [self.counts["cases"] % len(every)]:
            self.device.flavour = number
            yield number

    def normalize(self, spec: NormalizeSpec, source, skews=(0, 0)) -> None:
        expected = {f"normalize() on {isa}": None for isa in self.device.isas}
        for isa, name in zip(self.device.isas, expected, strict=True):
            expected[name] = self.device.cpu_normalize(spec, source, isa)
        expected["the kernel's body on the CPU"] = self.device.twin_normalize(spec, source)
        expected["the native tests' reference"] = self._reference(spec, source)
        for _ in self.flavours("normalize"):
            got = self.device.normalize(spec, source, *skews)
            for against, values in expected.items():
                self._require_same(spec, got, values, f"{against}: {spec}, skews {skews}")

    def augment(self, spec: AugmentSpec, records, source, reference=None) -> None:
        expected = {"augment()": self.device.cpu_augment(spec, records, source)}
        if reference is not None:
            expected["the native tests' reference"] = reference
        # Where a blend of floats adds infinities, x86 makes a NaN of other bits than a GPU. Nothing
        # else may make one: a byte gives a finite number or an infinity.
        any_nan = spec.blend == OF_FLOATS
        for _ in self.flavours("augment"):
            got = self.device.augment(spec, records, source)
            for against, values in expected.items():
                self._require_same(spec.normalize, got, values, f"{against}: {spec}", any_nan)

    def _reference(self, spec: NormalizeSpec, source):
        tables = self.device.reference_tables(spec).astype(_BITS[4 if spec.type == FLOAT32 else 2])
        plane, channels = spec.height * spec.width, spec.channels
        if spec.in_layout == NHWC:
            images = source.reshape(spec.batch, plane, channels)
        else:
            images = source.reshape(spec.batch, channels, plane).transpose(0, 2, 1)
        values = tables[np.arange(channels), images]
        if spec.out_layout == NCHW:
            values = values.transpose(0, 2, 1)
        return np.ascontiguousarray(values).reshape(-1).view(np.uint8)

    def _require_same(self, spec, got, expected, against: str, any_nan: bool = False) -> None:
        self.counts["comparisons"] += 1
        kind = _BITS[4 if spec.type == FLOAT32 else 2]
        a, b = got.view(kind), expected.view(kind)
        differ = a != b
        if any_nan:
            differ &= ~(is_nan(a, spec.type) & is_nan(b, spec.type))
        if differ.any():
            at = np.flatnonzero(differ)
            self.counts["mismatches"] += 1
            raise AssertionError(
                f"{at.size} of {a.size} values differ from {against}; "
                f"first {at[0]}: {a[at[0]]:#x}, there {b[at[0]]:#x}"
            )


def is_nan(bits, type_: int):
    infinity = {FLOAT32: 0x7F800000, FLOAT16: 0x7C00}.get(type_, 0x7F80)
    magnitude = bits & bits.dtype.type(0x7FFFFFFF if type_ == FLOAT32 else 0x7FFF)
    return magnitude > infinity
