"""The operations on the pixels of a picture: one row for each.

csrc/image/ops/operation.h is the definition, and says what the numbers are; a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fastloader.transforms import _pillow

Operation = tuple[str, list[float]]  # its name and its numbers
Size = tuple[int, int]  # height, width
Numbers = Sequence[float]

# What an operation does to the places of the pixels, as Operation::Effect has it. A mask of the picture
# goes through the same geometry, by the nearest pixel, and through nothing else. Those of a mix are each
# no use without the others.
COLOUR, GEOMETRY, MIX = "colour", "geometry", "mix"

# Pillow's numbers of them.
RESAMPLINGS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
# And one that only a follower has: pixel floor(i * in / out) of each edge, in float32, as torch's
# interpolate(mode="nearest") takes it.
TORCH_NEAREST = len(RESAMPLINGS)
INTERPOLATIONS = (*RESAMPLINGS, "torch_nearest")
PADDING_MODES = ("constant", "edge", "reflect", "symmetric")


class Parameter(NamedTuple):
    """A parameter of an operation, as people read and write it, and the numbers that it takes.

    ``read`` makes its value of each of its ``length`` numbers; with ``names``, its one number is a place
    in these. ``optional``: the operation may lack the parameter. ``shared``: one number may stand for
    all.
    """

    name: str
    length: int = 1
    read: Callable[[float], Any] = float
    names: tuple[str, ...] = ()
    optional: bool = False
    shared: bool = False

    @property
    def least(self) -> int:
        """The fewest numbers that it takes."""
        return 0 if self.optional else 1 if self.shared else self.length

    def value(self, numbers: Numbers) -> Any:
        """Returns what the numbers stand for."""
        if self.names:
            return self.names[int(numbers[0])]
        values = [self.read(number) for number in numbers]
        return values[0] if self.length == 1 else tuple(values * (self.length // len(values)))

    def numbers(self, value: Any) -> list[float]:
        """Returns the numbers that stand for a value."""
        if self.names:
            value = self.names.index(value)
        return [float(each) for each in (value if self.length > 1 else [value])]


class Kind(NamedTuple):
    """The row of one operation.

    ``effect`` is COLOUR, GEOMETRY or MIX. ``pillow`` does the operation to a Pillow picture of any mode
    that Pillow can do it to, and None stands for those of a mix, which `Canvas` does. ``parameters``
    are in the order of the numbers. ``size_after`` says how large the picture comes out; without it the
    size stays. ``following`` says what becomes of each number for a follower: "*" a length that
    grows with it, "/" a share of a length, which shrinks, "r" the resampling, "f" one of three of the
    fill, "?" a length that may be left out, "." stays.
    """

    effect: str
    pillow: Callable[[Any, Numbers], Any] | None
    parameters: tuple[Parameter, ...] = ()
    size_after: Callable[[Numbers, Size], Size] | None = None
    following: str = ""

    @property
    def least(self) -> int:
        """The fewest numbers that it takes."""
        return sum(parameter.least for parameter in self.parameters)

    @property
    def most(self) -> int:
        return sum(parameter.length for parameter in self.parameters)


def check_count(what: str, found: int, least: int, most: int) -> None:
    if not least <= found <= most:
        raise ValueError(f"{what} takes {least} to {most} numbers, not {found}")


# ---- The operations of recipes, done by Pillow: what the native module's pixels are compared
# with.


def _invert(image: Any, _numbers: Numbers) -> Any:
    from PIL import ImageOps

    return ImageOps.invert(image)


def _posterize(image: Any, numbers: Numbers) -> Any:
    mask = ~(2 ** (8 - int(numbers[0])) - 1) & 0xFF  # Pillow 13 refuses 0 bits, which makes black
    return _looked_up(image, [value & mask for value in range(256)])


def _solarize(image: Any, numbers: Numbers) -> Any:
    threshold = numbers[0]
    return _looked_up(image, [v if v < threshold else 255 - v for v in range(256)])


def _solarize_add(image: Any, numbers: Numbers) -> Any:
    """Adds to values below a threshold, as timm does."""
    add, threshold = int(numbers[0]), numbers[1] if len(numbers) > 1 else 128
    table = [min(255, max(0, v + add)) if v < threshold else v for v in range(256)]
    return _looked_up(image, table)


def _looked_up(image: Any, table: list[int]) -> Any:
    return image.point(table * len(image.getbands()))


def _autocontrast(image: Any, _numbers: Numbers) -> Any:
    from PIL import ImageOps

    return ImageOps.autocontrast(image)


def _equalize(image: Any, _numbers: Numbers) -> Any:
    from PIL import ImageOps

    return ImageOps.equalize(image)


def _brightness(image: Any, numbers: Numbers) -> Any:
    from PIL import ImageEnhance

    return ImageEnhance.Brightness(image).enhance(numbers[0])


def _contrast(image: Any, numbers: Numbers) -> Any:
    from PIL import ImageEnhance

    return ImageEnhance.Contrast(image).enhance(numbers[0])


def _saturation(image: Any, numbers: Numbers) -> Any:
    from PIL import ImageEnhance

    return ImageEnhance.Color(image).enhance(numbers[0])


def _sharpness(image: Any, numbers: Numbers) -> Any:
    from PIL import ImageEnhance

    return ImageEnhance.Sharpness(image).enhance(numbers[0])


def _grayscale(image: Any, _numbers: Numbers) -> Any:
    grey = image.convert("L")
    bands = len(image.getbands())
    return grey if bands == 1 else _pillow.image_module().merge("RGB", [grey] * 3)


def _hue(image: Any, numbers: Numbers) -> Any:
    """Turns the hue as torchvision does: the turn is cut to a byte before it wraps."""
    if image.mode in ("L", "1", "I", "F"):
        return image
    module = _pillow.image_module()
    hue, saturation, value = image.convert("HSV").split()
    turned = np.array(hue) + np.int32(numbers[0] * 255).astype(np.uint8)
    parts = (module.fromarray(turned), saturation, value)
    return module.merge("HSV", parts).convert(image.mode)


def _pillow_blur(image: Any, numbers: Numbers) -> Any:
    from PIL import ImageFilter

    return image.filter(ImageFilter.GaussianBlur(tuple(numbers)))


def _gaussian_blur(image: Any, numbers: Numbers) -> Any:
    """Blurs as torchvision does, which convolves tensors even for Pillow pictures."""
    edges, sigmas = (int(numbers[0]), int(numbers[1])), (numbers[2], numbers[-1])
    pixels = np.array(image)
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    values = torch.from_numpy(np.ascontiguousarray(planes)).float()
    kernels = []
    for edge, sigma in zip(edges, sigmas):
        half = (edge - 1) * 0.5
        at = torch.linspace(-half, half, steps=edge)
        weights = torch.exp(-0.5 * (at / sigma).pow(2))
        kernels.append(weights / weights.sum())
    kernel = torch.mm(kernels[1][:, None], kernels[0][None, :])
    border = [edges[0] // 2] * 2 + [edges[1] // 2] * 2
    padded = torch.nn.functional.pad(values[None], border, mode="reflect")
    channels = len(values)
    blurred = torch.nn.functional.conv2d(
        padded, kernel.expand(channels, 1, *kernel.shape), groups=channels
    )
    made = blurred[0].round().clamp(0, 255).to(torch.uint8).numpy()
    made = made[0] if pixels.ndim == 2 else np.ascontiguousarray(made.transpose(1, 2, 0))
    return _pillow.image_module().fromarray(made, image.mode)


def _colour(image: Any, fill: Numbers) -> Any:
    """Returns a colour that Pillow takes for the picture's mode."""
    bands = len(image.getbands())
    if bands == 1:
        return int(fill[0])
    return tuple(int(value) for value in (*fill, *[255] * (bands - 3))[:bands])


def _transform(method: str, count: int) -> Callable[[Any, Numbers], Any]:
    def transform(image: Any, numbers: Numbers) -> Any:
        module = _pillow.image_module()
        return image.transform(
            image.size,
            getattr(module.Transform, method),
            tuple(numbers[:count]),
            module.Resampling(int(numbers[count])),
            fillcolor=_colour(image, numbers[count + 1 :]),
        )

    return transform


def _rotate(image: Any, numbers: Numbers) -> Any:
    angle, resampling, expand, *rest = numbers
    return image.rotate(
        angle,
        _pillow.image_module().Resampling(int(resampling)),
        bool(expand),
        tuple(rest[:2]) if len(rest) > 3 else None,
        fillcolor=_colour(image, rest[-3:]),
    )


def _pad(image: Any, numbers: Numbers) -> Any:
    """Pads as torchvision does."""
    left, top, right, bottom, mode = (int(number) for number in numbers[:5])
    if mode == 0:
        size = (image.width + left + right, image.height + top + bottom)
        padded = _pillow.image_module().new(image.mode, size, _colour(image, numbers[5:]))
        padded.paste(image, (left, top))
        return padded
    # A border of less than nothing crops.
    crop = tuple(max(0, -each) for each in (left, top, right, bottom))
    if any(crop):
        box = (crop[0], crop[1], image.width - crop[2], image.height - crop[3])
        image = image.crop(box)
    left, top, right, bottom = (max(0, each) for each in (left, top, right, bottom))
    pixels = np.asarray(image)
    border = ((top, bottom), (left, right)) + ((0, 0),) * (pixels.ndim - 2)
    name = ("edge", "reflect", "symmetric")[mode - 1]
    made = np.pad(pixels, border, mode=name)  # type: ignore[call-overload]
    return _pillow.image_module().fromarray(made)


def _crop(image: Any, numbers: Numbers) -> Any:
    left, top, width, height = (int(number) for number in numbers)
    return image.crop((left, top, left + width, top + height))


def _hflip(image: Any, _numbers: Numbers) -> Any:
    return image.transpose(_pillow.image_module().Transpose.FLIP_LEFT_RIGHT)


def _vflip(image: Any, _numbers: Numbers) -> Any:
    return image.transpose(_pillow.image_module().Transpose.FLIP_TOP_BOTTOM)


def _resize(image: Any, numbers: Numbers) -> Any:
    height, width, resampling = (int(number) for number in numbers)
    if resampling == TORCH_NEAREST:
        pixels = np.asarray(image)
        rows, columns = _taken(image.height, height), _taken(image.width, width)
        return _pillow.image_module().fromarray(np.ascontiguousarray(pixels[rows][:, columns]))
    return image.resize((width, height), _pillow.image_module().Resampling(resampling))


def _taken(length: int, made: int) -> Any:
    """Returns which pixel of an edge each of a resized edge is, as torch's "nearest" has it."""
    scale = np.float32(length) / np.float32(made)
    places = np.floor(np.arange(made, dtype=np.float32) * scale).astype(np.int64)
    return np.minimum(places, length - 1)


# ---- The sizes of what comes out.


def _padded(numbers: Numbers, size: Size) -> Size:
    left, top, right, bottom = (int(number) for number in numbers[:4])
    return size[0] + top + bottom, size[1] + left + right


def _cropped(numbers: Numbers, _size: Size) -> Size:
    return int(numbers[3]), int(numbers[2])


def _resized(numbers: Numbers, _size: Size) -> Size:
    return int(numbers[0]), int(numbers[1])


def _rotated(numbers: Numbers, size: Size) -> Size:
    """Returns the size as Pillow computes it: from the corners, to whole pixels outwards."""
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


# ---- The operations, in the native module's order: a place is part of what is drawn for its operation.


_FACTOR = Parameter("factor")
_INTERPOLATION = Parameter("interpolation", names=INTERPOLATIONS)
_FILL = Parameter("fill", 3, int)
_WEIGHT = Parameter("weight")

OPERATIONS: dict[str, Kind] = {
    "invert": Kind(COLOUR, _invert),
    "posterize": Kind(COLOUR, _posterize, (Parameter("bits", read=int),)),
    "solarize": Kind(COLOUR, _solarize, (Parameter("threshold"),)),
    "solarize_add": Kind(
        COLOUR,
        _solarize_add,
        (Parameter("add", read=int), Parameter("threshold", optional=True)),
    ),
    "autocontrast": Kind(COLOUR, _autocontrast),
    "equalize": Kind(COLOUR, _equalize),
    "brightness": Kind(COLOUR, _brightness, (_FACTOR,)),
    "contrast": Kind(COLOUR, _contrast, (_FACTOR,)),
    "saturation": Kind(COLOUR, _saturation, (_FACTOR,)),
    "grayscale": Kind(COLOUR, _grayscale),
    "hue": Kind(COLOUR, _hue, (_FACTOR,)),
    "sharpness": Kind(COLOUR, _sharpness, (_FACTOR,)),
    "pillow_blur": Kind(COLOUR, _pillow_blur, (Parameter("radius", 2),)),
    "gaussian_blur": Kind(
        COLOUR,
        _gaussian_blur,
        # One sigma is drawn once, for both axes.
        (Parameter("kernel_size", 2, int), Parameter("sigma", 2, shared=True)),
    ),
    "affine": Kind(
        GEOMETRY,
        _transform("AFFINE", 6),
        (Parameter("coefficients", 6), _INTERPOLATION, _FILL),
        following="..*..*rfff",
    ),
    "perspective": Kind(
        GEOMETRY,
        _transform("PERSPECTIVE", 8),
        (Parameter("coefficients", 8), _INTERPOLATION, _FILL),
        following="..*..*//rfff",
    ),
    "rotate": Kind(
        GEOMETRY,
        _rotate,
        (
            Parameter("angle"),
            _INTERPOLATION,
            Parameter("expand", read=bool),
            Parameter("center", 2, optional=True),
            _FILL,
        ),
        _rotated,
        ".r.??fff",
    ),
    "pad": Kind(
        GEOMETRY,
        _pad,
        (Parameter("padding", 4, int), Parameter("padding_mode", names=PADDING_MODES), _FILL),
        _padded,
        "****.fff",
    ),
    "crop": Kind(
        GEOMETRY,
        _crop,
        tuple(Parameter(edge, read=int) for edge in ("left", "top", "width", "height")),
        _cropped,
        "****",
    ),
    "hflip": Kind(GEOMETRY, _hflip),
    "vflip": Kind(GEOMETRY, _vflip),
    "resize": Kind(GEOMETRY, _resize, (Parameter("size", 2, int), _INTERPOLATION), _resized, "**r"),
    "mix_begin": Kind(MIX, None, (_WEIGHT,)),
    "mix_add": Kind(MIX, None, (_WEIGHT,)),
    "mix_blend": Kind(MIX, None, (_FACTOR,)),
    "mix_end": Kind(MIX, None, (_FACTOR,)),
}
OF_MIX = tuple(name for name, kind in OPERATIONS.items() if kind.effect == MIX)


# ---- What follows from the rows.


# The longest edge, and the most pixels, of what an operation makes: kMaxImageEdge and kMaxMadePixels.
_MOST_EDGE, _MOST_PIXELS = 1 << 24, 178956970


def size_after(operation: Operation, size: Size) -> Size:
    """Returns the (height, width) that the operation makes of a picture of this size.

    Raises:
        ValueError: if that is no picture, or one that is too large.
    """
    name, numbers = operation
    known = OPERATIONS[name].size_after
    if known is None:
        return size
    height, width = made = known(numbers, size)
    if min(made) < 1 or max(made) > _MOST_EDGE or height * width > _MOST_PIXELS:
        raise ValueError(f"{name} would make a picture of {width} x {height} pixels")
    return made


class Following(NamedTuple):
    """How a picture follows another one of its sample, its lead: everything that is drawn for the lead
    is done to it.

    ``factor``: how many times longer its edges are. ``resampling``: Pillow's number, or `TORCH_NEAREST`,
    in place of what the lead's transform says; None keeps that. ``mask``: its values are indices, which
    only move; ``wide``: they have 16 bits; ``classes``: what stands for each index, or nothing.
    """

    factor: int = 1
    resampling: int | None = None
    mask: bool = False
    wide: bool = False
    classes: tuple[int, ...] = ()

    def follow(self, operation: Operation) -> Operation | None:
        """Returns the operation that does to the follower what ``operation`` does to the lead; None if
        that is nothing.

        Raises:
            ValueError: where no operation does.
        """
        name, numbers = operation
        kind = OPERATIONS[name]
        if self.mask:
            if kind.effect == COLOUR:
                return None
            # torchvision warps masks by grid_sample, whose places are others.
            if name in WARPS or kind.effect == MIX:
                raise ValueError(f"{name} of a mask")
        if name == "rotate" and self.factor != 1 and numbers[2]:
            raise ValueError("rotate with expand=True of a picture beside one of another size")
        pattern = kind.following
        if len(numbers) < len(pattern):
            pattern = pattern.replace("?", "")
        made, fills = list(numbers), 0
        for place, what in enumerate(pattern):
            if what in "*?":
                made[place] *= self.factor
            elif what == "/":
                made[place] /= self.factor
            elif what == "r" and self.resampling is not None:
                made[place] = float(self.resampling)
            elif what == "f":
                # The upper bits of an index are in green.
                made[place] = 0.0 if self.mask and fills else made[place]
                fills += 1
        return name, made


# The operations that fetch pixels from between others.
WARPS = ("affine", "perspective", "rotate")


def apply_operation(image: Any, name: str, numbers: Numbers) -> Any:
    """Applies the operation, which is none of a mix, to a Pillow picture."""
    pillow = OPERATIONS[name].pillow
    assert pillow is not None
    return pillow(image, numbers)


NamedOperation = tuple[str, dict[str, Any]]  # its name, and its parameters by their names


def named(operation: Operation) -> NamedOperation:
    """Returns an operation with its parameters by name."""
    name, numbers = operation
    kind = OPERATIONS[name]
    lacking = kind.most - len(numbers)
    found: dict[str, Any] = {}
    at = 0
    for parameter in kind.parameters:
        count = parameter.least if lacking else parameter.length
        if count:
            found[parameter.name] = parameter.value(numbers[at : at + count])
        at += count
    return name, found


def unnamed(name: str, parameters: Mapping[str, Any]) -> Operation:
    """Returns the operation that `named` gave.

    Raises:
        ValueError: for an operation or a parameter that there is not.
        KeyError: for a parameter that is missing.
    """
    if name not in OPERATIONS:
        raise ValueError(f"there is no step {name!r}; there are {', '.join(OPERATIONS)}")
    known = [parameter.name for parameter in OPERATIONS[name].parameters]
    unknown = [parameter for parameter in parameters if parameter not in known]
    if unknown:
        raise ValueError(f"{name} has no parameter {unknown[0]!r}; it has {known}")
    numbers: list[float] = []
    for parameter in OPERATIONS[name].parameters:
        if parameter.optional and parameter.name not in parameters:
            continue
        value = parameters[parameter.name]
        values = parameter.numbers(value)
        if len(values) != parameter.length:
            raise ValueError(
                f"{name}: {parameter.name} takes {parameter.length} numbers, not {value!r}"
            )
        numbers += values
    return name, numbers


# ---- A picture that operations are done to by Pillow, and what they keep from one to the next.


class Canvas:
    """Applies operations to a Pillow picture, one after the other.

    Attributes: ``picture``, as it is now.
    """

    def __init__(self, picture: Any) -> None:
        self.picture = picture
        self._kept: Any = None  # the picture with which a mix began
        self._sum = np.zeros(0, np.float32)  # for each of its values, what the mix has come to

    def size(self) -> Size:
        """Returns the picture's height and width."""
        width, height = self.picture.size
        return height, width

    def apply(self, name: str, numbers: Sequence[float]) -> None:
        """Applies an operation.

        Raises:
            ValueError: for an operation of a mix that has not begun, or that pictures of another size
                are in.
        """
        if name not in OF_MIX:
            self.picture = apply_operation(self.picture, name, numbers)
        elif name == "mix_begin":
            self._begin(*numbers)
        else:
            self._check(name)
            self._go_on(name, *numbers)

    def _begin(self, weight: float) -> None:
        if self._kept is not None:
            raise ValueError("mix_begin within a mix")
        self._kept = self.picture
        self._sum = np.float32(weight) * self._values()

    def _check(self, name: str) -> None:
        if self._kept is None:
            raise ValueError(f"{name} without mix_begin before it")
        if self._kept.size != self.picture.size:
            raise ValueError(
                f"{name}: a picture of {self.picture.size} pixels in a mix of {self._kept.size}"
            )

    def _go_on(self, name: str, number: float) -> None:
        if name == "mix_add":
            self._sum += np.float32(number) * self._values()
        elif name == "mix_blend":
            with np.errstate(over="ignore"):
                self._sum += np.float32(number) * (self._values() - self._sum)
            self._sum = self._bytes().astype(np.float32)
        else:
            module = _pillow.image_module()
            mixed = module.fromarray(self._bytes(), self._kept.mode)
            self.picture = module.blend(self._kept, mixed, number)
            self._kept = None
            return
        self.picture = self._kept

    def _values(self) -> Any:
        return np.asarray(self.picture, dtype=np.float32)

    def _bytes(self) -> Any:
        return np.clip(self._sum, 0, 255).astype(np.uint8)
