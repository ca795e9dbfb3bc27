"""``fastloader.check``: which loader a framework uses, whether it is ours, and what to write if not.
Accelerate and the Trainer are their own; the other classes have the frameworks' names and attributes."""

import importlib
import importlib.util
import types

import pytest
import torch
from pictures import import_torchvision
from torch.utils.data import DataLoader, DistributedSampler

import fastloader
from fastloader import DevicePrefetcher, FastLoader
from support import MEAN, STD, Pictures


def framework_class(module, name, *bases):
    made = type(name, bases, {})
    made.__module__ = module
    return made


def holder(module, name, **attributes):
    made = framework_class(module, name)()
    vars(made).update(attributes)
    return made


def test_a_loader_of_ours():
    loader = FastLoader(Pictures(5), 2, shuffle=True, mean=MEAN, std=STD)
    checked = fastloader.check(loader)
    assert checked.kept and checked.loaders == [loader]
    text = str(checked)
    assert text == repr(checked)
    assert text.splitlines() == [
        "FastLoader: FastLoader",
        f"  plan    {loader.plan().splitlines()[0]}",
        "  order   BatchSampler of RandomSampler",
        "  given   0 batches since it was made",
    ]
    list(loader)
    assert "given   3 batches" in str(fastloader.check(loader))


def test_a_plain_loader():
    checked = fastloader.check(DataLoader(Pictures(5)))
    assert not checked.kept and checked.loaders == []
    assert "a plain DataLoader, so device" in str(checked)
    assert "write   FastLoader(...) in the place of DataLoader(...)" in str(checked)


def test_a_share_is_named():
    sampler = DistributedSampler(range(6), 3, 1)
    assert "order   rank 1 of 3, by DistributedSampler" in str(
        fastloader.check(FastLoader(Pictures(6), sampler=sampler))
    )


def test_looking_does_not_decide_the_shares(monkeypatch):
    """``distributed="auto"`` still follows a process group that comes later."""
    loader = FastLoader(Pictures(6), 2, distributed="auto")
    str(fastloader.check(loader))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setenv("FASTLOADER_AUDIT", "0")  # there is no other rank
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group=None: 1)
    assert list(loader.sampler) == [1, 3, 5]
    assert "rank 1 of 2, by ShardSampler" in str(fastloader.check(loader))


@pytest.mark.parametrize(
    ("module", "name", "attribute", "remedy"),
    [
        ("lightning.pytorch.trainer.trainer", "Trainer", "train_dataloader", "trainer.fit()"),
        ("pytorch_lightning.trainer.trainer", "Trainer", "val_dataloaders", "trainer.fit()"),
        ("lightning_fabric.wrappers", "_FabricDataLoader", "_dataloader", "trainer.fit()"),
        ("accelerate.data_loader", "DataLoaderAdapter", "base_dataloader", "compat.accelerate"),
        ("ray.train.torch.train_loop_utils", "_WrappedDataLoader", "_dataloader", "prepare_data_l"),
        ("deepspeed.runtime.engine", "DeepSpeedEngine", "training_dataloader", "initialize()"),
        ("torchtitan.train", "Trainer", "dataloader", "TitanLoader(loader)"),
    ],
)
def test_what_frameworks_hold(module, name, attribute, remedy):
    ours, plain = FastLoader(Pictures(4)), DataLoader(Pictures(4))
    kept = fastloader.check(holder(module, name, **{attribute: ours}))
    assert kept.kept and kept.loaders == [ours]
    package = module.partition(".")[0].partition("_")[2] or module.partition(".")[0]
    package = "lightning" if "lightning" in module else package
    assert f"inside {package}'s {name}" in str(kept)
    lost = fastloader.check(holder(module, name, **{attribute: plain}))
    assert not lost.kept and remedy in str(lost)
    nothing = fastloader.check(holder(module, name, **{attribute: None}))
    assert not nothing.kept and str(nothing).startswith("no loader yet")


def test_a_subclass_of_a_trainer_and_what_it_nests():
    loader = FastLoader(Pictures(4))
    base = framework_class("transformers.trainer", "Trainer")
    trainer = framework_class("my.script", "MyTrainer", base)()
    handler = holder("transformers.trainer_callback", "CallbackHandler", train_dataloader=loader)
    trainer.callback_handler = handler
    handler.eval_dataloader = holder(
        "accelerate.data_loader", "DataLoaderAdapter", base_dataloader=DataLoader(Pictures(2))
    )
    checked = fastloader.check(trainer)
    assert [each.place for each in checked.found] == [
        "MyTrainer.train_dataloader",
        "MyTrainer.eval_dataloader",
    ]
    assert not checked.kept and checked.loaders == [loader]
    assert "FastTrainerMixin" in str(checked)


def test_an_adapter_that_lies_about_its_class():
    """Accelerate's gives the class of the loader inside."""

    class DataLoaderAdapter:
        @property
        def __class__(self):
            return type(self.base_dataloader)

    DataLoaderAdapter.__module__ = "accelerate.data_loader"
    adapter = DataLoaderAdapter()
    adapter.base_dataloader = DataLoader(Pictures(2))
    assert isinstance(adapter, DataLoader)
    assert not fastloader.check(adapter).kept
    adapter.base_dataloader = FastLoader(Pictures(2))
    assert fastloader.check(adapter).loaders == [adapter.base_dataloader]


def test_collections_and_our_own_wrappers():
    loaders = [FastLoader(Pictures(4)) for _ in range(3)]
    checked = fastloader.check(
        {"a": loaders[0], "b": (loaders[1], DevicePrefetcher(loaders[2], "cpu"))}
    )
    assert checked.loaders == loaders
    assert [each.place for each in checked.found] == ["dict['a']", "dict['b'][0]", "dict['b'][1]"]
    assert fastloader.check([loaders[0], loaders[0]]).loaders == loaders[:1]
    assert not fastloader.check([]).kept


def test_a_loader_that_a_framework_has_made_again():
    """The user's own handle tells of the one that is used in its place."""
    loader = FastLoader(Pictures(4))
    kind = ("accelerate.data_loader", "DataLoaderAdapter")
    shard = holder(*kind, base_dataloader=DataLoader(loader.dataset))
    other = holder(*kind, base_dataloader=DataLoader(Pictures(4)))
    checked = fastloader.check(loader)
    assert not checked.kept and checked.loaders == [loader]
    assert "held by DataLoaderAdapter: a plain DataLoader" in str(checked)
    assert [each.loader for each in checked.beside] == [shard.base_dataloader]
    assert fastloader.check(other.base_dataloader).beside == ()
    shard.base_dataloader = loader
    checked = fastloader.check(loader)
    assert checked.kept and checked.beside == ()


@pytest.fixture
def accelerate(forget_accelerate):
    return pytest.importorskip("accelerate")


def test_accelerates_own_loaders(accelerate):
    """What our `prepare` and `skip_first_batches` give is kept, and what Accelerate's gives is not."""
    ours = importlib.import_module("fastloader.compat.accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    given = FastLoader(Pictures(6), 2, shuffle=True, mean=MEAN, std=STD)
    prepared = ours.prepare(given, accelerator)
    inside = prepared.base_dataloader
    rest = ours.skip_first_batches(prepared, 1)
    for thing, loader in ((prepared, inside), (accelerator, inside), (rest, rest.base_dataloader)):
        checked = fastloader.check(thing)
        assert checked.kept and checked.loaders == [loader], checked
        assert "inside accelerate's" in str(checked)
        assert loader.plan().splitlines()[0] in str(checked)
    # The user's own handle, which Accelerate has replaced.
    assert [each.loader for each in fastloader.check(given).beside][:1] == [inside]
    plain = accelerator.prepare(DataLoader(given.dataset))
    for thing in (plain, accelerator, given):
        checked = fastloader.check(thing)
        assert not checked.kept
        assert "write   from fastloader.compat.accelerate import prepare" in str(checked)


def test_the_share_under_accelerate(accelerate, monkeypatch):
    ours = importlib.import_module("fastloader.compat.accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    loader = ours.prepare(FastLoader(Pictures(6), 2), accelerator)
    assert "order   BatchSampler of SequentialSampler" in str(fastloader.check(loader))
    shard = accelerate.data_loader.BatchSamplerShard(loader.batches.batches, 2, 1)
    monkeypatch.setattr(loader.batches, "batches", shard)
    assert "order   rank 1 of 2, by BatchSamplerShard" in str(fastloader.check(loader))


@pytest.mark.parametrize("mixin", [True, False])
def test_the_trainers_own_loaders(accelerate, tmp_path, mixin):
    if importlib.util.find_spec("torchvision") is not None:  # transformers imports it
        import_torchvision()
    transformers = pytest.importorskip("transformers")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x, labels=None):
            logits = self.layer(x)
            return {"loss": (logits[:, 0] - labels).square().mean(), "logits": logits}

    bases = (transformers.Trainer,)
    if mixin:
        ours = importlib.import_module("fastloader.compat.transformers")
        bases = (ours.FastTrainerMixin, *bases)
    rows = [{"x": torch.ones(1), "labels": float(index)} for index in range(4)]
    arguments = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = type("Mine", bases, {})(Model(), arguments, train_dataset=rows, eval_dataset=rows)
    assert str(fastloader.check(trainer)).startswith("no loader yet")
    trainer.train()
    trainer.evaluate()
    checked = fastloader.check(trainer)
    places = [each.place for each in checked.found]
    assert places == ["Mine.train_dataloader", "Mine.eval_dataloader"]
    assert checked.kept == mixin and len(checked.loaders) == 2 * mixin
    write = "class MyTrainer(FastTrainerMixin, Trainer)"
    assert str(checked).count(write) == (0 if mixin else 2)


def test_a_process_with_odd_classes():
    """Of a native class, ``__module__`` need not be a string. All objects are looked at."""

    class Odd:
        __module__ = property(lambda self: "x")

    kept = [Odd()]
    assert fastloader.check(FastLoader(Pictures(4))).kept and kept


def test_anything_else_is_refused():
    with pytest.raises(TypeError, match="got SimpleNamespace"):
        fastloader.check(types.SimpleNamespace(dataloader=1))
