"""What ``repr()`` of a loader says."""

from __future__ import annotations

from fastloader._core.order.loader import Loader


def shown_loader(loader: Loader) -> str:
    """``FastLoader(ImageFolder of 500 samples, batch_size=64, num_workers=8: <its plan>)``. Nothing is
    decided by looking, and nothing is raised: debuggers and log messages show loaders that are half
    made, too."""
    name = type(loader).__name__
    try:
        dataset = type(loader.dataset).__name__
        if hasattr(loader.dataset, "__len__"):
            dataset += f" of {len(loader.dataset)} samples"
        said = f"{dataset}, batch_size={loader.batch_size}, num_workers={loader.num_workers}"
        sharding = loader._runtime.sharding
        if sharding is not None and not sharding.decided:  # which plan() would do
            return f"{name}({said}, distributed='auto')"
        return f"{name}({said}: {loader._runtime.plan(loader)})"
    except Exception:
        return object.__repr__(loader)
