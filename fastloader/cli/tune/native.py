"""What of a loader runs natively, and what keeps the rest from it."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastloader import FastLoader
from fastloader._core.sources.images.recognize import first_part, holds_images, recognize_images
from fastloader.errors import NotNative
from fastloader.transforms._chain import Chain
from fastloader.transforms._reader.chain import refused_steps, steps_of

_TAIL = ("ToTensor", "Normalize")


@dataclasses.dataclass(frozen=True)
class Native:
    """``plan``: what the loader does, in words. ``chain``: of native pictures; None if they are not.
    ``reason``: why not; empty if they are, or if other batches are native."""

    plan: str
    chain: Chain | None
    reason: str

    @classmethod
    def of(cls, loader: FastLoader[Any]) -> Native:
        plan = loader.plan()
        try:
            return cls(plan, recognize_images(loader).chain, "")
        except NotNative as refusal:
            return cls(plan, None, str(refusal) if plan.startswith("Python path") else "")

    def lines(self, dataset: Any) -> list[str]:
        """The plan and, if something is not native, what to change."""
        found = [f"the plan: {self.plan}"]
        if not self.reason:
            return found
        found.append(f"not native: {self.reason}")
        first = first_part(dataset)
        if not holds_images(first):
            found.append(
                "  to change: if its samples are pictures, return fastloader.EncodedImage(path, "
                "transform) from __getitem__: the pictures are decoded natively then"
            )
            return found
        refused, rest = refused_steps(getattr(first, "transform", None))
        found += [f"  to change: {reason}" for reason in refused]
        if refused and rest:
            found.append(
                f"  without {'it' if len(refused) == 1 else 'them'}, all is native: {rest}"
            )
        return found


def tail(dataset: Any, chain: Chain | None) -> str:
    """The package of ToTensor and Normalize, if the transform ends in these two and has nothing else
    behind the pixels; otherwise empty."""
    if chain is None or chain.mean is None or chain.erasing is not None or chain.grey:
        return ""
    steps = [*steps_of(getattr(first_part(dataset), "transform", None))][-2:]
    if tuple(type(step).__qualname__ for step in steps) != _TAIL:
        return ""
    parts = type(steps[0]).__module__.split(".")
    return ".".join(parts[: 3 if parts[2:3] == ["v2"] else 2])
