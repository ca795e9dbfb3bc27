"""``FastTrainerMixin`` beside the Trainer itself: the same batches, and after any checkpoint the ones
that would have followed."""

import csv
import importlib.util
import warnings

import pytest
import torch
from pictures import import_torchvision, plain_folder
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset
from torchrun import torchrun

from fastloader import FastLoader, transforms
from fastloader.datasets import ListImages
from support import MEAN, STD, expected, random_images, same

accelerate = pytest.importorskip("accelerate")
if (
    importlib.util.find_spec("torchvision") is not None
):  # which transformers imports where it is there
    import_torchvision()
transformers = pytest.importorskip("transformers")
Trainer, DefaultDataCollator = transformers.Trainer, transformers.DefaultDataCollator

ours = importlib.import_module("fastloader.compat.transformers")
FastTrainerMixin = ours.FastTrainerMixin
prepared = importlib.import_module("fastloader.compat.accelerate")
FastDataLoaderShard, PreparedLoader = prepared.FastDataLoaderShard, prepared.PreparedLoader

pytestmark = pytest.mark.covering

COUNT = 11


@pytest.fixture(autouse=True)
def _forget_accelerate(forget_accelerate):
    pass


class FastTrainer(FastTrainerMixin, Trainer):
    pass


class Rows(Dataset):
    def __init__(self, count=COUNT):
        self.count = count
        self.read = []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        self.read.append(index)
        return {"pixel_values": torch.full((1,), float(index)), "labels": index}


class Texts(Rows):
    """With what some strategies sample by the length of. The Trainer removes it from the batches."""

    def __getitem__(self, index):
        return {**super().__getitem__(index), "input_ids": [0] * (index % 4)}


class Streamed(IterableDataset):
    def __iter__(self):
        yield from (Rows()[index] for index in range(COUNT))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []

    def forward(self, pixel_values, labels=None):
        self.seen.append((labels.tolist(), pixel_values.double().sum().item(), self.training))
        logits = self.layer(pixel_values.float().flatten(1).mean(1, keepdim=True))
        return {"loss": (logits[:, 0] - labels.float()).square().mean(), "logits": logits}


def make(kind, folder, data=None, evaluation=None, **options):
    given = {
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 4,
        "num_train_epochs": 3,
        "save_strategy": "no",
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        "logging_strategy": "no",
        "dataloader_pin_memory": False,
        "seed": 3,
        **options,
    }
    collator = given.pop("data_collator", None)
    arguments = transformers.TrainingArguments(str(folder), **given)
    data = Rows() if data is None else data() if isinstance(data, type) else data
    trainer = kind(
        Model(),
        arguments,
        train_dataset=data,
        eval_dataset=evaluation or Rows(9),
        data_collator=collator,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def run(kind, folder, checkpoint=None, **options):
    trainer = make(kind, folder, **options)
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer, trainer.model.seen


TEXTS = {"data": Texts, "evaluation": Texts(9)}
OPTIONS = {
    "by default": {},
    "accumulated": {"gradient_accumulation_steps": 2},
    "dropped": {"dataloader_drop_last": True},
    "workers": {"dataloader_num_workers": 2, "dataloader_persistent_workers": True},
    "by length of steps": {"max_steps": 8},
    "sequential": {"train_sampling_strategy": "sequential"},
    "data seed": {"data_seed": 12},
    "by length": {"train_sampling_strategy": "group_by_length", **TEXTS},
    "rebalanced": {"train_sampling_strategy": "batch_rebalance", **TEXTS},
    "not seedable": {"accelerator_config": {"use_seedable_sampler": False}},
    "dispatched": {"accelerator_config": {"dispatch_batches": True}},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", OPTIONS)
def test_the_batches_are_the_trainers(tmp_path, case):
    options = {"eval_strategy": "epoch", **OPTIONS[case]}
    _, wanted = run(Trainer, tmp_path, **options)
    trainer, got = run(FastTrainer, tmp_path, **options)
    assert got == wanted and any(training for *_, training in got)
    assert not all(training for *_, training in got)
    for loader in (trainer.get_train_dataloader(), trainer.get_eval_dataloader()):
        assert isinstance(loader, PreparedLoader) and isinstance(loader, FastLoader)


def test_arguments_are_honoured(tmp_path):
    options = {"dataloader_num_workers": 1, "dataloader_prefetch_factor": 3}
    options |= {"dataloader_persistent_workers": True, "dataloader_drop_last": True}
    trainer = make(FastTrainer, tmp_path, **options)
    loader = trainer.get_train_dataloader()
    assert (loader.num_workers, loader.prefetch_factor) == (1, 3)
    assert loader.persistent_workers and len(loader) == 5
    assert loader.worker_init_fn.func is transformers.trainer_utils.seed_worker
    # One loader for all evaluations, whose workers live on; and Accelerate has no other one.
    evaluation = trainer.get_eval_dataloader()
    assert trainer.get_eval_dataloader() is evaluation and type(evaluation) is FastDataLoaderShard
    assert [type(each) for each in trainer.accelerator._dataloaders] == [FastDataLoaderShard] * 2


def test_metrics_and_predictions(tmp_path):
    answers = []
    for kind in (Trainer, FastTrainer):
        torch.manual_seed(1)
        trainer = make(kind, tmp_path)
        answers.append([*trainer.predict(Rows(9))[:2], trainer.evaluate()["eval_loss"]])
    for one, other in zip(*answers, strict=True):
        assert (one == other).all() if hasattr(one, "all") else one == other


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "case", ["by default", "accumulated", "workers", "by length", "rebalanced", "dispatched"]
)
def test_every_checkpoint_goes_on(tmp_path, case):
    options = {"save_strategy": "steps", "save_steps": 1, **OPTIONS[case]}
    trainer, whole = run(FastTrainer, tmp_path, **options)
    accumulated = options.get("gradient_accumulation_steps", 1)
    in_epoch = [min(6, accumulated * step) for step in range(1, -(-6 // accumulated) + 1)]
    behind = [6 * epoch + step for epoch in range(3) for step in in_epoch]
    assert len(behind) == trainer.state.global_step
    for step in {1, len(behind) // 3, len(behind) // 3 + 1}:
        data = options.get("data", Rows)()
        checkpoint = f"{tmp_path}/checkpoint-{step}"
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            _, got = run(FastTrainer, tmp_path / "again", checkpoint, **{**options, "data": data})
        assert got == whole[behind[step - 1] :]
        if not options.get("dataloader_num_workers") and type(data) is Rows:
            assert data.read == [label for labels, *_ in got for label in labels]


def test_a_checkpoint_of_a_plain_trainer_goes_on(tmp_path):
    """Without a state of the loader: as many batches are skipped as the Trainer has counted."""
    options = {"save_strategy": "steps", "save_steps": 1}
    _, whole = run(Trainer, tmp_path, **options)
    for step in (4, 6, 8):
        data = Rows()
        _, got = run(FastTrainer, tmp_path / "again", f"{tmp_path}/checkpoint-{step}", data=data)
        assert got == whole[step:]
        assert data.read == [label for labels, *_ in got for label in labels]


def test_a_state_of_another_place_is_told(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 1}
    _, whole = run(FastTrainer, tmp_path, **options)
    (tmp_path / "checkpoint-2" / "fastloader_state_0.pt").replace(
        tmp_path / "checkpoint-4" / "fastloader_state_0.pt"
    )
    with pytest.warns(
        RuntimeWarning, match="it is of batch 2 in epoch 0, and the Trainer goes on with batch 4"
    ):
        _, got = run(FastTrainer, tmp_path / "again", f"{tmp_path}/checkpoint-4")
    assert got == whole[4:]


def test_a_checkpoint_of_a_run_that_had_gone_on(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 1}
    _, whole = run(FastTrainer, tmp_path, **options)
    run(FastTrainer, tmp_path / "second", f"{tmp_path}/checkpoint-7", **options)
    _, got = run(FastTrainer, tmp_path / "third", f"{tmp_path}/second/checkpoint-9", **options)
    assert got == whole[9:]


@pytest.mark.parametrize("step", [2, 6])
def test_data_skip_may_be_ignored(tmp_path, step):
    options = {"save_strategy": "steps", "save_steps": 1, "ignore_data_skip": True}
    run(FastTrainer, tmp_path, **options)
    counts = []
    for kind in (Trainer, FastTrainer):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            _, got = run(kind, tmp_path / "again", f"{tmp_path}/checkpoint-{step}", **options)
        counts.append(got)
    assert counts[0] == counts[1]


def test_a_checkpoint_of_another_batch_size_goes_on(tmp_path):
    """At the same count of steps, so that only the loader sees it."""
    run(FastTrainer, tmp_path, save_strategy="steps", save_steps=1)
    rests = []
    for kind in (Trainer, FastTrainer):
        options = {"per_device_train_batch_size": 3, "checkpoint": f"{tmp_path}/checkpoint-2"}
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            rests.append(run(kind, tmp_path / "again", **options)[1])
    (only,) = [str(each.message) for each in told if each.category is RuntimeWarning]
    assert "goes on without" in only and "batches 6, here 4" in only
    assert rests[0] == rests[1]


def test_a_loader_without_a_state_is_told(tmp_path):
    class Stateful(Rows):
        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    class Threads(FastTrainer):
        loader_options = {"worker_backend": "thread"}

    options = {"save_strategy": "steps", "save_steps": 2, "dataloader_num_workers": 1}
    with pytest.warns(RuntimeWarning, match="does not hold the place .* worker_backend='thread'"):
        _, whole = run(Threads, tmp_path, data=Stateful(), **options)
    assert not list(tmp_path.glob("checkpoint-4/fastloader*"))
    _, got = run(
        Threads, tmp_path / "again", f"{tmp_path}/checkpoint-4", data=Stateful(), **options
    )
    assert got == whole[4:]


def test_an_iterable_dataset(tmp_path):
    options = {"max_steps": 8, "save_strategy": "steps", "save_steps": 1}
    _, wanted = run(Trainer, tmp_path / "plain", data=Streamed(), **options)
    _, got = run(FastTrainer, tmp_path, data=Streamed(), **options)
    assert got == wanted
    for step in (2, 6, 7):  # of the last two the Trainer believes that they are in the first epoch
        checkpoint = f"{tmp_path}/checkpoint-{step}"
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            _, rest = run(FastTrainer, tmp_path / "again", checkpoint, data=Streamed(), **options)
        assert rest == got[step:], step


# --- pictures ------------------------------------------------------------------------------------


@pytest.fixture
def listed(tmp_path):
    """A list of pictures, with dicts as samples."""
    root = plain_folder(tmp_path / "pictures", COUNT, classes=2)
    files = sorted(each for each in root.rglob("*") if each.is_file())
    with open(tmp_path / "list.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label"])
        rows.writerows([each, number] for number, each in enumerate(files))
    chain = transforms.Compose([transforms.RandomResizedCrop(8), transforms.RandomHorizontalFlip()])
    return ListImages(str(tmp_path / "list.csv"), chain, as_dict=True)


class Normalising(FastTrainer):
    loader_options = {"mean": MEAN, "std": STD}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collator", [None, DefaultDataCollator()])
def test_pictures_are_native_and_crops_go_on(tmp_path, listed, workers, collator):
    options = {"save_strategy": "steps", "save_steps": 1, "dataloader_num_workers": workers}
    options |= {"data": listed, "data_collator": collator, "evaluation": listed}
    trainer, whole = run(Normalising, tmp_path / "out", **options)
    loader = trainer.get_train_dataloader()
    assert (
        "native images" in loader.plan() and loader.collate_fn is torch.utils.data.default_collate
    )
    (batch,) = [each for number, each in enumerate(loader) if number == 0]
    assert list(batch) == ["pixel_values", "labels"]
    assert batch["pixel_values"].dtype == torch.float32 and batch["labels"].dtype == torch.int64
    for step in (2, 6, 9):
        _, got = run(
            Normalising, tmp_path / "again", f"{tmp_path}/out/checkpoint-{step}", **options
        )
        assert got == whole[step:]
    assert len({pixels for _, pixels, _ in whole}) == len(whole)


def test_other_collators_and_datasets_keep_their_own(tmp_path, listed):
    def collate(features):
        return DefaultDataCollator()(features)

    trainer = make(FastTrainer, tmp_path, data=listed, data_collator=collate)
    assert "collate_fn" in trainer.get_train_dataloader().plan()
    assert trainer.get_eval_dataloader().collate_fn.data_collator is collate
    floats = ListImages(listed.file, listed.transform, target_transform=float, as_dict=True)
    for data in (floats, Rows(), Subset(floats, [0, 1])):
        loader = make(FastTrainer, tmp_path, data=data).get_train_dataloader()
        assert loader.collate_fn is not torch.utils.data.default_collate
    loader = make(FastTrainer, tmp_path, data=Subset(listed, [0, 1])).get_train_dataloader()
    assert loader.collate_fn is torch.utils.data.default_collate


def test_batches_are_collated_as_by_the_trainers_collator(listed):
    """What the native path makes in its place, for a transform that draws nothing."""
    fixed = ListImages(listed.file, transforms.Compose([transforms.CenterCrop(8)]), as_dict=True)
    samples = [fixed[index] for index in range(COUNT)]
    wanted = DefaultDataCollator()(samples)
    (got,) = FastLoader(fixed, COUNT)
    same({**got}, {**wanted})


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["cpu", "twin", "streams", "pure"])
def test_in_each_way(tmp_path, enter_way, way):
    way = enter_way(way)

    class Images(Dataset):
        images = random_images(4, COUNT, 3, 5, 7)

        def __len__(self):
            return COUNT

        def __getitem__(self, index):
            return {"pixel_values": self.images[index], "labels": index}

    class Delivering(FastTrainer):
        loader_options = {"mean": MEAN, "std": STD, **way.options}

    options = {"data": Images(), "save_strategy": "steps", "save_steps": 5}
    trainer, whole = run(Delivering, tmp_path, **options)
    loader = trainer.get_train_dataloader()
    for batch in loader:
        wanted = expected(Images.images[batch["labels"]])
        torch.testing.assert_close(batch["pixel_values"].double(), wanted, atol=1e-5, rtol=1e-5)
    assert loader.stats()["path"] == way.path
    _, got = run(Delivering, tmp_path / "again", f"{tmp_path}/checkpoint-10", **options)
    assert got == whole[10:]


# --- what is refused -----------------------------------------------------------------------------


def test_the_order_of_the_bases():
    class Alone(FastTrainerMixin):
        pass

    with pytest.raises(TypeError, match=r"\(FastTrainerMixin, Trainer\), in this order"):
        Alone()._get_dataloader(Rows(), "Training", 2)


def test_a_plain_loader_of_the_users_own_stays(tmp_path):
    class Own(FastTrainer):
        def get_train_dataloader(self):
            return self.accelerator.prepare(DataLoader(Rows(), 2, collate_fn=DefaultDataCollator()))

    _, got = run(Own, tmp_path, save_strategy="steps", save_steps=4)
    assert got[:2] == [([0, 1], 1.0, True), ([2, 3], 5.0, True)]
    assert not list(tmp_path.glob("checkpoint-4/fastloader*"))
    _, rest = run(Own, tmp_path / "again", f"{tmp_path}/checkpoint-4")
    assert rest == got[4:]


# --- two processes -------------------------------------------------------------------------------


@pytest.mark.processes
def test_two_processes(tmp_path):
    """Beside the Trainer, and from checkpoints: order, exactly once, evaluation."""
    source = """
    import torch
    from transformers import PrinterCallback, Trainer, TrainingArguments
    from fastloader.compat.transformers import FastTrainerMixin

    class Rows(torch.utils.data.Dataset):
        def __init__(self, count):
            self.count = count
        def __len__(self):
            return self.count
        def __getitem__(self, index):
            return {"x": torch.full((1,), float(index)), "labels": index}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), []
        def forward(self, x, labels=None):
            self.seen.append(labels.tolist())
            logits = self.layer(x)
            return {"loss": (logits[:, 0] - labels.float()).square().mean(), "logits": logits}

    class FastTrainer(FastTrainerMixin, Trainer):
        pass

    def run(kind, folder, checkpoint=None, **options):
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=2, per_device_eval_batch_size=2, num_train_epochs=2,
            save_strategy="steps", save_steps=1, use_cpu=True, report_to=[], disable_tqdm=True,
            logging_strategy="no", dataloader_pin_memory=False, seed=3, **options)
        trainer = kind(Model(), arguments, train_dataset=Rows(17), eval_dataset=Rows(9))
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=checkpoint)
        seen = trainer.model.seen[:]
        return seen, trainer.predict(Rows(9)).label_ids.tolist(), trainer

    plain = run(Trainer, ARGUMENT + "/plain")
    ours = run(FastTrainer, ARGUMENT + "/ours")
    assert ours[:2] == plain[:2], (ours[:2], plain[:2])
    assert sorted(ours[1]) == list(range(9))
    for step in (2, 5, 8):
        again = run(FastTrainer, ARGUMENT + "/again", f"{ARGUMENT}/ours/checkpoint-{step}")
        assert again[0] == ours[0][step:], (step, again[0], ours[0])
    report(ours[0])
    """
    ranks = torchrun(tmp_path, 2, source, str(tmp_path), group=False)
    assert [len(rank) for rank in ranks] == [10, 10]
    for epoch in range(2):
        got = [key for rank in ranks for batch in rank[5 * epoch : 5 * epoch + 5] for key in batch]
        assert set(got) == set(range(17)) and len(got) == 20
    assert sorted(p.name for p in tmp_path.glob("ours/checkpoint-3/fastloader*")) == [
        "fastloader_state_0.pt",
        "fastloader_state_1.pt",
    ]
