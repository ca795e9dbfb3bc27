"""Makes, checks and loads a loader's state."""

from __future__ import annotations

import copy
import warnings
from typing import Any, cast

from fastloader._core.order import generators as generator_states
from fastloader._core.order.generators import is_stateful, state_of
from fastloader._core.order.loader import Loader, auto_workers
from fastloader._core.order.position import Position, plain, within_iter
from fastloader._core.order.progress import LoaderState, Progress

VERSION = 2


def state_dict(position: Position, loader: Loader) -> dict[str, Any]:
    position.asked = True
    position.take_back_looks(loader)
    progress, samplers = position.current, position.samplers
    if position.saved is not None:
        return copy.deepcopy(cast("dict[str, Any]", position.saved))
    untouched = progress.untouched() if progress is not None else None
    if untouched is not None:
        return copy.deepcopy(cast("dict[str, Any]", untouched))
    begun = progress is not None and not progress.finished
    if begun and loader.worker_backend == "thread" and is_stateful(position.dataset):
        raise ValueError(
            "worker_backend='thread': the workers are ahead in a dataset that they share, so that "
            "its own state_dict() is not of what was received; use worker processes, or "
            "num_workers=0, or save between epochs"
        )
    state: dict[str, Any] = {
        "fastloader": VERSION,
        **_identity(position),
        "epoch": position.epoch if samplers.shard is None else samplers.shard.epoch,
        "begun": begun,
        "generators": position.texts.of_states(
            generator_states.states_of(samplers.generators(loader)[1:])
        ),
        "run_seed": position.run_seed,
        "base_seed": None,
        "epoch_seed": None,
        "num_workers": int(loader.num_workers),  # "auto" gives a kind of its own
        "batch_size": loader.batch_size,
        "workers": {},
        "sampler_state": None,
        "dataset_state": None,
        "iterator_state": None,  # of the dataset's iterator
        "augmentation": _draws_state(position, loader, progress if begun else None),
    }
    if progress is not None and begun:
        _save_pass(position, progress, state)
        state["workers"] = _worker_states(progress)
    else:
        if samplers.stateful is not None:
            state["sampler_state"] = samplers.stateful.state_dict()
        if progress is not None and loader.persistent_workers:
            state["workers"] = _worker_states(progress)
            state["base_seed"] = progress.base_seed
            state["epoch_seed"] = progress.epoch_seed
    # A dataset that is its own iterator is restored as the iterator.
    own = begun and progress is not None and progress.dataset_iterator is position.dataset
    if is_stateful(position.dataset) and not state["workers"] and not own:
        state["dataset_state"] = state_of(position.dataset, position.read_here)
    return state


def _identity(position: Position) -> dict[str, Any]:
    """Returns what a state must have in common with the loader into which it is loaded."""
    samplers = position.samplers
    identity: dict[str, Any] = {"sampler": samplers.name}
    if position.iterable:
        return identity
    # try/except, because a state may be made at every batch, and contextlib.suppress would take longer
    # than all the rest.
    try:
        identity["dataset_length"] = len(position.dataset)
    except TypeError:
        pass
    if samplers.shared:
        identity["sampler_seed"] = samplers.inner.seed
        identity["shuffle"] = samplers.inner.shuffle
    elif not samplers.elastic:
        try:
            identity["sampler_length"] = len(samplers.inner)
        except TypeError:
            pass
    return identity


def _draws_state(
    position: Position, loader: Loader, progress: Progress | None
) -> dict[str, Any] | None:
    """Returns the state of erasing and mixing. ``progress``: of the epoch that goes on; None between
    epochs."""
    draws = None if progress is None else progress.draws
    if progress is not None and draws is not None:
        # With shares the rest counts from what all ranks have received.
        samples = 0 if position.samplers.shared else progress.next_draw
        if position.run_seed is None:
            return draws.state(samples)
        # With a seed that all ranks share, the state serves every rank.
        return draws.augmentation.state(samples, begun=True)
    augmentation = loader._runtime.augmentation
    return None if augmentation is None else augmentation.state()


def _worker_states(progress: Progress) -> dict[str, Any]:
    """Returns the states of the workers, or none of them if one is missing: they must be of one point of
    the epoch."""
    if not progress.unreported:
        return progress.worker_states()
    if not progress.workers_began:
        warnings.warn(
            "the dataset has a state_dict(), but its persistent workers were not asked for their "
            "states in this epoch, as nobody had asked the loader for one before: what is saved now "
            "has no states of theirs. If they matter, call state_dict() before the first epoch",
            stacklevel=5,
        )
    return {}


def _save_pass(position: Position, progress: Progress, state: dict[str, Any]) -> None:
    samplers = position.samplers
    if not progress.counted:
        raise ValueError(
            "this loader's iterator is not one of FastLoader's (its class overrides _get_iterator), "
            "so that nobody counts the batches received: state_dict() only before the first iter()"
        )
    # What this rank has not received is not what another one has not received, and a state serves all.
    dealt = samplers.shared or samplers.elastic
    if not progress.in_order and (progress.outstanding is None or dealt):
        raise ValueError(
            "with in_order=False the batches received are not the first of the epoch, and which "
            "they are is known for map datasets in worker processes, without a distributed "
            "sampler: state_dict() needs in_order=True here, or to be called between epochs"
        )
    if not progress.in_order and progress.unreported:
        raise ValueError(
            "with in_order=False the dataset cannot be read again up to here, and its workers were "
            "not asked for their states from the beginning: call state_dict() before the epoch"
        )
    randomness = progress.randomness
    behind = progress.received()
    state |= {
        "epoch": progress.epoch,
        **behind,
        "first": progress.first if behind["batches"] else None,
        "last": plain(behind["last"]),
        "base_seed": progress.base_seed,
        "epoch_seed": progress.epoch_seed,
        "randomness": None if randomness is None else randomness.to_json(position.texts),
        "next_worker": progress.next_worker,
    }
    if progress.unreported and progress.workers_began:
        # Workers that read their datasets from the beginning come to the same states.
        state["read_again"] = True
        state["next_worker"] = 0
        state["sampler_state"] = progress.first_sampler_state
    if randomness is not None and randomness.at_next is None and samplers.stateful is not None:
        state["sampler_state"] = samplers.stateful.state_dict()
    if samplers.shared:
        # All ranks count as having received the same number, so that the rest of the order can go to any
        # number of ranks. Rounded up to batches, because the last batch of one rank may be smaller than
        # that of another.
        size = 1 if samplers.batching is None else samplers.batching.batch_size
        received = -(-progress.samples // size) * size
        consumed = progress.before + received * samplers.inner.num_replicas
        state["samples"] = min(consumed, len(samplers.inner.dataset))
        state["order_epoch"] = progress.order_epoch
        if randomness is not None and randomness.at_next is None:  # nothing was drawn yet
            state["order_epoch"] = (
                samplers.inner.epoch if samplers.shard is None else progress.epoch
            )
        state["first"] = state["last"] = None  # which would be this rank's only
    if position.run_seed is not None:
        # Which would be those of this rank only.
        state["base_seed"] = state["epoch_seed"] = None
    if progress.fetcher is not None:
        # The last batch, if it is smaller, has run into the dataset's end.
        state["ended"] = progress.fetcher.ended
    if progress.dataset_iterator is not None:
        state["iterator_state"] = state_of(progress.dataset_iterator, progress.batches > 0)


def load_state_dict(position: Position, loader: Loader, state: dict[str, Any]) -> None:
    if not isinstance(state, dict):
        raise TypeError(f"a state is a dict, got {type(state).__name__}")
    if not state:
        return
    if position.beginning:
        raise within_iter("load_state_dict()")
    samplers = position.samplers
    samplers.follow(loader)
    _check(position, loader, state)
    position.asked = True
    position.saved = saved = cast(LoaderState, copy.deepcopy(state))
    if not saved["begun"] and not loader.persistent_workers:
        # Each epoch has a seed of its own here. The one of workers that lived on has had its epoch.
        saved["base_seed"] = saved["epoch_seed"] = None
    position.end_passes(
        "load_state_dict() was called after this iterator began, so its batches are not those that "
        "follow the state: call iter() on the loader"
    )
    position.current = None
    position.agree_anew()
    position.count_epoch(state["epoch"])
    position.last_seed = None if saved["begun"] else saved["epoch_seed"]
    if state["run_seed"] is not None:
        position.run_seed = state["run_seed"]
    if samplers.shared and samplers.shard is None and state.get("order_epoch") is not None:
        samplers.inner.set_epoch(state["order_epoch"])


def _check(position: Position, loader: Loader, state: dict[str, Any]) -> None:
    if "fastloader" not in state:
        raise ValueError(
            f"this is not a state of FastLoader: it has no 'fastloader' but {sorted(state)[:8]}"
        )
    if state["fastloader"] != VERSION:
        raise ValueError(
            f"the state is of version {state['fastloader']!r}, this fastloader reads {VERSION}: "
            "load it with the fastloader that saved it, or begin an epoch without it"
        )
    for name, value in _identity(position).items():
        if state.get(name) != value:
            raise ValueError(
                f"the state is of another loader: its {name} is {state.get(name)!r}, this loader's "
                f"is {value!r}"
            )
    if state["begun"] and "batches" not in state:
        raise ValueError(
            "the state is from the middle of an epoch and lacks how many 'batches' were received: "
            "torch.distributed.checkpoint loads only the keys that the object has before loading, so "
            "save and load fastloader.compat.dcp.OneKeyState(loader) in the place of the loader"
        )
    samplers = position.samplers
    generators = len(samplers.generators(loader)) - 1
    if len(state["generators"]) != generators:
        raise ValueError(
            f"the state was saved with {len(state['generators'])} generators in loader and sampler, "
            f"this loader has {generators}"
        )
    for name, thing in (("dataset_state", position.dataset), ("sampler_state", samplers.stateful)):
        if state[name] is not None and not is_stateful(thing):
            raise ValueError(
                f"the state holds a {name}, and this loader's {name.partition('_')[0]} has no "
                "load_state_dict()"
            )
    read = position.iterable and state["begun"] and state["batches"]
    if state["workers"] or read or state.get("read_again"):
        # These must be the same, because each worker has its part of the data.
        for name in ("num_workers", "batch_size"):
            if state[name] != getattr(loader, name):
                automatic = name == "num_workers" and auto_workers(loader) is not None
                raise ValueError(
                    f"the state was saved with {name}={state[name]}, this loader has "
                    f"{getattr(loader, name)}{' (by auto)' if automatic else ''}: where workers "
                    "read the dataset themselves it must be the same"
                    + (f"; give num_workers={state[name]} here" if automatic else "")
                )


def carried(position: Position) -> dict[str, Any]:
    """Returns what a copy of the loader takes over: the next epoch, and the state that was loaded."""
    names = ("epoch", "announces", "run_seed", "rank", "asked", "read_here", "saved")
    return {name: getattr(position, name) for name in names}


def carry_on(position: Position, carried: dict[str, Any]) -> None:
    position.__dict__.update(carried)
    if position.saved is not None and not position.saved["begun"]:
        position.last_seed = position.saved["epoch_seed"]
