"""``loader.trace()``: a Chrome trace that a viewer can open, whatever ends the block; and ranges for
torch's profiler."""

import json
import re
import threading

import pytest
import torch
from pictures import plain_folder

from fastloader import Error, FastLoader
from fastloader._core.machine import devices, extension
from fastloader._core.observation import trace as tracing
from fastloader.datasets import ImageFolder
from fastloader.transforms import CenterCrop, Compose, Resize
from support import MEAN, STD, Pictures, run_script

native = extension.load()
needs_native = pytest.mark.skipif(native is None, reason="the native module is not in use")


def make(dataset, **options):
    return FastLoader(
        dataset, **{"batch_size": 2, "device": "cpu", "mean": MEAN, "std": STD, **options}
    )


@pytest.fixture
def folder(tmp_path):
    root = plain_folder(tmp_path / "pictures", count=12)
    return ImageFolder(root, Compose([Resize(8), CenterCrop(8)]))


def read(path):
    """{thread: (its name, events)} of a trace that is as the format wants it."""
    trace = json.loads(path.read_text())
    assert trace["otherData"]["events_without_room"] == 0
    names, events = {}, {}
    for event in trace["traceEvents"]:
        assert event["pid"] == trace["traceEvents"][0]["pid"]
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                names[event["tid"]] = event["args"]["name"]
            continue
        assert event["ph"] == "X" and event["ts"] >= 0 and event["dur"] >= 0
        events.setdefault(event["tid"], []).append(event)
    assert events.keys() <= names.keys()
    for each in events.values():
        check_order(each)
    return {thread: (names[thread], each) for thread, each in events.items()}


def check_order(events):
    """In the order of their beginnings; each inside the one around it or behind the one before."""
    slack = 0.002  # times are written in microseconds
    around = []
    for event in events:
        end = event["ts"] + event["dur"]
        while around and event["ts"] >= around[-1] - slack:
            around.pop()
        assert not around or end <= around[-1] + slack, event
        around.append(end)
    begun = [event["ts"] for event in events]
    assert begun == sorted(begun)


def stages(trace):
    """{name of a thread: {names of its events}}"""
    found = {}
    for name, events in trace.values():
        found.setdefault(name, set()).update(event["name"] for event in events)
    return found


@needs_native
def test_every_thread_of_the_engine(twin, folder, tmp_path):
    out = tmp_path / "out.json"
    with make(folder, num_workers=2) as loader:
        with loader.trace(out):
            assert len(list(loader)) == 6
            loader.close()  # their last events are written when the threads go on
        trace = read(out)
    found = stages(trace)
    here = threading.current_thread().name
    assert found["fl-decode"] == {"read", "decode and resample"}
    assert found["fl-prefetch"] == {"issue"}
    assert found["fl-reaper"] == {"wait for the consumer's stream", "copy and normalise"}
    assert found["fastloader-pump"] >= {"receive", "pack"}
    assert "wait" in found[here]
    every = [event for _, events in trace.values() for event in events]
    for name, count in (("read", 12), ("issue", 6), ("pack", 6), ("wait", 7)):
        assert sum(event["name"] == name for event in every) == count, name


@needs_native
def test_pictures_to_the_cpu(folder, tmp_path):
    out = tmp_path / "out.json"
    with make(folder, num_workers=1) as loader, loader.trace(out):
        list(loader)
    found = stages(read(out))
    assert found["fl-decode"] == {"read", "decode and resample", "normalise"}
    assert found[threading.current_thread().name] == {"wait"}


def test_python_datasets(way, tmp_path):
    out = tmp_path / "out.json"
    with make(Pictures(8)) as loader, loader.trace(out):
        list(loader)
    mine = stages(read(out))[threading.current_thread().name]
    assert {"wait", "fetch"} <= mine
    assert ("normalise" in mine) == (way.path == "cpu")


def test_plain_dataloader(tmp_path):
    out = tmp_path / "out.json"
    loader = FastLoader(Pictures(8), num_workers=1)
    with loader.trace(out):
        list(loader)
    assert stages(read(out))[threading.current_thread().name] == {"wait"}


@needs_native
def test_arrays(tmp_path):
    out = tmp_path / "out.json"
    data = torch.utils.data.TensorDataset(torch.zeros(64, 100_000))
    loader = FastLoader(data, batch_size=8, num_workers=2)
    with loader.trace(out):
        list(loader)
    assert "collate" in set.union(*stages(read(out)).values())


def test_written_after_an_exception(way, tmp_path):
    out = tmp_path / "out.json"
    with make(Pictures(8)) as loader:
        with pytest.raises(KeyError), loader.trace(out):
            for _ in loader:
                raise KeyError("the user's own")
        assert "wait" in set.union(*stages(read(out)).values())
        with loader.trace(out):  # again, over the old one
            pass
        assert read(out) == {}
    assert list(tmp_path.iterdir()) == [out]


def test_one_at_a_time(tmp_path):
    loader = make(Pictures(8))
    with loader.trace(tmp_path / "one.json"):
        with pytest.raises(Error, match="only one"):
            loader.trace(tmp_path / "two.json").__enter__()
        list(loader)
    assert not (tmp_path / "two.json").exists()
    assert read(tmp_path / "one.json")
    with loader.trace(tmp_path / "two.json"):
        list(loader)
    assert read(tmp_path / "two.json")
    loader.close()


def test_a_folder_that_is_not_there(tmp_path):
    loader = make(Pictures(8))
    with pytest.raises(FileNotFoundError, match="no such folder"):
        with loader.trace(tmp_path / "nowhere" / "out.json"):
            raise AssertionError("it should not have begun")
    with loader.trace(tmp_path / "out.json"):
        pass


def test_bounded(monkeypatch, tmp_path):
    monkeypatch.setattr(tracing, "EVENTS_PER_THREAD", 3)
    out = tmp_path / "out.json"
    loader = make(Pictures(20))
    with loader.trace(out):
        list(loader)
    trace = json.loads(out.read_text())
    assert trace["otherData"]["events_without_room"] > 0
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert 0 < len(events) <= 2 * 3
    loader.close()


def test_off_nothing_is_kept(way):
    with make(Pictures(8)) as loader:
        list(loader)
    assert tracing.active is None
    if native is not None:
        assert native.trace_stop() == []


@pytest.mark.processes
@needs_native
def test_a_forked_child_writes_nothing(folder, tmp_path):
    run_script(
        """
        import json, os, sys
        from fastloader import FastLoader
        from support import Pictures
        loader = FastLoader(Pictures(8), device="cpu", dtype=__import__("torch").float32)
        with loader.trace(sys.argv[1]):
            list(loader)
            child = os.fork()
            if child == 0:
                list(loader)
        if child == 0:
            assert not os.path.exists(sys.argv[1]) or os.path.getsize(sys.argv[1]) > 0
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        events = json.load(open(sys.argv[1]))["traceEvents"]
        assert {event["pid"] for event in events} == {os.getpid()}
        """,
        tmp_path / "out.json",
    )


# --- profilers ------------------------------------------------------------------------------------


# As tools search a profile for the wait of torch's DataLoader.
WAIT = re.compile(r"enumerate\(DataLoader\)#\w+\.__next__")


def test_a_profiler_sees_the_waiting(way):
    loader = make(Pictures(8))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        list(loader)
    ranges = [event for event in profiler.events() if WAIT.fullmatch(event.name)]
    assert len(ranges) == 5  # four batches, and the end
    loader.close()


def test_without_a_profiler_there_is_no_range():
    assert devices.open_range("any") is None


def test_nvtx_where_a_tool_listens(monkeypatch):
    said = []
    monkeypatch.setattr(devices, "_NVTX_LISTENS", True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", said.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: said.append("pop"))
    loader = make(Pictures(4))
    iterator = iter(loader)
    next(iterator)
    assert WAIT.fullmatch(said[0]) and said[1:] == ["pop"]
    loader.close()
