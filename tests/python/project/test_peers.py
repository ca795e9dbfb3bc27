"""``python -m benchmarks.peers`` runs, and its results say what they claim to. Nothing here is timed."""

import dataclasses
import json
import random
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from pictures import pixels, save_jpeg
from PIL import Image
from plot_files import assert_is_a_plot
from terminal import on_terminal

from fastloader._core.machine import extension
from support import run_script

pytest.importorskip("benchmarks.peers")  # needs the source tree

from benchmarks.measure import Timing
from benchmarks.peers import comparison, contender, crops, plots, suite, tables
from benchmarks.peers.__main__ import default_threads, main
from benchmarks.peers.crops import SCENARIOS

native = extension.load()
pytestmark = pytest.mark.skipif(native is None, reason="the native module is not in use")

PLOTS = ["throughput", "scaling", "latency", "memory"]


def run_bench(out, *arguments):
    """Its results as JSON, its table, and its exit status."""
    done = run_script(RUN, "--out", out, *arguments, timeout=300, check=False)
    assert (out / "peers.json").exists(), done.stderr
    table = (out / "peers.md").read_text()
    assert table in done.stdout
    return json.loads((out / "peers.json").read_text()), table, done.returncode


RUN = """
    import sys
    from benchmarks.peers.__main__ import main
    if __name__ == "__main__":
        sys.exit(main(sys.argv[1:]))
"""


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
        "read@1",
        "own-roi@1",
        "resample@1",
    ]
    bare = interpreter(tmp_path / "python", f'exec {sys.executable} -S "$@"')
    broken = interpreter(tmp_path / "broken", "echo out of luck >&2; exit 3")
    small = ["--pictures", 10, "--batch-size", 4, "--repeats", 1, "--threads", 2, 1]
    results, table, status = run_bench(
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
    for name, each in results["scenarios"].items():
        shown = bool(each["output"]) and "@" not in name
        assert len(each["first_batch_s"]) == int(shown), name
        assert (each["later_batches_s"] is not None) == shown, name
    for name in ("fastloader-uint8", "dataloader-pillow"):
        speeds = results["scaling"][name]
        assert list(speeds) == ["1", "2"]
        assert speeds["2"] == results["scenarios"][name]["pictures_per_s"]
    assert list(results["scaling"]) == ["fastloader-uint8", "dataloader-pillow"]

    (compared,) = results["ratios"]
    assert (compared["slow"], compared["at_least"]) == ("dataloader-pillow", 3.7)
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

    for name in PLOTS:
        assert_is_a_plot(tmp_path / "out" / f"peers-{name}.png")


@pytest.mark.slow
def test_the_sets_of_pictures(tmp_path):
    """Written again by Pillow: each has its loaders, and the last one a promise."""
    results, table, status = run_bench(
        tmp_path / "out",
        *("--sets", "--only", "fastloader-uint8", "dataloader-pillow", "bare-decode"),
        *("--pictures", 10, "--batch-size", 4, "--repeats", 1, "--threads", 2),
    )
    assert status == 0
    assert list(results["sets"]) == ["444q90", "420q85", "420q85-progressive"]
    sizes = [each["bytes_per_picture"] for each in results["sets"].values()]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 1000
    for name, each in results["sets"].items():
        assert list(each["scenarios"]) == ["fastloader-uint8", "dataloader-pillow"]
        (row,) = each["ratios"]
        assert row["at_least"] == (4.0 if name.endswith("progressive") else None)
        assert row["met"] == (None if row["at_least"] is None else row["ratio"]["median"] >= 4.0)
        assert f"The same pictures as {each['label']}: " in table
    assert_is_a_plot(tmp_path / "out" / "peers-sets.png")


@pytest.mark.slow
def test_into_the_memory_of_a_device(tmp_path):
    """Of this one, since every machine has it."""
    results, table, status = run_bench(
        tmp_path / "out",
        *("--device", "cpu", "--only", "fastloader-device", "dataloader-pillow-device", "ffcv"),
        *("--pictures", 10, "--batch-size", 4, "--repeats", 1, "--threads", 2),
    )
    assert status == 0
    assert list(results["scenarios"]) == ["fastloader-device", "dataloader-pillow-device"]
    for each in results["scenarios"].values():
        assert each["output"] == "bfloat16, channels_last"
        assert each["seconds_per_picture"][0] > 0 and len(each["first_batch_s"]) == 1
    (compared,) = results["ratios"]
    assert (compared["slow"], compared["met"]) == ("dataloader-pillow-device", None)
    assert results["settings"]["device"] == "cpu" and "into the memory of cpu" in table
    assert list(results["skipped"]) == ["ffcv"] and "ffcv: has no scenario" in table
    assert_is_a_plot(tmp_path / "out" / "peers-throughput.png")


def test_it_says_what_is_wrong_with_its_arguments(tmp_path, capsys, monkeypatch):
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    for arguments, said in (
        (["--data", str(tmp_path / "empty")], "no RGB or grey JPEG in any folder of it"),
        (["--device", "mtia:99"], "error: device='mtia:99'"),
        (["--python", "torch=/bin/sh"], "'torch' is none of fastloader, pillow"),
        (["--python", "dali=nowhere"], "write dali=/path/to/python"),
        (["--threads", "0"], "0 is not at least 1"),
        (["--only", "tensorflow"], "invalid choice"),
    ):
        with pytest.raises(SystemExit) as raised:
            main([*arguments, "--out", str(out)])
        assert raised.value.code == 2
        assert said in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit):
        main(["--out", str(out)])
    assert "matplotlib" in capsys.readouterr().err
    assert not out.exists()


def test_threads_that_show_the_scaling():
    assert [default_threads(count) for count in (1, 2, 8, 64)] == [
        [1],
        [1, 2],
        [1, 3, 8],
        [1, 8, 64],
    ]


def test_another_interpreter_gets_this_package_and_nothing_beside_it(tmp_path, monkeypatch):
    """Beside it may lie a torch and a Pillow that are not that interpreter's."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    settings = SimpleNamespace(work=str(tmp_path))
    for foreign in (False, True):
        paths = contender._environment(settings, foreign)["PYTHONPATH"].split(":")
        names = {path.name for path in (tmp_path / "package").iterdir()}
        assert names == {"fastloader", "benchmarks"}
        assert paths == [str(tmp_path / "package")] + [str(tmp_path / "mine")] * (not foreign)
    code = "import benchmarks.peers.process as p, fastloader as f; print(f.__file__, p.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env=contender._environment(settings, True),
        cwd=tmp_path,  # Python 3.10 looks there first: PYTHONSAFEPATH is of 3.11
        capture_output=True,
        text=True,
        check=True,
    )
    for module, name in zip(said.stdout.split(), ("fastloader", "benchmarks"), strict=True):
        assert module.startswith(str(tmp_path / "package" / name))


def test_the_scaling_runs_what_could_be_measured_and_not_twice():
    main_group = suite.Group(
        {
            name: SimpleNamespace(scenario=SCENARIOS[name])
            for name in ("fastloader-uint8", "dali", "bare-decode", "bare-decode@1", "read@1")
        }
    )
    ones = suite.scaling(main_group, 1)
    assert list(ones) == ["fastloader-uint8@1", "dali@1"]
    assert ones["dali@1"] == dataclasses.replace(
        SCENARIOS["dali"], label="DALI, CPU pipeline, 1 thread", threads=1
    )
    assert list(suite.scaling(main_group, 4)) == ["fastloader-uint8@4", "dali@4", "bare-decode@4"]


def results_of(measured, threads=2):
    """As the command would write them."""
    what = {"date": "2026-01-02", "cpu": "Z80", "cores": 2, "isa": "scalar"}
    settings = {"data": "d", "distinct_pictures": 1, "pictures": 4, "batch_size": 2, "repeats": 1}
    return {
        "machine": what,
        "settings": {**settings, "threads": threads, "load_before": 3.0},
        "busy": True,
        "scenarios": {name: suite.described(each) for name, each in measured.items()},
        "ratios": comparison.compared(crops.ROWS, measured),
        "further": comparison.further_rows(measured, threads),
        "breakdown": comparison.breakdown(measured),
        "scaling": suite.speeds_by_threads([suite.Group(measured)]),
        "skipped": {"dali": "ModuleNotFoundError: No module named 'nvidia'"},
        "failed": {},
    }


def test_plots_are_drawn_of_what_there_is(tmp_path):
    everything = contenders(**{name: [1.0, 2.0] for name in SCENARIOS})
    drawn = plots.draw(results_of(everything), tmp_path)
    assert [path.name for path in drawn] == [f"peers-{name}.png" for name in PLOTS]
    for path in drawn:
        assert_is_a_plot(path)
    stages = contenders(**{"read@1": [1.0]})
    assert plots.draw(results_of(stages), tmp_path) == []
    table = tables.markdown(results_of(stages))
    assert "No module named 'nvidia'" in table and "Preliminary" in table


def contenders(**seconds):
    """As if measured: seconds per picture of each round."""
    made = {}
    for name, values in seconds.items():
        name = name.replace("_", "-").replace("-at-1", "@1")
        scenario = SCENARIOS[name]
        first = values if scenario.output and not scenario.threads else []
        made[name] = SimpleNamespace(
            scenario=scenario,
            threads=scenario.threads or 2,
            versions={"python": "3.11"},
            timing=Timing(values),
            cpu=Timing([2 * value for value in values]),
            first_batches=list(first),
            waits=list(first),
            cold_first_batch_s=6.0,
            batch_size=2,
            memory=[1_000_000] if first else [],
            plan="",
        )
    return made


def test_ratios_are_paired_by_round_and_held_against_the_targets():
    measured = contenders(
        fastloader_uint8=[1.0, 2.0, 4.0],
        dataloader_pillow=[4.0, 8.0, 16.0],
        bare_decode=[1.0, 2.0, 4.2],
        fastloader_uint8_at_1=[2.0, 4.0, 8.0],
        bare_decode_at_1=[2.0, 4.4, 8.4],
        resize_fastloader_at_1=[1.0, 1.0, 1.0],
        resize_pillow_simd_at_1=[0.9, 0.5, 0.5],
    )
    rows = {row["slow"]: row for row in comparison.compared(crops.ROWS, measured)}
    assert rows["dataloader-pillow"]["ratio"] == {"median": 4.0, "min": 4.0, "max": 4.0}
    assert rows["dataloader-pillow"]["met"] is True
    assert rows["bare-decode"]["ratio"]["median"] == 1.0
    assert rows["bare-decode"]["met"] is False
    further = {row["what"]: row for row in comparison.further_rows(measured, threads=2)}
    assert further["scaling 1 to 2 threads, of bare-decode's"]["met"] is True
    assert further["scaling 1 to 2 threads, of bare-decode's"]["value"]["min"] == pytest.approx(
        2 / 2.2
    )
    resize = further["resize 340x300 to 224x224, time of pillow-simd's"]
    assert resize["value"]["median"] == 2.0 and resize["met"] is False
    assert comparison.breakdown(measured) is None


def test_first_batches_and_growing_memory_are_judged():
    measured = contenders(fastloader_uint8=[1.0, 1.0, 2.0], dataloader_pillow=[2.0, 2.0, 2.0])
    measured["fastloader-uint8"].timing = Timing([1.0, 1.0, 2.0])
    measured["fastloader-uint8"].first_batches = [3.0, 5.0, 8.4]
    measured["dataloader-pillow"].first_batches = [36.0, 36.0, 36.0]
    measured["fastloader-uint8"].memory = [100, 100, 102, 103, 104, 300]
    rows = {row["what"]: row for row in comparison.further_rows(measured, 2)}
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
    decoder = native.PictureDecoder()
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


def test_it_shows_its_rounds_on_a_terminal_only():
    script = """
        from benchmarks.peers.suite import progress
        progress("round 2 of 5: dali", 185.0)
        progress("")
    """
    shown = on_terminal(script)[2]
    assert shown == "\r\x1b[Kround 2 of 5: dali, 3 min 05 s left\r\x1b[K"
    assert run_script(script).stderr == ""
