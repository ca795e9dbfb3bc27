"""Steps whose operations depend on the picture's size, and what they draw for it.

csrc/image/recipe/sized.h is the definition; a test compares the two.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fastloader.transforms._recipe.draws import Draws
from fastloader.transforms._recipe.operations import COLOUR, GEOMETRY, Operation, Size

# ---- The geometry of torchvision's transforms on Pillow pictures, in pure Python.
#
# It mirrors csrc/image/crop.h, which is the definition. A test compares the two.


def random_resized_crop(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float], draws: Draws
) -> tuple[int, int, int, int]:
    """Draws as torchvision's RandomResizedCrop.get_params, and returns (left, top, width, height)."""
    area = float(width) * float(height)
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for _ in range(10):
        target = area * draws.uniform(*scale)
        aspect = math.exp(draws.uniform(low, high))
        w = round(math.sqrt(target * aspect))
        h = round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = draws.below(height - h + 1)
            left = draws.below(width - w + 1)
            return left, top, w, h
    w, h = width, height
    if width / height < ratio[0]:
        h = min(max(round(width / ratio[0]), 1), height)
    elif width / height > ratio[1]:
        w = min(max(round(height * ratio[1]), 1), width)
    return (width - w) // 2, (height - h) // 2, w, h


def random_interpolation(draws: Draws) -> str:
    """Draws the interpolation that timm calls "random"."""
    return ("bilinear", "bicubic")[draws.below(2)]


def resized(
    height: int, width: int, size: tuple[int, ...], max_size: int | None
) -> tuple[int, int]:
    """Returns the (height, width) that torchvision's Resize gives."""
    if len(size) == 2:
        return size[0], size[1]
    short, long = min(height, width), max(height, width)
    new_short, new_long = size[0], int(size[0] * long / short)
    if max_size is not None and new_long > max_size:
        new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_long, new_short) if width <= height else (new_short, new_long)


def resized_in_shape(
    height: int,
    width: int,
    size: tuple[float, float],
    longest: float,
    factors: tuple[float, float] = (1.0, 1.0),
) -> tuple[int, int]:
    """Returns the (height, width) that timm's ResizeKeepRatio gives: between covering ``size``, with
    ``longest`` 0, and fitting into it, with 1; times ``factors``."""
    down, across = height / size[0], width / size[1]
    ratio = max(down, across) * longest + min(down, across) * (1.0 - longest)
    return round(height * factors[0] / ratio), round(width * factors[1] / ratio)


def center(image: int, crop: int) -> int:
    if crop > image:
        return -((crop - image) // 2)
    return round((image - crop) / 2.0)


Numbers = Sequence[float]


def _resize_shorter(numbers: Numbers, size: Size, draws: Draws) -> list[Operation]:
    """Draws torchvision's Resize of an int. Numbers: shorter edge, most of the longer one or 0,
    resampling."""
    shorter, most, resampling = numbers
    height, width = resized(*size, (int(shorter),), int(most) or None)
    return [("resize", [float(height), float(width), resampling])]


def _center_crop(numbers: Numbers, size: Size, draws: Draws) -> list[Operation]:
    """Draws torchvision's CenterCrop. Numbers: height, width."""
    height, width = (int(number) for number in numbers)
    left, top = center(size[1], width), center(size[0], height)
    return [("crop", [float(left), float(top), float(width), float(height)])]


def _random_crop(numbers: Numbers, size: Size, draws: Draws) -> list[Operation]:
    """Draws torchvision's RandomCrop. Numbers: height, width; 1 to pad if it is needed, 2 to do so on
    both axes at once, or 0; padding on the left, top, right, bottom; mode and fill as "pad" has them."""
    height, width, needed = (int(number) for number in numbers[:3])
    border = [int(number) for number in numbers[3:7]]
    how = list(numbers[7:])
    found: list[Operation] = []

    def pad(left: int, top: int, right: int, bottom: int) -> None:
        nonlocal size
        if left or top or right or bottom:
            found.append(("pad", [float(left), float(top), float(right), float(bottom), *how]))
            size = (size[0] + top + bottom, size[1] + left + right)

    lacks_width = max(0, width - size[1] - border[0] - border[2]) if needed else 0
    lacks_height = max(0, height - size[0] - border[1] - border[3]) if needed else 0
    if needed == 2:
        left, top, right, bottom = border
        pad(left + lacks_width, top + lacks_height, right + lacks_width, bottom + lacks_height)
    else:
        pad(border[0], border[1], border[2], border[3])
        pad(lacks_width, 0, lacks_width, 0)
        pad(0, lacks_height, 0, lacks_height)
    if size[0] < height or size[1] < width:
        raise ValueError(
            f"a random crop of {height}x{width} pixels is larger than the picture of "
            f"{size[0]}x{size[1]}: pad_if_needed=True pads it"
        )
    top, left = draws.below(size[0] - height + 1), draws.below(size[1] - width + 1)
    if size != (height, width):
        found.append(("crop", [float(left), float(top), float(width), float(height)]))
    return found


def _random_resized_crop(numbers: Numbers, size: Size, draws: Draws) -> list[Operation]:
    """Draws torchvision's RandomResizedCrop. Numbers: height, width, scale from and to, ratio from and
    to, resampling."""
    height, width, low, high, thin, wide, resampling = numbers
    box = random_resized_crop(*size, (low, high), (thin, wide), draws)
    return [
        ("crop", [float(edge) for edge in box]),
        ("resize", [height, width, resampling]),
    ]


def _affine_about(numbers: Numbers, size: Size, draws: Draws) -> list[Operation]:
    """Computes F.affine of torchvision's v1. Numbers: degrees, pixels to the right, pixels down, scale,
    degrees of shear along x, along y, resampling, fill (3), and the centre's x and y; the middle without
    them."""
    angle, right, down, scale, shear_x, shear_y, resampling, *rest = numbers
    x, y = rest[3:] if len(rest) > 3 else (size[1] * 0.5, size[0] * 0.5)
    turn, sx, sy = math.radians(angle), math.radians(shear_x), math.radians(shear_y)
    a = math.cos(turn - sy) / math.cos(sy)
    b = -math.cos(turn - sy) * math.tan(sx) / math.cos(sy) - math.sin(turn)
    c = math.sin(turn - sy) / math.cos(sy)
    d = -math.sin(turn - sy) * math.tan(sx) / math.cos(sy) + math.cos(turn)
    a, b, c, d = d / scale, -b / scale, -c / scale, a / scale
    e = 0.0 / scale + (a * (-x - right) + b * (-y - down)) + x
    f = 0.0 / scale + (c * (-x - right) + d * (-y - down)) + y
    return [("affine", [a, b, e, c, d, f, resampling, *rest[:3]])]


def _affine_about_v2(numbers: Numbers, size: Size, draws: Draws) -> list[Operation]:
    """Computes F.affine of torchvision's v2, which sums in another order, with the numbers of v1's."""
    angle, right, down, scale, shear_x, shear_y, resampling, *rest = numbers
    x, y = rest[3:] if len(rest) > 3 else (size[1] * 0.5, size[0] * 0.5)
    turn, sx, sy = math.radians(angle), math.radians(shear_x), math.radians(shear_y)
    a = math.cos(turn - sy) / math.cos(sy)
    b = -(a * math.tan(sx) + math.sin(turn))
    c = math.sin(turn - sy) / math.cos(sy)
    d = math.cos(turn) - c * math.tan(sx)
    a, b, c, d = d / scale, -b / scale, -c / scale, a / scale
    e = x - a * (x + right) - b * (y + down)
    f = y - c * (x + right) - d * (y + down)
    return [("affine", [a, b, e, c, d, f, resampling, *rest[:3]])]


def _random_perspective(numbers: Numbers, size: Size, draws: Draws) -> list[Operation]:
    """Draws torchvision's RandomPerspective. Numbers: distortion, resampling, fill (3)."""
    distortion, *rest = numbers
    height, width = size
    most_x, most_y = int(distortion * (width // 2)), int(distortion * (height // 2))

    def x(right: bool) -> int:
        return width - most_x - 1 + draws.below(most_x + 1) if right else draws.below(most_x + 1)

    def y(bottom: bool) -> int:
        return height - most_y - 1 + draws.below(most_y + 1) if bottom else draws.below(most_y + 1)

    sides = ((False, False), (True, False), (True, True), (False, True))
    ends = [(x(right), y(bottom)) for right, bottom in sides]
    starts = [(right * (width - 1), bottom * (height - 1)) for right, bottom in sides]
    return [("perspective", [*perspective_coefficients(starts, ends), *rest])]


def perspective_coefficients(
    starts: Sequence[tuple[int, int]], ends: Sequence[tuple[int, int]]
) -> list[float]:
    """Computes what Image.transform(PERSPECTIVE) takes to move the corners ``starts`` (x, y) of a
    picture to ``ends``, rounded to float32. Torchvision solves the same equations by QR, whose last bits
    may make another float32 of it in one case of some thousands."""
    rows: list[list[float]] = []
    for end, start in zip(ends, starts):
        x, y, u, v = (float(number) for number in (*end, *start))
        rows.append([x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, u])
        rows.append([0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y, v])
    count = len(rows)
    for column in range(count):
        best = max(range(column, count), key=lambda row: abs(rows[row][column]))
        rows[column], rows[best] = rows[best], rows[column]
        if rows[column][column] == 0.0:
            raise ValueError("a perspective whose corners fall together")
        for row in range(column + 1, count):
            factor = rows[row][column] / rows[column][column]
            for i in range(column, count + 1):
                rows[row][i] -= factor * rows[column][i]
    found = [0.0] * count
    for row in reversed(range(count)):
        rest = rows[row][count]
        for i in range(row + 1, count):
            rest -= rows[row][i] * found[i]
        found[row] = rest / rows[row][row]
    rounded: tuple[float, ...] = struct.unpack("8f", struct.pack("8f", *found))
    return list(rounded)


def _crop_or_pad(numbers: Numbers, size: Size, draws: Draws) -> list[Operation]:
    """Draws timm's CenterCropOrPad, RandomCropOrPad and RandomPad. Numbers: height, width; 1 for a place
    that is drawn, 0 for the middle; 1 to cut an edge that is longer, 0 to keep it; mode and fill as
    "pad" has them. Draws for the height and then for the width, each below 1 + the difference."""
    height, width, drawn, cuts = (int(number) for number in numbers[:4])
    padded = [0, 0, 0, 0]  # left, top, right, bottom
    corner, made = [0, 0], [0, 0]  # both across, down
    for axis, (wanted, found) in ((1, (height, size[0])), (0, (width, size[1]))):
        lacks, over = max(0, wanted - found), max(0, found - wanted) * cuts
        middle = lacks // 2 if lacks else round(over / 2)
        place = draws.below(max(lacks, over) + 1) if drawn else middle
        if lacks:
            padded[axis], padded[axis + 2] = place, lacks - place
        else:
            corner[axis] = place
        made[axis] = found + lacks - over
    done: list[Operation] = []
    if any(padded):
        done.append(("pad", [*map(float, padded), *numbers[4:]]))
    if size[0] > made[1] or size[1] > made[0]:
        done.append(("crop", [*map(float, corner), *map(float, made)]))
    return done


def _resize_keep_ratio(numbers: Numbers, size: Size, draws: Draws) -> list[Operation]:
    """Computes timm's ResizeKeepRatio. Numbers: height, width; how far the result goes from covering
    them, 0, to fitting into them, 1; a factor; 1 if it is of the area of what is then cropped, 0 if it
    is of the edges; the logarithm of a factor of width / height; resampling."""
    height, width, longest, factor, of_area, log_aspect, resampling = numbers
    if of_area:
        factor = 1.0 / math.sqrt(factor)
    aspect = math.sqrt(math.exp(log_aspect))
    factors = (factor / aspect, factor * aspect)
    made = resized_in_shape(*size, (height, width), longest, factors)
    if 0 in made:
        raise ValueError(f"a picture of {size[0]}x{size[1]} resized to {made[0]}x{made[1]}")
    return [("resize", [float(made[0]), float(made[1]), resampling])]


def _blur_between(numbers: Numbers, size: Size, draws: Draws) -> list[Operation]:
    """Computes Pillow's GaussianBlur with one radius for both axes. Numbers: two radii; the share of the
    way from the first to the second at which the radius lies."""
    start, end, share = numbers
    radius = start + (end - start) * share
    return [("pillow_blur", [radius, radius])]


def _never(numbers: Sequence[Any]) -> bool:
    return False


def _always(numbers: Sequence[Any]) -> bool:
    return True


class SizedKind(NamedTuple):
    """The row of one sized step.

    ``draw`` gives the operations, for ``least`` to ``most`` numbers. ``effect`` is that of these
    operations. ``random`` says of the `Number`s of a step whether ``draw`` draws more than these.
    """

    draw: Callable[[Numbers, Size, Draws], list[Operation]]
    least: int
    most: int
    effect: str = GEOMETRY
    random: Callable[[Sequence[Any]], bool] = _never


# In the native module's order: a place is part of what is drawn for its step.
SIZED: dict[str, SizedKind] = {
    "resize_shorter": SizedKind(_resize_shorter, 3, 3),
    "center_crop": SizedKind(_center_crop, 2, 2),
    "random_crop": SizedKind(_random_crop, 11, 11, random=_always),
    "random_resized_crop": SizedKind(_random_resized_crop, 7, 7, random=_always),
    "affine_about": SizedKind(_affine_about, 10, 12),
    "random_perspective": SizedKind(_random_perspective, 5, 5, random=_always),
    "crop_or_pad": SizedKind(_crop_or_pad, 8, 8, random=lambda numbers: bool(numbers[2].a)),
    "resize_keep_ratio": SizedKind(_resize_keep_ratio, 7, 7),
    "blur_between": SizedKind(_blur_between, 3, 3, COLOUR),
    "affine_about_v2": SizedKind(_affine_about_v2, 10, 12),
}
