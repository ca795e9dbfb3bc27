"""What frameworks do to a loader: they make it again from its arguments, number its epochs, seed its
workers, and shard what it gives."""

import copy
import functools
import importlib
import inspect
import json
import pickle
import subprocess
import sys
import types

import pytest
import torch
from pictures import import_torchvision, plain_folder
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

from fastloader import Error, FastLoader, transforms
from fastloader._core.machine import devices, limits
from fastloader._core.order import trainers
from fastloader._core.order.distributed import ShardSampler
from fastloader.compat.timm import ImageDataset, create_loader
from fastloader.datasets import ImageFolder
from support import HANG, MEAN, STD, Pictures, labels, same


def framework(name):
    """The module, or skips."""
    import_torchvision()  # which lightning and transformers import
    pytest.importorskip(name.partition(".")[0])
    return importlib.import_module(name)


@pytest.fixture
def one_rank():
    """A process group of this process alone."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def rank_of_two(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setenv("FASTLOADER_AUDIT", "0")  # there is no other rank
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)


def rebuilt(loader, **changes):
    """As Lightning does it: what the constructor takes is read off the attributes."""
    parameters = dict(inspect.signature(loader.__init__).parameters)
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        parameters |= inspect.signature(DataLoader.__init__).parameters
    arguments = {
        name: value
        for name, value in vars(loader).items()
        if name in parameters and value is not parameters[name].default
    }
    arguments |= {"shuffle": False, "batch_sampler": None, "sampler": loader.sampler, **changes}
    return type(loader)(**arguments)


# --- worker_init_fn ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "name", "options"),
    [
        ("lightning.fabric.utilities.seed", "pl_worker_init_function", {"rank": 1}),
        ("transformers.trainer_utils", "seed_worker", {"num_workers": 2, "rank": 0}),
    ],
)
def test_functions_that_only_seed_workers_keep_the_native_path(tmp_path, module, name, options):
    init = functools.partial(getattr(framework(module), name), **options)
    arrays = TensorDataset(torch.arange(7))
    loader = FastLoader(arrays, 2, num_workers=1, worker_init_fn=init)
    assert loader.plan().startswith("arrays")
    assert [x.tolist() for (x,) in loader] == [[0, 1], [2, 3], [4, 5], [6]]
    folder = ImageFolder(
        str(plain_folder(tmp_path, 4, classes=2)), transforms.Compose([transforms.CenterCrop(8)])
    )
    with FastLoader(folder, 2, worker_init_fn=functools.partial(init)) as loader:
        assert loader.plan().startswith("native images")
        assert sum(len(classes) for _, classes in loader) == 4


def test_any_other_function_runs_in_workers():
    def seed_worker(worker):
        torch.manual_seed(worker)
        noted.append(worker)

    noted = []
    arrays = TensorDataset(torch.arange(4))
    loader = FastLoader(arrays, num_workers=1, worker_init_fn=seed_worker)
    assert "worker_init_fn is" in loader.plan()


# --- num_workers="auto" --------------------------------------------------------------------------


def test_auto_is_remembered_by_the_number(monkeypatch):
    monkeypatch.setattr(limits, "threads_within", lambda _quota: 3)
    loader = FastLoader(Pictures(5), 2, num_workers="auto")
    assert loader.num_workers == 3 and isinstance(loader.num_workers, int)
    assert f"{loader.num_workers}" == str(loader.num_workers) == "3"
    # Somewhere else there are other processors.
    monkeypatch.setattr(limits, "threads_within", lambda _quota: 1)
    for again in (rebuilt(loader), rebuilt(rebuilt(loader))):
        assert again.num_workers == 1
        assert again.stats()["auto"]["num_workers"]["chosen"] == 1
        assert len(list(again)) == 3
    loader.num_workers = again.num_workers
    assert loader.stats()["auto"]["num_workers"]["chosen"] == 1
    loader.num_workers = 0
    assert "auto" not in loader.stats()
    for copied in (copy.deepcopy(again), pickle.loads(pickle.dumps(again))):
        assert copied.stats()["auto"]["num_workers"]["chosen"] == 1


def test_a_state_of_auto_is_made_of_plain_numbers(tmp_path):
    loader = FastLoader(Pictures(5), 2, num_workers="auto")
    state = loader.state_dict()
    assert type(state["num_workers"]) is int
    assert json.loads(json.dumps(state)) == state
    torch.save(state, tmp_path / "state")
    assert torch.load(tmp_path / "state", weights_only=True) == state


def test_lightning_keeps_auto():
    data = framework("lightning.fabric.utilities.data")
    loader = FastLoader(Pictures(6), 2, num_workers="auto", shuffle=True)
    again = data._update_dataloader(loader, DistributedSampler(range(6), 2, 0, shuffle=False))
    assert again.stats()["auto"]["num_workers"]["chosen"] == again.num_workers
    assert labels(again) == [[0, 2], [4]]


# --- the device ----------------------------------------------------------------------------------


@pytest.fixture
def two_gpus(monkeypatch):
    """torch finds two GPUs, and fails the test where CUDA would be started."""

    def start(*_):
        raise AssertionError("CUDA is started")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("is_available", "current_device", "_lazy_init", "get_device_name"):
        monkeypatch.setattr(torch.cuda, name, start)
    monkeypatch.setattr(devices, "accelerator_type", start)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda", 0), "auto"])
def test_the_constructor_does_not_start_cuda(two_gpus, monkeypatch, device):
    """The device is the current one at the first iter(), and stays it."""
    loader = FastLoader(Pictures(4), 2, device=device)
    copied = pickle.loads(pickle.dumps(loader))
    asked = []
    monkeypatch.setattr(
        devices, "resolve_device", lambda name: asked.append(name) or torch.device("cpu")
    )
    monkeypatch.setattr(devices, "forced_backend", lambda: "")
    for each in (loader, copied):
        asked.clear()
        assert labels(each) == labels(each) == [[0, 1], [2, 3]]
        assert asked == [device] and each.stats()["device"] == "cpu"


def test_timms_loader_does_not_start_cuda(two_gpus, tmp_path):
    data = ImageDataset(str(plain_folder(tmp_path, 4, classes=2)))
    loader = create_loader(
        data, 8, 2, num_workers=0, device="cuda", is_training=True, color_jitter=None
    )
    assert loader.device == torch.device("cuda") and loader.is_cuda


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_cuda_without_a_gpu_is_refused_at_construction(two_gpus, monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="finds no cuda device"):
        FastLoader(Pictures(4), device=device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="there are 2 cuda devices"):
        FastLoader(Pictures(4), device="cuda:2")


def test_a_device_without_a_number_is_the_current_one_when_it_is_resolved(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert devices.resolve_device("cuda") == torch.device("cuda", 1)
    assert devices.resolve_device("cuda:0") == torch.device("cuda", 0)
    assert devices.check_device("cuda") == torch.device("cuda")


# --- Fabric --------------------------------------------------------------------------------------


def fabrics_loader(loader):
    wrappers = framework("lightning.fabric.wrappers")
    return wrappers._FabricDataLoader(loader)


def fabric_loader_of(kind):
    if kind == "distributed=":
        return FastLoader(Pictures(8), 2, shuffle=True, distributed="auto")
    sampler = DistributedSampler(range(8), 1, 0, shuffle=True)
    return FastLoader(Pictures(8), 2, sampler=sampler)


@pytest.mark.parametrize("kind", ["distributed=", "DistributedSampler"])
@pytest.mark.parametrize("stop", [(0, 4), (1, 2), (2, 0), (2, 3)])
def test_fabric_counts_from_0_in_each_process(one_rank, kind, stop):
    """It says set_epoch(0) to the sampler of a loader that goes on in the middle of epoch 2."""
    whole = [labels(each) for each in [fabrics_loader(fabric_loader_of(kind))] for _ in range(4)]
    assert len({str(epoch) for epoch in whole}) == 4
    epochs, batches = stop
    loader = fabric_loader_of(kind)
    fabrics = fabrics_loader(loader)
    for _ in range(epochs):
        list(fabrics)
    iterator = iter(fabrics)
    got = [next(iterator)[1].tolist() for _ in range(batches)]
    if not batches:  # between two epochs
        fabrics = fabrics_loader(loader)
    assert got == whole[epochs][:batches]
    state = loader.state_dict()
    again = fabric_loader_of(kind)
    again.load_state_dict(state)
    fabrics = fabrics_loader(again)
    passes = [labels(fabrics) for _ in range(4 - epochs)]
    assert passes == [whole[epochs][batches:], *whole[epochs + 1 :]]


def test_another_caller_is_held_to_its_number(one_rank):
    loader = fabric_loader_of("distributed=")
    iterator = iter(loader)
    next(iterator)
    again = fabric_loader_of("distributed=")
    again.load_state_dict({**loader.state_dict(), "epoch": 2})
    again.sampler.set_epoch(0)
    with pytest.raises(ValueError, match=r"middle of epoch 2, but then set_epoch\(0\)"):
        iter(again)


def test_a_fabric_that_counts_otherwise_is_named(monkeypatch):
    module = types.ModuleType("lightning.fabric.wrappers")
    source = "class Wrapper:\n def __iter__(self):\n  yield from self._dataloader\n"
    exec(source, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    wrapper = module.Wrapper()
    wrapper._dataloader = FastLoader(Pictures(4), 2)
    with pytest.raises(Error, match="keeps its count of epochs elsewhere"):
        list(wrapper)
    assert trainers.fabrics_epoch(wrapper._dataloader) is None


# --- sharding twice ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["auto", "pad", "exact"])
@pytest.mark.parametrize("batched", [True, False])
def test_accelerate_would_deal_out_the_share_once_more(rank_of_two, policy, batched):
    prepare = framework("accelerate.data_loader").prepare_data_loader
    loader = FastLoader(Pictures(12), 2, distributed=policy)
    options = {"put_on_device": not batched, "dispatch_batches": not batched}
    prepared = prepare(loader, torch.device("cpu"), 2, 0, **options)
    name = "BatchSamplerShard" if batched else "DataLoaderDispatcher"
    with pytest.raises(Error, match=f"{name} .* would deal that share out to the ranks once more"):
        next(iter(prepared))
    # One process more or less: nothing is dealt out.
    alone = prepare(FastLoader(Pictures(12), 2, distributed=policy), torch.device("cpu"), 1, 0)
    assert labels(alone) == [[0, 2], [4, 6], [8, 10]]


def test_accelerate_makes_a_plain_loader():
    """What docs/parity.md warns of: in the order, but without delivery."""
    prepare = framework("accelerate.data_loader").prepare_data_loader
    loader = FastLoader(Pictures(5), 2, mean=MEAN, std=STD)
    prepared = prepare(loader, torch.device("cpu"), 1, 0)
    assert not isinstance(prepared, FastLoader)
    assert [images.dtype for images, _ in prepared] == [torch.uint8] * 3
    assert labels(prepared) == labels(loader)


def test_lightnings_wrapper_would_as_well(rank_of_two):
    wrapper = framework("lightning.fabric.utilities.distributed").DistributedSamplerWrapper
    shard = ShardSampler(range(8), False, 0, "pad")
    with pytest.raises(Error, match="DistributedSamplerWrapper"):
        list(DataLoader(Pictures(8), sampler=wrapper(shard, num_replicas=2, rank=0)))
    # Whoever only looks is shown the share.
    assert list(shard) == list(BatchSampler(shard, 1, False).sampler) == [0, 2, 4, 6]


# --- predict -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_lightnings_predict_wraps_the_batch_sampler(rank_of_two, workers):
    """Of a loader that was handed over, and of one that a hook made."""
    connector = framework("lightning.pytorch.trainer.connectors.data_connector")
    utilities = framework("lightning.pytorch.utilities.data")
    stages = framework("lightning.pytorch.trainer.states")

    def make():
        return FastLoader(Pictures(7), batch_size=2, distributed="exact", num_workers=workers)

    hook = types.SimpleNamespace(dataloader=make)
    for loader in (make(), connector._request_dataloader(hook)):
        predicting = stages.RunningStage.PREDICTING
        again = utilities._update_dataloader(loader, loader.sampler, mode=predicting)
        assert labels(again) == [[0, 2], [4, 6]]
        assert again.batch_sampler.seen_batch_indices == [[0, 2], [4, 6]]
        assert again.distributed == "exact"


# --- timm's erasing ------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [False, True])
def test_erasing_survives_a_rebuild(tmp_path, epochs):
    data = ImageDataset(str(plain_folder(tmp_path, 6, classes=2)))
    options = {"is_training": True, "hflip": 0, "color_jitter": None, "num_workers": 0}
    options |= {"use_prefetcher": False, "use_multi_epochs_loader": epochs, "scale": (1, 1)}
    loader = create_loader(data, 16, 3, re_prob=1.0, **options)
    assert "random_erasing" in inspect.signature(type(loader)).parameters
    if epochs:  # whose samplers are its own affair, and nothing that a framework could exchange
        again = type(loader)(data, 3, mean=loader.mean, random_erasing=loader.random_erasing)
    else:
        again = rebuilt(loader, sampler=range(6))
    for each in (loader, again, copy.deepcopy(again), pickle.loads(pickle.dumps(again))):
        for images, _ in each:
            assert ((images == 0).flatten(1).sum(1) > 0).all()
        each.close()
    lightning = framework("lightning.fabric.utilities.data")
    if not epochs:
        again = lightning._update_dataloader(loader, DistributedSampler(range(6), 2, 1))
        images, _ = next(iter(again))
        assert ((images == 0).flatten(1).sum(1) > 0).all()
        same(again.random_erasing.__dict__, loader.random_erasing.__dict__)


@pytest.mark.processes
def test_nothing_of_a_framework_is_imported():
    packages = ("lightning", "accelerate", "transformers")
    source = f"import sys, fastloader; print([name for name in {packages} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=HANG
    )
    assert done.stdout.strip() == "[]"
