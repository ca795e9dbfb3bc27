"""The ablation and the comparison of "auto" run, and their results say what they claim to. Nothing
here is timed."""

import json
import subprocess
import sys

import pytest
from plot_files import assert_is_a_plot

from fastloader._core.machine import extension
from support import PACKAGE_ROOT

pytestmark = pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")


def run_benchmark(name, out, arguments):
    """benchmarks/NAME.py, and what it wrote."""
    script = PACKAGE_ROOT / "benchmarks" / f"{name}.py"
    if not script.is_file():
        pytest.skip("needs the source tree")
    done = subprocess.run(
        [sys.executable, str(script), *arguments, "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((out / f"{name}.json").read_text())


def test_the_ablation_measures_every_cell(tmp_path):
    few = ["--batches", "2", "3", "--prepare", "1", "8", "--train", "1", "--repeats", "1"]
    results = run_benchmark("ablation", tmp_path, few)
    cells = {(each["batches"], each["prepare_ms"]): each for each in results["cells"]}
    assert list(cells) == [(2, 1), (2, 8), (3, 1), (3, 8)]
    for (_, prepare), each in cells.items():
        assert each["ideal"] == pytest.approx(0.75 if prepare == 8 else 0.0)
        assert list(each["lost"]) == [
            "plain loop",
            "BackgroundGenerator",
            "DataLoader",
            "FastLoader",
            "FastLoader, threads",
        ]
        for name, share in each["lost"].items():
            assert 0 < share["min"] <= share["median"] <= share["max"] <= 1, name
    assert_is_a_plot(tmp_path / "ablation.png")


def test_auto_is_compared_with_every_fixed_setting(tmp_path):
    few = ["--pictures", "200", "--repeats", "1", "--only", "decoding;uneven, device;Python"]
    results = run_benchmark("autotune", tmp_path, few)
    assert list(results["situations"]) == ["decoding", "uneven, device", "Python"]
    for name, each in results["situations"].items():
        assert set(each["chosen"]) == {"num_workers", "depth"}
        assert len(each["timings"]) == (4 if name == "Python" else 7)
        assert each["best"] in each["timings"] and each["best"] != "auto"
    assert results["worst_auto_over_best"] >= results["median_auto_over_best"] > 0
