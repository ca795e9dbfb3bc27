"""Going on under loops that count batches, and under loops that run into the end of the epoch: saved
after every step of two epochs, each resumed run gets exactly the batches that were missing."""

import copy
import importlib.util
import itertools
import logging
import sys
import warnings
from types import ModuleType

import pytest
import torch
from pictures import import_torchvision
from torch.utils.data import DistributedSampler, TensorDataset

from fastloader import Error, FastLoader
from fastloader._core.order import trainers

pytestmark = pytest.mark.covering

COUNT = 11
EPOCHS = 3  # the last one shows that what follows the resumed epoch is right as well


def generator(seed):
    return torch.Generator().manual_seed(seed)


def numbers():
    return TensorDataset(torch.arange(COUNT, dtype=torch.float32).reshape(COUNT, 1))


LOADERS = {
    "sequential": lambda: FastLoader(numbers(), 3),
    "full batches": lambda: FastLoader(numbers(), 1, shuffle=True, generator=generator(3)),
    "generator": lambda: FastLoader(numbers(), 3, shuffle=True, generator=generator(3)),
    "drop_last": lambda: FastLoader(
        numbers(), 3, shuffle=True, generator=generator(4), drop_last=True
    ),
    "workers": lambda: FastLoader(
        Rows(), 3, shuffle=True, generator=generator(5), num_workers=2, persistent_workers=True
    ),
    "delivered": lambda: FastLoader(
        Rows(), 3, shuffle=True, generator=generator(6), num_workers=2, device="cpu"
    ),
    "distributed sampler": lambda: FastLoader(
        numbers(), 2, sampler=DistributedSampler(range(COUNT), 2, 1, seed=2)
    ),
}


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return [torch.tensor([float(index)])]


def rows(batch):
    return batch[0][:, 0].int().tolist()


# --- a plain loop ---------------------------------------------------------------------------------


def plain_run(make, state=None, first_epoch=0):
    """What each step gets, and the state behind it, with the loop's own epoch counter."""
    loader = make()
    if state is not None:
        loader.load_state_dict(state)
    steps = []
    for epoch in range(first_epoch, EPOCHS):
        if isinstance(loader.sampler, DistributedSampler) and (
            state is None or epoch > first_epoch
        ):
            loader.sampler.set_epoch(epoch)
        steps += [(epoch, rows(batch), loader.state_dict()) for batch in loader]
    loader.close()
    return steps


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LOADERS)
def test_a_plain_loop(name):
    make = LOADERS[name]
    straight = plain_run(make)
    for done, (epoch, _, state) in enumerate(straight, 1):
        if epoch == 2:
            break
        resumed = plain_run(make, copy.deepcopy(state), epoch)
        assert [step[:2] for step in resumed] == [step[:2] for step in straight[done:]], done


def test_the_rest_that_nobody_wanted():
    """An iterator that goes on from a state and is never advanced leaves the order of the next epoch
    alone."""
    for make in (LOADERS["full batches"], LOADERS["generator"]):
        loader = make()
        iterator = iter(loader)
        list(itertools.islice(iterator, len(loader)))
        state = loader.state_dict()
        wanted = [rows(batch) for batch in loader]
        fresh = make()
        fresh.load_state_dict(state)
        iter(fresh)
        assert [rows(batch) for batch in fresh] == wanted


# --- Lightning ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lightning():
    if importlib.util.find_spec("torchvision") is not None:  # which it imports where it is there
        import_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return module


def fit(lightning, loader, folder, saving, checkpoint=None, **options):
    """The batches of a run, each with its epoch, and where its checkpoints lie."""
    seen = []

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch, _):
            seen.append((self.current_epoch, rows(batch)))
            return self.layer(batch[0]).sum()

        def validation_step(self, batch, _):
            self.log("loss", batch[0].sum())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-6)

    checkpoints = lightning.callbacks.ModelCheckpoint(
        folder, filename="{step}", save_top_k=-1, **saving
    )
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        callbacks=[checkpoints],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        **options,
    )
    held_out = torch.utils.data.DataLoader(numbers(), 4) if "monitor" in saving else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few workers, and files that torch.load trusts
        trainer.fit(Model(), loader, held_out, ckpt_path=checkpoint, weights_only=False)
    loader.close()
    return seen


EACH_STEP = {"every_n_train_steps": 1}
BEHIND_VALIDATION = {"monitor": "loss", "save_on_train_epoch_end": False}


def check_lightning(lightning, make, folder, saving, stops, **options):
    straight = fit(lightning, make(), folder, saving, **options)
    epochs = [epoch for epoch, _ in straight]
    assert epochs == sorted(epochs) and set(epochs) == set(range(EPOCHS))
    for done in stops:
        checkpoint = folder / f"step={done}.ckpt"
        resumed = fit(lightning, make(), folder / "again", saving, checkpoint, **options)
        assert resumed == straight[done:], done


@pytest.mark.parametrize("name", ["generator", "workers"])
def test_lightning_saved_after_every_step(lightning, name, tmp_path):
    make = LOADERS[name]
    check_lightning(lightning, make, tmp_path, EACH_STEP, range(1, 2 * len(make()) + 1))


@pytest.mark.parametrize("name", [name for name in LOADERS if name not in ("generator", "workers")])
def test_lightning_saved_after_the_last_batch(lightning, name, tmp_path):
    make = LOADERS[name]
    check_lightning(lightning, make, tmp_path, EACH_STEP, (len(make()) - 1, len(make())))


@pytest.mark.parametrize("name", ["generator", "distributed sampler"])
def test_lightning_saved_behind_its_validation(lightning, name, tmp_path):
    """Lightning then calls iter() twice for the epoch that comes next."""
    make = LOADERS[name]
    check_lightning(lightning, make, tmp_path, BEHIND_VALIDATION, (len(make()), 2 * len(make())))


def test_lightning_that_ends_epochs_early(lightning, tmp_path):
    """By Lightning's count an epoch may be over that is not by ours."""
    make = LOADERS["generator"]
    check_lightning(lightning, make, tmp_path, EACH_STEP, range(1, 5), limit_train_batches=2)


def test_an_epoch_that_has_not_begun(monkeypatch):
    loader = LOADERS["generator"]()
    loader.load_state_dict(plain_run(LOADERS["generator"])[3][2])
    monkeypatch.setattr(trainers, "counted_as_over", lambda: True)
    iterator = iter(loader)
    assert len(iterator) == len(loader) and not hasattr(iterator, "_num_yielded")
    assert loader.state_dict()["epoch"] == 1 and not loader.state_dict()["begun"]
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(RuntimeError, match="call iter"):
        next(iterator)
    assert len(list(loader)) == len(loader)


def test_a_rest_that_is_left_out_says_nothing_of_the_next_order(monkeypatch):
    """The state of an epoch's end has no number for the user's DistributedSampler, whoever loads it."""
    make = LOADERS["distributed sampler"]
    loader = make()
    loader.sampler.set_epoch(4)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    list(iterator)
    between = loader.state_dict()
    fresh = make()
    fresh.load_state_dict(state)
    monkeypatch.setattr(trainers, "counted_as_over", lambda: True)
    iter(fresh)
    left = fresh.state_dict()
    last = make()
    last.sampler.set_epoch(5)
    for each in (between, left):
        last.load_state_dict(each)
        assert last.sampler.epoch == 5


def test_a_lightning_that_counts_elsewhere(monkeypatch):
    """It is told, rather than an epoch lost."""
    module = ModuleType("lightning.pytorch.loops.fit_loop")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    scope = vars(module)
    exec("class Loop:\n  restarting = True\n  def setup_data(self, ask): return ask()", scope)
    with pytest.raises(Error, match="epoch_loop"):
        scope["Loop"]().setup_data(trainers.counted_as_over)
    assert not trainers.counted_as_over()


# --- Lightning's validation -----------------------------------------------------------------------


def validated(lightning, folder, checkpoint=None, only_validate=False):
    """The batches of a run, of both kinds. Both loaders' states lie in the DataModule."""
    seen = []

    class Data(lightning.LightningDataModule):
        def __init__(self):
            super().__init__()
            self.loaders = {
                "fit": LOADERS["generator"](),
                "val": FastLoader(numbers(), 4, shuffle=True, generator=generator(8)),
            }

        def train_dataloader(self):
            return self.loaders["fit"]

        def val_dataloader(self):
            return self.loaders["val"]

        def state_dict(self):
            return {name: loader.state_dict() for name, loader in self.loaders.items()}

        def load_state_dict(self, state):
            for name, loader in self.loaders.items():
                loader.load_state_dict(state[name])

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch, _):
            seen.append(("fit", self.current_epoch, rows(batch)))
            return self.layer(batch[0]).sum()

        def validation_step(self, batch, _):
            seen.append(("val", self.current_epoch, rows(batch)))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-6)

    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        callbacks=[
            lightning.callbacks.ModelCheckpoint(
                folder, filename="{step}", save_top_k=-1, every_n_train_steps=1
            )
        ],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        val_check_interval=3,  # of four batches
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = trainer.validate if only_validate else trainer.fit
        run(Model(), datamodule=Data(), ckpt_path=checkpoint, weights_only=False)
    return seen


@pytest.mark.parametrize("done", [1, 2, 4, 5, 6, 8, 9])
def test_lightning_validates_on_all_after_a_checkpoint(lightning, done, tmp_path):
    """What a validation loader has given says nothing about the training epoch that goes on."""
    straight = validated(lightning, tmp_path)
    resumed = validated(lightning, tmp_path / "again", tmp_path / f"step={done}.ckpt")
    steps = [at for at, (what, *_) in enumerate(straight) if what == "fit"]
    assert len(steps) == 12 and len(straight) == 12 + 3 * 3
    assert resumed == straight[steps[done] :]


def test_lightning_that_only_validates_takes_all(lightning, tmp_path):
    straight = validated(lightning, tmp_path)
    wanted = straight[-4:-1]  # behind which there is one step
    again = validated(lightning, tmp_path / "again", tmp_path / "step=12.ckpt", only_validate=True)
    assert len(again) == len(wanted) == 3
    assert sorted(itertools.chain.from_iterable(batch for *_, batch in again)) == list(range(COUNT))
