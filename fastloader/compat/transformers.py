"""``transformers.Trainer`` with a FastLoader: ``FastTrainerMixin``."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from fastloader._core.machine import identity
from fastloader._core.machine.torch_datasets import kind_of
from fastloader._core.sources.recognize import known_kind
from fastloader.compat.accelerate import PreparedLoader, adopt, skip_first_batches
from fastloader.datasets._formats.sample_form import LABELS, PIXELS
from fastloader.loader import FastLoader

# ---- When the Trainer's data collator does what ``default_collate`` does, which the native
# path knows.


_HOME = "transformers.data.data_collator"


def native_collation(collate_fn: Any, dataset: Any) -> Any:
    """Returns None, which stands for default_collate, if batches of ``dataset`` are the same by it as by
    the data collator ``collate_fn``; else ``collate_fn``.

    They are for fastloader's own datasets of pictures with ``as_dict=True``, without further columns,
    and for the Trainer's default collator: it stacks tensors, and makes int64 of whole numbers.
    """
    inner = collate_fn
    if identity.is_a(inner, ("transformers.trainer_utils", "RemoveColumnsCollator")):
        if identity.change(type(inner), type(inner)):
            return collate_fn
        if not {PIXELS, LABELS} <= set(inner.signature_columns):
            return collate_fn
        inner = inner.data_collator
    while kind_of(dataset) is Subset:
        dataset = dataset.dataset
    known = known_kind(type(dataset))
    ours = known is not None and not identity.change(type(dataset), known)
    pictures = ours and getattr(getattr(dataset, "form", None), "keys", None) == (PIXELS, LABELS)
    # Which may give floats. The two collators make other dtypes of these.
    whole = getattr(dataset, "target_transform", None) is None
    return None if pictures and whole and _is_default(inner) else collate_fn


def _is_default(collator: Any) -> bool:
    """Returns whether the collator is the default one of transformers, as its source has it."""
    names = ("default_data_collator", "torch_default_data_collator")
    if any(
        identity.function_change(identity.found(_HOME, name), _HOME, name) != "" for name in names
    ):
        return False
    if identity.is_a(collator, (_HOME, "DefaultDataCollator")):
        return collator.return_tensors == "pt" and not identity.change(
            type(collator), type(collator)
        )
    return collator is identity.found(_HOME, names[0])


# ---- The rest of an epoch, in the shape in which the Trainer asks for it.


class RestOfEpoch(Dataset[Any]):
    """Stands in for a loader that goes on in the middle of an epoch, where the Trainer calls
    Accelerate's ``skip_first_batches``.

    That function makes a plain DataLoader of the attributes that it reads, with a batch sampler that
    leaves out the first ``skipped`` of this one's. This object is the batch sampler and the dataset as
    well. As a batch sampler it gives ``skipped`` places of batches that nobody wants, and takes a batch
    of ``rest`` for every further place. As a dataset it hands over that batch. So the plain DataLoader
    passes the batches of ``rest`` on, one by one and as they are.

    Args:
        rest: a prepared loader, whose next ``iter()`` gives the rest of the epoch.
        skipped: how many steps of the epoch are over.
    """

    sampler = None
    num_workers = 0
    prefetch_factor = None

    def __init__(self, rest: Any, skipped: int) -> None:
        self.rest = rest
        self.skipped = skipped
        self._taken: list[Any] = []

    @property
    def dataset(self) -> RestOfEpoch:
        return self

    @property
    def batch_sampler(self) -> RestOfEpoch:
        return self

    @staticmethod
    def collate_fn(batch: Any) -> Any:
        return batch

    def __len__(self) -> int:
        return self.skipped + len(self.rest)

    def __iter__(self) -> Iterator[list[int]]:
        for place in range(self.skipped):
            yield [place]
        for batch in self.rest:
            self._taken.append(batch)
            del batch  # so that only the training loop holds it
            yield [self.skipped]

    def __getitem__(self, place: int) -> Any:
        raise TypeError("a rest of an epoch gives batches, not samples")

    def __getitems__(self, places: list[int]) -> Any:
        return self._taken.pop()


# ---- ``FastTrainerMixin``: a FastLoader in the Trainer.


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
        """Returns what the Trainer iterates in the epoch in which the checkpoint was written."""
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
    """Returns the Trainer's own method."""
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
    """Makes a FastLoader with the arguments of a DataLoader that Accelerate has prepared."""
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


# ---- ``transformers.Trainer`` with a FastLoader.
#
# from fastloader.compat.transformers import FastTrainerMixin


__all__ = ["FastTrainerMixin"]
