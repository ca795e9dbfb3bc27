"""Our chains on a Pillow image, with the end that the loader gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastloader import transforms
from fastloader.errors import NotNative
from fastloader.transforms._normalization import Normalization
from fastloader.transforms._reader.chain import normalization_of
from fastloader.transforms._reader.kinds import flat_steps, is_ours


def as_tensor_chain(transform: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns ``transform`` or, if it is a chain of ours, that chain with the end that it has in a
    batch: an image gets PILToTensor, and ToTensor and Normalize become one step that rounds as the
    loader does. What erases at the end stays there."""
    steps = flat_steps(transform)
    if any(not is_ours(step) for step in steps):
        return transform
    if steps == [transform] and isinstance(transform, transforms.Compose):
        return transform  # which does something else than its steps
    erasing: list[Any] = []
    while len(steps) > 1 and type(steps[-1]) is transforms.RandomErasing:
        erasing.insert(0, steps.pop())
    tensors = (transforms.ToTensor, transforms.PILToTensor, transforms.Normalize)
    geometric = [step for step in steps if type(step) not in tensors]
    end = steps[len(geometric) :]
    if not end and not erasing:
        return transforms.Compose([*steps, transforms.PILToTensor()])
    kinds = [type(step) for step in end]
    if kinds not in ([transforms.ToTensor], [transforms.ToTensor, transforms.Normalize]):
        return transform
    try:
        normalization = normalization_of(end[1] if len(end) == 2 else None)
    except NotNative:
        return transform

    return transforms.Compose([*geometric, _NormalizedFloats(normalization), *erasing])


class _NormalizedFloats:
    """ToTensor and Normalize in one step, which rounds as the loader does."""

    def __init__(self, normalization: Normalization) -> None:
        self._normalization = normalization

    def __call__(self, image: Any) -> Any:
        pixels = transforms.PILToTensor()(image)[None]
        return self._normalization.applied(pixels)[0]
