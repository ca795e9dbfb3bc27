"""What can be done to the pixels of a picture: operations by their names, with numbers.

csrc/image/ops/operation.h is the definition, and says what the numbers are; a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Operation = tuple[str, list[float]]  # its name and its numbers
Size = tuple[int, int]  # height, width
Numbers = Sequence[float]

# The fewest and the most numbers of each, in the native module's order.
OPERATIONS: dict[str, tuple[int, int]] = {
    "invert": (0, 0),
    "posterize": (1, 1),
    "solarize": (1, 1),
    "solarize_add": (1, 2),
    "autocontrast": (0, 0),
    "equalize": (0, 0),
    "brightness": (1, 1),
    "contrast": (1, 1),
    "saturation": (1, 1),
    "grayscale": (0, 0),
    "hue": (1, 1),
    "sharpness": (1, 1),
    "pillow_blur": (2, 2),
    "gaussian_blur": (3, 4),  # one sigma is drawn once, for both axes
    "affine": (10, 10),
    "perspective": (12, 12),
    "rotate": (6, 8),
    "pad": (8, 8),
    "crop": (4, 4),
    "hflip": (0, 0),
    "vflip": (0, 0),
    "resize": (3, 3),
    "mix_begin": (1, 1),
    "mix_add": (1, 1),
    "mix_blend": (1, 1),
    "mix_end": (1, 1),
}
# The longest edge, and the most pixels, of what an operation makes: kMaxImageEdge and kMaxMadePixels.
_MOST_EDGE, _MOST_PIXELS = 1 << 24, 178956970
# Those of a mix, each of which is no use without the others.
OF_MIX = ("mix_begin", "mix_add", "mix_blend", "mix_end")


def check_count(what: str, found: int, least: int, most: int) -> None:
    if not least <= found <= most:
        raise ValueError(f"{what} takes {least} to {most} numbers, not {found}")


def size_after(operation: Operation, size: Size) -> Size:
    """Returns the (height, width) of what the operation makes of a picture of this size.

    Raises:
        ValueError: if that is no picture, or one that is too large.
    """
    name, numbers = operation
    known = _SIZES.get(name)
    if known is None:
        return size
    height, width = made = known(numbers, size)
    if min(made) < 1 or max(made) > _MOST_EDGE or height * width > _MOST_PIXELS:
        raise ValueError(f"{name} would make a picture of {width} x {height} pixels")
    return made


def _padded(numbers: Numbers, size: Size) -> Size:
    left, top, right, bottom = (int(number) for number in numbers[:4])
    return size[0] + top + bottom, size[1] + left + right


def _cropped(numbers: Numbers, _size: Size) -> Size:
    return int(numbers[3]), int(numbers[2])


def _resized(numbers: Numbers, _size: Size) -> Size:
    return int(numbers[0]), int(numbers[1])


def _rotated(numbers: Numbers, size: Size) -> Size:
    """As Pillow computes it: from the corners, to whole pixels outwards."""
    angle, expand = numbers[0] % 360.0, bool(numbers[2])
    height, width = size
    if not expand:
        return size
    centred = len(numbers) == 6
    if centred and angle in (0, 180):
        return size
    if centred and angle in (90, 270):
        return width, height
    x, y = (width / 2, height / 2) if centred else (numbers[3], numbers[4])
    turn = -math.radians(angle)
    a, b = round(math.cos(turn), 15), round(math.sin(turn), 15)
    c, d = round(-math.sin(turn), 15), round(math.cos(turn), 15)
    right, down = a * -x + b * -y + 0.0 + x, c * -x + d * -y + 0.0 + y
    corners = ((0, 0), (width, 0), (width, height), (0, height))
    across = [a * left + b * top + right for left, top in corners]
    along = [c * left + d * top + down for left, top in corners]
    return _span(along), _span(across)


def _span(places: Sequence[float]) -> int:
    return math.ceil(max(places)) - math.floor(min(places))


_SIZES: dict[str, Callable[[Numbers, Size], Size]] = {
    "rotate": _rotated,
    "pad": _padded,
    "crop": _cropped,
    "resize": _resized,
}
