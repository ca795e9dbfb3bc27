"""The operations of recipes, done by Pillow: what the native module's pixels are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fastloader.transforms import _pillow

Numbers = Sequence[float]


def apply_operation(image: Any, name: str, numbers: Numbers) -> Any:
    """What the operation makes of a Pillow picture of any mode that Pillow can do it to."""
    return _OPERATIONS[name](image, numbers)


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
    """As timm has it."""
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
    """As torchvision has it: the turn is cut to a byte before it wraps."""
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
    """As torchvision has it, which convolves tensors even for Pillow pictures."""
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
    """A colour that Pillow takes for the picture's mode."""
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
    """As torchvision has it."""
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
    return image.resize((width, height), _pillow.image_module().Resampling(resampling))


_OPERATIONS: dict[str, Callable[[Any, Numbers], Any]] = {
    "invert": _invert,
    "posterize": _posterize,
    "solarize": _solarize,
    "solarize_add": _solarize_add,
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "brightness": _brightness,
    "contrast": _contrast,
    "saturation": _saturation,
    "grayscale": _grayscale,
    "hue": _hue,
    "sharpness": _sharpness,
    "pillow_blur": _pillow_blur,
    "gaussian_blur": _gaussian_blur,
    "affine": _transform("AFFINE", 6),
    "perspective": _transform("PERSPECTIVE", 8),
    "rotate": _rotate,
    "pad": _pad,
    "crop": _crop,
    "hflip": _hflip,
    "vflip": _vflip,
    "resize": _resize,
}
