"""The checked arguments of a delivery: the device, the normalisation, the depth of a ring."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fastloader._core.handoff import DEFAULT_DEPTH
from fastloader._core.machine import devices, extension
from fastloader._core.observation.tuning import DepthRule
from fastloader.transforms._normalization import make_normalization

_MAX_DEPTH = 64


class DeliverySpec:
    """The checked arguments of a delivery. ``arguments`` holds them as they were given, so that another
    spec can be made from them.

    Raises:
        TypeError, ValueError: for arguments that cannot work.
    """

    def __init__(
        self,
        device: str | int | torch.device | None,
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
        dtype: torch.dtype | None,
        channels_last: bool,
        image_key: int | str | None,
        depth: int | str | None,
    ) -> None:
        self.arguments = (device, mean, std, dtype, channels_last, image_key, depth)
        named = devices.check_device(device)
        self.normalization = make_normalization(mean, std, dtype, channels_last, image_key)
        self.depth = _checked_depth(depth)
        self.depth_rule = DepthRule(DEFAULT_DEPTH) if depth == "auto" else None
        if extension.load() is not None and self.normalization is not None:
            # Reports a wrong FASTLOADER_FORCE_ISA now, not at the first batch.
            extension.native.active_isa()
        devices.forced_backend()  # reports a wrong FASTLOADER_BACKEND now
        self.settled = False
        self._device: torch.device | None = None
        if device is None or (named is not None and named.type == "cpu"):
            self.settle()

    def settle(self) -> None:
        """Settles the device for good, at the first ``iter()``.

        It cannot be settled earlier. A device without a number is the current one, and scripts set it
        after they have made their loaders. CUDA that was started here would be of no use in a process
        that is forked later.
        """
        if not self.settled:
            self._device = devices.resolve_device(self.arguments[0])
            self.settled = True

    @property
    def device(self) -> torch.device | None:
        """The device that batches go to. It may lack its number before the first ``iter()``."""
        if self.settled:
            return self._device
        named = devices.check_device(self.arguments[0])
        return torch.device(devices.accelerator_type() or "cpu") if named is None else named


def _checked_depth(depth: int | str | None) -> int | None:
    if depth is None or depth == "auto":
        return None
    if isinstance(depth, bool) or not isinstance(depth, int):
        raise TypeError(f"depth must be a whole number of batches, 'auto' or None, got {depth!r}")
    if not 1 <= depth <= _MAX_DEPTH:
        raise ValueError(f"depth={depth}: the ring holds 1 to {_MAX_DEPTH} batches")
    return depth
