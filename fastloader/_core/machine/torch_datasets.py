"""torch's datasets that are made of other datasets, and the classes that derive from them without a
change."""

from __future__ import annotations

from typing import Any

from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset

from fastloader._core.machine import identity
from fastloader._core.machine.identity import Rows

_KINDS = Rows[type]({each: each for each in (ConcatDataset, StackDataset, Subset, TensorDataset)})


def kind_of(dataset: Any) -> type | None:
    """Returns which of torch's Subset, ConcatDataset, StackDataset and TensorDataset the dataset is: by
    its class, or by one that derives from it and has nothing of its own that matters. None for any other
    dataset."""
    kind = _KINDS.known(type(dataset))
    if kind is None or kind is type(dataset) or not identity.change(type(dataset), kind):
        return kind
    return None
