"""Accelerate's prepared loaders, with a FastLoader inside."""

from __future__ import annotations

import copy
import dataclasses
import sys
from typing import Any

from accelerate import data_loader as theirs
from accelerate.data_loader import DataLoaderDispatcher, DataLoaderShard
from accelerate.utils import broadcast_object_list

from fastloader.compat.accelerate.batches import PreparedBatches
from fastloader.errors import Error
from fastloader.loader import FastLoader


@dataclasses.dataclass
class Account:
    """What a prepared loader shares with the loaders of its rest (`skip_first_batches`).

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
    """What both kinds of prepared loaders have in common.

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
        """Where the loop stands: which batches of the epoch it has received, not what was read ahead.
        After the last batch of an epoch the state is of the next one. The state is the same on every
        process. It can be made in the middle of an epoch if ``use_stateful_dataloader`` is set in
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
        """The next ``iter()`` gives the batches that would have followed `state_dict`. No sample is read
        for that.

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
        """How many batches the FastLoader makes for one step of the loop."""
        return 1

    def received(self, state: dict[str, Any]) -> int:
        """How many steps of the epoch the loop of one process had taken behind ``state``."""
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
        """What must be the same where a state is loaded."""
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
