"""Pictures of the native path come in torch's order in every epoch, not only in the first; and the one
case where they cannot is told wherever the order is promised."""

import pytest
import torch
from torch.utils.data import DataLoader

from fastloader import FastLoader
from support import PACKAGE_ROOT

pytestmark = pytest.mark.covering


def orders(kind, dataset, **options):
    """The labels, which are the samples' indices, of three epochs."""
    torch.manual_seed(9)
    loader = kind(dataset, 4, shuffle=True, **options)
    return [torch.cat([labels for _, labels in loader]).tolist() for _ in range(3)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("own", [False, True], ids=["", "generator"])
@pytest.mark.parametrize("chain", ["whole", "crops"])
def test_three_epochs_in_torchs_order(request, device, chain, own, workers):
    dataset = request.getfixturevalue(chain)
    if chain == "crops" and not own and not workers:
        pytest.skip("the one exception, below")

    def observe(kind, **options):
        given = torch.Generator().manual_seed(5) if own else None
        return orders(kind, dataset, num_workers=workers, generator=given, **options)

    wanted = observe(DataLoader)
    assert wanted[0] != wanted[1] != wanted[2]
    assert observe(FastLoader, **device) == wanted


def test_the_one_exception_to_the_order(crops, device):
    """Whoever draws the crops from torch's global generator gets another order in the second epoch."""
    ours, theirs = orders(FastLoader, crops, **device), orders(DataLoader, crops)
    assert ours[0] == theirs[0]
    assert ours[1] != theirs[1] and ours[2] != theirs[2]
    assert orders(FastLoader, crops, native=False, **device) == theirs
    promises = (
        PACKAGE_ROOT.joinpath("README.md").read_text(),
        PACKAGE_ROOT.joinpath("docs", "migrating.md").read_text(),
        FastLoader.__doc__,
    )
    for text in promises:
        said = " ".join(text.replace("`", "").split())
        assert "order of samples" in said
        assert (
            "One exception: with num_workers=0, random transforms and no generator=, natively decoded "
            "pictures come in another order from the second epoch on" in said
        )
