"""Operations as people read and write them: a name, and parameters by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastloader.transforms._recipe.operations import Operation

NamedOperation = tuple[str, dict[str, Any]]

# Pillow's numbers of them.
RESAMPLINGS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
PADDING_MODES = ("constant", "edge", "reflect", "symmetric")

# The parameters of each operation in the order of its numbers, and how many numbers each takes.
_PARAMETERS: dict[str, tuple[tuple[str, int], ...]] = {
    "invert": (),
    "posterize": (("bits", 1),),
    "solarize": (("threshold", 1),),
    "solarize_add": (("add", 1), ("threshold", 1)),
    "autocontrast": (),
    "equalize": (),
    "brightness": (("factor", 1),),
    "contrast": (("factor", 1),),
    "saturation": (("factor", 1),),
    "grayscale": (),
    "hue": (("factor", 1),),
    "sharpness": (("factor", 1),),
    "pillow_blur": (("radius", 2),),
    "gaussian_blur": (("kernel_size", 2), ("sigma", 2)),
    "affine": (("coefficients", 6), ("interpolation", 1), ("fill", 3)),
    "perspective": (("coefficients", 8), ("interpolation", 1), ("fill", 3)),
    "rotate": (("angle", 1), ("interpolation", 1), ("expand", 1), ("center", 2), ("fill", 3)),
    "pad": (("padding", 4), ("padding_mode", 1), ("fill", 3)),
    "crop": (("left", 1), ("top", 1), ("width", 1), ("height", 1)),
    "hflip": (),
    "vflip": (),
    "resize": (("size", 2), ("interpolation", 1)),
    "mix_begin": (("weight", 1),),
    "mix_add": (("weight", 1),),
    "mix_blend": (("factor", 1),),
    "mix_end": (("factor", 1),),
}
_MAY_LACK = {("solarize_add", "threshold"), ("rotate", "center")}
_WHOLE = frozenset(
    ("bits", "add", "kernel_size", "padding", "left", "top", "width", "height", "size", "fill")
)


def named(operation: Operation) -> NamedOperation:
    """An operation with its parameters by name."""
    name, numbers = operation
    rest = list(numbers)
    if name == "gaussian_blur" and len(rest) == 3:
        rest.append(rest[-1])  # one sigma stands for both axes
    lacking = sum(count for _, count in _PARAMETERS[name]) - len(rest)
    found: dict[str, Any] = {}
    for parameter, count in _PARAMETERS[name]:
        if lacking and (name, parameter) in _MAY_LACK:
            continue
        taken, rest = rest[:count], rest[count:]
        found[parameter] = _value(parameter, taken)
    return name, found


def _value(parameter: str, numbers: Sequence[float]) -> Any:
    if parameter == "interpolation":
        return RESAMPLINGS[int(numbers[0])]
    if parameter == "padding_mode":
        return PADDING_MODES[int(numbers[0])]
    if parameter == "expand":
        return bool(numbers[0])
    values = tuple(int(number) for number in numbers) if parameter in _WHOLE else tuple(numbers)
    return values[0] if len(values) == 1 else values


def unnamed(name: str, parameters: Mapping[str, Any]) -> Operation:
    """The operation that `named` gave.

    Raises:
        ValueError: for an operation or a parameter that there is not.
        KeyError: for a parameter that is missing.
    """
    if name not in _PARAMETERS:
        raise ValueError(f"there is no step {name!r}; there are {', '.join(_PARAMETERS)}")
    known = [parameter for parameter, _ in _PARAMETERS[name]]
    unknown = [parameter for parameter in parameters if parameter not in known]
    if unknown:
        raise ValueError(f"{name} has no parameter {unknown[0]!r}; it has {known}")
    numbers: list[float] = []
    for parameter, count in _PARAMETERS[name]:
        if parameter not in parameters and (name, parameter) in _MAY_LACK:
            continue
        value = parameters[parameter]
        if parameter == "interpolation":
            value = RESAMPLINGS.index(value)
        elif parameter == "padding_mode":
            value = PADDING_MODES.index(value)
        values = list(value) if count > 1 else [value]
        if len(values) != count:
            raise ValueError(f"{name}: {parameter} takes {count} numbers, not {value!r}")
        numbers += [float(each) for each in values]
    return name, numbers
