"""How ``default_collate`` stacks tensors in an actor."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map


def stack_in_ordinary_memory() -> None:
    """Makes ``default_collate`` stack tensors in ordinary memory in this process.

    In a worker, torch stacks them in a shared memory file. Ray copies the batch from there into its own
    shared memory, and to make the file takes several times as long as to stack the tensors. What a user
    has put into torch's table stays."""
    if default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn:
        default_collate_fn_map[torch.Tensor] = _stacked


def _stacked(batch: Any, *, collate_fn_map: Any = None) -> Any:
    # torch's function decides about the rest, some of which it refuses.
    plain = all(type(each) is torch.Tensor and each.layout is torch.strided for each in batch)
    if not plain or batch[0].is_nested:
        return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return torch.stack(batch, 0)
