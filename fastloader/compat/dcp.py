"""A loader's state for ``torch.distributed.checkpoint``.

from fastloader.compat.dcp import OneKeyState
"""

from __future__ import annotations

from typing import Any

import torch

from fastloader.loader import FastLoader

__all__ = ["OneKeyState"]


class OneKeyState:
    """The state of a FastLoader, as ``torch.distributed.checkpoint`` (DCP) can save and load it::

        dcp.save({"model": model.state_dict(), "loader": OneKeyState(loader)}, checkpoint_id=path)
        ...
        dcp.load({"model": weights, "loader": OneKeyState(loader)}, checkpoint_id=path)

    DCP takes a dict apart, and loads only the keys that the object has before loading. A loader's state
    has other keys in the middle of an epoch than before it, so this class puts all of it under one key.

    If the ranks share the samples, by ``distributed=`` or torch's DistributedSampler, the key is the
    same on every rank: any number of ranks goes on with the rest of the epoch (docs/distributed.md). If
    they do not, each rank has a key of its own, and as many ranks must load as have saved: DCP raises an
    error for a key that the checkpoint lacks.

    Raises:
        TypeError: if ``loader`` is no FastLoader.
    """

    def __init__(self, loader: FastLoader[Any]) -> None:
        if not isinstance(loader, FastLoader):
            raise TypeError(f"OneKeyState takes a FastLoader, got {type(loader).__name__}")
        self.loader = loader

    def state_dict(self) -> dict[str, Any]:
        # In a tuple, because DCP takes dicts and lists apart and leaves tuples whole.
        return {self._key(): (self.loader.state_dict(),)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises ValueError if the state is another loader's, or of ranks that shared otherwise."""
        key = self._key()
        if key not in state_dict:
            raise ValueError(
                f"the state has {sorted(state_dict)} and not {key!r}: it was saved by another number of "
                "ranks, each with a state of its own, or by ranks that shared otherwise; give "
                'the loader distributed="auto" before saving to go on with any number of ranks'
            )
        (state,) = state_dict[key]
        self.loader.load_state_dict(state)

    def _key(self) -> str:
        samplers = self.loader._runtime.position.samplers
        if samplers.shared or samplers.elastic:
            return "every rank"
        group = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank = torch.distributed.get_rank() if group else 0
        return f"rank {rank} of {torch.distributed.get_world_size() if group else 1}"
