"""A chain of ours on a Pillow image, as the loader ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastloader import transforms
from fastloader.errors import NotNative
from fastloader.transforms._chain_reader import normalization_of, steps_of


def as_tensor_chain(transform: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``transform``, if it is a chain of ours with the end that it has in a batch: PILToTensor behind an
    image; ToTensor and Normalize in one step, rounded as the loader rounds."""
    steps = list(steps_of(transform))
    if any(type(step).__module__ != transforms.__name__ for step in steps):
        return transform
    tensors = (transforms.ToTensor, transforms.PILToTensor, transforms.Normalize)
    geometric = [step for step in steps if type(step) not in tensors]
    end = steps[len(geometric) :]
    if not end:
        return transforms.Compose([*steps, transforms.PILToTensor()])
    kinds = [type(step) for step in end]
    if kinds not in ([transforms.ToTensor], [transforms.ToTensor, transforms.Normalize]):
        return transform
    try:
        normalization = normalization_of(end[1] if len(end) == 2 else None)
    except NotNative:
        return transform

    def floats(image: Any) -> Any:
        pixels = transforms.PILToTensor()(image)[None]
        out = normalization.output(pixels.shape, pixels.device)
        return normalization.apply(pixels, out)[0]

    return transforms.Compose([*geometric, floats])
