"""``FastTrainerMixin``: a FastLoader in the Trainer."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.utils.data import DataLoader, IterableDataset

from fastloader.compat.accelerate import PreparedLoader, skip_first_batches
from fastloader.compat.accelerate.prepare import adopt
from fastloader.compat.transformers.collation import native_collation
from fastloader.compat.transformers.rest_of_epoch import RestOfEpoch
from fastloader.loader import FastLoader


class FastTrainerMixin:
    """Makes the loaders of a ``transformers.Trainer`` FastLoaders, for training, evaluation and
    prediction::

        class FastTrainer(FastTrainerMixin, Trainer):
            loader_options = {"mean": MEAN, "std": STD}

    The Trainer decides about samplers, batch sizes and the ``dataloader_*`` arguments, and Accelerate
    about the processes, as without this class. Batches arrive on the Trainer's device.

    A checkpoint also holds the place of the training loader, one file for each process
    (``fastloader_state_0.pt``). A Trainer that goes on from it gets the batches that would have
    followed, with the same random crops on the native path. The loader reads no sample again that was
    trained on. It skips as many batches as the Trainer has counted if that file is missing or does not
    fit, and warns if it does not fit.

    Attributes:
        loader_options: further arguments of `FastLoader`; default none. The Trainer's own arguments of
            the same name are replaced.
    """

    loader_options: ClassVar[dict[str, Any]] = {}

    _training_loader: PreparedLoader | None = None  # whose place a checkpoint holds

    def _get_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        create = _needs(self, "_get_dataloader")
        given = inspect.signature(create).bind(*args, **kwargs).arguments
        decided = create(*args, **kwargs)
        trainer: Any = self
        loader = _fast(decided.base_dataloader, self.loader_options)
        keeps_state = bool(given.get("is_training"))
        made = adopt(decided, loader, trainer.accelerator, keeps_state=keeps_state)
        # Where Accelerate and the Trainer keep what was prepared.
        loaders, cached = trainer.accelerator._dataloaders, getattr(self, "_eval_dataloaders", {})
        loaders[:] = [made if each is decided else each for each in loaders]
        cached.update({key: made for key, each in cached.items() if each is decided})
        return made

    def _run_epoch(self, *args: Any, **kwargs: Any) -> Any:
        run = _needs(self, "_run_epoch")
        given = inspect.signature(run).bind(*args, **kwargs)
        loader = given.arguments["train_dataloader"]
        if isinstance(loader, PreparedLoader):
            self._training_loader = loader
            resumes = given.arguments["epoch"] == given.arguments["epochs_trained"]
            if resumes and given.arguments["resume_from_checkpoint"] is not None:
                given.arguments["train_dataloader"] = self._resumed(**given.arguments)
        return run(*given.args, **given.kwargs)

    def _resumed(
        self,
        *,
        train_dataloader: Any,
        epoch: int,
        resume_from_checkpoint: str,
        steps_trained_in_current_epoch: int,
        **_: Any,
    ) -> Any:
        """What the Trainer iterates in the epoch in which the checkpoint was written."""
        trainer: Any = self
        steps = steps_trained_in_current_epoch
        if trainer.args.ignore_data_skip:  # the Trainer counts no steps then
            return train_dataloader
        train_dataloader.set_epoch(epoch)
        path = Path(resume_from_checkpoint) / _file_name(trainer.args.process_index)
        if path.is_file():
            try:
                _load(train_dataloader, torch.load(path, weights_only=True), epoch, steps)
            except ValueError as error:
                warnings.warn(
                    f"the Trainer goes on without {path}: {error}. fastloader skips as many batches as "
                    "the Trainer has counted, and draws random crops anew",
                    RuntimeWarning,
                    stacklevel=2,
                )
            else:
                return RestOfEpoch(train_dataloader, steps) if steps else train_dataloader
        if not steps:
            return train_dataloader
        return RestOfEpoch(skip_first_batches(train_dataloader, steps), steps)

    def _save_rng_state(self, output_dir: str) -> None:
        _needs(self, "_save_rng_state")(output_dir)
        if self._training_loader is not None:
            trainer: Any = self
            path = Path(output_dir) / _file_name(trainer.args.process_index)
            try:
                state = self._training_loader.state_dict()
            except ValueError as error:
                warnings.warn(
                    f"the checkpoint does not hold the place of the training loader: {error}. A Trainer "
                    "that goes on from it skips as many batches as it has counted",
                    RuntimeWarning,
                    stacklevel=2,
                )
            else:
                torch.save(state, path)


def _needs(mixin: FastTrainerMixin, name: str) -> Any:
    """The Trainer's own method."""
    method = getattr(super(FastTrainerMixin, mixin), name, None)
    if method is None:
        raise TypeError(
            f"{type(mixin).__name__} has no Trainer with {name}(): derive a class from "
            "(FastTrainerMixin, Trainer), in this order, with transformers 5"
        )
    return method


def _load(loader: Any, state: dict[str, Any], epoch: int, steps: int) -> None:
    there = (state["epoch"], loader.received(state))
    # The Trainer knows no epochs of a dataset without a length, and counts all steps as of one.
    if there != (epoch, steps) and _has_length(loader):
        raise ValueError(
            f"it is of batch {there[1]} in epoch {there[0]}, and the Trainer goes on with batch {steps} "
            f"in epoch {epoch}"
        )
    loader.load_state_dict(state)


def _has_length(loader: Any) -> bool:
    try:
        return len(loader) >= 0
    except TypeError:
        return False


def _file_name(process: int) -> str:
    return f"fastloader_state_{process}.pt"


def _fast(plain: DataLoader[Any], options: dict[str, Any]) -> FastLoader[Any]:
    """A FastLoader with the arguments of a DataLoader that Accelerate has prepared."""
    names = ["num_workers", "pin_memory", "timeout", "worker_init_fn", "generator"]
    names += ["multiprocessing_context", "prefetch_factor", "persistent_workers"]
    names += ["in_order"] * hasattr(plain, "in_order")  # since torch 2.6
    if isinstance(plain.dataset, IterableDataset):
        names += ["batch_size", "drop_last"]
    else:
        names.append("batch_sampler")
    arguments = {name: getattr(plain, name) for name in names}
    arguments["collate_fn"] = native_collation(plain.collate_fn, plain.dataset)
    return FastLoader(plain.dataset, **{**arguments, **options})
