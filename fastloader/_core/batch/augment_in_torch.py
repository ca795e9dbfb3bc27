"""The augmentation kernel's work in torch operations, equal to the bit.

csrc/image/normalize/augment.h is the definition. `Records` says what is to be done.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import torch

from fastloader._core.batch.augmentation import Records
from fastloader.transforms._deviates import PER_BOX, PER_ELEMENT, deviates
from fastloader.transforms._normalization import Normalization


def apply(
    normalization: Normalization, pixels: torch.Tensor, records: Records, out: torch.Tensor
) -> torch.Tensor:
    """Normalises and augments uint8 ``pixels`` (B, C, H, W) of any strides into ``out``, (len(records),
    C, H, W), on their device."""
    augmentation = records.augmentation
    if augmentation.blends_bytes:
        if augmentation.mixing is not None:
            pixels = augment_bytes(pixels, records)
        return out.copy_(erase(normalization.apply(pixels, out), records))
    # In float32, so that images are blended before anything is rounded to the output's type.
    exact = dataclasses.replace(normalization, dtype=torch.float32)
    x = exact.applied(pixels)
    return out.copy_(augment_floats(x, records))


def augment_bytes(pixels: torch.Tensor, records: Records) -> torch.Tensor:
    """Blends a uint8 batch (B, C, H, W) on its device, and returns a new tensor of len(records) images.
    An image that is not mixed does not change."""
    n = len(records)
    own, partner = pixels[:n], pixels.index_select(0, _partners(records, pixels.device))
    own_weight, partner_weight = _weights(records, pixels.device)
    blended = torch.round(own.float() * own_weight + partner.float() * partner_weight).byte()
    whole = torch.where(own_weight == 1, own, blended)
    return torch.where(_inside(records.mix["cut"], pixels), partner, whole)


def augment_floats(x: torch.Tensor, records: Records) -> torch.Tensor:
    """Erases and, unless bytes were blended, blends a normalised batch (N, C, H, W), on its device and
    in its dtype. Returns a new tensor."""
    x = erase(x, records)
    if not records.augmentation.blends_bytes:
        own_weight, partner_weight = (each.to(x.dtype) for each in _weights(records, x.device))
        partner = x.index_select(0, _partners(records, x.device))
        blended = x * own_weight + partner * partner_weight
        x = torch.where(own_weight == 1, x, blended)
        x = torch.where(_inside(records.mix["cut"], x), partner, x)
    return x


def erase(x: torch.Tensor, records: Records) -> torch.Tensor:
    n, channels, height, width = x.shape
    fill = records.augmentation.fill
    for box in range(records.augmentation.max_boxes):
        inside = _inside(records.boxes[:, box], x)
        if fill == "zero":
            x = x.masked_fill(inside, 0.0)
        elif fill == "const":
            values = np.array(records.augmentation.values, dtype=np.float32)
            x = torch.where(inside, torch.from_numpy(values)[:, None, None].to(x), x)
        elif fill == "rand":
            image, channel = np.indices((n, channels), dtype=np.uint32)
            drawn = deviates(records.keys[image], PER_BOX, box * 4 + channel)
            x = torch.where(inside, torch.from_numpy(drawn)[..., None, None].to(x), x)
        else:
            where = inside.expand(x.shape).nonzero(as_tuple=True)
            image, channel, row, column = (each.cpu().numpy() for each in where)
            element = (channel * height + row) * width + column
            drawn = deviates(records.keys[image], PER_ELEMENT, element)
            x = x.index_put(where, torch.from_numpy(drawn).to(x))
    return x


def _partners(records: Records, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(records.mix["partner"].astype(np.int64)).to(device)


def _weights(records: Records, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    names = ("own_weight", "partner_weight")
    shape = (-1, 1, 1, 1)
    own, partner = (torch.from_numpy(records.mix[name].copy()).to(device) for name in names)
    return own.view(shape), partner.view(shape)


def _inside(boxes: npt.NDArray[np.int32], like: torch.Tensor) -> torch.Tensor:
    """Returns where each image's box is, as bool (N, 1, H, W)."""
    return _within(torch.from_numpy(np.ascontiguousarray(boxes)).to(like.device), like)


def _within(edges: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    top, bottom, left, right = edges.reshape(-1, 4, 1, 1, 1).unbind(1)
    y = torch.arange(like.shape[2], device=like.device).view(1, 1, -1, 1)
    x = torch.arange(like.shape[3], device=like.device).view(1, 1, 1, -1)
    return (y >= top) & (y < bottom) & (x >= left) & (x < right)
