"""Runs of Lightning's Trainer that write down the batches of each step."""

import importlib.util
import logging
import warnings

import pytest
import torch
from pictures import import_torchvision


def import_lightning():
    """``lightning.pytorch``, or skips."""
    if importlib.util.find_spec("torchvision") is not None:  # which it imports where it is there
        import_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return module


def keys(batch):
    """The labels of a batch of any nesting; of (images, labels) those of the second."""
    if isinstance(batch, dict):
        return {name: keys(part) for name, part in batch.items()}
    if isinstance(batch[0], torch.Tensor):
        return batch[1].tolist()
    return [keys(part) for part in batch]


def make_model(lightning, seen):
    """A model that adds (epoch, labels of the batch) to ``seen`` at each step."""

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch, _):
            seen.append([self.current_epoch, keys(batch)])
            return self.layer(torch.ones(1, 1)).sum()

        def validation_step(self, batch, _):
            self.log("loss", torch.zeros(()))

        def predict_step(self, batch, _):
            return keys(batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-6)

    return Model()


def make_trainer(lightning, folder, saving, **options):
    """``saving``: arguments of ModelCheckpoint; None saves nothing."""
    callbacks = []
    if saving is not None:
        checkpoint = lightning.callbacks.ModelCheckpoint
        callbacks = [checkpoint(folder, filename="{step}", save_top_k=-1, **saving)]
    return lightning.Trainer(
        **{
            "max_epochs": 3,
            "accelerator": "cpu",
            "devices": 1,
            "num_sanity_val_steps": 0,
            **options,
        },
        callbacks=callbacks,
        enable_checkpointing=bool(callbacks),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def fit(lightning, data, folder, saving=None, checkpoint=None, held_out=None, **options):
    """Returns (the batches of a run, each with its epoch, the trainer). ``data`` is a data module, or
    what ``trainer.fit()`` takes as training loaders."""
    seen = []
    trainer = make_trainer(lightning, folder, saving, **options)
    module = isinstance(data, lightning.LightningDataModule)
    given = {"datamodule": data} if module else {"train_dataloaders": data}
    if held_out is not None:
        given["val_dataloaders"] = held_out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few workers, shuffled validation
        trainer.fit(make_model(lightning, seen), **given, ckpt_path=checkpoint, weights_only=True)
    return seen, trainer
