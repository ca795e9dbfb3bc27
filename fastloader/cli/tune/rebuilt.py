"""The FastLoader that takes a DataLoader's place."""

from __future__ import annotations

import inspect
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from fastloader import FastLoader
from fastloader.cli.tune.target import TuneError

_BY_SAMPLERS = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")


def rebuilt(plain: DataLoader[Any], **more: Any) -> FastLoader[Any]:
    """A FastLoader over the same dataset, with the constructor arguments of ``plain``, but ``more``.

    Raises:
        TuneError: for a subclass that does something of its own.
    """
    kind = type(plain)
    above = kind.__mro__[: kind.__mro__.index(DataLoader)]
    if any({"__iter__", "__init__", "_get_iterator"} & vars(each).keys() for each in above):
        raise TuneError(f"{kind.__qualname__} has an __iter__ or __init__ of its own")
    taken = inspect.signature(FastLoader.__init__).parameters
    known = inspect.signature(DataLoader.__init__).parameters
    arguments = {
        name: getattr(plain, name)
        for name in known
        if name in taken and name not in ("self", *_BY_SAMPLERS) and hasattr(plain, name)
    }
    if plain.num_workers == 0:
        arguments.pop("prefetch_factor", None)
    if plain.batch_size is None and plain.batch_sampler is not None:
        arguments["batch_sampler"] = plain.batch_sampler
    else:
        arguments["batch_size"] = plain.batch_size
        arguments["drop_last"] = plain.drop_last
        if not isinstance(plain.dataset, IterableDataset):
            arguments["sampler"] = plain.sampler
    if "num_workers" in more and not arguments.get("persistent_workers"):
        arguments.pop("persistent_workers", None)
    dataset = arguments.pop("dataset")
    return FastLoader(dataset, **{**arguments, **more})
