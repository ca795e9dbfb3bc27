"""Lightning's Trainer and Fabric on two processes over gloo: each sample once, in DataLoader's order,
and every checkpoint goes on exactly."""

import pytest
from lightning_runs import import_lightning
from torchrun import torchrun

pytestmark = pytest.mark.covering

SOURCE = """
    from pathlib import Path
    from torch.utils.data import DataLoader
    from lightning_runs import fit, import_lightning, make_model, make_trainer
    from support import MEAN, STD
    import fastloader
    lightning = import_lightning()
    from fastloader.compat.lightning import FastDataModule
    DDP = {"devices": WORLD, "strategy": "ddp"}
    EACH_EPOCH = {"every_n_epochs": 1, "save_on_train_epoch_end": True}
    EACH_STEP = {"every_n_train_steps": 1}
    folder = Path(OUT).parent / "checkpoints"

    def module_of(make, base=FastDataModule):
        return type("Data", (base,), {"train_dataloader": lambda self: make()})()
"""


@pytest.fixture(scope="module", autouse=True)
def _lightning():
    import_lightning()


def spread(ranks):
    """{epoch: the samples of all ranks, sorted} of what each rank has seen."""
    epochs = {}
    for seen in ranks:
        for epoch, keys in seen:
            epochs.setdefault(epoch, []).extend(keys)
    return {epoch: sorted(keys) for epoch, keys in epochs.items()}


@pytest.mark.processes
def test_each_sample_once_in_dataloaders_order(tmp_path):
    """A loader that was handed over, one that a hook made, and ``distributed="auto"``. Lightning makes
    the first two again with a sampler of its own, and every argument is kept."""
    source = """
    def options(kind):
        extra = {} if kind is DataLoader else {
            "device": "cpu", "mean": MEAN, "std": STD, "channels_last": True, "depth": "auto",
        }
        return {"batch_size": 3, "shuffle": True, **extra}

    results = {}
    for name, kind, hook, more in (
        ("torch", DataLoader, False, {}),
        ("torch in a hook", DataLoader, True, {}),
        ("handed", FastLoader, False, {"num_workers": "auto"}),
        ("hook", FastLoader, True, {"num_workers": "auto"}),
        ("workers", FastLoader, True, {"num_workers": 1, "persistent_workers": True}),
        ("distributed", FastLoader, False, {"distributed": "auto"}),
    ):
        def make():
            return kind(Pictures(12), **options(kind), **more)
        given = make()
        data = module_of(make, lightning.LightningDataModule) if hook else given
        seen, trainer = fit(lightning, data, folder, **DDP)
        used = trainer.train_dataloader
        results[name] = seen
        if kind is FastLoader:
            names = ("device", "mean", "std", "channels_last", "depth")
            kept = [getattr(used, name) for name in names]
            assert kept == ["cpu", MEAN, STD, True, "auto"], kept
            if more.get("num_workers") == "auto":
                assert used.stats()["auto"]["num_workers"]["chosen"] == used.num_workers
            assert (used is given) == (name == "distributed")
            checked = fastloader.check(trainer)
            assert checked.kept and f"rank {RANK} of 2" in str(checked), str(checked)
            assert used.report().batches == len(seen)
            # The user's own handle tells of the loader that Lightning has made from it.
            found = fastloader.check(given)
            assert found.loaders == [given] and found.kept
            if not hook and used is not given:
                assert any(each.loader is used for each in found.beside), str(found)
    report(results)
    """
    ranks = torchrun(tmp_path, 2, SOURCE + source.lstrip("\n"), group=False)
    for name in ranks[0]:
        mine = [rank[name] for rank in ranks]
        assert spread(mine) == {epoch: list(range(12)) for epoch in range(3)}, name
        wanted = "torch" if name in ("torch", "handed", "distributed") else "torch in a hook"
        assert mine == [rank[wanted] for rank in ranks], name
    assert ranks[0]["torch"][:2] != ranks[0]["torch"][2:4]


@pytest.mark.processes
@pytest.mark.parametrize("distributed", ["auto", None])
def test_every_checkpoint_goes_on_exactly(tmp_path, distributed):
    """The checkpoints of an epoch's end, which Lightning's own way repeats from, too."""
    source = """
    def make():
        return FastLoader(Pictures(12), 2, shuffle=True, distributed=ARGUMENT, num_workers=1)

    results = []
    for number, saving in enumerate((EACH_STEP, EACH_EPOCH)):
        place = folder / str(number)
        straight, _ = fit(lightning, module_of(make), place, saving, **DDP)
        for done in (1, 2, 3, 4, 6) if saving is EACH_STEP else (3, 6):
            checkpoint = place / f"step={done}.ckpt"
            again = folder / f"again{number}-{done}"
            resumed, _ = fit(lightning, module_of(make), again, None, checkpoint, **DDP)
            assert resumed == straight[done:], (done, resumed, straight)
        results.append(straight)
    report(results)
    """
    ranks = torchrun(tmp_path, 2, SOURCE + source.lstrip("\n"), distributed, group=False)
    for run in range(2):
        assert spread([rank[run] for rank in ranks]) == {e: list(range(12)) for e in range(3)}
    assert ranks[0][0][:3] != ranks[0][0][3:6]


@pytest.mark.processes
def test_fabric(tmp_path):
    """Fabric makes the loader again with a sampler of its own; its wrapper numbers the epochs from 0."""
    source = """
    from lightning.fabric import Fabric
    fabric = Fabric(accelerator="cpu", devices=WORLD, strategy="ddp")
    fabric.launch()

    def make(kind, **more):
        return fabric.setup_dataloaders(kind(Pictures(12), 2, shuffle=True, **more))

    results = {}
    for name, kind, more in (
        ("torch", DataLoader, {}),
        ("fast", FastLoader, {"num_workers": "auto", "mean": MEAN, "std": STD}),
        ("distributed", FastLoader, {"distributed": "auto"}),
    ):
        loader = make(kind, **more)
        results[name] = straight = [
            [epoch, labels.tolist()] for epoch in range(3) for _, labels in loader
        ]
        if kind is DataLoader:
            continue
        (inside,) = fastloader.check(loader).loaders
        assert inside.num_workers >= 0 and inside.mean == more.get("mean")
        for stop in (1, 3, 4, 6):  # of three batches an epoch
            loader = make(kind, **more)
            steps = (labels.tolist() for _ in range(3) for _, labels in loader)
            got = [next(steps) for _ in range(stop)]
            path = str(folder / f"{name}{stop}.ckpt")
            fabric.save(path, {"loader": loader})
            again = make(kind, **more)
            fabric.load(path, {"loader": again})
            # Behind a last batch comes the empty rest of that epoch, as docs/resume.md says.
            rest = [labels.tolist() for _ in range(4) for _, labels in again]
            assert rest[: 9 - stop] == [keys for _, keys in straight[stop:]], (name, stop)
    report(results)
    """
    ranks = torchrun(tmp_path, 2, SOURCE + source.lstrip("\n"), group=False)
    for name in ranks[0]:
        mine = [rank[name] for rank in ranks]
        assert spread(mine) == {epoch: list(range(12)) for epoch in range(3)}, name
        assert mine == [rank["torch"] for rank in ranks], name
