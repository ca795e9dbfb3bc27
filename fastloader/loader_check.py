"""``check``: says whether the loaders that a framework was given are still FastLoaders."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from fastloader.loader import FastLoader

# The attributes under which a class of a framework holds loaders, or holds what holds them.
_HOLDERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("lightning", "Trainer"): (
        "train_dataloader",
        "val_dataloaders",
        "test_dataloaders",
        "predict_dataloaders",
    ),
    ("lightning", "CombinedLoader"): ("flattened",),
    ("lightning", "_FabricDataLoader"): ("_dataloader",),
    ("accelerate", "Accelerator"): ("_dataloaders",),
    ("accelerate", "DataLoaderAdapter"): ("base_dataloader",),
    ("transformers", "Trainer"): ("callback_handler",),
    ("transformers", "CallbackHandler"): ("train_dataloader", "eval_dataloader"),
    ("ray", "_WrappedDataLoader"): ("_dataloader",),
    ("deepspeed", "DeepSpeedEngine"): ("training_dataloader",),
    ("deepspeed", "DeepSpeedDataLoader"): ("dataloader",),
    ("deepspeed", "RepeatingLoader"): ("loader",),
    ("torchtitan", "Trainer"): ("dataloader",),
    ("fastloader", "TitanLoader"): ("loader",),
    ("fastloader", "OneKeyState"): ("loader",),
    ("fastloader", "PrefetchLoader"): ("loader",),
    ("fastloader", "DevicePrefetcher"): ("iterable",),
}

# Lightning is installed under these names as well.
_SAME_PACKAGE = {"pytorch_lightning": "lightning", "lightning_fabric": "lightning"}

# What keeps FastLoader, by the package of the framework that holds a plain DataLoader.
_REMEDIES = {
    "lightning": "give trainer.fit() a FastLoader, or return one from train_dataloader()",
    "accelerate": "from fastloader.compat.accelerate import prepare; "
    "loader = prepare(loader, accelerator)",
    "transformers": "from fastloader.compat.transformers import FastTrainerMixin; "
    "class MyTrainer(FastTrainerMixin, Trainer): ...",
    "ray": 'FastLoader(..., distributed="auto", device=ray.train.torch.get_device()), '
    "without prepare_data_loader()",
    "deepspeed": 'FastLoader(..., distributed="auto") in your loop, and no training_data for '
    "deepspeed.initialize()",
    "torchtitan": "from fastloader.compat.torchtitan import TitanLoader; TitanLoader(loader)",
}
_REMEDY = "FastLoader(...) in the place of DataLoader(...)"


@dataclasses.dataclass(frozen=True)
class FoundLoader:
    """A loader that was found at ``place``. ``holders`` are the objects that hold it, the outermost
    first, each as (package, class)."""

    place: str
    holders: tuple[tuple[str, str], ...]
    loader: Any

    @property
    def kept(self) -> bool:
        return isinstance(self.loader, FastLoader)

    def __str__(self) -> str:
        name = type(self.loader).__name__
        inside = "".join(f", inside {package}'s {kind}" for package, kind in self.holders[::-1])
        if not self.kept:
            package = self.holders[0][0] if self.holders else ""
            return (
                f"{self.place}: a plain {name}{inside}, so device, mean, std and the native path are "
                f"lost\n  write   {_REMEDIES.get(package, _REMEDY)}"
            )
        loader: FastLoader[Any] = self.loader
        return (
            f"{self.place}: {name}{inside}\n"
            f"  plan    {loader._runtime.summary(loader)}\n"
            f"  order   {_order(loader)}\n"
            f"  given   {loader.stats()['batches']} batches since it was made"
        )


@dataclasses.dataclass(frozen=True, repr=False)
class LoaderCheck:
    """The result of `check`: ``print`` it. ``found`` has the loaders in use, each with its ``place``,
    ``holders`` and ``loader``. ``beside`` has the loaders that frameworks hold over the same dataset."""

    found: tuple[FoundLoader, ...]
    beside: tuple[FoundLoader, ...] = ()

    @property
    def kept(self) -> bool:
        """Whether every loader in use is a FastLoader. False if there is no loader yet."""
        return bool(self.found) and all(each.kept for each in self.found + self.beside)

    @property
    def loaders(self) -> list[FastLoader[Any]]:
        """The FastLoaders in use, for their `plan`, `report` and `state_dict`, whatever holds them."""
        return [each.loader for each in self.found if each.kept]

    def __str__(self) -> str:
        if not self.found:
            return "no loader yet: frameworks make their loaders when training begins"
        return "\n".join(map(str, self.found + self.beside))

    __repr__ = __str__


def check(thing: Any) -> LoaderCheck:
    """Finds what a framework made of your loader: ``print(fastloader.check(trainer))``.

    The result names each loader in use, says whether it is still a FastLoader and what holds it, and
    gives its plan, its share of the samples and how many batches it has given. For a plain DataLoader it
    gives the line to write. ``check(trainer).kept`` is True if all loaders are FastLoaders, and
    ``check(wrapped).loaders`` are the FastLoaders inside, whose methods a wrapper may hide.

    Args:
        thing: A trainer of Lightning, transformers or torchtitan, an Accelerator, an engine of
            DeepSpeed, a loader, what one of them made of a loader, or a list, tuple or dict of these. Of
            a FastLoader of yours, the result also has the loaders that frameworks in this process hold
            over the same dataset.

    Raises:
        TypeError: if ``thing`` is none of these.
    """
    found = _distinct(_walk(thing, _name(thing), ()))
    if not found and not isinstance(thing, list | tuple | Mapping) and not _attributes(type(thing)):
        raise TypeError(
            "check() takes a loader, a trainer, or what a framework made of a loader, got "
            f"{type(thing).__name__}"
        )
    return LoaderCheck(found, _held_elsewhere(thing) if issubclass(type(thing), FastLoader) else ())


def _walk(thing: Any, place: str, holders: tuple[tuple[str, str], ...]) -> Iterator[FoundLoader]:
    """Gives the loaders in ``thing``. A loader that holds another one is not in use by itself."""
    # Accelerate's wrappers give the class of the loader inside as their __class__.
    kind = type(thing)
    if issubclass(kind, FastLoader):
        yield FoundLoader(place, holders, thing)
    elif known := _attributes(kind):
        for key, attributes in known:
            for attribute in attributes:
                inside = getattr(thing, attribute, None)
                below = f"{place}.{attribute}" if len(attributes) > 1 else place
                yield from _walk(inside, below, (*holders, key))
    elif issubclass(kind, DataLoader):
        yield FoundLoader(place, holders, thing)
    elif isinstance(thing, Mapping):
        for key, value in thing.items():
            yield from _walk(value, f"{place}[{key!r}]", holders)
    elif isinstance(thing, list | tuple):
        for index, value in enumerate(thing):
            yield from _walk(value, f"{place}[{index}]" if len(thing) > 1 else place, holders)


def _attributes(kind: type) -> list[tuple[tuple[str, str], tuple[str, ...]]]:
    """Returns the rows of ``_HOLDERS`` for a class: the class's own, or those of the nearest base that
    has some."""
    for base in kind.__mro__:
        # A native class may have something else as its __module__.
        package = str(base.__module__).partition(".")[0]
        key = (_SAME_PACKAGE.get(package, package), base.__name__)
        if key in _HOLDERS:
            return [(key, _HOLDERS[key])]
    return []


def _distinct(found: Iterator[FoundLoader]) -> tuple[FoundLoader, ...]:
    """Returns each loader once, at the place where it was found first."""
    places: dict[int, FoundLoader] = {}
    for each in found:
        places.setdefault(id(each.loader), each)
    return tuple(places.values())


def _held_elsewhere(loader: FastLoader[Any]) -> tuple[FoundLoader, ...]:
    """Finds the loaders that frameworks hold over the same dataset. A framework that makes a loader
    again leaves no trace in the old one, so that only a look at all objects finds the new one."""
    found: list[FoundLoader] = []
    for thing in gc.get_objects():
        if _attributes(type(thing)):
            found += _walk(thing, f"held by {type(thing).__name__}", ())
    found = [
        thing
        for thing in found
        if thing.loader is not loader and getattr(thing.loader, "dataset", None) is loader.dataset
    ]
    # A trainer says more than the wrapper that it holds.
    return _distinct(iter(sorted(found, key=lambda thing: -len(thing.holders))))


def _name(thing: Any) -> str:
    return type(thing).__name__


def _order(loader: FastLoader[Any]) -> str:
    """Describes which samples the loader gives. It does not ask the loader's properties: reading them
    would decide about ``distributed="auto"``."""
    sampler = vars(loader).get("sampler")
    batch_sampler: Any = vars(loader).get("batch_sampler")
    if isinstance(sampler, DistributedSampler):
        return f"rank {sampler.rank} of {sampler.num_replicas}, by {_name(sampler)}"
    # compat.accelerate gives the batches of Accelerate's batch sampler, which has the share.
    inside: Any = getattr(batch_sampler, "batches", None)
    batch_sampler = inside if isinstance(inside, BatchSampler) else batch_sampler
    if hasattr(batch_sampler, "process_index"):
        share = f"rank {batch_sampler.process_index} of {batch_sampler.num_processes}"
        return f"{share}, by {_name(batch_sampler)}"
    if batch_sampler is not None and hasattr(batch_sampler, "sampler"):
        return f"{_name(batch_sampler)} of {_name(batch_sampler.sampler)}"
    return _name(sampler if batch_sampler is None else batch_sampler)
