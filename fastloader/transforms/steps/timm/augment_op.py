"""One operation of timm's policies."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastloader.transforms._recipe.number import Number, constant, constants, one_of, uniform
from fastloader.transforms._recipe.recipe import Step, apply, choice, operation, sized
from fastloader.transforms.steps.timm.magnitude import LEVELS, Magnitude

HPARAMS: Mapping[str, Any] = {"translate_const": 250, "img_mean": (128, 128, 128)}
_GREY = (128, 128, 128)
_RANDOM = (2, 3)  # bilinear, bicubic
_RESAMPLINGS = (0, 2, 3)  # of which Pillow's Image.transform takes these


@dataclasses.dataclass(frozen=True)
class AugmentOp:
    """An operation by its name in timm, done with a probability.

    ``fill`` is the colour of what comes from outside the picture, and ``resamplings`` are Pillow's
    numbers of filters, one of which is taken for each picture. ``translate_const`` (pixels) and
    ``translate_pct`` (a part of the picture's edge) are what a level of 10 moves a picture by.

    Raises:
        ValueError: for an operation that timm does not have, and for values that none can work with.
    """

    name: str
    prob: float
    magnitude: Magnitude
    fill: tuple[int, ...] = _GREY
    resamplings: tuple[int, ...] = _RANDOM
    translate_const: float | None = None
    translate_pct: float = 0.45

    def __post_init__(self) -> None:
        if self.name not in _STEPS:
            raise ValueError(f"there is no operation {self.name!r} in timm's policies")
        if len(self.fill) not in (1, 3) or not all(0 <= value <= 255 for value in self.fill):
            raise ValueError(f"img_mean={self.fill}: use a colour of 1 or 3 bytes")
        if not self.resamplings or not set(self.resamplings) <= set(_RESAMPLINGS):
            raise ValueError(
                f"interpolation={self.resamplings}: use nearest (0), bilinear (2) or bicubic (3)"
            )
        if self.translate_const is None and self.name in ("TranslateX", "TranslateY"):
            raise ValueError(f"{self.name} needs translate_const")

    def __repr__(self) -> str:
        drawn = self.magnitude
        return (
            f"AugmentOp({self.name}, p={self.prob:g}, m={drawn.level:g}, mstd={drawn.deviation:g})"
        )

    @classmethod
    def of(
        cls,
        name: str,
        prob: float = 0.5,
        magnitude: float = LEVELS,
        hparams: Mapping[str, Any] | None = None,
    ) -> AugmentOp:
        """Makes it from the arguments of timm's AugmentOp."""
        given = hparams or HPARAMS
        return cls(
            name,
            float(prob),
            Magnitude(
                float(magnitude),
                float(given.get("magnitude_std", 0)),
                float(given.get("magnitude_max") or LEVELS),
            ),
            colour(given.get("img_mean", _GREY)),
            filters(given.get("interpolation", _RANDOM)),
            given.get("translate_const"),
            given.get("translate_pct", 0.45),
        )

    @functools.cached_property
    def step(self) -> Step:
        done = _STEPS[self.name](self)
        return done if self.prob >= 1 else apply(max(0.0, self.prob), done)

    @property
    def outside(self) -> tuple[Number, ...]:
        """The resampling and the colour, which end the numbers of a warp."""
        fill = self.fill if len(self.fill) == 3 else self.fill * 3
        return *self._resampling, *constants(*fill)

    @property
    def rotation(self) -> tuple[Number, ...]:
        """The same for a rotation, which does not enlarge the picture."""
        resampling, *fill = self.outside
        return resampling, constant(0), *fill

    @property
    def _resampling(self) -> tuple[Number]:
        if len(self.resamplings) == 1:
            return (constant(self.resamplings[0]),)
        return (one_of(tuple(map(float, self.resamplings))),)


def colour(value: Any) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or not all(isinstance(each, int) for each in value):
        raise ValueError(f"img_mean={value!r}: use a colour of 1 or 3 bytes")
    return tuple(value)


def filters(value: Any) -> tuple[int, ...]:
    """The numbers of Pillow's filters, of which timm takes one for each picture."""
    return tuple(int(each) for each in (value if isinstance(value, tuple | list) else (value,)))


def _plain(name: str) -> Callable[[AugmentOp], Step]:
    return lambda op: operation(name)


def _enhanced(name: str) -> Callable[[AugmentOp], Step]:
    return lambda op: operation(name, op.magnitude.number(1.8, 0.1))


def _enhanced_more(name: str) -> Callable[[AugmentOp], Step]:
    """A level of 0 changes nothing. The factor goes up or down from 1, and down to 0.1 at least."""

    def step(op: AugmentOp) -> Step:
        if op.magnitude.most <= LEVELS:
            return operation(name, op.magnitude.number(0.9, after=1.0, either_sign=True))
        up = operation(name, op.magnitude.number(0.9, 1.0))
        return choice(up, operation(name, op.magnitude.number(-0.9, 1.0, highest=LEVELS)))

    return step


def _posterized(sign: float, after: float) -> Callable[[AugmentOp], Step]:
    """Keeps ``after`` bits and, by the level, up to 4 more or less; at least 0, and 8 at most."""
    highest = LEVELS * (2.0 if after == 0 else 1.0)
    return lambda op: operation(
        "posterize",
        op.magnitude.number(4.0 * sign, highest=highest, rounding="truncate", after=after),
    )


def _solarized(sign: float, after: float) -> Callable[[AugmentOp], Step]:
    return lambda op: operation(
        "solarize",
        op.magnitude.number(256.0 * sign, highest=LEVELS, rounding="truncate", after=after),
    )


def _solarized_add(op: AugmentOp) -> Step:
    # From the level of 11.64 on, timm adds 128 at most. 128.5 is what the truncation makes that of.
    most = 128.5 / 110.0 * LEVELS
    return operation(
        "solarize_add",
        op.magnitude.number(110.0, highest=most, rounding="truncate"),
        constant(128),
    )


def _warped(
    place: int, times: Callable[[AugmentOp], float], unit: str = "one"
) -> Callable[[AugmentOp], Step]:
    """A coefficient of Image.transform, to one side or the other."""

    def step(op: AugmentOp) -> Step:
        coefficients = list(constants(1, 0, 0, 0, 1, 0))
        coefficients[place] = op.magnitude.number(times(op), unit=unit, either_sign=True)
        return operation("affine", *coefficients, *op.outside)

    return step


def _rotated(op: AugmentOp) -> Step:
    return operation("rotate", op.magnitude.number(30.0, either_sign=True), *op.rotation)


def _desaturated(op: AugmentOp) -> Step:
    return operation("saturation", op.magnitude.number(-0.5, 0.5, highest=LEVELS))


def _blurred(op: AugmentOp) -> Step:
    share = op.magnitude.number(1.0, highest=LEVELS)
    return sized("blur_between", *constants(0.1, 2.0), share)


def _blurred_at_random(op: AugmentOp) -> Step:
    to = op.magnitude.number(2.0, highest=LEVELS)
    return sized("blur_between", constant(0.1), to, uniform(0, 1))


def _shear(_op: AugmentOp) -> float:
    return 0.3


def _part(op: AugmentOp) -> float:
    return op.translate_pct


def _pixels(op: AugmentOp) -> float:
    return float(op.translate_const or 0)


# What timm's NAME_TO_OP does with the numbers of its LEVEL_TO_ARG.
_STEPS: dict[str, Callable[[AugmentOp], Step]] = {
    "AutoContrast": _plain("autocontrast"),
    "Equalize": _plain("equalize"),
    "Invert": _plain("invert"),
    "Rotate": _rotated,
    "Posterize": _posterized(1.0, 0.0),
    "PosterizeIncreasing": _posterized(-1.0, 4.0),
    "PosterizeOriginal": _posterized(1.0, 4.0),
    "Solarize": _solarized(1.0, 0.0),
    "SolarizeIncreasing": _solarized(-1.0, 256.0),
    "SolarizeAdd": _solarized_add,
    "Color": _enhanced("saturation"),
    "ColorIncreasing": _enhanced_more("saturation"),
    "Contrast": _enhanced("contrast"),
    "ContrastIncreasing": _enhanced_more("contrast"),
    "Brightness": _enhanced("brightness"),
    "BrightnessIncreasing": _enhanced_more("brightness"),
    "Sharpness": _enhanced("sharpness"),
    "SharpnessIncreasing": _enhanced_more("sharpness"),
    "ShearX": _warped(1, _shear),
    "ShearY": _warped(3, _shear),
    "TranslateX": _warped(2, _pixels),
    "TranslateY": _warped(5, _pixels),
    "TranslateXRel": _warped(2, _part, "width"),
    "TranslateYRel": _warped(5, _part, "height"),
    "Desaturate": _desaturated,
    "GaussianBlur": _blurred,
    "GaussianBlurRand": _blurred_at_random,
}
