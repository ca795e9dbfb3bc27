"""``loader.headspace()``: one batch again and again, safe against what the loop does to it."""

import gc
import time
import weakref

import pytest
import torch

from fastloader import FastLoader
from fastloader._core.observation import headspace
from support import MEAN, STD, Pictures, same


def make(dataset, **options):
    return FastLoader(
        dataset, **{"batch_size": 2, "device": "cpu", "mean": MEAN, "std": STD, **options}
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_the_first_batch_again_and_again(way, workers):
    with make(Pictures(8), num_workers=workers) as loader:
        first = next(iter(make(Pictures(8))))
        space = loader.headspace(batches=12)
        assert len(space) == 12 and space.measured.steps_per_s is None
        seen = 0
        for images, labels in space:
            same([images, labels], list(first))
            images.mul_(0).sub_(1)  # as a loop may
            labels.fill_(-1)
            seen += 1
        assert seen == 12
        assert space.measured.steps == 12 - 1  # the first tenth is warm-up
        assert space.measured.steps_per_s == space.measured.steps / space.measured.seconds > 0
        # The loader itself is as before.
        assert [label.tolist() for _, label in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_the_report_says_what_there_is_to_win(way):
    class Slow(Pictures):
        def __getitem__(self, index):
            time.sleep(0.01)
            return super().__getitem__(index)

    with make(Slow(24)) as loader:
        for _ in loader:
            pass
        report = loader.report()
        assert report.headspace_steps_per_s is None and report.to_win is None
        assert "to win" not in str(report)
        for _ in loader.headspace(batches=20):
            pass
        report = loader.report()
        assert report.headspace_steps_per_s > report.steps_per_s
        assert report.to_win > 1  # nearly all of the time
        line = next(line for line in str(report).splitlines() if "to win" in line)
        assert line.startswith("training step alone: ") and "with this loader" in line


@pytest.mark.exhaustive
def test_what_a_step_takes_is_in_it_and_what_a_copy_takes_is_not(monkeypatch, way):
    real = headspace.cloned

    def slow_copy(batch):
        time.sleep(0.05)
        return real(batch)

    monkeypatch.setattr(headspace, "cloned", slow_copy)
    with make(Pictures(4)) as loader:
        space = loader.headspace(batches=5)
        for _ in space:
            time.sleep(0.01)
        # Of five copies 0.25 s; a machine that is this late would be late for everything.
        assert space.measured.seconds >= 4 * 0.01
        assert space.measured.steps == 4
        left_out = loader.headspace(batches=5)
        began = time.perf_counter()
        for _ in left_out:
            pass
        assert left_out.measured.seconds <= time.perf_counter() - began - 4 * 0.05


def test_a_break_keeps_what_was_measured(way):
    with make(Pictures(8)) as loader:
        space = loader.headspace(batches=100)
        for number, _ in enumerate(space):
            if number == 30:
                break
        assert space.measured.steps == 20 and space.measured.seconds > 0
        short = loader.headspace(batches=100)
        for _ in short:
            break
        assert short.measured.steps == 0 and short.measured.steps_per_s is None
        assert loader.report().headspace_steps_per_s is None


def test_once_more_measures_anew():
    with make(Pictures(8)) as loader:
        space = loader.headspace(batches=4)
        for _ in range(2):
            assert len(list(space)) == 4
            assert space.measured.steps == 3


def test_the_position_can_be_given_back(way):
    generator = torch.Generator().manual_seed(3)
    with make(Pictures(8), shuffle=True, generator=generator) as loader:
        state = loader.state_dict()
        wanted = [label.tolist() for _, label in loader]
        loader.load_state_dict(state)
        for _ in loader.headspace(batches=3):
            pass
        loader.load_state_dict(state)
        assert [label.tolist() for _, label in loader] == wanted


def test_nested_batches_and_objects():
    class Nested(Pictures):
        def __getitem__(self, index):
            return {"image": self.images[index], "more": [torch.tensor(index), "name"]}

    loader = FastLoader(Nested(4), batch_size=2)
    for batch in loader.headspace(batches=3):
        assert batch["more"][1] == ("name", "name")
        assert batch["more"][0].tolist() == [0, 1]
        batch["more"][0].zero_()
        batch["more"].clear()


def test_a_device_is_waited_for_twice(monkeypatch):
    waits = []
    monkeypatch.setattr(headspace.devices, "synchronize", waits.append)
    with make(Pictures(8)) as loader:
        for _ in loader.headspace(batches=30):
            pass
    assert waits == [torch.device("cpu")] * 2


@pytest.mark.parametrize("batches, kind", [(1, ValueError), (2.5, TypeError), (True, TypeError)])
def test_wrong_arguments(batches, kind):
    with pytest.raises(kind, match="batches"):
        make(Pictures(4)).headspace(batches=batches)


def test_an_empty_loader():
    with pytest.raises(ValueError, match="no batch"):
        list(make(Pictures(1), drop_last=True).headspace())


def test_it_does_not_keep_the_loader(way):
    loader = make(Pictures(8))
    for _ in loader.headspace(batches=3):
        pass
    loader.report()
    loader.close()
    gc.collect()
    gc.disable()
    try:
        gone = weakref.ref(loader)
        del loader
        assert gone() is None
    finally:
        gc.enable()
