"""Hugging Face's Accelerate: its prepared loaders, with a FastLoader inside."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import accelerate
import torch
from accelerate import Accelerator
from accelerate import data_loader as theirs
from accelerate.data_loader import (
    DataLoaderDispatcher,
    DataLoaderShard,
    SeedableRandomSampler,
    prepare_data_loader,
)
from accelerate.utils import broadcast_object_list
from torch.utils.data import IterableDataset, Sampler

from fastloader.errors import Error
from fastloader.loader import FastLoader

# ---- The index batches that Accelerate gives a process, with a place to go on from.


class PreparedBatches(Sampler[Any]):
    """The index batches of a prepared loader: those of Accelerate's own batch sampler, or of the rest of
    its epoch.

    The FastLoader inside draws from this sampler, and asks for its state after each index batch. The
    state says how many batches of the epoch this process has got. The number is the same on every
    process, so that one state serves all of them. No sample is read to go on from it.

    Args:
        batches: the batch sampler that Accelerate has made for this process.
        first: how many batches are left out at the beginning of an epoch; default 0.
    """

    regroups = True  # see `order.samplers.may_repeat`

    def __init__(self, batches: Iterable[Any], first: int = 0) -> None:
        self.batches = batches
        self.first = first
        self._start: int | None = None  # from the state that was loaded, for the next pass
        self._pass = _Pass(iter(()), first)

    @property
    def batch_sampler(self) -> Any:
        """The sampler beneath, under the name by which frameworks look inside samplers."""
        return self.batches

    @property
    def generator(self) -> Any:
        """The generator from which the order is drawn, if the sampler has its own. FastLoader puts it
        back to go on in the middle of an epoch."""
        sampler = innermost(self.batches)
        # Accelerate's sampler is seeded anew in every epoch, and has no generator before the first one.
        if isinstance(sampler, SeedableRandomSampler):
            return None
        return getattr(sampler, "generator", None)

    def __iter__(self) -> Iterator[Any]:
        start = self.first if self._start is None else self._start
        self._start = None
        # Not when the first batch is asked for: a sampler may draw its order in __iter__.
        self._pass = _Pass(itertools.islice(iter(self.batches), start, None), start)
        return self._pass

    def __len__(self) -> int:
        return max(0, len(self.batches) - self.first)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, int]:
        return {"given": self._pass.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._start = state["given"]


class _Pass(Iterator[Any]):
    """Counts how many batches of an epoch were given, with those that were left out."""

    def __init__(self, batches: Iterator[Any], start: int) -> None:
        self._batches = batches
        self.given = start

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            self.given = 0  # of the next epoch
            raise
        self.given += 1
        return batch


def innermost(sampler: Any) -> Any:
    """Returns the sampler of single indices beneath a batch sampler, and beneath Accelerate's shard of
    it."""
    for name in ("batch_sampler", "sampler"):
        inner = getattr(sampler, name, None)
        sampler = sampler if inner is None else inner
    return sampler


# ---- Accelerate's prepared loaders, with a FastLoader inside.


@dataclasses.dataclass
class Account:
    """The state that a prepared loader shares with the loaders of its rest (`skip_first_batches`).

    Attributes:
        iteration: the number of the epoch.
        keeps_state: whether the next epoch notes its state after every batch.
        tracked: whether the epoch that was begun last does.
        state: the state after the batch that the loop has received last. None before the first batch; an
            error if the loader has no state there.
    """

    iteration: int
    keeps_state: bool
    tracked: bool = True
    state: dict[str, Any] | Exception | None = None


class PreparedLoader:
    """Base class of both kinds of prepared loaders.

    Accelerate's class iterates, moves batches to the device and keeps Accelerate's account of the epoch.
    The batches come from ``base_dataloader``, a `FastLoader`. It also has every attribute that
    Accelerate's class lacks: ``plan()``, ``stats()``, ``report()``, ``close()``. ``isinstance`` is true
    of both classes.

    Attributes:
        base_dataloader: the FastLoader.
        batches: the batch sampler of the FastLoader; None for an iterable dataset.
        account: the epoch, and where the loop stands in it.
    """

    base_dataloader: FastLoader[Any]
    batch_sampler: Any  # Accelerate's, or the FastLoader's own for an iterable dataset
    batches: PreparedBatches | None
    account: Account
    end_of_dataloader: bool

    @property
    def iteration(self) -> int:
        """The number of the epoch, which Accelerate counts."""
        return self.account.iteration

    @iteration.setter
    def iteration(self, epoch: int) -> None:
        self.account.iteration = epoch

    @property
    def dataset(self) -> Any:
        # This function makes a plain DataLoader of what it is given, and reads the dataset for it.
        if sys._getframe(1).f_code is theirs.skip_first_batches.__code__:
            raise Error(
                "Accelerate's skip_first_batches would make a plain DataLoader of this loader, without "
                "device, normalisation and native path: use skip_first_batches(loader, num_batches) of "
                "fastloader.compat.accelerate"
            )
        return self.base_dataloader.dataset

    def __enter__(self) -> PreparedLoader:
        return self

    def __exit__(self, *error: object) -> None:
        self.base_dataloader.close()

    def begin(self) -> None:
        self.account.tracked, self.account.state = self.account.keeps_state, None
        super().begin()  # type: ignore[misc]

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch. Accelerate's samplers are told, and a dataset with a
        ``set_epoch``, as well as its copies in workers."""
        super().set_epoch(epoch)  # type: ignore[misc]
        # Accelerate does this only if it does not shard.
        tell = getattr(getattr(self.batch_sampler, "batch_sampler", None), "set_epoch", None)
        if tell is not None:
            tell(epoch)
        self.base_dataloader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns where the loop stands: which batches of the epoch it has received, not what was read
        ahead. After the last batch of an epoch the state is of the next one. The state is the same on
        every process. It can be made in the middle of an epoch if ``use_stateful_dataloader`` is set in
        Accelerate's DataLoaderConfiguration, or if this method was called before the epoch.

        Raises ValueError otherwise, and where `FastLoader.state_dict` does.
        """
        account = self.account
        account.keeps_state = True
        if isinstance(account.state, Exception):
            raise account.state
        if account.state is not None:
            return copy.deepcopy(account.state)
        if not account.tracked:
            raise ValueError(
                "this epoch of the prepared loader began before a state was asked for, and Accelerate "
                "is one batch ahead of the loop: set use_stateful_dataloader=True in "
                "DataLoaderConfiguration, or call state_dict() once before the epoch"
            )
        return self._state_now()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next ``iter()`` give the batches that would have followed `state_dict`. No sample is
        read for that.

        Raises ValueError if the state was saved with another number of processes or batches, and where
        `FastLoader.load_state_dict` does.
        """
        state = dict(state)
        saved, own = state.pop("accelerate", None), self._identity()
        if saved is None:
            raise ValueError(
                "this is not a state of a prepared FastLoader: it has no 'accelerate' but "
                f"{sorted(state)[:8]}"
            )
        if saved != own:
            differences = [f"{name} {saved.get(name)}, here {own[name]}" for name in own]
            raise ValueError(
                f"the state is of another loader ({'; '.join(differences)}): go on with as many "
                "processes, the same batch size and the same Accelerate settings"
            )
        if self.batches is not None:
            state.update(first=None, last=None)
            if own["batches"] is not None:
                state["sampler_length"] = len(self.batches)
        self.base_dataloader.load_state_dict(state)
        account = self.account
        account.iteration, account.state = state["epoch"], None
        account.keeps_state = account.tracked = True

    @property
    def batches_per_step(self) -> int:
        """The number of batches that the FastLoader makes for one step of the loop."""
        return 1

    def received(self, state: dict[str, Any]) -> int:
        """Returns how many steps of the epoch the loop of one process had taken at ``state``."""
        if not state["begun"]:
            return 0
        given: int = state["batches"] if self.batches is None else state["sampler_state"]["given"]
        return (given - len(state.get("missing", ()))) // self.batches_per_step

    def _state_now(self) -> dict[str, Any]:
        state: dict[str, Any] = self.base_dataloader.state_dict()
        if self.batches is not None:
            # What would be of this process only.
            own = {"first", "last", "sampler_length"}
            state = {name: value for name, value in state.items() if name not in own}
        return {**state, "accelerate": self._identity()}

    def _identity(self) -> dict[str, Any]:
        """Returns what must be the same where a state is loaded."""
        batches: Any = None if self.batches is None else self.batches.batches
        whole = getattr(batches, "batch_sampler", batches)
        try:
            length = None if whole is None else len(whole)
        except TypeError:
            length = None
        return {"processes": getattr(batches, "num_processes", 1), "batches": length}

    def _take_state(self) -> None:
        try:
            self.account.state = self._state_now()
        except Exception as error:
            self.account.state = error  # raised when the state is asked for; the loop goes on

    def __reduce__(self) -> Any:
        return _bare, (type(self),), self.__dict__


class FastDataLoaderShard(PreparedLoader, DataLoaderShard):
    """Accelerate's DataLoaderShard over a FastLoader: each process makes its own batches."""

    def _state_now(self) -> dict[str, Any]:
        state = super()._state_now()
        several = state["accelerate"]["processes"] > 1
        if state["begun"] and several and not self.base_dataloader.in_order:
            raise ValueError(
                "with in_order=False each process has other batches in flight, and one state serves all "
                "of them: use in_order=True, or ask for the state between epochs"
            )
        return state

    def _update_state_dict(self) -> None:
        # Accelerate calls this before it takes the batch that it is ahead of the loop.
        if self.account.tracked:
            self._take_state()


class FastDataLoaderDispatcher(PreparedLoader, DataLoaderDispatcher):
    """Accelerate's DataLoaderDispatcher over a FastLoader: the first process makes the batches of all,
    and sends each process its part."""

    def _fetch_batches(self, iterator: Any) -> Any:
        if self.account.tracked:
            self._share_state()
        return super()._fetch_batches(iterator)

    def _update_state_dict(self) -> None:
        # In between, Accelerate is in the middle of the batches of one step.
        if self.account.tracked and self.end_of_dataloader:
            self._share_state()

    def _share_state(self) -> None:
        """Takes the first process's state on every process: the others read nothing."""
        if self.state.process_index == 0:
            self._take_state()
        shared = [self.account.state]
        broadcast_object_list(shared)
        self.account.state = shared[0]

    @property
    def batches_per_step(self) -> int:
        # With tensor parallelism all processes get the same batch.
        one = self.split_batches or self.submesh_tp
        return 1 if one else int(self.state.num_processes)

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "processes": self.state.num_processes}


def _bare(kind: type) -> Any:
    """Stands in for pickle's own way, which compares the class with ``__class__``: Accelerate's is that
    of the loader inside."""
    return object.__new__(kind)


# ---- ``prepare``: a FastLoader for Accelerate.


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
        return _register(loader, accelerator)
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
    return _register(prepared, accelerator)


def adopt(
    decided: Any, loader: FastLoader[Any], accelerator: Accelerator, *, keeps_state: bool
) -> Any:
    """Makes a prepared loader as Accelerate has ``decided`` it, with a copy of ``loader`` in the place
    of the plain DataLoader in there. ``keeps_state``: whether `PreparedLoader.state_dict` may be called
    in the middle of its first epoch."""
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
    """Copies a FastLoader: of its own class and with its own threads, with other ``attributes``."""
    state = {**loader.__getstate__(), "_iterator": None, **attributes}
    runtime = state["_runtime"]
    options = copy.copy(runtime["options"])
    options.device = state["device"]
    state["_runtime"] = {**runtime, "options": options}
    made: FastLoader[Any] = object.__new__(type(loader))
    made.__setstate__(state)
    return made


def _device(loader: FastLoader[Any], placed: torch.device | None) -> Any:
    """Returns where the FastLoader takes its batches, so that Accelerate need not move them. ``placed``:
    where Accelerate wants them; None if it leaves them alone."""
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


def _register(prepared: Any, accelerator: Accelerator) -> Any:
    if not any(each is prepared for each in accelerator._dataloaders):
        accelerator._dataloaders.append(prepared)
    return prepared


# ---- ``skip_first_batches``: the rest of an epoch, without reading what was received.


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


# ---- Hugging Face's Accelerate: its prepared loaders, with a FastLoader inside.
#
# from fastloader.compat.accelerate import prepare, skip_first_batches


__all__ = [
    "FastDataLoaderDispatcher",
    "FastDataLoaderShard",
    "PreparedLoader",
    "prepare",
    "skip_first_batches",
]
