"""``prepare``: a FastLoader for Accelerate."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderDispatcher, DataLoaderShard, prepare_data_loader
from accelerate.utils import broadcast_object_list
from torch.utils.data import IterableDataset

from fastloader.compat.accelerate.batches import PreparedBatches, innermost
from fastloader.compat.accelerate.prepared import (
    Account,
    FastDataLoaderDispatcher,
    FastDataLoaderShard,
    PreparedLoader,
)
from fastloader.loader import FastLoader

_KINDS: dict[type, type] = {
    DataLoaderShard: FastDataLoaderShard,
    DataLoaderDispatcher: FastDataLoaderDispatcher,
}

# What Accelerate decides, and what its plain DataLoader therefore has in place of the FastLoader's.
_DECIDED = ("dataset", "batch_size", "drop_last", "sampler", "batch_sampler", "generator")


def prepare(
    loader: FastLoader[Any],
    accelerator: Accelerator,
    device_placement: bool | None = None,
    slice_fn_for_dispatch: Callable[..., Any] | None = None,
) -> Any:
    """Does with a FastLoader what ``accelerator.prepare_data_loader`` does with a DataLoader, and keeps
    the FastLoader inside, with all its arguments::

        loader = prepare(FastLoader(dataset, 256, shuffle=True, mean=MEAN, std=STD), accelerator)
        model, optimizer = accelerator.prepare(model, optimizer)

    Accelerate decides which samples each process gets, and in which order (docs/accelerate.md has a
    table of its settings). Call it on every process. ``accelerator.prepare`` takes the result as it is.

    Args:
        loader: the loader, which stays as it was and shares its samplers with the result. If its
            ``device`` is None or "auto", batches go to the accelerator's device.
        accelerator: has the settings, and keeps the result for ``save_state`` and ``load_state``.
        device_placement: whether batches go to the accelerator's device. None (default) is the
            accelerator's own setting.
        slice_fn_for_dispatch: how a batch is cut for the processes with ``dispatch_batches``. None
            (default) is Accelerate's way.

    Returns:
        A `FastDataLoaderShard`, or a `FastDataLoaderDispatcher` with ``dispatch_batches``.

    Raises:
        TypeError: if ``loader`` is no FastLoader.
        ValueError: if ``distributed=`` or a distributed sampler deals the samples out as well; if the
            loader has no batches to deal out.
    """
    if isinstance(loader, PreparedLoader):
        return _kept(loader, accelerator)
    if not isinstance(loader, FastLoader):
        raise TypeError(
            f"prepare takes a FastLoader, got {type(loader).__name__}: give anything else to "
            "accelerator.prepare"
        )
    _refuse_second_sharding(loader)
    if loader.batch_sampler is None and not isinstance(loader.dataset, IterableDataset):
        raise ValueError(
            "Accelerate deals out batches, and this loader has none (batch_size=None): give batch_size "
            "or batch_sampler"
        )
    place = accelerator.device_placement if device_placement is None else device_placement
    config = accelerator.dataloader_config
    with warnings.catch_warnings():
        # The plain DataLoader, which starts no workers, would say it again.
        warnings.filterwarnings("ignore", "This DataLoader will create")
        decided = prepare_data_loader(
            loader,
            accelerator.device,
            num_processes=accelerator.num_processes,
            process_index=accelerator.process_index,
            split_batches=accelerator.split_batches,
            put_on_device=place,
            rng_types=accelerator.rng_types.copy(),
            dispatch_batches=accelerator.dispatch_batches,
            even_batches=accelerator.even_batches,
            slice_fn_for_dispatch=slice_fn_for_dispatch,
            use_seedable_sampler=accelerator.use_seedable_sampler,
            data_seed=config.data_seed,
            non_blocking=accelerator.non_blocking,
            # FastLoader has a state of its own, without torchdata.
            use_stateful_dataloader=False,
            torch_device_mesh=accelerator._prepare_device_mesh(),
        )
    keeps_state = config.use_stateful_dataloader
    prepared = adopt(decided, loader, accelerator, keeps_state=keeps_state)
    prepared.use_stateful_dataloader = keeps_state  # save_state asks for it
    return _kept(prepared, accelerator)


def adopt(
    decided: Any, loader: FastLoader[Any], accelerator: Accelerator, *, keeps_state: bool
) -> Any:
    """A prepared loader as Accelerate has ``decided`` it, with a copy of ``loader`` in the place of the
    plain DataLoader in there. ``keeps_state``: whether `PreparedLoader.state_dict` may be called in the
    middle of its first epoch."""
    kind = _KINDS.get(type(decided))
    if kind is None:
        raise TypeError(
            f"Accelerate makes a {type(decided).__name__} here, which takes no FastLoader: give "
            "accelerator.prepare a plain DataLoader"
        )
    plain = decided.base_dataloader
    attributes = {name: getattr(plain, name) for name in _DECIDED}
    prepared: Any = object.__new__(kind)
    vars(prepared).update(vars(decided))
    share, batches = plain.dataset, None
    if not isinstance(plain.dataset, IterableDataset):
        # Accelerate goes on to look at its own batch sampler, and to change it.
        share = prepared.batch_sampler = plain.batch_sampler
        attributes["batch_sampler"] = batches = PreparedBatches(share)
    placed = vars(decided).get("device", accelerator.device)
    base = copied(loader, device=_device(loader, placed), **attributes)
    if kind is FastDataLoaderShard and accelerator.num_processes > 1:
        _agree_on_seed(base, getattr(share, "process_index", 0))
    del vars(prepared)["iteration"]
    vars(prepared).update(
        base_dataloader=base,
        batches=batches,
        batch_size=loader.batch_size,
        account=Account(decided.iteration, keeps_state),
        _is_accelerate_prepared=True,
    )
    return prepared


def copied(loader: FastLoader[Any], **attributes: Any) -> FastLoader[Any]:
    """A copy of a FastLoader, of its own class and with its own threads, with other attributes."""
    state = {**loader.__getstate__(), "_iterator": None, **attributes}
    runtime = state["_runtime"]
    options = dataclasses.replace(runtime["options"], device=state["device"])
    state["_runtime"] = {**runtime, "options": options}
    made: FastLoader[Any] = object.__new__(type(loader))
    made.__setstate__(state)
    return made


def _device(loader: FastLoader[Any], placed: torch.device | None) -> Any:
    """Where the FastLoader takes its batches, which Accelerate then need not move. ``placed``: where
    Accelerate wants them; None if it leaves them alone."""
    if placed is None or loader.device not in (None, "auto"):
        return loader.device
    # On the CPU, batches are there already.
    return None if placed.type == "cpu" else placed


def _agree_on_seed(base: FastLoader[Any], rank: int) -> None:
    """Gives random crops one seed on all processes, so that a state of one process serves them all.
    ``rank``: the number of this process's share of the samples, whose crops are its own. Processes of
    tensor parallelism have the same share and need the same crops."""
    generator = base.generator or torch.default_generator
    seed = [generator.initial_seed()]  # not drawn, because Accelerate draws nothing here
    broadcast_object_list(seed)
    position = base._runtime.position
    position.run_seed, position.rank = seed[0], rank


def _refuse_second_sharding(loader: FastLoader[Any]) -> None:
    if loader.distributed is not None:
        raise ValueError(
            f"distributed={loader.distributed!r} deals the samples out to the processes, and so does "
            "Accelerate: leave distributed= out of a FastLoader that you prepare, or do not prepare it"
        )
    sampler = innermost(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
    # As torch's DistributedSampler calls it, and all that are written after it.
    replicas = getattr(sampler, "num_replicas", None) or 1
    if replicas > 1:
        name = type(sampler).__name__
        raise ValueError(
            f"the loader's {name} deals the samples out to {replicas} processes, and Accelerate deals "
            f"them out as well: make the {name} with num_replicas=1 and rank=0 or leave it out of a "
            "FastLoader that you prepare, or do not prepare the FastLoader"
        )


def _kept(prepared: Any, accelerator: Accelerator) -> Any:
    if not any(each is prepared for each in accelerator._dataloaders):
        accelerator._dataloaders.append(prepared)
    return prepared
