"""FastDataModule, and what Lightning's Trainer makes of a FastLoader, on one process."""

import inspect
import types

import pytest
import torch
from lightning_runs import fit, import_lightning, make_model, make_trainer
from pictures import plain_folder
from torch.utils.data import DataLoader, DistributedSampler

import fastloader
from fastloader import FastLoader
from fastloader.compat.prefetch_generator import DataLoaderX
from fastloader.compat.timm.loader import ErasingLoader
from support import MEAN, STD, Pictures, generator

# Lightning's warnings have classes of its own. pytest-xdist imports Lightning to show them, where nobody
# has imported torchvision for it.
pytestmark = [pytest.mark.covering, pytest.mark.filterwarnings("ignore")]

COUNT = 11
EACH_STEP = {"every_n_train_steps": 1}
EACH_EPOCH = {"every_n_epochs": 1, "save_on_train_epoch_end": True}
BEHIND_VALIDATION = {"monitor": "loss", "save_on_train_epoch_end": False}


@pytest.fixture(scope="module")
def lightning():
    return import_lightning()


@pytest.fixture(scope="module")
def module_of(lightning):
    """Makes a FastDataModule whose hook calls ``make``, or another data module's class."""
    from fastloader.compat.lightning import FastDataModule

    def module_of(make, base=FastDataModule, **methods):
        hook = {"train_dataloader": lambda self: make()}
        return type("Data", (base,), {**hook, **methods})()

    return module_of


def shuffled(kind=FastLoader, **options):
    return kind(Pictures(COUNT), 3, shuffle=True, generator=generator(3), **options)


LOADERS = {
    "plain": shuffled,
    "drop_last": lambda: shuffled(drop_last=True),
    "workers": lambda: shuffled(num_workers=2, persistent_workers=True),
    "delivered": lambda: shuffled(device="cpu", mean=MEAN, std=STD, num_workers="auto"),
    "exact": lambda: FastLoader(Pictures(12), 3, shuffle=True, generator=generator(5)),
}


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize(
    "saving", [EACH_EPOCH, EACH_STEP, BEHIND_VALIDATION], ids=["epoch", "step", "val"]
)
def test_every_checkpoint_goes_on_exactly(lightning, module_of, tmp_path, name, saving):
    make = LOADERS[name]
    methods = {}
    if "monitor" in saving:
        methods["val_dataloader"] = lambda self: DataLoader(Pictures(4), 4)
    straight, _ = fit(lightning, module_of(make, **methods), tmp_path, saving)
    length = len(make())
    assert [epoch for epoch, _ in straight] == [epoch for epoch in range(3) for _ in range(length)]
    assert len({str(straight[at * length : at * length + length]) for at in range(3)}) == 3
    stops = (1, length - 1, length, length + 1, 2 * length)
    for done in stops if saving is EACH_STEP else (length, 2 * length):
        checkpoint = tmp_path / f"step={done}.ckpt"
        resumed, _ = fit(
            lightning, module_of(make, **methods), tmp_path / "again", saving, checkpoint
        )
        assert resumed == straight[done:], done


def test_without_it_lightning_repeats_the_first_orders(lightning, module_of, tmp_path):
    """What docs/frameworks.md tells of Lightning. If this fails, Lightning loads these states now, and
    FastDataModule is no longer needed."""
    base = lightning.LightningDataModule
    straight, _ = fit(lightning, module_of(shuffled, base), tmp_path, EACH_EPOCH)
    checkpoint = tmp_path / "step=4.ckpt"
    resumed, _ = fit(lightning, module_of(shuffled, base), tmp_path / "again", None, checkpoint)
    orders = [[keys for _, keys in straight[at : at + 4]] for at in (0, 4, 8)]
    assert [[keys for _, keys in resumed[at : at + 4]] for at in (0, 4)] == orders[:2]
    assert orders[0] != orders[1]


@pytest.mark.parametrize("stop", [3, 4, 5, 8])
def test_steps_are_counted(lightning, module_of, tmp_path, stop):
    """With max_steps, Lightning loads the states of epochs' ends as well."""
    options = {"max_steps": 11, "max_epochs": -1}
    straight, _ = fit(lightning, module_of(shuffled), tmp_path, EACH_STEP, **options)
    assert len(straight) == 11
    checkpoint = tmp_path / f"step={stop}.ckpt"
    resumed, _ = fit(lightning, module_of(shuffled), tmp_path / "x", None, checkpoint, **options)
    assert resumed == straight[stop:]


def test_epochs_that_end_early(lightning, module_of, tmp_path):
    options = {"limit_train_batches": 2}
    straight, _ = fit(lightning, module_of(shuffled), tmp_path, EACH_EPOCH, **options)
    assert len(straight) == 6
    checkpoint = tmp_path / "step=2.ckpt"
    resumed, _ = fit(lightning, module_of(shuffled), tmp_path / "x", None, checkpoint, **options)
    assert resumed == straight[2:]


@pytest.mark.parametrize("combined", ["nested", "CombinedLoader"])
def test_several_loaders(lightning, module_of, tmp_path, combined):
    def make():
        other = FastLoader(Pictures(8, seed=1), 2, shuffle=True, generator=generator(7))
        plain = DataLoader(Pictures(8, seed=2), 2)  # which has no state
        loaders = {"a": shuffled(), "b": [plain, other]}
        if combined == "nested":
            return loaders
        return lightning.utilities.CombinedLoader(loaders, "min_size")

    straight, trainer = fit(lightning, module_of(make), tmp_path, EACH_EPOCH)
    assert len(fastloader.check(trainer).loaders) == 2
    checkpoint = tmp_path / "step=4.ckpt"
    resumed, _ = fit(lightning, module_of(make), tmp_path / "x", None, checkpoint)
    assert resumed == straight[4:] and len(resumed) == 8


def test_another_number_of_loaders_is_refused(lightning, module_of, tmp_path):
    fit(lightning, module_of(shuffled), tmp_path, EACH_EPOCH, max_epochs=1)
    two = module_of(lambda: [shuffled(), shuffled()])
    with pytest.raises(ValueError, match=r"states of 1 training loaders, .* gives 2 FastLoaders"):
        fit(lightning, two, tmp_path / "x", None, tmp_path / "step=4.ckpt")


def test_another_dataset_is_refused(lightning, module_of, tmp_path):
    fit(lightning, module_of(shuffled), tmp_path, EACH_EPOCH, max_epochs=1)
    other = module_of(lambda: FastLoader(Pictures(9), 3, shuffle=True, generator=generator(3)))
    with pytest.raises(ValueError, match="dataset_length is 11, this loader's is 9"):
        fit(lightning, other, tmp_path / "x", None, tmp_path / "step=4.ckpt")


def test_only_fit_makes_use_of_the_states(lightning, module_of, tmp_path):
    """validate() loads them as well. A later fit() without a checkpoint begins with the first epoch."""
    validates = {"val_dataloader": lambda self: DataLoader(Pictures(4), 4)}
    straight, _ = fit(lightning, module_of(shuffled), tmp_path, EACH_EPOCH)
    data = module_of(shuffled, **validates)
    trainer = make_trainer(lightning, tmp_path, None)
    model = make_model(lightning, [])
    trainer.validate(model, datamodule=data, ckpt_path=tmp_path / "step=4.ckpt", verbose=False)
    assert "train_dataloader" not in vars(data)
    again, _ = fit(lightning, data, tmp_path / "x")
    assert again == straight


def test_what_a_module_saves_beside_them(lightning, module_of, tmp_path):
    from fastloader.compat.lightning import FastDataModule

    loaded = []

    class Own(FastDataModule):
        def state_dict(self):
            return {**super().state_dict(), "mine": 7}

        def load_state_dict(self, state_dict):
            super().load_state_dict(state_dict)
            loaded.append(state_dict["mine"])

    straight, _ = fit(lightning, module_of(shuffled, Own), tmp_path, EACH_EPOCH)
    checkpoint = tmp_path / "step=4.ckpt"
    resumed, _ = fit(lightning, module_of(shuffled, Own), tmp_path / "x", None, checkpoint)
    assert resumed == straight[4:] and loaded == [7]


def test_a_hook_of_the_instance_comes_back(lightning, tmp_path):
    """from_datasets() puts its hooks there. Its loaders are torch's, without a state."""
    from fastloader.compat.lightning import FastDataModule

    def make():
        data = FastDataModule.from_datasets(train_dataset=Pictures(COUNT), batch_size=3)
        data.train_dataloader = hook = shuffled
        return data, hook

    straight, _ = fit(lightning, make()[0], tmp_path, EACH_EPOCH)
    data, hook = make()
    resumed, _ = fit(lightning, data, tmp_path / "x", None, tmp_path / "step=4.ckpt")
    assert resumed == straight[4:]
    assert data.train_dataloader is hook
    plain = FastDataModule.from_datasets(train_dataset=Pictures(COUNT), batch_size=3)
    fit(lightning, plain, tmp_path / "plain", EACH_EPOCH, max_epochs=1)
    assert plain.state_dict() == {}


# --- what the trainer does with the loader ---------------------------------------------------------


def collate(samples):
    return torch.utils.data.default_collate(samples)


def seed_worker(worker):
    torch.manual_seed(worker)


# A value for each argument that is not its default, except those that name the samples.
ARGUMENTS = {
    "batch_size": 2,
    "num_workers": "auto",
    "collate_fn": collate,
    "pin_memory": True,
    "drop_last": True,
    "timeout": 50,
    "worker_init_fn": seed_worker,
    "multiprocessing_context": "spawn",
    "generator": generator(2),
    "prefetch_factor": 3,
    "persistent_workers": True,
    "pin_memory_device": "cuda",
    "in_order": False,
    "device": "cpu",
    "mean": MEAN,
    "std": STD,
    "dtype": torch.float16,
    "channels_last": True,
    "image_key": 0,
    "depth": "auto",
    "native": False,
    "decode": "fast",
    "truncated": "pad",
    "on_error": "skip",
    "max_errors": 3,
}
THREADS = {
    "worker_backend": "thread",
    "worker_method": "thread",
    "distributed": "auto",
    "batch": "pad",
    "pad_to": 4,
    "pad_value": 0.5,
}
RAY = {"worker_backend": "ray", "num_workers": 2, "ray_options": {"num_cpus": 2}}
SAMPLES = {"dataset", "shuffle", "sampler", "batch_sampler"}


class Louder(FastLoader):
    """A user's, with an argument of its own."""

    def __init__(self, dataset, volume=1, **kwargs):
        super().__init__(dataset, **kwargs)
        self.volume = volume


@pytest.mark.parametrize("kind", [Louder, DataLoaderX, ErasingLoader])
def test_subclasses_keep_what_they_pass_on(lightning, kind):
    make_again = pytest.importorskip("lightning.pytorch.utilities.data")._update_dataloader
    more = {"volume": 11} if kind is Louder else {}
    inspect.signature(kind).bind(Pictures(7), 2, mean=MEAN)
    loader = kind(Pictures(7), batch_size=2, mean=MEAN, std=STD, depth=3, decode="fast", **more)
    again = make_again(loader, DistributedSampler(range(7), 2, 1, shuffle=False))
    assert type(again) is kind and again.batch_size == 2
    assert (again.mean, again.std, again.depth, again.decode) == (MEAN, STD, 3, "fast")
    assert getattr(again, "volume", 11) == 11


@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize(
    "arguments", [ARGUMENTS, THREADS, RAY], ids=["processes", "threads", "ray"]
)
def test_every_argument_survives_being_made_again(lightning, module_of, hook, arguments):
    if arguments is RAY:
        pytest.importorskip("ray")
    connector = pytest.importorskip("lightning.pytorch.trainer.connectors.data_connector")
    make_again = pytest.importorskip("lightning.pytorch.utilities.data")._update_dataloader
    names = inspect.signature(FastLoader).parameters.keys()
    assert names == ARGUMENTS.keys() | THREADS.keys() | RAY.keys() | SAMPLES

    def make():
        return FastLoader(Pictures(7), shuffle=True, **arguments)

    asked = types.SimpleNamespace(dataloader=make)
    loader = connector._request_dataloader(asked) if hook else make()
    again = make_again(loader, DistributedSampler(range(7), 2, 1, shuffle=False))
    for name in arguments:
        mine, theirs = getattr(loader, name), getattr(again, name)
        assert mine is theirs or mine == theirs, name
    if arguments is ARGUMENTS:
        assert again.stats()["auto"]["num_workers"]["chosen"] == again.num_workers
    assert list(again.sampler) == [1, 3, 5, 0]


@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_order_is_dataloaders(lightning, module_of, tmp_path, hook, workers):
    runs = []
    for kind in (DataLoader, FastLoader):

        def make(kind=kind):
            return shuffled(kind, num_workers=workers)

        runs.append(fit(lightning, module_of(make) if hook else make(), tmp_path)[0])
    assert runs[0] == runs[1] and len(runs[0]) == 12


@pytest.mark.parametrize("hook", [False, True])
def test_what_the_trainer_holds_is_reported(lightning, module_of, tmp_path, monkeypatch, hook):
    """The native path stays with ``seed_everything(workers=True)``, which sets a worker_init_fn."""
    folder = fastloader.datasets.ImageFolder(
        str(plain_folder(tmp_path, 6, classes=2)),
        fastloader.transforms.Compose([fastloader.transforms.CenterCrop(8)]),
    )

    def make():
        return FastLoader(folder, 2, num_workers=1, mean=MEAN, std=STD)

    # Lightning leaves these behind for its other processes: those of other tests would inherit them.
    monkeypatch.setenv("PL_GLOBAL_SEED", "1")
    monkeypatch.setenv("PL_SEED_WORKERS", "1")
    lightning.seed_everything(1, workers=True, verbose=False)
    loader = make()
    data = module_of(make) if hook else loader
    seen, trainer = fit(lightning, data, tmp_path, max_epochs=2)
    used = trainer.train_dataloader
    assert used is loader or hook
    assert used.report().batches == used.stats()["batches"] == len(seen) == 6
    assert used.worker_init_fn is not None and used.plan().startswith("native images")
    checked = fastloader.check(trainer)
    assert checked.kept and checked.loaders == [used]
    assert used.plan().splitlines()[0] in str(checked) and "given   6 batches" in str(checked)


def test_batches_are_not_moved_again(lightning, tmp_path):
    """The transfer hooks get and give the very tensors that the loader gave."""
    given, got = [], []

    class Watched(FastLoader):
        def __iter__(self):
            for images, labels in super().__iter__():
                given.append((images, labels))
                yield images, labels

    class Model(type(make_model(lightning, []))):
        def transfer_batch_to_device(self, batch, device, dataloader_idx):
            moved = super().transfer_batch_to_device(batch, device, dataloader_idx)
            got.append(moved)
            return moved

        def training_step(self, batch, _):
            assert batch[0].dtype == torch.float32
            return self.layer(torch.ones(1, 1)).sum()

    loader = Watched(Pictures(6), 2, device="cpu", mean=MEAN, std=STD)
    trainer = make_trainer(lightning, tmp_path, None, max_epochs=1)
    trainer.fit(Model(), loader)
    assert len(got) == len(given) == 3
    for mine, theirs in zip(given, got):
        assert all(one is other for one, other in zip(mine, theirs))


def test_predict_gives_each_sample_once(lightning, tmp_path):
    loader = FastLoader(Pictures(7), 2, device="cpu", mean=MEAN, std=STD)
    trainer = make_trainer(lightning, tmp_path, None)
    assert trainer.predict(make_model(lightning, []), loader) == [[0, 1], [2, 3], [4, 5], [6]]
    assert fastloader.check(trainer).kept
    again = trainer.predict_dataloaders
    assert again is not loader and again.mean == MEAN and again.device == "cpu"


# --- Fabric ----------------------------------------------------------------------------------------


def test_fabrics_wrapper_hides_the_loader_and_check_finds_it(lightning, tmp_path):
    fabric_of = pytest.importorskip("lightning.fabric").Fabric
    fabric = fabric_of(accelerator="cpu", devices=1)
    straight = [[labels.tolist() for _, labels in each] for each in [shuffled()] for _ in range(2)]
    wrapped = fabric.setup_dataloaders(shuffled())
    assert not any(hasattr(wrapped, name) for name in ("plan", "report", "state_dict"))
    checked = fastloader.check(wrapped)
    assert checked.kept and "inside lightning's _FabricDataLoader" in str(checked)
    (loader,) = checked.loaders
    batches = iter(wrapped)
    got = [next(batches)[1].tolist() for _ in range(2)]
    assert loader.report().batches == 2
    # Fabric unwraps what it saves and loads.
    fabric.save(tmp_path / "state.ckpt", {"loader": wrapped})
    again = fabric.setup_dataloaders(shuffled())
    fabric.load(tmp_path / "state.ckpt", {"loader": again})
    got += [labels.tolist() for _, labels in again]
    assert got == straight[0]
    assert [labels.tolist() for _, labels in again] == straight[1]
