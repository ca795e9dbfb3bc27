"""Launches some blocks of a grid whose input or output is larger than 4 GiB."""

from __future__ import annotations

import numpy as np
from interpreter.sparse import RecordedOutput, byte_at
from specs import ELEMENT_BYTES, NCHW


class Layout:
    """Positions in an input or output as images, channels and pixels."""

    def __init__(self, spec, layout):
        self.pixels, self.channels = spec.height * spec.width, spec.channels
        self.planar = layout == NCHW

    def split(self, position):
        image, rest = np.divmod(position, self.pixels * self.channels)
        if self.planar:
            channel, pixel = np.divmod(rest, self.pixels)
        else:
            pixel, channel = np.divmod(rest, self.channels)
        return image, channel, pixel

    def position(self, image, channel, pixel):
        if self.planar:
            return (image * self.channels + channel) * self.pixels + pixel
        return (image * self.pixels + pixel) * self.channels + channel


def check_blocks(device, rng, launch, spec, own):
    """Launches some blocks of a grid and compares what they write. `own` is the image of the input that
    an image of the output is made of. Gives how many comparisons it made."""
    into, out = Layout(spec, spec.in_layout), Layout(spec, spec.out_layout)
    tables = device.reference_tables(spec)
    written = []
    # No block runs yet: the launch tells the size of the grid.
    launch(device, spec, RecordedOutput("the output", spec.out_bytes, ELEMENT_BYTES[spec.type]), [])
    grid = device.grid
    middle = [int(grid * (k + rng.uniform(0.1, 0.9)) / 6) for k in range(6)]
    for block in (0, *middle, grid - 4):
        target = RecordedOutput("the output", spec.out_bytes, ELEMENT_BYTES[spec.type])
        launch(device, spec, target, [range(block, block + 4)])
        places, values = target.elements()
        image, channel, pixel = out.split(places.astype(np.int64))
        source = into.position(own(image), channel, pixel)
        assert np.array_equal(values, tables[channel, byte_at(source)])
        # A block's part of the output is its part of the grid, by position or by pixel: an index that
        # lost its upper bits could write the right values into another part.
        by_position = places / spec.values
        by_pixel = (image + pixel / out.pixels) / spec.batch
        away = np.minimum(*(np.abs(each - block / grid) for each in (by_position, by_pixel)))
        assert away.max() < 0.001
        written.append(places)
        device.values += places.size
    every = np.concatenate(written)
    assert np.unique(every).size == every.size
    assert every.min() == 0 and every.max() == spec.values - 1
    # No block leaves its part to nobody.
    assert every.size > 0.8 * len(written) * 4 * spec.values / grid
    return len(written)
