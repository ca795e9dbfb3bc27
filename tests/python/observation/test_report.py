"""``loader.report()`` names what bounds the loop, shown in each situation built to its extreme; and its
numbers are those of what happened. A throttle sleeps because that is the situation, not to wait."""

import json
import time

import pytest
import torch
from pictures import plain_folder, throttle

from fastloader import FastLoader
from fastloader._core.delivery import engine
from fastloader._core.machine import extension
from fastloader._core.observation import report as verdicts
from fastloader._core.observation.statistics import Figures, Observation, Stage, Statistics
from fastloader._core.pictures.store import FolderStore, LmdbStore
from fastloader.cli.__main__ import main
from fastloader.datasets import ImageFolder, LMDBDataset
from fastloader.datasets._formats.lmdb_files import Environment
from fastloader.transforms import CenterCrop, Compose, Resize
from support import MEAN, STD, Pictures, Stream, require_hooks, run_script

native = extension.load()
needs_native = pytest.mark.skipif(native is None, reason="the native module is not in use")


class SlowPictures(Pictures):
    """A transform that takes its time."""

    def __getitem__(self, index):
        time.sleep(0.01)
        return super().__getitem__(index)


class SlowStream(Stream):
    """The same for an iterable."""

    def __iter__(self):
        for sample in super().__iter__():
            time.sleep(0.01)
            yield sample


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return plain_folder(tmp_path_factory.mktemp("small"), count=32)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return plain_folder(tmp_path_factory.mktemp("large"), count=6, size=(1500, 1200))


@pytest.fixture
def processors(monkeypatch):
    """The advice does not depend on the machine that runs the tests."""
    monkeypatch.setattr(verdicts, "own_threads", lambda: 4)


@pytest.fixture
def slow_disk(monkeypatch):
    throttle(monkeypatch, FolderStore, 0.02)


def folder(root, size=16):
    return ImageFolder(root, Compose([Resize(size), CenterCrop(size)]))


def make(dataset, **options):
    options = {"batch_size": 2, "device": "cpu", "mean": MEAN, "std": STD, **options}
    return FastLoader(dataset, **options)


def run(loader, step=0.0, epochs=1):
    batches = loader.stats()["batches"]
    for _ in range(epochs):
        for _ in loader:
            batches += 1
            if step:
                time.sleep(step)
    report = loader.report()
    assert report.batches == batches
    loader.close()
    return report


def said(report, bound, words, advice):
    """The verdict is the one line at the end, in these words."""
    last = str(report).splitlines()[-1]
    assert report.bound == bound, str(report)
    assert report.verdict.startswith(words), str(report)
    assert last.startswith(report.verdict) and advice in report.advice, str(report)
    assert report.advice[1:] in last
    assert sum("-bound" in line for line in str(report).splitlines()) == 1


# --- situations -----------------------------------------------------------------------------------


@pytest.mark.exhaustive
@needs_native
@pytest.mark.parametrize("name", ["cpu", "twin", "streams"])
def test_slow_disk(enter_way, slow_disk, processors, small, name, monkeypatch):
    enter_way(name)
    # Otherwise the disk is read ahead, and holds up nobody.
    monkeypatch.setenv("FASTLOADER_READ_AHEAD", "0")
    report = run(make(folder(small), num_workers=1))
    said(report, "storage", "storage-bound", "fastloader pack")
    assert report.stages["read"].seconds > 32 * 0.02
    assert report.wait_share > 0.5


@pytest.mark.exhaustive
@needs_native
@pytest.mark.parametrize("name", ["cpu", "twin"])
@pytest.mark.parametrize("slow", ["finding", "pages"])
def test_slow_packed_file(enter_way, monkeypatch, processors, small, tmp_path, name, slow):
    pytest.importorskip("lmdb")
    enter_way(name)
    assert main(["pack", str(small), str(tmp_path / "packed.lmdb")]) == 0
    dataset = LMDBDataset(tmp_path / "packed.lmdb", Compose([Resize(16), CenterCrop(16)]))
    if slow == "finding":
        get = Environment.get

        def slowly(self, key):
            time.sleep(0.02)
            return get(self, key)

        monkeypatch.setattr(Environment, "get", slowly)
    else:
        throttle(monkeypatch, LmdbStore, 0.02)
    report = run(make(dataset, num_workers=1))
    said(report, "storage", "storage-bound", "faster disk")
    assert report.stages["locate" if slow == "finding" else "read"].seconds > 32 * 0.02


@pytest.mark.exhaustive
@needs_native
@pytest.mark.parametrize("name", ["cpu", "twin", "streams"])
def test_slow_decode(enter_way, processors, large, name):
    enter_way(name)
    report = run(make(folder(large), num_workers=1), epochs=2)
    said(report, "decode", "decode-bound", "raise num_workers from 1 to 4")
    assert "3 processors have no decode thread" in report.advice


@needs_native
def test_slow_decode_with_every_processor_in_use(monkeypatch, large):
    monkeypatch.setattr(verdicts, "own_threads", lambda: 1)
    report = run(make(folder(large), num_workers=1), epochs=2)
    said(report, "decode", "decode-bound", "fastloader pack SRC DST --max-side")


@needs_native
@pytest.mark.parametrize("workers", [0, 1])
def test_slow_copy(twin, monkeypatch, processors, workers):
    require_hooks()
    monkeypatch.setattr(engine, "_twin_options", {"twin_copy_seconds": 0.03})
    report = run(make(Pictures(40), num_workers=workers))
    said(report, "copy", "copy-bound", "fewer bytes")
    assert report.stages["copy"].seconds > 0
    monkeypatch.setattr(engine, "_twin_options", {"twin_copy_seconds": 0.03})
    report = run(FastLoader(Pictures(40), batch_size=2, num_workers=workers, device="cpu"))
    said(report, "copy", "copy-bound", "uint8 pictures")


@pytest.mark.covering
@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 1])
def test_slow_step(way, workers):
    report = run(make(Pictures(12), num_workers=workers), step=0.3)
    said(report, "training step", "training step-bound", "nothing to win")
    assert report.wait_share < 0.1
    assert report.step_s >= 5 * 0.3


@needs_native
@pytest.mark.parametrize("name", ["cpu", "twin"])
def test_slow_step_over_pictures(enter_way, small, name):
    enter_way(name)
    report = run(make(folder(small), num_workers=1, batch_size=4), step=0.3)
    said(report, "training step", "training step-bound", "nothing to win")
    assert report.ready > 0.5  # they lie there waiting


@pytest.mark.covering
@pytest.mark.exhaustive
@pytest.mark.parametrize("dataset", [SlowPictures, SlowStream])
@pytest.mark.parametrize("backend", ["process", "thread"])
def test_slow_transform_in_workers(way, processors, dataset, backend):
    count = 300 if backend == "process" else 40  # longer than it takes to start the processes
    report = run(make(dataset(count), num_workers=2, worker_backend=backend))
    said(report, "Python", "Python-bound", "raise num_workers from 2 to 4")
    if way.name != "pure" or backend == "thread":
        assert report.stages["fetch"].seconds >= count * 0.01
        assert f"worker {'processes' if backend == 'process' else 'threads'} (2)" in report.verdict


@pytest.mark.exhaustive
def test_slow_transform_without_workers(way, processors):
    report = run(make(SlowPictures(40)))
    said(report, "Python", "Python-bound", "set num_workers=3")
    assert report.stages["fetch"].where == "the training loop's thread"
    assert report.ready is None and report.depth in (None, 2)


def test_slow_transform_as_a_plain_dataloader(processors):
    report = run(FastLoader(SlowPictures(40), batch_size=2))
    said(report, "Python", "Python-bound", "set num_workers=3")
    report = run(FastLoader(SlowPictures(40), batch_size=2, num_workers=2))
    said(report, "Python", "Python-bound", "raise num_workers")
    report = run(FastLoader(Pictures(12), batch_size=2, num_workers=2), step=0.3)
    said(report, "training step", "training step-bound", "nothing to win")
    assert report.ready > 0.5


def test_slow_transform_with_every_processor_in_use(monkeypatch):
    monkeypatch.setattr(verdicts, "own_threads", lambda: 1)
    report = run(make(SlowPictures(30), num_workers=1))
    said(report, "Python", "Python-bound", "native path")
    report = run(make(SlowPictures(30), num_workers=1, worker_backend="thread"))
    said(report, "Python", "Python-bound", "worker_backend='process'")


def test_workers_that_tell_nothing(monkeypatch, processors):
    monkeypatch.setenv("FASTLOADER_WORKER_RING", "0")
    report = run(make(SlowPictures(40), num_workers=2))
    said(report, "Python", "Python-bound", "raise num_workers from 2 to 4")
    assert "fetch" not in report.stages


@pytest.mark.parametrize("step", [0.0, 0.005])
def test_epochs_of_one_batch_tell_nothing(step):
    """All that such a loop waits for are first batches, which say nothing of those that follow."""
    loader = make(SlowPictures(2))
    report = run(loader, step, epochs=4)
    assert report.wait_share is None and report.edge_wait_s > 4 * 2 * 0.01
    said_of = "nothing to say: no epoch has had a second batch"
    assert report.bound == "unknown" and report.verdict.startswith(said_of)
    assert str(report).endswith("Run epochs of a few batches.")


# --- on a GPU, with figures put in its place --------------------------------------------------------


RING = {"device_wait_s": 0.0, "pinned": True, "why_not_pinned": ""}


def judged(ring, share, *stages):
    """Of a loader on a GPU, asked for batches in ten seconds, of which it waited a share."""
    waited = Statistics(batches=2, between=1, wait_s=10 * share, step_s=10 * (1 - share))
    seen = Observation(
        statistics=waited,
        figures=Figures(stages=stages, ring={**RING, **ring}),
        workers=8,
        worker_backend="process",
        ahead=True,
        path="engine",
        device=torch.device("cuda", 0),
        normalizes=True,
        auto={},
        headspace=None,
        describe=lambda: "Python path",
    )
    return verdicts.judge(seen)


def test_a_gpu_that_is_busy():
    verdict = judged({}, 0.02)
    assert verdict.bound == "GPU" and verdict.text.startswith("GPU-bound")


def test_a_host_that_runs_ahead_of_its_gpu_waits_in_next():
    copy = Stage("copy", 1.0, 10, "batch", "the device", 0, bound="copy")
    verdict = judged({"device_wait_s": 8.0}, 0.9, copy)
    assert verdict.bound == "GPU" and "80 %" in verdict.text
    verdict = judged({"device_wait_s": 0.1}, 0.9, dataclass_with(copy, seconds=9.0))
    assert verdict.bound == "copy" and "90 %" in verdict.text


def test_a_ring_that_is_not_pinned():
    copy = Stage("copy", 9.0, 10, "batch", "the device", 0, bound="copy")
    verdict = judged({"pinned": False, "why_not_pinned": "ulimit says no"}, 0.9, copy)
    assert verdict.bound == "copy" and "ulimit says no" in verdict.advice


def test_a_source_that_waits_for_its_store():
    request = Stage("request", 18.0, 10, "batch", "request threads", 2, bound="storage")
    verdict = judged({}, 0.9, request)
    assert verdict.bound == "storage" and "request (request threads) takes 90 %" in verdict.text
    assert "packed" not in verdict.text and "fastloader pack" not in verdict.advice
    assert "bound" not in request.as_dict()


def on_a_node(name, seconds, actors):
    where = f"actors on {name}"
    options = {"bound": "remote workers"}
    return Stage(f"make on {name}", seconds, 10, "batch", where, actors, **options)


@pytest.mark.parametrize(
    ("busy", "transfer", "bound", "said"),
    [
        (18.0, 1.0, "remote workers", "the actors on node b (2) are busy 90 % of theirs"),
        (8.0, 8.5, "network", "batches are on their way 85 % of it"),
        (1.0, 1.0, "unknown", "neither the actors nor the network are busy"),
    ],
)
def test_a_cluster(busy, transfer, bound, said):
    way = Stage("transfer", transfer, 20, "batch", "the network", bound="network")
    verdict = judged({}, 0.9, on_a_node("node a", 6.0, 4), on_a_node("node b", busy, 2), way)
    assert verdict.bound == bound and said in verdict.text
    assert verdict.text.startswith("the loop waits" if bound == "unknown" else f"{bound}-bound: ")


def dataclass_with(stage, **changes):
    import dataclasses

    return dataclasses.replace(stage, **changes)


# --- the figures ----------------------------------------------------------------------------------


@needs_native
@pytest.mark.parametrize("name", ["cpu", "twin", "streams"])
def test_figures_of_pictures(enter_way, small, name):
    enter_way(name)
    loader = make(folder(small), num_workers=2, depth=3)
    report = run(loader, epochs=2)
    files = [path for path in small.rglob("*.jpg")]
    assert report.bytes == 2 * sum(path.stat().st_size for path in files)
    for stage in ("read", "decode", "resample"):
        assert report.stages[stage].count == 64 and report.stages[stage].unit == "picture"
        assert report.stages[stage].threads == 2 and report.stages[stage].seconds > 0
    assert report.threads == 2 and report.depth == 3
    assert 0 <= report.ready <= 3
    assert report.bad_samples == 0 and report.errors == 0
    wait = report.stages["wait"]
    assert wait.count == 32 and wait.seconds == report.wait_s >= report.edge_wait_s > 0
    assert list(report.stages)[-1] == "wait"
    assert ("copy" in report.stages) == (name != "cpu")
    assert ("normalise" in report.stages) == (name == "cpu")
    assert loader.stats()["stages"].keys() == report.stages.keys()
    assert (report.copied_bytes > 0) == (name == "twin")


@needs_native
def test_figures_go_on_when_the_transform_changes(small):
    loader = make(folder(small), num_workers=1)
    run(loader)
    loader.dataset.transform = Compose([Resize(8), CenterCrop(8)])
    report = run(loader)
    assert report.stages["decode"].count == 64


@needs_native
def test_bad_samples_are_counted(tmp_path):
    root = plain_folder(tmp_path, count=8)
    next(root.rglob("*.jpg")).write_bytes(b"\xff\xd8\xffnothing")
    report = run(make(folder(root), num_workers=1, on_error="skip"))
    assert report.bad_samples == 1 and "1 bad samples" in str(report)


def test_figures_of_arrays(way):
    images, labels = torch.zeros(40, 3, 8, 8, dtype=torch.uint8), torch.arange(40)
    dataset = torch.utils.data.TensorDataset(images, labels)
    report = run(make(dataset, batch_size=4, num_workers=2))
    assert report.stages["collate"].count == 10
    assert report.threads == 2


def test_observers_get_a_copy_of_the_counters():
    loader = make(Pictures(8))
    list(loader)
    seen = loader._runtime.observe(loader)
    counted = loader._runtime.delivery.statistics
    assert seen.statistics.copied() == seen.statistics and seen.statistics.total("fetch")[1]
    before = seen.statistics.batches, seen.statistics.total("fetch")
    list(loader)
    assert counted.batches == 2 * before[0]
    assert (seen.statistics.batches, seen.statistics.total("fetch")) == before


def test_a_report_is_plain_data(way):
    report = run(make(Pictures(8)))
    flat = json.loads(json.dumps(report.as_dict()))
    assert flat["verdict"] == report.verdict and flat["stages"]["wait"]["count"] == 4
    assert flat["stages"]["wait"]["each_ms"] == report.stages["wait"].each_ms
    with pytest.raises(AttributeError):
        report.verdict = "all is well"


def test_before_the_first_batch(way):
    loader = make(Pictures(8))
    report = loader.report()
    assert report.bound == "unknown" and report.wait_share is None
    assert "nothing to say yet" in str(report)
    next(iter(loader))
    assert loader.report().bound == "unknown"
    loader.close()


def test_a_break_is_no_step(way):
    loader = make(Pictures(8))
    for _ in range(3):
        for _ in loader:
            break
        time.sleep(0.05)
    assert loader.stats()["step_s"] == 0.0
    for _ in loader:
        pass
    assert loader.stats()["step_s"] > 0.0
    assert loader.stats()["edge_wait_s"] <= loader.stats()["wait_s"]
    loader.close()


@pytest.mark.processes
@needs_native
def test_a_forked_child_reports_for_itself(small):
    run_script(
        """
        import os, sys
        from fastloader import FastLoader
        from fastloader.datasets import ImageFolder
        from fastloader.transforms import CenterCrop, Compose, Resize
        dataset = ImageFolder(sys.argv[1], Compose([Resize(8), CenterCrop(8)]))
        loader = FastLoader(dataset, batch_size=4, num_workers=1)
        list(loader)
        if os.fork() == 0:
            loader.report(), loader.stats()
            list(loader)
            assert loader.report().stages["decode"].count >= 32
            os._exit(0)
        assert os.wait()[1] == 0
        """,
        small,
    )
