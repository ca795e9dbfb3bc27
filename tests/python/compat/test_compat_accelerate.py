"""``compat.accelerate`` beside Accelerate's own prepared loaders: the same order, the same account of
the epoch, and a FastLoader inside. Two processes: test_compat_accelerate_ranks.py."""

import copy
import importlib
import itertools
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
from accelerate_runs import COUNT, SAMPLING, Numbers, make_accelerator, observed
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
)

from fastloader import Error, FastLoader
from fastloader._core.machine import devices
from fastloader.compat.timm import RepeatAugSampler
from support import HANG, MEAN, Pictures, Stream, expected, generator, labels

accelerate = pytest.importorskip("accelerate")
DataLoaderDispatcher = accelerate.data_loader.DataLoaderDispatcher
DataLoaderShard = accelerate.data_loader.DataLoaderShard

ours = importlib.import_module("fastloader.compat.accelerate")
prepare, skip_first_batches = ours.prepare, ours.skip_first_batches

pytestmark = pytest.mark.covering


@pytest.fixture(autouse=True)
def _forget_accelerate(forget_accelerate):
    FastLoader._is_accelerate_prepared.warned = False


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seedable", [False, True])
@pytest.mark.parametrize("sampling", SAMPLING)
def test_order_and_account_are_accelerates(sampling, seedable, workers):
    accelerator = make_accelerator(use_seedable_sampler=seedable)
    passes = []
    for kind in (DataLoader, FastLoader):
        data = Numbers()
        torch.manual_seed(17)
        loader = kind(data, num_workers=workers, **SAMPLING[sampling](data))
        made = (
            accelerator.prepare if kind is DataLoader else lambda each: prepare(each, accelerator)
        )
        prepared = made(loader)
        passes.append((observed(prepared), len(prepared), torch.get_rng_state().tolist()))
    assert passes[0] == passes[1]


@pytest.mark.parametrize("dispatch", [False, True])
def test_an_iterable_dataset(dispatch):
    accelerator = make_accelerator(dispatch_batches=dispatch)
    theirs = accelerator.prepare(DataLoader(Stream(10), 4))
    made = prepare(FastLoader(Stream(10), 4), accelerator)
    assert observed(made) == observed(theirs)
    assert type(made) is (ours.FastDataLoaderDispatcher if dispatch else ours.FastDataLoaderShard)


def test_a_fastloader_is_inside(fast):
    accelerator = make_accelerator()
    data = Pictures(COUNT)
    loader = fast(data, 4)
    prepared = prepare(loader, accelerator)
    assert isinstance(prepared, FastLoader) and isinstance(prepared, DataLoaderShard)
    assert type(prepared) is ours.FastDataLoaderShard
    assert prepared.base_dataloader is not loader and type(prepared.base_dataloader) is FastLoader
    for name in ("mean", "std", "dtype", "depth", "native", "num_workers"):
        assert getattr(prepared, name) == getattr(loader, name)
    assert prepared.base_dataloader.device == loader.device
    images = torch.cat([images for images, _ in prepared])
    if fast.way == "none":
        assert torch.equal(images, data.images)
    else:
        torch.testing.assert_close(images.double(), expected(data.images), atol=1e-5, rtol=1e-5)
    assert prepared.stats()["batches"] == 3
    # The lines behind the first know of batches that have come.
    assert prepared.plan().splitlines()[0] == loader.plan().splitlines()[0]
    assert "batches" in str(prepared.report())
    prepared.close()


def test_a_subclass_and_auto_stay():
    class Own(FastLoader):
        extra = None

    accelerator = make_accelerator()
    loader = Own(Pictures(5), 2, num_workers="auto", mean=MEAN)
    loader.extra = "kept"
    prepared = prepare(loader, accelerator)
    assert type(prepared.base_dataloader) is Own and prepared.extra == "kept"
    assert "num_workers" in prepared.stats()["auto"]
    assert labels(prepared) == labels(loader) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("device", [None, "auto", "cpu"])
@pytest.mark.parametrize("placed", [True, False])
def test_the_device_is_the_accelerators_where_none_is_named(monkeypatch, device, placed):
    accelerator = make_accelerator()
    elsewhere = torch.device("meta")
    monkeypatch.setattr(type(accelerator), "device", elsewhere)
    loader = FastLoader(Pictures(4), 2, device=device)
    made = []  # as on a machine that has this device
    monkeypatch.setattr(devices, "check_device", made.append)
    prepared = prepare(loader, accelerator, device_placement=placed)
    assert made == [elsewhere if placed and device != "cpu" else device]
    assert prepared.base_dataloader.device == made[0]
    assert prepared.device == (elsewhere if placed else None)


@pytest.mark.parametrize("accumulation", [2, 3])
def test_gradients_are_synchronised_at_the_same_steps(accumulation):
    accelerator = make_accelerator(accumulation)
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    steps = []
    for loader in (
        accelerator.prepare(DataLoader(Numbers(), 2)),
        prepare(FastLoader(Numbers(), 2), accelerator),
    ):
        steps.append([])
        for _ in range(2):
            for _ in loader:
                with accelerator.accumulate(model):
                    steps[-1].append(accelerator.sync_gradients)
    assert steps[0] == steps[1]
    assert steps[0].count(True) == 2 * -(-6 // accumulation)


def test_the_plain_loader_says_nothing_of_workers():
    """There would be a warning of 64 processes, of which there are none."""
    loader = FastLoader(Numbers(), 2, num_workers=64, worker_backend="thread")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare(loader, make_accelerator())


def test_with_closes_the_loader_inside():
    loader = FastLoader(Numbers(), 4, num_workers=1, persistent_workers=True)
    with prepare(loader, make_accelerator()) as prepared:
        next(iter(prepared))
        (worker,) = prepared.base_dataloader._iterator._workers
        assert worker.is_alive()
    worker.join(HANG)
    assert not worker.is_alive()


def test_it_is_prepared_once():
    accelerator = make_accelerator()
    prepared = prepare(FastLoader(Numbers(), 2), accelerator)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, again = accelerator.prepare(torch.nn.Linear(1, 1), prepared)
    assert again is prepared and prepare(prepared, accelerator) is prepared
    assert accelerator._dataloaders == [prepared]
    accelerator.free_memory()
    assert accelerator.prepare(prepared) is prepared is accelerator._dataloaders[0]


# --- what is refused -----------------------------------------------------------------------------


def test_plain_prepare_warns_once_with_the_line_to_write():
    accelerator = make_accelerator()
    with pytest.warns(
        RuntimeWarning, match="from fastloader.compat.accelerate import prepare"
    ) as seen:
        accelerator.prepare(torch.nn.Linear(1, 1), FastLoader(Numbers(), 2))
        accelerator.prepare_data_loader(FastLoader(Numbers(), 2))
    (only,) = [each for each in seen if "FastLoader" in str(each.message)]
    assert only.filename == __file__


def test_nobody_else_is_told():
    loader = FastLoader(Numbers(), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loader._is_accelerate_prepared is False
        assert not getattr(copy.copy(loader), "_is_accelerate_prepared")  # noqa: B009
    loader._is_accelerate_prepared = True
    assert make_accelerator().prepare(loader) is loader


@pytest.mark.parametrize("policy", ["auto", "pad"])
def test_distributed_is_refused(policy, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setenv("FASTLOADER_AUDIT", "0")  # there is no other rank
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    loader = FastLoader(Numbers(), 2, distributed=policy)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=f"distributed='{policy}' .* leave distributed= out"):
        prepare(loader, make_accelerator())


@pytest.mark.parametrize("kind", [DistributedSampler, RepeatAugSampler])
def test_a_distributed_sampler_is_refused(kind):
    def make(world):
        return FastLoader(Numbers(8), 2, sampler=kind(range(8), world, 0, shuffle=False))

    with pytest.raises(ValueError, match=f"{kind.__name__} deals .* to 2 processes.* leave it out"):
        prepare(make(2), make_accelerator())
    assert labels(prepare(make(1), make_accelerator())) == labels(make(1))


def test_other_loaders_are_refused():
    accelerator = make_accelerator()
    with pytest.raises(TypeError, match="takes a FastLoader, got DataLoader"):
        prepare(DataLoader(Numbers(), 2), accelerator)
    with pytest.raises(ValueError, match="Accelerate deals out batches"):
        prepare(FastLoader(Numbers(), batch_size=None, shuffle=True), accelerator)
    assert accelerator._dataloaders == []


def test_accelerates_own_skip_is_refused():
    accelerator = make_accelerator()
    prepared = prepare(FastLoader(Numbers(), 2), accelerator)
    for skip in (accelerator.skip_first_batches, accelerate.skip_first_batches):
        with pytest.raises(Error, match=r"use skip_first_batches\(.* of fastloader\.compat"):
            skip(prepared, 2)


# --- the rest of an epoch ------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("seedable", [False, True])
@pytest.mark.parametrize("sampling", SAMPLING)
def test_skipping_reads_nothing(sampling, seedable):
    """The rest of any epoch, and then the next epoch, which Accelerate's own function repeats."""
    accelerator = make_accelerator(use_seedable_sampler=seedable)

    def make():
        torch.manual_seed(4)
        data = Numbers()
        return prepare(FastLoader(data, **SAMPLING[sampling](data)), accelerator)

    straight = make()
    epochs = [labels(straight) for _ in range(4)]
    for epoch, count in itertools.product(range(2), range(len(epochs[0]) + 2)):
        prepared = make()
        for _ in range(epoch):
            list(prepared)
        prepared.dataset.read.clear()
        rest = skip_first_batches(prepared, count)
        assert type(rest) is ours.FastDataLoaderShard and isinstance(rest, FastLoader)
        assert len(rest) == max(0, len(prepared) - count)
        assert labels(rest) == epochs[epoch][count:]
        read = [key for batch in epochs[epoch][count:] for key in batch]
        assert prepared.dataset.read == read
        if count < len(epochs[0]):  # of an epoch without a batch Accelerate counts none
            assert prepared.iteration == rest.iteration == epoch + 1
            assert [labels(prepared) for _ in range(2)] == epochs[epoch + 1 : epoch + 3]


def test_skipping_twice_and_nothing():
    prepared = prepare(FastLoader(Numbers(), 2), make_accelerator())
    assert labels(skip_first_batches(skip_first_batches(prepared, 2), 1)) == [[6, 7], [8, 9], [10]]
    assert len(labels(skip_first_batches(prepared))) == 6
    with pytest.raises(ValueError, match="num_batches=-1"):
        skip_first_batches(prepared, -1)


@pytest.mark.parametrize("dispatch", [False, True])
def test_skipping_in_an_iterable_dataset(dispatch):
    accelerator = make_accelerator(dispatch_batches=dispatch)
    prepared = prepare(FastLoader(Stream(10), 3), accelerator)
    assert labels(skip_first_batches(prepared, 2)) == [[6, 7, 8], [9]]
    assert labels(skip_first_batches(skip_first_batches(prepared, 2), 1)) == [[9]]
    assert labels(prepared) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def test_other_loaders_are_left_to_accelerate():
    assert labels(skip_first_batches(DataLoader(Numbers(5), 2), 1)) == [[2, 3], [4]]


# --- the rest ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies(copied):
    prepared = prepare(FastLoader(Numbers(), 4), make_accelerator())
    again = copied(prepared)
    assert type(again) is ours.FastDataLoaderShard and isinstance(again, ours.PreparedLoader)
    assert labels(again) == labels(prepared)


class Told(Numbers):
    """Gives the epoch that it was told."""

    epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return torch.zeros(1), self.epoch


def test_datasets_are_told_the_epoch_in_persistent_workers():
    """Accelerate tells the one in this process, of which the workers have copies."""
    loader = FastLoader(Told(), 4, num_workers=1, persistent_workers=True)
    prepared = prepare(loader, make_accelerator())
    seen = [labels(prepared)[0][0] for _ in range(2)]
    prepared.set_epoch(7)
    assert [*seen, labels(prepared)[0][0]] == [0, 1, 7] and prepared.iteration == 8
    prepared.close()


def test_accelerate_finds_its_own_batch_sampler():
    """Which it changes: join_uneven_inputs."""
    prepared = prepare(FastLoader(Numbers(), 4), make_accelerator())
    assert type(prepared.batch_sampler) is BatchSampler
    assert prepared.get_sampler() is prepared.batch_sampler.sampler


def test_dispatching_in_one_process():
    accelerator = make_accelerator(dispatch_batches=True)
    theirs = accelerator.prepare(DataLoader(Numbers(), 3, shuffle=True, generator=generator(1)))
    made = prepare(FastLoader(Numbers(), 3, shuffle=True, generator=generator(1)), accelerator)
    assert isinstance(made, DataLoaderDispatcher)
    assert observed(made) == observed(theirs) and len(made) == len(theirs) == 4
    assert len(labels(skip_first_batches(made, 3))) == 1


@pytest.mark.processes
def test_nothing_of_accelerate_is_patched():
    source = (
        "import accelerate, accelerate.data_loader as d\n"
        "from accelerate.accelerator import Accelerator as A\n"
        "before = [{**vars(each)} for each in (accelerate, d, A, d.DataLoaderShard)]\n"
        "import torch, fastloader.compat.accelerate as ours, fastloader\n"
        "a = A(cpu=True)\n"
        "loader = ours.prepare(fastloader.FastLoader(list(range(4)), 2), a)\n"
        "list(ours.skip_first_batches(loader, 1))\n"
        "print([{**vars(each)} for each in (accelerate, d, A, d.DataLoaderShard)] == before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=HANG, check=True
    )
    assert done.stdout.strip() == "True"


def test_its_samplers_repeat_as_what_they_group():
    from accelerate.data_loader import BatchSamplerShard, SeedableRandomSampler, SkipBatchSampler

    from fastloader._core.order.position import may_repeat
    from fastloader.compat.accelerate import PreparedBatches

    for repeats in (False, True):
        sampler = SeedableRandomSampler(range(6), replacement=repeats)
        batches = BatchSampler(sampler, 2, False)
        assert may_repeat(sampler) is may_repeat(batches) is repeats
        for group in (
            lambda each: BatchSamplerShard(each, 2, 1),
            SkipBatchSampler,
            PreparedBatches,
        ):
            assert may_repeat(group(batches)) is repeats
