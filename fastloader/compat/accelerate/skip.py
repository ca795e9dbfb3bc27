"""``skip_first_batches``: the rest of an epoch, without reading what was received."""

from __future__ import annotations

from typing import Any

import accelerate

from fastloader.compat.accelerate.batches import PreparedBatches
from fastloader.compat.accelerate.prepare import copied
from fastloader.compat.accelerate.prepared import PreparedLoader


def skip_first_batches(dataloader: Any, num_batches: int = 0) -> Any:
    """Does as ``accelerate.skip_first_batches``, and keeps the class: the result is a prepared loader
    with a FastLoader inside, without the first ``num_batches`` steps of each epoch. Iterate it for the
    epoch that was broken off, and the loader itself for the epochs after that::

        for epoch in range(first_epoch, epochs):
            resumes = epoch == first_epoch and step > 0
            for batch in skip_first_batches(loader, step) if resumes else loader:
                ...

    The batches are skipped on the sampler, so that no sample of theirs is read. Those of an iterable
    dataset are read and dropped. The two loaders count epochs together. Any other loader than those of
    `prepare` is left to Accelerate's function.

    Args:
        dataloader: what `prepare` has returned.
        num_batches: how many steps of the loop to leave out, with ``dispatch_batches``, too, where a
            step takes a batch for every process; default 0.

    Raises ValueError for a negative number.
    """
    if not isinstance(dataloader, PreparedLoader):
        return accelerate.skip_first_batches(dataloader, num_batches)
    if num_batches < 0:
        raise ValueError(f"num_batches={num_batches}: a number of batches, 0 or more")
    skipped: Any = object.__new__(type(dataloader))
    base, batches = dataloader.base_dataloader, dataloader.batches
    vars(skipped).update(vars(dataloader))  # with the account
    if batches is None:
        skipped.skip_batches = skipped.skip_batches + num_batches
        skipped.base_dataloader = copied(base)
        return skipped
    first = batches.first + num_batches * dataloader.batches_per_step
    rest = PreparedBatches(batches.batches, first)
    skipped.batches, skipped.base_dataloader = rest, copied(base, batch_sampler=rest)
    return skipped
