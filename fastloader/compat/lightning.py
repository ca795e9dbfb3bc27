"""A LightningDataModule whose training goes on exactly from every checkpoint.

from fastloader.compat.lightning import FastDataModule
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from fastloader.loader import FastLoader

try:
    from lightning.pytorch import LightningDataModule
    from lightning.pytorch.trainer.states import TrainerFn
    from lightning.pytorch.utilities import CombinedLoader
except ModuleNotFoundError:  # the same library is installed under this name as well
    from pytorch_lightning import LightningDataModule
    from pytorch_lightning.trainer.states import TrainerFn
    from pytorch_lightning.utilities import CombinedLoader

__all__ = ["FastDataModule"]

_KEY = "fastloader_training"


class FastDataModule(LightningDataModule):
    """A LightningDataModule whose checkpoints say where the training loaders stand, in the middle of an
    epoch and at its end.

    Lightning saves the states of the training loaders in every checkpoint, but does not load them from
    one that was written at the end of an epoch: the run that goes on then has the orders of the first
    epochs once more. Change the base class, and it has those of the unbroken run::

        class Data(FastDataModule):
            def train_dataloader(self):
                return FastLoader(dataset, 256, shuffle=True, generator=torch.Generator())

        trainer.fit(model, datamodule=Data(), ckpt_path="last")

    The state is loaded into the loaders that Lightning has made again for several ranks, right before
    their first ``iter()``. It is rank 0's, as Lightning writes it (docs/distributed.md). The default
    shuffle draws the orders of later epochs from torch's global generator, which Lightning does not
    save: give a ``generator``, or ``distributed="auto"``.

    If a subclass has a ``state_dict`` and ``load_state_dict`` of its own, they call those of this class.

    Raises:
        ValueError: from ``trainer.fit()`` if ``train_dataloader()`` gives another number of FastLoaders
            than the checkpoint has states, or a loader to which its state does not belong.
    """

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of the training loaders that the trainer has now, added to the base class's
        state."""
        loaders = [] if self.trainer is None else [*_fast_loaders(self.trainer.train_dataloader)]
        states = {_KEY: [loader.state_dict() for loader in loaders]} if loaders else {}
        return {**super().state_dict(), **states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps the states for the next `train_dataloader`. Only ``trainer.fit()`` makes use of them:
        Lightning also calls this for ``validate``, ``test`` and ``predict``."""
        super().load_state_dict(state_dict)
        fitting = self.trainer is not None and self.trainer.state.fn == TrainerFn.FITTING
        if fitting and state_dict.get(_KEY):
            self._resume(state_dict[_KEY])

    def _resume(self, states: list[dict[str, Any]]) -> None:
        """Makes the next call of `train_dataloader`, which is Lightning's, give loaders that go on.

        An attribute of the instance, because that is where Lightning itself puts the hooks of
        ``from_datasets()``, and because a subclass overrides the method.
        """
        fields = self.__dict__
        before, make = fields.get("train_dataloader"), self.train_dataloader

        @functools.wraps(make)  # Lightning looks through it to see whether the hook is overridden
        def train_dataloader() -> Any:
            del fields["train_dataloader"]
            if before is not None:
                fields["train_dataloader"] = before
            return _GoingOn(make(), states)

        fields["train_dataloader"] = train_dataloader


class _GoingOn(CombinedLoader):
    """Holds the loaders that Lightning makes, with their states. Lightning puts the loaders that it has
    made again into it, and calls ``iter()`` when they are ready: then the states are loaded."""

    def __init__(self, loaders: Any, states: list[dict[str, Any]]) -> None:
        if isinstance(loaders, CombinedLoader):
            super().__init__(loaders.iterables, loaders._mode)
        else:
            super().__init__(loaders, "max_size_cycle")
        self._states = states

    def __iter__(self) -> Any:
        states, self._states = self._states, []
        if states:
            loaders = [*_fast_loaders(self.iterables)]
            if len(loaders) != len(states):
                raise ValueError(
                    f"the checkpoint has the states of {len(states)} training loaders, and "
                    f"train_dataloader() gives {len(loaders)} FastLoaders: give those with which it was "
                    "written, or begin without ckpt_path"
                )
            for loader, state in zip(loaders, states):
                loader.load_state_dict(state)
        return super().__iter__()

    def __len__(self) -> int:
        # Lightning asks for it behind an error of iter(). The base class raises another error there,
        # which the user would see in the place of the first.
        return 0 if self._iterator is None else super().__len__()


def _fast_loaders(iterables: Any) -> Iterator[FastLoader[Any]]:
    """Gives the FastLoaders among a trainer's loaders, which may be nested."""
    for each in CombinedLoader(iterables, "max_size_cycle").flattened:
        if isinstance(each, FastLoader):
            yield each
