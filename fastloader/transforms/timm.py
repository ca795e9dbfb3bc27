"""timm's augmentations: AutoAugment, RandAugment and AugMix by their strings, their operations, and
its geometry."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastloader.errors import NotNative
from fastloader.transforms import CenterCrop, _arguments
from fastloader.transforms._pillow import image_module
from fastloader.transforms._recipe import sized as geometry
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.operations import PADDING_MODES, Size
from fastloader.transforms._recipe.recipe import (
    Number,
    Step,
    apply,
    choice,
    constant,
    constants,
    first,
    mix,
    one_of,
    operation,
    sized,
    some,
    together,
    uniform,
)
from fastloader.transforms.transform import RecipeTransform

# ---- How strong an operation of timm's policies is: its level, from 0 to 10 or more.


LEVELS = 10.0  # timm's `_LEVEL_DENOM`: the level that the functions of levels call 1


@dataclasses.dataclass(frozen=True)
class Magnitude:
    """A level that is drawn from a normal distribution and kept between 0 and ``most``.

    A ``deviation`` of infinity stands for a uniform distribution from 0 to ``level``, and one of 0 for
    ``level`` itself.
    """

    level: float
    deviation: float = 0.0
    most: float = LEVELS

    def number(
        self, times: float, plus: float = 0.0, *, highest: float = math.inf, **options: Any
    ) -> Number:
        """Returns ``plus + times * level / 10``. A level above ``highest`` counts as ``highest``.
        ``options`` are further ones of `Number`."""
        high = max(0.0, min(self.most, highest))
        if not self.deviation > 0:
            # In timm's order of operations, so that truncation gives the same integers.
            level = max(0.0, min(self.level, high))
            return Number(a=plus + times * (level / LEVELS), **options)
        how = {"low": 0.0, "high": high, "scale": times / LEVELS, "offset": plus, **options}
        if self.deviation == math.inf:
            return Number("uniform", min(0.0, self.level), max(0.0, self.level), **how)
        return Number("normal", float(self.level), float(self.deviation), **how)


HPARAMS: Mapping[str, Any] = {"translate_const": 250, "img_mean": (128, 128, 128)}
# ---- One operation of timm's policies.


_GREY = (128, 128, 128)
_RANDOM = (2, 3)  # bilinear, bicubic
_RESAMPLINGS = (0, 2, 3)  # of which Pillow's Image.transform takes these


@dataclasses.dataclass(frozen=True)
class AugmentOp:
    """An operation by its name in timm, applied with a probability.

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
        if self.name not in AUGMENT_KINDS:
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
        done = AUGMENT_KINDS[self.name].step(self)
        return done if self.prob >= 1 else apply(max(0.0, self.prob), done)

    @property
    def outside(self) -> tuple[Number, ...]:
        """The resampling and the colour, which are the last numbers of a warp."""
        fill = self.fill if len(self.fill) == 3 else self.fill * 3
        return *self._resampling, *constants(*fill)

    @property
    def rotation(self) -> tuple[Number, ...]:
        """The last numbers of a rotation, which does not enlarge the picture."""
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
    """Returns the numbers of Pillow's filters, of which timm takes one for each picture."""
    return tuple(int(each) for each in (value if isinstance(value, tuple | list) else (value,)))


def _plain(name: str) -> Callable[[AugmentOp], Step]:
    return lambda op: operation(name)


def _enhanced(name: str) -> Callable[[AugmentOp], Step]:
    return lambda op: operation(name, op.magnitude.number(1.8, 0.1))


def _enhanced_more(name: str) -> Callable[[AugmentOp], Step]:
    """Makes the step of an enhancement by a factor that goes up or down from 1, and down to 0.1 at
    least. A level of 0 changes nothing."""

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
    """Makes the step of a warp that moves one coefficient of Image.transform, to one side or the
    other."""

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


Level = tuple[Any, ...]  # the name of a function of levels, and the arguments that are bound to it


def _level(name: str, **bound: float) -> Level:
    return (f"_{name}_level_to_arg", *sorted(bound.items()))


class AugmentKind(NamedTuple):
    """The row of one of timm's operations. ``step`` makes our step of it. timm does the same if
    ``function``, in its NAME_TO_OP, gets what ``level``, in its LEVEL_TO_ARG, makes of their levels."""

    step: Callable[[AugmentOp], Step]
    function: str
    level: Level | None = None


AUGMENT_KINDS: dict[str, AugmentKind] = {
    "AutoContrast": AugmentKind(_plain("autocontrast"), "auto_contrast"),
    "Equalize": AugmentKind(_plain("equalize"), "equalize"),
    "Invert": AugmentKind(_plain("invert"), "invert"),
    "Rotate": AugmentKind(_rotated, "rotate", _level("rotate")),
    "Posterize": AugmentKind(_posterized(1.0, 0.0), "posterize", _level("posterize")),
    "PosterizeIncreasing": AugmentKind(
        _posterized(-1.0, 4.0), "posterize", _level("posterize_increasing")
    ),
    "PosterizeOriginal": AugmentKind(
        _posterized(1.0, 4.0), "posterize", _level("posterize_original")
    ),
    "Solarize": AugmentKind(_solarized(1.0, 0.0), "solarize", _level("solarize")),
    "SolarizeIncreasing": AugmentKind(
        _solarized(-1.0, 256.0), "solarize", _level("solarize_increasing")
    ),
    "SolarizeAdd": AugmentKind(_solarized_add, "solarize_add", _level("solarize_add")),
    "Color": AugmentKind(_enhanced("saturation"), "color", _level("enhance")),
    "ColorIncreasing": AugmentKind(
        _enhanced_more("saturation"), "color", _level("enhance_increasing")
    ),
    "Contrast": AugmentKind(_enhanced("contrast"), "contrast", _level("enhance")),
    "ContrastIncreasing": AugmentKind(
        _enhanced_more("contrast"), "contrast", _level("enhance_increasing")
    ),
    "Brightness": AugmentKind(_enhanced("brightness"), "brightness", _level("enhance")),
    "BrightnessIncreasing": AugmentKind(
        _enhanced_more("brightness"), "brightness", _level("enhance_increasing")
    ),
    "Sharpness": AugmentKind(_enhanced("sharpness"), "sharpness", _level("enhance")),
    "SharpnessIncreasing": AugmentKind(
        _enhanced_more("sharpness"), "sharpness", _level("enhance_increasing")
    ),
    "ShearX": AugmentKind(_warped(1, _shear), "shear_x", _level("shear")),
    "ShearY": AugmentKind(_warped(3, _shear), "shear_y", _level("shear")),
    "TranslateX": AugmentKind(_warped(2, _pixels), "translate_x_abs", _level("translate_abs")),
    "TranslateY": AugmentKind(_warped(5, _pixels), "translate_y_abs", _level("translate_abs")),
    "TranslateXRel": AugmentKind(
        _warped(2, _part, "width"), "translate_x_rel", _level("translate_rel")
    ),
    "TranslateYRel": AugmentKind(
        _warped(5, _part, "height"), "translate_y_rel", _level("translate_rel")
    ),
    "Desaturate": AugmentKind(
        _desaturated, "desaturate", _level("minmax", min_val=0.5, max_val=1.0)
    ),
    "GaussianBlur": AugmentKind(
        _blurred, "gaussian_blur", _level("minmax", min_val=0.1, max_val=2.0)
    ),
    "GaussianBlurRand": AugmentKind(_blurred_at_random, "gaussian_blur_rand", _level("minmax")),
}


# ---- The strings by which timm's augmentations are configured: "rand-m9-mstd0.5-inc1".


def sections(config: str, known: Mapping[str, type]) -> Iterator[tuple[str, float]]:
    """Splits the parts behind the first one into names and numbers. A part without digits says nothing,
    as in timm.

    Raises:
        ValueError: for an unknown name, and for digits that are no number of the ``known`` type.
    """
    for part in config.split("-")[1:]:
        name, *digits = re.split(r"(\d.*)", part)
        if not digits:
            continue
        if name not in known:
            raise ValueError(
                f"{config!r}: unknown part {part!r}; use one of {', '.join(known)} and a number"
            )
        try:
            yield name, known[name](digits[0])
        except ValueError:
            raise ValueError(f"{config!r}: {digits[0]!r} is no {known[name].__name__}") from None


# ---- timm's AugMix.


_NAMES = (
    "AutoContrast", "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing",
    "SharpnessIncreasing", "Equalize", "Rotate", "PosterizeIncreasing", "SolarizeIncreasing",
    "ShearX", "ShearY", "TranslateXRel", "TranslateYRel",
)  # fmt: skip
_AUG_MIX_PARTS = {"mstd": float, "m": int, "w": int, "d": int, "a": float, "b": int}
_DRAWN_DEPTH = 3  # the most that is drawn


class AugMixAugment(RecipeTransform):
    """Mixes the picture with what ``width`` chains of operations make of it, by weights that are drawn.

    A chain has ``depth`` operations, or 1 to 3 if that is below 1. ``blended`` mixes by one blend of two
    pictures after the other, each of which rounds to bytes, where timm otherwise adds up in floats.

    Raises:
        TypeError: for a width or depth that is no int.
        ValueError: for no operations or no chains, more of them than a recipe holds, and an ``alpha``
            that is not from 1e-9 to 1e9.
    """

    def __init__(
        self,
        ops: Sequence[AugmentOp],
        alpha: float = 1.0,
        width: int = 3,
        depth: int = -1,
        blended: bool = False,
    ) -> None:
        self.ops = list(ops)
        self.alpha = float(alpha)
        self.width = width
        self.depth = depth
        self.blended = blended
        drawn = choice(*(op.step for op in self.ops))
        if not 0 < width * max(depth, 1) <= 4096:
            raise ValueError(
                f"width={width}, depth={depth}: use one chain or more, and no more than 4096"
            )
        chain = together(*[drawn] * depth) if depth > 0 else first(*[drawn] * _DRAWN_DEPTH)
        self._step = mix("blends" if blended else "blend", self.alpha, *[chain] * width)

    def step(self, size: Size | None) -> Step:
        return self._step

    def __repr__(self) -> str:
        return (
            f"AugMixAugment(alpha={self.alpha:g}, width={self.width}, depth={self.depth}, "
            f"ops={self.ops}{', blended=True' if self.blended else ''})"
        )


def augment_and_mix_transform(
    config_str: str, hparams: Mapping[str, Any] | None = None
) -> AugMixAugment:
    """Makes an `AugMixAugment` from a string such as "augmix-m5-w4-d2", as timm's function does.

    Args:
        config_str: "augmix" and, in any order, "m" (level, 3 by default), "w" (chains, 3), "d"
            (operations of each, 1 to 3 by default), "a" (alpha, 1), "b1" (blended) and "mstd" (standard
            deviation of the level, which is uniform from 0 to "m" by default).
        hparams: timm's: translate_const, translate_pct, img_mean, interpolation, magnitude_std and
            magnitude_max. They win over the string.

    Raises:
        ValueError: for a string that timm does not know either.
    """
    if config_str.split("-")[0] != "augmix":
        raise ValueError(f"{config_str!r} does not begin with 'augmix'")
    options = dict(hparams or HPARAMS)
    found: dict[str, float] = {"m": 3, "w": 3, "d": -1, "a": 1.0, "b": 0}
    for name, value in sections(config_str, _AUG_MIX_PARTS):
        if name == "mstd":
            options.setdefault("magnitude_std", value)
        else:
            found[name] = value
    options.setdefault("magnitude_std", math.inf)
    ops = [AugmentOp.of(name, 1.0, found["m"], options) for name in _NAMES]
    return AugMixAugment(
        ops, found["a"], int(found["w"]), int(found["d"]), blended=bool(found["b"])
    )


# ---- The policies of AutoAugment, as timm has them: pairs of (operation, probability, level).


Entry = tuple[str, float, int]
Policy = list[list[Entry]]

# That of TPU EfficientNet.
_V0: Policy = [
    [("Equalize", 0.8, 1), ("ShearY", 0.8, 4)],
    [("Color", 0.4, 9), ("Equalize", 0.6, 3)],
    [("Color", 0.4, 1), ("Rotate", 0.6, 8)],
    [("Solarize", 0.8, 3), ("Equalize", 0.4, 7)],
    [("Solarize", 0.4, 2), ("Solarize", 0.6, 2)],
    [("Color", 0.2, 0), ("Equalize", 0.8, 8)],
    [("Equalize", 0.4, 8), ("SolarizeAdd", 0.8, 3)],
    [("ShearX", 0.2, 9), ("Rotate", 0.6, 8)],
    [("Color", 0.6, 1), ("Equalize", 1.0, 2)],
    [("Invert", 0.4, 9), ("Rotate", 0.6, 0)],
    [("Equalize", 1.0, 9), ("ShearY", 0.6, 3)],
    [("Color", 0.4, 7), ("Equalize", 0.6, 0)],
    [("Posterize", 0.4, 6), ("AutoContrast", 0.4, 7)],
    [("Solarize", 0.6, 8), ("Color", 0.6, 9)],
    [("Solarize", 0.2, 4), ("Rotate", 0.8, 9)],
    [("Rotate", 1.0, 7), ("TranslateYRel", 0.8, 9)],
    [("ShearX", 0.0, 0), ("Solarize", 0.8, 4)],
    [("ShearY", 0.8, 0), ("Color", 0.6, 4)],
    [("Color", 1.0, 0), ("Rotate", 0.6, 2)],
    [("Equalize", 0.8, 4), ("Equalize", 0.0, 8)],
    [("Equalize", 1.0, 4), ("AutoContrast", 0.6, 2)],
    [("ShearY", 0.4, 7), ("SolarizeAdd", 0.6, 7)],
    [("Posterize", 0.8, 2), ("Solarize", 0.6, 10)],
    [("Solarize", 0.6, 8), ("Equalize", 0.6, 1)],
    [("Color", 0.8, 6), ("Rotate", 0.4, 5)],
]

# That of https://arxiv.org/abs/1805.09501 for ImageNet.
_ORIGINAL: Policy = [
    [("PosterizeOriginal", 0.4, 8), ("Rotate", 0.6, 9)],
    [("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)],
    [("Equalize", 0.8, 8), ("Equalize", 0.6, 3)],
    [("PosterizeOriginal", 0.6, 7), ("PosterizeOriginal", 0.6, 6)],
    [("Equalize", 0.4, 7), ("Solarize", 0.2, 4)],
    [("Equalize", 0.4, 4), ("Rotate", 0.8, 8)],
    [("Solarize", 0.6, 3), ("Equalize", 0.6, 7)],
    [("PosterizeOriginal", 0.8, 5), ("Equalize", 1.0, 2)],
    [("Rotate", 0.2, 3), ("Solarize", 0.6, 8)],
    [("Equalize", 0.6, 8), ("PosterizeOriginal", 0.4, 6)],
    [("Rotate", 0.8, 8), ("Color", 0.4, 0)],
    [("Rotate", 0.4, 9), ("Equalize", 0.6, 2)],
    [("Equalize", 0.0, 7), ("Equalize", 0.8, 8)],
    [("Invert", 0.6, 4), ("Equalize", 1.0, 8)],
    [("Color", 0.6, 4), ("Contrast", 1.0, 8)],
    [("Rotate", 0.8, 8), ("Color", 1.0, 2)],
    [("Color", 0.8, 8), ("Solarize", 0.8, 7)],
    [("Sharpness", 0.4, 7), ("Invert", 0.6, 8)],
    [("ShearX", 0.6, 5), ("Equalize", 1.0, 9)],
    [("Color", 0.4, 0), ("Equalize", 0.6, 3)],
    [("Equalize", 0.4, 7), ("Solarize", 0.2, 4)],
    [("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)],
    [("Invert", 0.6, 4), ("Equalize", 1.0, 8)],
    [("Color", 0.6, 4), ("Contrast", 1.0, 8)],
    [("Equalize", 0.8, 8), ("Equalize", 0.6, 3)],
]

# 3-Augment, of https://arxiv.org/abs/2204.07118.
_THREE_AUGMENT_POLICY: Policy = [
    [("Solarize", 1.0, 5)],
    [("Desaturate", 1.0, 10)],
    [("GaussianBlurRand", 1.0, 10)],
]


def _increasing(policy: Policy, name: str) -> Policy:
    """Returns the policy with the posterisation of Google's research code, which grows with the
    level."""
    return [
        [("PosterizeIncreasing" if each == name else each, p, level) for each, p, level in pair]
        for pair in policy
    ]


POLICIES: dict[str, Policy] = {
    "original": _ORIGINAL,
    "originalr": _increasing(_ORIGINAL, "PosterizeOriginal"),
    "v0": _V0,
    "v0r": _increasing(_V0, "Posterize"),
    "3a": _THREE_AUGMENT_POLICY,
}


# ---- timm's AutoAugment.


class AutoAugment(RecipeTransform):
    """Draws one of the lists of operations for each picture, and applies its operations one after the
    other."""

    def __init__(self, policy: Sequence[Sequence[AugmentOp]]) -> None:
        self.policy = [list(ops) for ops in policy]
        self._step = choice(*(together(*(op.step for op in ops)) for ops in self.policy))

    def step(self, size: Size | None) -> Step:
        return self._step

    def __repr__(self) -> str:
        return f"AutoAugment(policy={self.policy})"


def auto_augment_transform(
    config_str: str, hparams: Mapping[str, Any] | None = None
) -> AutoAugment:
    """Makes an `AutoAugment` from a string such as "original-mstd0.5", as timm's function does.

    Args:
        config_str: The policy, which is "original", "originalr", "v0", "v0r" or "3a". "mstd" may follow,
            the standard deviation of the levels.
        hparams: timm's: translate_const, translate_pct, img_mean, interpolation, magnitude_std and
            magnitude_max. They win over the string.

    Raises:
        ValueError: for a string that timm does not know either.
    """
    name = config_str.split("-")[0]
    if name not in POLICIES:
        raise ValueError(f"{config_str!r}: unknown policy; use one of {', '.join(POLICIES)}")
    options = dict(hparams or HPARAMS)
    for _mstd, deviation in sections(config_str, {"mstd": float}):
        options.setdefault("magnitude_std", deviation)
    return AutoAugment(
        [[AugmentOp.of(*entry, hparams=options) for entry in pair] for pair in POLICIES[name]]
    )


# ---- timm's transforms that change a picture's size: scaled in shape, padded and cut.


Fill = int | Sequence[int]


class ResizeKeepRatio(RecipeTransform):
    """Resizes in shape, to cover ``size`` (height, width) or, with ``longest=1``, to fit into it.

    Args:
        size: (height, width); an int is a square.
        longest: How far the result goes from covering the size (0, the default) to fitting into it (1).
        interpolation: One of Pillow's six, default "bilinear"; or "random", which is "bilinear" or
            "bicubic" for each picture.
        random_scale_prob: The probability that the result is scaled by a factor, which is uniform in
            ``random_scale_range``.
        random_scale_area: Whether the factor is of the area that a crop of ``size`` then sees: below 1,
            the result grows. False (default): it is of the edges.
        random_aspect_prob: The probability that width / height changes by a factor, which is log-uniform
            in ``random_aspect_range``.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        longest: float = 0.0,
        interpolation: Any = "bilinear",
        random_scale_prob: float = 0.0,
        random_scale_range: tuple[float, float] = (0.85, 1.05),
        random_scale_area: bool = False,
        random_aspect_prob: float = 0.0,
        random_aspect_range: tuple[float, float] = (0.9, 1.11),
    ) -> None:
        self.size = _arguments.pair(size)
        self.longest = float(longest)
        self.interpolation = (
            "random" if interpolation == "random" else _arguments.interpolation_name(interpolation)
        )
        self.random_scale_prob = _arguments.probability(random_scale_prob)
        self.random_scale_range = _factors("random_scale_range", random_scale_range)
        self.random_scale_area = bool(random_scale_area)
        self.random_aspect_prob = _arguments.probability(random_aspect_prob)
        self.random_aspect_range = _factors("random_aspect_range", random_aspect_range)

    def step(self, size: Size | None) -> Step:
        scales = _perhaps(self.random_scale_prob, constant(1), uniform(*self.random_scale_range))
        logarithms = [math.log(edge) for edge in self.random_aspect_range]
        aspects = _perhaps(self.random_aspect_prob, constant(0), uniform(*logarithms))
        cases = [(p * q, scale, aspect) for p, scale in scales for q, aspect in aspects]
        steps = [self._resize(scale, aspect) for _weight, scale, aspect in cases]
        if len(steps) == 1:
            return steps[0]
        return choice(*steps, weights=tuple(weight for weight, *_numbers in cases))

    def size_after(self, size: Size | None) -> Size | None:
        if size is None or self.random_scale_prob or self.random_aspect_prob:
            return None
        return geometry.resized_in_shape(*size, self.size, self.longest)

    def _resize(self, scale: Number, aspect: Number) -> Step:
        return sized(
            "resize_keep_ratio",
            *constants(*self.size, self.longest),
            scale,
            constant(self.random_scale_area),
            aspect,
            one_of(tuple(_arguments.RESAMPLING[name] for name in _arguments.DRAWN_INTERPOLATIONS))
            if self.interpolation == "random"
            else constant(_arguments.RESAMPLING[self.interpolation]),
        )


def _factors(name: str, values: Sequence[float]) -> tuple[float, float]:
    return _arguments.checked_range(name, values, math.ulp(0.0))


def _perhaps(probability: float, plain: Number, drawn: Number) -> list[tuple[float, Number]]:
    """Returns the cases that are possible, each with its probability."""
    cases = [(1.0 - probability, plain), (probability, drawn)]
    return [(weight, number) for weight, number in cases if weight > 0]


class CenterCropOrPad(RecipeTransform):
    """Takes the central ``size`` (height, width) of the image, and pads an edge that is shorter.

    Args:
        size: (height, width); an int is a square.
        fill: The colour of the padding: one number for all channels, or one for each.
        padding_mode: "constant" (default) pads with ``fill``; "edge", "reflect" and "symmetric" continue
            the picture.
    """

    _drawn = 0

    def __init__(
        self, size: int | Sequence[int], fill: Fill = 0, padding_mode: str = "constant"
    ) -> None:
        self.size = _arguments.pair(size)
        self.fill = fill
        self.padding_mode = padding_mode
        if padding_mode not in PADDING_MODES:
            raise ValueError(
                f"padding_mode={padding_mode!r}: use one of {', '.join(PADDING_MODES)}"
            )

    def step(self, size: Size | None) -> Step:
        mode = PADDING_MODES.index(self.padding_mode)
        return sized(
            "crop_or_pad", *constants(*self.size, self._drawn, 1, mode, *_colour(self.fill))
        )

    @property
    def colour(self) -> tuple[int, int, int]:
        """``fill`` as three numbers."""
        return _colour(self.fill)

    def size_after(self, size: Size | None) -> Size | None:
        return self.size

    def apply(self, image: Any, draw: Draw) -> Any:
        bands = len(image.getbands())
        if self._drawn or self.padding_mode != "constant" or bands <= 3:
            return super().apply(image, draw)
        # Steps have colours of three channels, pictures may have four.
        height, width = max(self.size[0], image.height), max(self.size[1], image.width)
        fill = (self.fill,) if isinstance(self.fill, int) else tuple(self.fill)
        padded = image_module().new(
            image.mode, (width, height), fill * bands if len(fill) == 1 else fill
        )
        padded.paste(image, ((width - image.width) // 2, (height - image.height) // 2))
        return CenterCrop(self.size).apply(padded, draw)


class RandomCropOrPad(CenterCropOrPad):
    """Takes ``size`` (height, width) of the image at a random place, and pads an edge that is shorter
    at random on its two sides. The arguments are those of `CenterCropOrPad`."""

    _drawn = 1


class RandomPad(RecipeTransform):
    """Pads the image to ``input_size`` (height, width) at least, at random on the two sides. ``fill`` is
    one number for all channels, or one for each."""

    def __init__(self, input_size: Sequence[int], fill: Fill = 0) -> None:
        self.input_size = _arguments.pair(input_size)
        self.fill = fill

    def step(self, size: Size | None) -> Step:
        return sized("crop_or_pad", *constants(*self.input_size, 1, 0, 0, *_colour(self.fill)))

    def size_after(self, size: Size | None) -> Size | None:
        if size is None:
            return None
        return max(size[0], self.input_size[0]), max(size[1], self.input_size[1])


class TrimBorder(RecipeTransform):
    """Cuts ``border_size`` pixels off on all four sides."""

    def __init__(self, border_size: int) -> None:
        if border_size < 0:
            raise ValueError(f"border_size={border_size}: use 0 or more")
        self.border_size = border_size

    def step(self, size: Size | None) -> Step:
        # A border of less than nothing.
        return operation("pad", *constants(*(-self.border_size,) * 4, 0, 0, 0, 0))

    def size_after(self, size: Size | None) -> Size | None:
        return (
            None
            if size is None
            else (size[0] - 2 * self.border_size, size[1] - 2 * self.border_size)
        )


def _colour(fill: Fill) -> tuple[int, int, int]:
    """Returns ``fill`` as three numbers. For a grey picture, the first one counts."""
    values = (fill,) if isinstance(fill, int) else tuple(fill)
    if len(values) not in (1, 3) or not all(
        isinstance(each, int) and 0 <= each <= 255 for each in values
    ):
        raise NotNative(f"fill={fill!r} is no colour of 1 or 3 bytes")
    red, green, blue = values if len(values) == 3 else values * 3
    return red, green, blue


# ---- timm's RandAugment.


Weights = Mapping[str, float]

_PLAIN = (
    "AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color",
    "Contrast", "Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel",
)  # fmt: skip
_WITH_INCREASING = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")
_INCREASING = tuple(f"{name}Increasing" if name in _WITH_INCREASING else name for name in _PLAIN)
_THREE_AUGMENT = ("SolarizeIncreasing", "Desaturate", "GaussianBlur")
_WEIGHTED: Weights = {
    "Rotate": 3,
    "ShearX": 2,
    "ShearY": 2,
    "TranslateXRel": 1,
    "TranslateYRel": 1,
    "ColorIncreasing": 0.25,
    "SharpnessIncreasing": 0.25,
    "AutoContrast": 0.25,
    "SolarizeIncreasing": 0.05,
    "SolarizeAdd": 0.05,
    "ContrastIncreasing": 0.05,
    "BrightnessIncreasing": 0.05,
    "Equalize": 0.05,
    "PosterizeIncreasing": 0.05,
    "Invert": 0.05,
}
_WEIGHTED_THREE: Weights = {
    "SolarizeIncreasing": 6,
    "Desaturate": 6,
    "GaussianBlur": 6,
    "Rotate": 3,
    "ShearX": 2,
    "ShearY": 2,
    "PosterizeIncreasing": 1,
    "AutoContrast": 1,
    "ColorIncreasing": 1,
    "SharpnessIncreasing": 1,
    "ContrastIncreasing": 1,
    "BrightnessIncreasing": 1,
    "Equalize": 1,
    "Invert": 1,
}
_SETS: dict[str, Weights | Sequence[str]] = {
    "weights": _WEIGHTED,
    "3aw": _WEIGHTED_THREE,
    "3a": _THREE_AUGMENT,
}
_RAND_AUGMENT_PARTS = {"mstd": float, "mmax": int, "inc": int, "m": int, "n": int, "p": float}


class RandAugment(RecipeTransform):
    """Applies ``num_layers`` of the operations, one after the other.

    Without ``choice_weights`` each is drawn from all. With them, the operations of a picture are
    different ones, drawn by their weights.

    Raises:
        ValueError: if fewer operations than ``num_layers`` have a weight above 0.
    """

    def __init__(
        self,
        ops: Sequence[AugmentOp],
        num_layers: int = 2,
        choice_weights: Sequence[float] | None = None,
    ) -> None:
        self.ops = list(ops)
        self.num_layers = num_layers
        self.choice_weights = None
        steps = [op.step for op in self.ops]
        if num_layers < 0:
            raise ValueError(f"num_layers={num_layers}: use 0 or more")
        if choice_weights is None:
            self._step = together(*(choice(*steps) for _ in range(num_layers)))
        else:
            # numpy.random.choice draws several at a time and draws again for those that came twice. That
            # is the distribution of one after the other, each by the weights of those that are left.
            self.choice_weights = tuple(float(weight) for weight in choice_weights)
            self._step = some(num_layers, *steps, weights=self.choice_weights)

    def step(self, size: Size | None) -> Step:
        return self._step

    def __repr__(self) -> str:
        weights = "" if self.choice_weights is None else f", choice_weights={self.choice_weights}"
        return f"RandAugment(n={self.num_layers}, ops={self.ops}{weights})"


def rand_augment_transform(
    config_str: str,
    hparams: Mapping[str, Any] | None = None,
    transforms: str | Weights | Sequence[str] | None = None,
) -> RandAugment:
    """Makes a `RandAugment` from a string such as "rand-m9-n3-mstd0.5", as timm's function does.

    Args:
        config_str: "rand" and, in any order, "m" (level, 10 by default), "n" (operations for each
            picture, 2), "p" (probability of each, 0.5), "mstd" (standard deviation of the level; above
            100, the level is uniform from 0 to "m"), "mmax" (highest level, 10), "inc1" (operations
            that grow with the level) and "t" (set of operations: "weights", "3a" or "3aw").
        hparams: timm's: translate_const, translate_pct, img_mean, interpolation, magnitude_std and
            magnitude_max. They win over the string.
        transforms: The operations, also as a dict with their weights, or the name of a set. It wins over
            "t".

    Raises:
        ValueError: for a string that timm does not know either.
    """
    if config_str.split("-")[0] != "rand":
        raise ValueError(f"{config_str!r} does not begin with 'rand'")
    options = dict(hparams or HPARAMS)
    found: dict[str, float] = {"m": LEVELS, "n": 2, "p": 0.5, "inc": 0}
    parts = config_str.split("-")
    names = [part[1:] for part in parts[1:] if part.startswith("t")]
    numeric = "-".join(part for part in parts if not part.startswith("t"))
    for name, value in sections(numeric, _RAND_AUGMENT_PARTS):
        if name == "mstd":
            options.setdefault("magnitude_std", math.inf if value > 100 else value)
        elif name == "mmax":
            options.setdefault("magnitude_max", value)
        else:
            found[name] = value
    if transforms is None and names:
        transforms = names[0]
    if transforms is None or isinstance(transforms, str):
        transforms = _SETS.get(transforms or "", _INCREASING if found["inc"] else _PLAIN)
    weights = None
    if isinstance(transforms, Mapping):
        shares = np.array(list(transforms.values()))
        weights = (shares / np.sum(shares)).tolist()
    ops = [AugmentOp.of(name, found["p"], found["m"], options) for name in transforms or _PLAIN]
    return RandAugment(ops, int(found["n"]), weights)
