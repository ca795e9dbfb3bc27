"""benchmarks/gpu without a GPU: rehearsed on the twin, its results are complete and computed right,
and it says in one sentence what is missing. Nothing here is timed."""

import importlib
import json
import os
import subprocess
import sys

import pytest
import torch

from fastloader._core.machine import extension
from support import HANG, PACKAGE_ROOT

FOLDER = PACKAGE_ROOT / "benchmarks" / "gpu"
if not FOLDER.is_dir():
    pytest.skip("needs the source tree", allow_module_level=True)
pytestmark = pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")

DTYPES, LAYOUTS = ("float32", "float16", "bfloat16"), ("NCHW", "channels_last")
SPREAD = {"median", "min", "max"}


def run(*arguments):
    environment = {key: value for key, value in os.environ.items() if "FASTLOADER" not in key}
    environment["PYTHONPATH"] = str(PACKAGE_ROOT)
    return subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=HANG,
        env=environment,
        check=False,
    )


def rehearse(out, *arguments):
    done = run("--out", out, "--rehearse", "--threads", 2, *arguments)
    assert done.returncode == 0, done.stderr
    assert "these figures mean nothing" in done.stdout
    (written,) = out.iterdir()
    assert written.name == "gpu-rehearsal.json"
    results = json.loads(written.read_text())
    assert not results["failed"]
    return results


def assert_spread(value):
    assert set(value) == SPREAD and 0 < value["min"] <= value["median"] <= value["max"], value


@pytest.fixture
def module(monkeypatch):
    """``module("goals")``: a file of the folder, which is on the path for this test only."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = {path.stem for path in FOLDER.glob("*.py")}
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    for name in before:
        monkeypatch.delitem(sys.modules, name)
    yield __import__
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_everything_but_the_peers(tmp_path, figures):
    results = rehearse(tmp_path / "out", "--only", "normalise", "h2d", "next", "step")
    for key in ("device", "driver", "torch", "versions", "ratios", "goals", "predictions", "plan"):
        assert results[key], key
    assert set(results["predictions"]) == {"normalise", "h2d", "next", "step", "peers"}
    assert set(results["seconds"]) == {"normalise", "h2d", "next", "step"}
    assert results["data"] == {"name": "generated pictures", "distinct_pictures": 6}

    ratios = results["ratios"]
    assert set(ratios) == {"normalise", "h2d", "next_us", "step"}
    for dtype in DTYPES:
        for layout in LAYOUTS:
            assert_spread(ratios["normalise"][dtype][layout]["3"])
            width = 4 if dtype == "float32" else 2
            moved = results["normalise"][dtype][layout]["3"]["moved_bytes"]
            assert moved == 3 * 3 * 15 * 15 * (1 + width)
    assert {variant: list(sizes) for variant, sizes in ratios["h2d"].items()} == {
        "bytes": ["2", "4"],
        "normalised": ["2", "4"],
    }
    for variant, sizes in results["h2d"].items():
        for size, each in sizes.items():
            assert_spread(each["of_bare"])
            leaves = [
                int(size) * 3 * 15 * 15,
                *([int(size) * 8] if variant == "normalised" else []),
            ]
            assert each["batch_bytes"] == sum(-(-leaf // 256) * 256 for leaf in leaves)
            assert each["pinned"] and len(each["seconds"]["ring"]) == 2
            bare, ring = (each["seconds"][name] for name in ("bare", "ring"))
            shares = sorted(one / other for one, other in zip(bare, ring, strict=True))
            assert each["of_bare"]["min"] == pytest.approx(shares[0])
    for structure in ("tuple", "dict"):
        each = results["next"][structure]
        assert each["calls"] == 10 and each["min"] <= each["median"] <= each["p99"] <= each["max"]
        assert each["found"] > 0
        assert set(ratios["next_us"][structure]) == {"median", "p99"}
    for name in ("memory", "pictures"):
        each = results["step"][name]
        assert_spread(ratios["step"][name])
        assert len(each["seconds"]["loader"]) == len(each["seconds"]["cached"]) == 2
        assert each["free_running"] > 0 and each["trace"]["steps"] == 3
        # The CPU launches no kernel, and the trace says that it proves nothing.
        assert each["trace"]["problem"] == "there is no kernel in the trace"
        assert each["trace"]["gpu_idle_share"] is None

    # Once there is a run on a GPU, docs/gpu.md shows all of its rows.
    (tmp_path / "gpu-z80.json").write_text(
        json.dumps({**results, "plan": {**results["plan"], "name": "full"}, "device": "Z80"})
    )
    shown = figures.gpu_results(tmp_path)
    assert "### Z80" in shown and figures.NO_GPU not in shown
    for row in results["goals"]:
        assert row["what"] in shown


@pytest.mark.slow
def test_the_peers(tmp_path, figures):
    chosen = ["fastloader-device", "dataloader-pillow-device", "dali"]
    results = rehearse(tmp_path / "out", "--only", "peers", "--peers", *chosen)
    peers = results["peers"]
    assert list(peers["skipped"]) == ["dali"] and not peers["failed"]
    assert list(peers["contenders"]) == ["fastloader-device", "dataloader-pillow-device"]
    for name, each in peers["contenders"].items():
        assert_spread(each["pictures_per_s"])
        assert_spread(each["cpu_s_per_1000"])
        assert_spread(each["step"]["of_cached"])
        assert each["step"]["trace"]["steps"] == 3, name
        assert each["output"] == "bfloat16, channels_last"
    assert list(results["ratios"]) == ["dataloader-pillow-device"]
    assert_spread(results["ratios"]["dataloader-pillow-device"]["speed"])
    assert_spread(results["ratios"]["dataloader-pillow-device"]["cpu"])
    shown = figures.gpu_run({**results, "device": "Z80"})
    assert "| DataLoader + Pillow, pin_memory" in shown


def test_without_a_gpu_it_says_so_in_a_sentence(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    done = run("--out", tmp_path / "out")
    assert done.returncode == 2 and not done.stdout
    assert len(done.stderr.splitlines()) == 1 and "finds no CUDA device here" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_kernel_that_leaves_something_out_is_not_timed(module):
    normalise = module("normalise")
    normalization = normalise.Normalization((0.5,) * 3, (0.2,) * 3, torch.bfloat16, True, None)
    images = torch.randint(0, 256, (2, 5, 7, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    out = normalization.output(images.shape, images.device)
    normalise.check(lambda: normalization.apply(images, out), images, out, normalization)
    with pytest.raises(RuntimeError, match="the kernel is wrong"):
        normalise.check(
            lambda: normalization.apply(images[:1], out[:1]), images, out, normalization
        )


def test_the_device_stage_refuses_what_the_backend_does():
    native = extension.load()
    spec = native.NormalizeSpec(
        nchw=(1, 1, 2, 8),
        in_nhwc=True,
        out_nhwc=True,
        dtype=native.FloatType.FLOAT32,
        scale=[1.0],
        bias=[0.0],
    )
    source, out = torch.arange(16, dtype=torch.uint8), torch.empty(16)
    call = {"backend": "host", "device": 0, "stream": 0}
    call |= {"source": source.data_ptr(), "destination": out.data_ptr()}
    native.normalize_on_device(spec, **call)
    assert torch.equal(out, source.float())
    for wrong, said in (
        ({"destination": out.data_ptr() + 4}, "multiples of 16"),
        ({"backend": "tpu"}, "unknown backend 'tpu'"),
        ({"device": 99}, "no host device 99|no twin device 99|device 99"),
    ):
        with pytest.raises(ValueError, match=said):
            native.normalize_on_device(spec, **{**call, **wrong})


def event(name, cat, at, lasts, thread=1):
    return {"ph": "X", "name": name, "cat": cat, "ts": at, "dur": lasts, "pid": 7, "tid": thread}


def trace_of(timeline, *more, control=True):
    """Four steps of 10 us from 100 on, with a kernel of 8 us for each a little later."""
    events = [event(timeline.CONTROL, "user_annotation", 150, 10), *more, {"ph": "M", "name": "x"}]
    for number in range(4):
        begin = 100 + 10 * number
        events.append(event(timeline.STEP, "user_annotation", begin, 10))
        events.append(event(timeline.STEP, "gpu_user_annotation", begin + 3, 10, thread=99))
        events.append(event("cudaLaunchKernel", "cuda_runtime", begin + 1, 1))
        events.append(event("conv", "kernel", begin + 3, 8, thread=99))
    if control:
        events.append(event("cudaDeviceSynchronize", "cuda_runtime", 151, 8))
    return events


def read(timeline, folder, events):
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return timeline.read(path)


def test_a_trace_tells_whose_thread_waited(module, tmp_path):
    timeline = module("timeline")
    reaper = event("cudaEventSynchronize", "cuda_runtime", 111, 5, thread=2)
    orders = event("cudaStreamWaitEvent", "cuda_runtime", 112, 1)
    before = event("cudaStreamSynchronize", "cuda_runtime", 90, 5)
    found = read(timeline, tmp_path, trace_of(timeline, reaper, orders, before))
    assert found["problem"] == "" and found["steps"] == 4 and found["launches"] == 4
    assert found["host_waits"] == {} and found["control_waits"] == 1
    assert found["host_waits_of_other_threads"] == {"cudaEventSynchronize": 1}
    # From the third step (120) to the last kernel's end (141): 3 of 21 us without a kernel.
    assert found["gpu_idle_share"] == pytest.approx(1 - (1 + 8 + 8) / 21)

    mine = [event("cudaStreamSynchronize_v3020", "cuda_runtime", 131, 1)]
    mine.append(event("cudaMemcpy", "cuda_runtime", 133, 1))
    mine.append(event("cudaMemcpyAsync", "cuda_runtime", 135, 1))
    mine.append(event("Memcpy HtoD", "gpu_memcpy", 121, 2, thread=98))
    found = read(timeline, tmp_path, trace_of(timeline, *mine))
    assert found["host_waits"] == {"cudaStreamSynchronize_v3020": 1, "cudaMemcpy": 1}
    assert found["gpu_idle_share_with_copies"] < found["gpu_idle_share"]


def test_a_trace_that_proves_nothing_says_so(module, tmp_path):
    timeline = module("timeline")
    whole = trace_of(timeline)
    for events, problem in (
        (trace_of(timeline, control=False), "synchronisation that was made on purpose"),
        ([each for each in whole if "Launch" not in each["name"]], "no launch on the thread"),
        ([each for each in whole if each.get("cat") != "kernel"], "no kernel"),
    ):
        assert problem in read(timeline, tmp_path, events)["problem"]


def test_idle_is_what_no_event_covers(module):
    timeline = module("timeline")
    work = [event("a", "kernel", 0, 4), event("b", "kernel", 2, 4), event("c", "kernel", 3, 1)]
    assert timeline.idle_share(work, 0, 10) == pytest.approx(0.4)
    assert timeline.idle_share(work, 4, 6) == 0
    assert timeline.idle_share([], 0, 1) == 1
    assert timeline.idle_share(work, 3, 3) is None


def spread_of(value):
    return dict.fromkeys(SPREAD, value)


def test_goals(module):
    goals = module("goals")
    link = {"why_not_pinned": ""}
    trace = {"steps": 10, "host_waits": {}, "problem": ""}
    parts = {
        "h2d": {
            "bytes": {
                "8": {**link, "of_bare": spread_of(0.2)},
                "64": {**link, "of_bare": spread_of(0.96)},
                "256": {"why_not_pinned": "no", "of_bare": spread_of(0.99)},
            }
        },
        "normalise": {"float32": {"NCHW": {"256": {"of_copy": spread_of(0.89)}}}},
        "next": {"tuple": {"median": 29.0, "p99": 31.0}},
        "step": {
            "memory": {"of_cached": spread_of(1.004), "free_running": 9.0, "trace": trace},
            "pictures": {
                "of_cached": spread_of(1.004),
                "free_running": 1.2,
                "trace": {**trace, "host_waits": {"cudaEventSynchronize": 2}},
            },
        },
        "peers": {"against": {"timm-device": {"speed": spread_of(2.0), "cpu": spread_of(3.0)}}},
    }
    rows = {row["what"]: row for row in goals.rows(parts)}
    met = {what.partition(":")[0]: row["met"] for what, row in rows.items()}
    assert met == {
        "host to device, bytes, 8 pictures": None,
        "host to device, bytes, 64 pictures": True,
        "host to device, bytes, 256 pictures": None,
        "normalise, float32 NCHW, 256 pictures": False,
        "next() of a ready batch, tuple, median, µs": True,
        "next() of a ready batch, tuple, 99 %, µs": False,
        "loader without a step, memory": True,
        "training step, batches from memory": True,
        "loader without a step, pictures": False,
        "training step, batches from pictures": False,
    }
    kept = [row for what, row in rows.items() if "on a cached batch" in what]
    assert [row["met"] for row in kept] == [True, None]
    assert "only 1.20 times as fast" in kept[1]["remark"]
    ratios = goals.ratios(parts)
    assert set(ratios) == {"h2d", "normalise", "next_us", "step", "timm-device"}
    assert goals.ratios({}) == {} and goals.rows({}) == []


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("NVIDIA L40S", "l40s"),
        ("Some Device", "some-device"),
    ],
)
def test_files_are_named_after_the_device(module, name, short):
    assert module("device").slug(name) == short


def test_the_network_is_resnet_50(module):
    with torch.device("meta"):
        network = module("resnet").ResNet()
    assert sum(each.numel() for each in network.parameters()) == 25_557_032
    assert sum(type(each) is torch.nn.Conv2d for each in network.modules()) == 53


@pytest.fixture
def figures():
    return importlib.import_module("figures")
