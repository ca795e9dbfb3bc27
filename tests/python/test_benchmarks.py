"""``benchmarks/peers.py`` runs, and its results say what they claim to. Nothing here is timed."""

import importlib
import json
import os
import random
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from pictures import pixels, save_jpeg
from PIL import Image

from fastloader import _extension
from support import PACKAGE_ROOT

PEERS = PACKAGE_ROOT / "benchmarks" / "peers.py"
if not PEERS.is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

native = _extension.load()
pytestmark = pytest.mark.skipif(native is None, reason="the native module is not in use")


def run_peers(out, *arguments):
    """Its results as JSON, its table, and its exit status."""
    env = {key: value for key, value in os.environ.items() if "FASTLOADER" not in key}
    paths = [str(PACKAGE_ROOT), env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    env.pop("PYTHONSAFEPATH", None)  # the runner's own modules lie beside it
    command = [sys.executable, str(PEERS), "--out", str(out), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=env, check=False
    )
    assert (out / "peers.json").exists(), done.stderr
    table = (out / "peers.md").read_text()
    assert table in done.stdout
    return json.loads((out / "peers.json").read_text()), table, done.returncode


def interpreter(path, command):
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
    return path


@pytest.mark.slow
def test_runs_compares_and_names_what_is_missing(tmp_path):
    scenarios = [
        "fastloader-uint8",
        "dataloader-pillow",
        "fastloader-uint8@1",
        "bare-roi@1",
        "read@1",
        "resample@1",
    ]
    bare = interpreter(tmp_path / "python", f'exec {sys.executable} -S "$@"')
    broken = interpreter(tmp_path / "broken", "echo out of luck >&2; exit 3")
    small = ["--pictures", 10, "--batch-size", 4, "--repeats", 1]
    results, table, status = run_peers(
        tmp_path / "out",
        *small,
        *("--only", *scenarios, "spdl", "dali"),
        *("--python", f"spdl={bare}", "--python", f"dali={broken}"),
    )
    assert status == 1, "a peer that breaks is no success"
    assert list(results["scenarios"]) == scenarios
    for name, each in results["scenarios"].items():
        assert len(each["seconds_per_picture"]) == 1 and each["seconds_per_picture"][0] > 0, name
        assert len(each["cpu_s_per_picture"]) == 1 and each["cpu_s_per_picture"][0] > 0, name
        assert each["versions"]["python"], name
        assert len(each["memory"]) == 2, name
        assert each["threads"] == (1 if name.endswith("@1") else 2), name
    for name in ("fastloader-uint8", "dataloader-pillow"):
        assert len(results["scenarios"][name]["first_batches"]) == 1

    (compared,) = results["ratios"]
    assert (compared["slow"], compared["at_least"]) == ("dataloader-pillow", 1.9)
    fast, slow = (
        results["scenarios"][name]["seconds_per_picture"][0]
        for name in ("fastloader-uint8", "dataloader-pillow")
    )
    assert compared["ratio"]["median"] == pytest.approx(slow / fast)
    parts = results["breakdown"]["parts_ms"]
    assert list(parts) == ["read", "decode the crop", "resample", "rest"]
    whole = results["breakdown"]["whole_ms"]["median"]
    assert sum(part["median"] for part in parts.values()) == pytest.approx(whole)

    assert list(results["skipped"]) == ["spdl"]
    assert results["skipped"]["spdl"].startswith("ModuleNotFoundError: No module named")
    assert list(results["failed"]) == ["dali"]
    assert "status 3" in results["failed"]["dali"] and "out of luck" in results["failed"]["dali"]

    for name in [*scenarios, "spdl", "dali"]:
        assert name in table
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert all(line.endswith(" |") for line in rows) and len(rows) > len(scenarios)
    assert results["settings"]["distinct_pictures"] == 10


@pytest.fixture
def comparison(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS.parent))
    return importlib.import_module("comparison")


def contenders(comparison, **seconds):
    """As if measured: seconds per picture of each round."""
    scenarios = importlib.import_module("scenarios").SCENARIOS
    made = {}
    for name, values in seconds.items():
        name = name.replace("_", "-").replace("-at-1", "@1")
        made[name] = SimpleNamespace(
            scenario=scenarios[name],
            timing=comparison.Timing(values),
            cpu=comparison.Timing([2 * value for value in values]),
            first_batches=[],
            cold_first_batch_s=6.0,
            batch_size=2,
            memory=[],
        )
    return made


def test_ratios_are_paired_by_round_and_held_against_the_targets(comparison):
    results = comparison.compared(
        contenders(
            comparison,
            fastloader_uint8=[1.0, 2.0, 4.0],
            dataloader_pillow=[2.0, 4.0, 8.0],
            bare_decode=[1.0, 2.0, 4.2],
            fastloader_uint8_at_1=[2.0, 4.0, 8.0],
            bare_decode_at_1=[2.0, 4.4, 8.4],
            resize_fastloader_at_1=[1.0, 1.0, 1.0],
            resize_pillow_simd_at_1=[0.9, 0.5, 0.5],
        ),
        threads=2,
    )
    rows = {row["slow"]: row for row in results["ratios"]}
    assert rows["dataloader-pillow"]["ratio"] == {"median": 2.0, "min": 2.0, "max": 2.0}
    assert rows["dataloader-pillow"]["met"] is True
    assert rows["bare-decode"]["ratio"]["median"] == 1.0
    assert rows["bare-decode"]["met"] is False
    further = {row["what"]: row for row in results["further"]}
    assert further["scaling 1 to 2 threads, of bare-decode's"]["met"] is True
    assert further["scaling 1 to 2 threads, of bare-decode's"]["value"]["min"] == pytest.approx(
        2 / 2.2
    )
    resize = further["resize 340x300 to 224x224, time of pillow-simd's"]
    assert resize["value"]["median"] == 2.0 and resize["met"] is False
    assert results["breakdown"] is None


def test_first_batches_and_growing_memory_are_judged(comparison):
    measured = contenders(comparison, fastloader_uint8=[1.0], dataloader_pillow=[2.0])
    measured["fastloader-uint8"].first_batches = [1.5, 2.5, 2.1]
    measured["dataloader-pillow"].first_batches = [9.0]
    measured["fastloader-uint8"].memory = [100, 100, 102, 103, 104, 300]
    rows = {row["what"]: row for row in comparison.compared(measured, 2)["further"]}
    ours = rows["first batch of a new loader, in steady batches: fastloader-uint8"]
    assert ours["value"]["median"] == 2.1 and ours["met"] is False
    theirs = rows["first batch of a new loader, in steady batches: dataloader-pillow"]
    assert theirs["met"] is None
    cold = rows["first batch of a new process, in steady batches: fastloader-uint8"]
    assert cold["value"]["median"] == 3.0 and cold["met"] is None
    held = rows["memory after epoch 5, of that after epoch 1: fastloader-uint8"]
    assert held["value"]["median"] == 1.04 and held["met"] is True


def test_stages_make_pillows_pixels(tmp_path):
    """What the stages take is the time of the real thing."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    width, height = rng.randint(30, 200), rng.randint(30, 200)
    save_jpeg(rng, tmp_path / "a.jpg", width, height, subsampling="4:2:0")
    jpeg = (tmp_path / "a.jpg").read_bytes()
    with Image.open(tmp_path / "a.jpg") as file:
        whole = file.convert("RGB")
    decoder = native.JpegDecoder()
    assert decoder.decode(jpeg) == (height, width)
    left, top = rng.randrange(width - 20), rng.randrange(height - 20)
    box = (left, top, rng.randint(1, width - left), rng.randint(1, height - top))
    for wanted, asked in (
        (whole, None),
        (whole.crop((left, top, left + box[2], top + box[3])), box),
    ):
        out = np.empty((wanted.height, wanted.width, 3), np.uint8)
        size = decoder.decode(jpeg, box=asked, destination=out.ctypes.data)
        assert size == (wanted.height, wanted.width)
        assert np.array_equal(out, np.asarray(wanted)), f"seed {seed}"

    source = np.ascontiguousarray(pixels(rng, width, height))
    out = np.empty((37, 29, 3), np.uint8)
    native.Resizer().resize(
        source=source.ctypes.data,
        source_size=(height, width),
        destination=out.ctypes.data,
        size=(37, 29),
    )
    wanted = Image.fromarray(source).resize((29, 37), Image.Resampling.BILINEAR)
    assert np.array_equal(out, np.asarray(wanted)), f"seed {seed}"
