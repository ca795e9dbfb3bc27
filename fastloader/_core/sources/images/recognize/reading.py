"""How much of a dataset's transform has to be known."""

from __future__ import annotations

from typing import Any, Protocol

from fastloader.errors import NotNative
from fastloader.transforms._chain import Chain
from fastloader.transforms._reader.beginning import Beginning, read_beginning
from fastloader.transforms._reader.chain import read_chain, refused_steps


class Reading(Protocol):
    def chain(
        self, transform: Any, ours_ends_in_tensor: bool = False, of: Chain | None = None
    ) -> Chain:
        """What is done natively to the dataset's pictures. ``of``: a chain without a step, which says
        what is known of these. Raises NotNative if nothing is."""
        ...

    def target_transform(self, transform: Any) -> None:
        """Takes note of what the dataset does to its targets. Raises NotNative if that cannot be."""
        ...


class WholeTransform:
    """Batches are made without Python: everything has to be known."""

    def chain(
        self, transform: Any, ours_ends_in_tensor: bool = False, of: Chain | None = None
    ) -> Chain:
        if transform is None:
            raise NotNative("the dataset has no transform: its samples are Pillow images")
        return read_chain(transform, ours_ends_in_tensor, of)

    def target_transform(self, transform: Any) -> None:
        if transform is not None:
            raise NotNative("the dataset has a target_transform")


class KnownBeginning:
    """Samples are made in Python, of pictures with which the native path has begun. Takes note of the
    beginning and of the target_transform of each dataset that is read."""

    def __init__(self) -> None:
        self.beginnings: list[Beginning] = []
        self.of_targets: list[Any] = []

    def chain(
        self, transform: Any, ours_ends_in_tensor: bool = False, of: Chain | None = None
    ) -> Chain:
        if transform is None:
            raise NotNative("the dataset has no transform: its samples are Pillow images")
        beginning = read_beginning(transform, ours_ends_in_tensor, of)
        if self.beginnings and beginning.said != self.beginnings[0].said:
            raise NotNative("the datasets of a ConcatDataset have different transforms")
        self.beginnings.append(beginning)
        return beginning.chain

    def target_transform(self, transform: Any) -> None:
        self.of_targets.append(transform)


class OnlyLookedAt(NotNative):
    """Raised by `Refusals` where a transform was looked at: nothing is to be made."""


class Refusals:
    """Batches are Python's. Takes note of all that is in the way of the native path, in the first
    dataset that is read: ``found``; ``rest`` says what the transform comes to without it, as
    `refused_steps` does."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.rest = ""

    def chain(
        self, transform: Any, ours_ends_in_tensor: bool = False, of: Chain | None = None
    ) -> Chain:
        if transform is not None:
            steps, self.rest = refused_steps(transform, of)
            self.found += steps
        raise OnlyLookedAt

    def target_transform(self, transform: Any) -> None:
        if transform is not None:
            self.found.append("the dataset has a target_transform")
