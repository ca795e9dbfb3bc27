"""How much of a dataset's transform has to be known."""

from __future__ import annotations

from typing import Any, Protocol

from fastloader.errors import NotNative
from fastloader.transforms._chain import Chain
from fastloader.transforms._reader.beginning import Beginning, read_beginning
from fastloader.transforms._reader.chain import read_chain


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
    """Samples are made in Python, of pictures with which the native path has begun."""

    def __init__(self) -> None:
        self.beginning: Beginning | None = None
        self.of_target: Any = None

    def chain(
        self, transform: Any, ours_ends_in_tensor: bool = False, of: Chain | None = None
    ) -> Chain:
        if transform is None:
            raise NotNative("the dataset has no transform: its samples are Pillow images")
        self.beginning = read_beginning(transform, ours_ends_in_tensor, of)
        return self.beginning.chain

    def target_transform(self, transform: Any) -> None:
        self.of_target = transform
