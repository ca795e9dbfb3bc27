"""What can be done to the pixels of a picture: operations by their names, with numbers.

csrc/image/ops/operation.h is the definition, and says what the numbers are; a test compares the two.
"""

from __future__ import annotations

Operation = tuple[str, list[float]]  # its name and its numbers
Size = tuple[int, int]  # height, width

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
# Those of a mix, each of which is no use without the others.
OF_MIX = ("mix_begin", "mix_add", "mix_blend", "mix_end")


def check_count(what: str, found: int, least: int, most: int) -> None:
    if not least <= found <= most:
        raise ValueError(f"{what} takes {least} to {most} numbers, not {found}")
