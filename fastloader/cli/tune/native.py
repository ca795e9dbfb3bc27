"""What of a loader runs natively, and what keeps the rest from it."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.utils.data import IterableDataset

from fastloader import FastLoader
from fastloader._core.runtime.python_path_warning import native_form
from fastloader._core.sources.images.recognize import (
    first_part,
    holds_images,
    recognize_images,
    refusals,
)
from fastloader.errors import NotNative
from fastloader.transforms._chain import Chain
from fastloader.transforms._reader.chain import steps_of
from fastloader.transforms._reader.kinds import known_class

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
            found.append(f"  to change: if its samples are pictures, {_advice(first)}")
            return found
        seen = refusals(first)
        found += [f"  to change: {reason}" for reason in seen.found]
        if seen.found and seen.rest:
            found.append(
                f"  without {'it' if len(seen.found) == 1 else 'them'}, all is native: {seen.rest}"
            )
        return found


def _advice(dataset: Any) -> str:
    """What to write for a dataset that nobody knows."""
    if other := native_form(dataset):
        streamed = isinstance(dataset, IterableDataset) and "HFImages" in other
        return f"{'load it without streaming, and ' * streamed}give {other} in its place"
    if type(dataset).__module__ == "builtins":
        return "put fastloader.EncodedImage(path, transform) into them: decode threads make it then"
    where = "yield" if isinstance(dataset, IterableDataset) else "return"
    method = "__iter__" if isinstance(dataset, IterableDataset) else "__getitem__"
    return (
        f"{where} fastloader.EncodedImage(path, transform) from {method}, or the encoded bytes in the "
        "place of the path: decode threads make the pictures then"
    )


def tail(dataset: Any, chain: Chain | None) -> str:
    """The package of ToTensor and Normalize, if the transform ends in these two and has nothing else
    behind the pixels; otherwise empty."""
    if chain is None or chain.mean is None or chain.erasing is not None or chain.grey:
        return ""
    steps = [*steps_of(getattr(first_part(dataset), "transform", None))][-2:]
    known = [known_class(step) for step in steps]
    if tuple(kind.__qualname__ for kind in known if kind is not None) != _TAIL:
        return ""
    assert known[0] is not None
    parts = known[0].__module__.split(".")
    return ".".join(parts[: 3 if parts[2:3] == ["v2"] else 2])
