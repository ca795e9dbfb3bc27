"""Loaders of compat.timm beside those of the installed timm."""

import torch

from fastloader.compat import timm as ours

TOLERANCE = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def pair(theirs, root, input_size, batch_size, **options):
    """(our loader, timm's), on the CPU."""
    device = torch.device("cpu")
    return (
        ours.create_loader(
            ours.ImageDataset(root), input_size, batch_size, device=device, **options
        ),
        theirs.create_loader(
            theirs.ImageDataset(root), input_size, batch_size, device=device, **options
        ),
    )


def assert_close(ours_loader, their_loader, dtype=torch.float32):
    assert len(ours_loader) == len(their_loader)
    count = 0
    for mine, their in zip(ours_loader, their_loader, strict=True):
        assert type(mine) is type(their)
        assert mine[0].dtype == their[0].dtype == dtype
        assert mine[0].shape == their[0].shape
        difference = (mine[0].double() - their[0].double()).abs().max().item()
        assert difference <= TOLERANCE[dtype], difference
        assert mine[1].dtype == their[1].dtype and torch.equal(mine[1], their[1])
        count += 1
    assert count
