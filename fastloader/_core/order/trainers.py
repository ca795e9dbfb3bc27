"""Trainers that count the batches of an epoch: recognises epochs that they count as over.

A plain loop runs into StopIteration. So a state that was saved after an epoch's last batch stands for
an epoch whose end is still to come: first the rest of that epoch, which is empty, and then the next
epoch. Lightning stops by the length, and never asks for that end. If its state was saved after the last
batch, Lightning begins the *next* epoch with its first ``iter()``, and would take the empty rest for
that epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import TYPE_CHECKING, Any

from fastloader._core.machine.eager import eager
from fastloader._core.machine.messages import callers_in
from fastloader.errors import Error

if TYPE_CHECKING:
    from fastloader._core.order.position import Position
    from fastloader._core.order.progress import Progress

# The loops of Lightning, under both names by which the package is installed.
_FIT_LOOPS = ("lightning.pytorch.loops.fit_loop", "pytorch_lightning.loops.fit_loop")
_EVALUATION_LOOPS = (
    "lightning.pytorch.loops.evaluation_loop",
    "pytorch_lightning.loops.evaluation_loop",
)


def counted_as_over() -> bool:
    """Returns whether a loop of Lightning that goes on from a checkpoint calls, and had counted the
    checkpoint's epoch as over.

    The callers are looked at, because a loader is told nothing about the trainer. To be asked only if a
    state was loaded. The nearest loop counts: validation runs inside the fit loop, which knows nothing
    of the validation loader's batches.

    Raises:
        Error: if this version of Lightning keeps its count elsewhere.
    """
    frame = next(callers_in(_FIT_LOOPS + _EVALUATION_LOOPS), None)
    if frame is None:
        return False
    loop: Any = frame.f_locals.get("self")
    try:
        if frame.f_globals["__name__"] in _EVALUATION_LOOPS:
            return _evaluates_anew(loop)
        resumed = loop.restarting or getattr(loop, "_loaded_from_state_dict", False)
        return bool(resumed and loop.epoch_loop.batch_progress.is_last_batch)
    except AttributeError as error:
        raise Error(
            f"this version of Lightning keeps its count of batches elsewhere ({error}), so that the "
            "loader cannot tell which epoch a state that was loaded goes on with: load no state into "
            "the loader, or use Lightning 2"
        ) from error


def _evaluates_anew(loop: Any) -> bool:
    """Returns whether a validation or test begins with the first batch. It does so, whatever its loader
    gave before the checkpoint, unless the checkpoint was written in the middle of one. Without a
    checkpoint, a state that the user loaded is taken at its word."""
    progress = loop.batch_progress
    goes_on = loop.restarting and progress.current.ready > 0 and not progress.is_last_batch
    return loop.trainer.ckpt_path is not None and not goes_on


# The wrappers of Fabric, under both names.
_WRAPPERS = ("lightning.fabric.wrappers", "lightning_fabric.wrappers")


def fabrics_epoch(loader: object) -> int | None:
    """Returns the number that Fabric gives the epoch that is about to begin; None if Fabric does not
    call. Fabric counts from 0 in each process, and tells the number to the samplers, even if a state was
    loaded before."""
    for frame in callers_in(_WRAPPERS):
        wrapper: Any = frame.f_locals.get("self")
        if getattr(wrapper, "_dataloader", None) is loader:
            try:
                return int(wrapper._num_iter_calls) - 1
            except AttributeError as error:
                raise Error(
                    f"this version of Lightning's Fabric keeps its count of epochs elsewhere "
                    f"({error}): give the loader to your loop without Fabric's setup_dataloaders()"
                ) from error
    return None


def follow_count(position: Position, named: int | None) -> None:
    """Corrects the number that Fabric tells the samplers for the epoch that begins, ``named``. Fabric
    counts from 0 in each process, so its number is behind after a state was loaded."""
    if named is None or not position.samplers.shared:
        return
    if position.saved is not None:
        order = position.saved.get("order_epoch")
        position.ahead_of_fabric = (order if order is not None else position.saved["epoch"]) - named
    if position.ahead_of_fabric and position.samplers.shard is not None:
        position.count_epoch(named + position.ahead_of_fabric)
    elif position.ahead_of_fabric:
        position.samplers.inner.set_epoch(named + position.ahead_of_fabric)


class NextEpoch(Iterator[Any]):
    """An iterator for such a trainer, whose epoch begins with the first ``next()``. Lightning calls
    ``iter()`` before it tells the samplers the epoch, and once more if it does not want this epoch."""

    def __init__(self, loader: Sized, begin: Callable[[], Any], progress: Progress) -> None:
        self._loader = loader
        self._begin = begin
        self._promised = progress  # goes stale when another state is loaded
        self._begun: Any = None

    @eager
    def __next__(self) -> Any:
        if self._begun is None:
            self._promised.check()
            self._begun = self._begin()
        return next(self._begun)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        begun = self.__dict__.get("_begun")
        if begun is None:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}: its epoch begins with the "
                "first next()"
            )
        return getattr(begun, name)
