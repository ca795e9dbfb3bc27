"""Lightning's Trainer on two ranks: each sample once, DataLoader's order, and an exact resume.

needs: lightning
runs: torchrun --nproc-per-node=2 examples/frameworks/lightning_with_trainer.py
"""

import logging
import tempfile
import warnings

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import fastloader
from fastloader import FastLoader
from fastloader.compat.lightning import FastDataModule

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.simplefilter("ignore")  # Lightning counts worker processes, and there are threads here

COUNT, EPOCHS = 48, 3
images = torch.randint(0, 256, (COUNT, 3, 8, 8), dtype=torch.uint8)
dataset = TensorDataset(images, torch.arange(COUNT))


class Data(FastDataModule):
    """``kind`` makes the loader: FastLoader, or torch's DataLoader for comparison."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def train_dataloader(self):
        options = {"mean": (0.5,) * 3, "std": (0.5,) * 3} if self.kind is FastLoader else {}
        return self.kind(dataset, batch_size=4, shuffle=True, num_workers=2, **options)


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, COUNT))
        self.seen = []

    def training_step(self, batch, _):
        images, labels = batch
        self.seen.append((self.current_epoch, labels.tolist()))
        return torch.nn.functional.cross_entropy(self.layers(images.float()), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def train(kind, folder, checkpoint=None):
    """Returns the batches of this rank, and the trainer."""
    saving = pl.callbacks.ModelCheckpoint(folder, "{step}", save_top_k=-1, every_n_train_steps=1)
    at_ends = pl.callbacks.ModelCheckpoint(folder, "end-{epoch}", save_top_k=-1)
    trainer = pl.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        max_epochs=EPOCHS,
        callbacks=[saving, at_ends],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Model()
    trainer.fit(model, datamodule=Data(kind), ckpt_path=checkpoint)
    return model.seen, trainer


def of_all_ranks(seen):
    gathered = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, seen)
    return gathered


with tempfile.TemporaryDirectory() as mine:
    reference, _ = train(DataLoader, f"{mine}/torch")
    folder = of_all_ranks(mine)[0]  # rank 0 writes the checkpoints
    straight, trainer = train(FastLoader, folder)
    assert straight == reference
    for epoch in range(EPOCHS):
        labels = [
            label for rank in of_all_ranks(straight) for e, b in rank if e == epoch for label in b
        ]
        assert sorted(labels) == list(range(COUNT))
    for done, name in ((4, "step=4"), (6, "end-epoch=0"), (9, "step=9"), (12, "end-epoch=1")):
        resumed, _ = train(FastLoader, folder, f"{folder}/{name}.ckpt")
        assert resumed == straight[done:], name
    used = trainer.train_dataloader
    if trainer.is_global_zero:
        print(
            f"2 ranks, {EPOCHS} epochs: each of {COUNT} samples once an epoch, in DataLoader's order"
        )
        print("resumed after steps 4, 9 and after epochs 1, 2: the batches that were missing")
        print(fastloader.check(trainer))
        print(f"trainer.train_dataloader.report(): {used.report().batches} batches")
    torch.distributed.barrier()
