"""``benchmarks/observation.py`` runs, and switches off what it says it does. Nothing here is timed."""

import json
import os
import subprocess
import sys

import pytest

from fastloader._core.machine import extension
from support import HANG, PACKAGE_ROOT, run_script

BENCHMARK = PACKAGE_ROOT / "benchmarks" / "observation.py"
pytestmark = pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")


@pytest.mark.slow
@pytest.mark.skipif(not BENCHMARK.is_file(), reason="needs the source tree")
def test_runs(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)}
    env.pop("PYTHONSAFEPATH", None)
    few = ["--starts", "1", "--repeats", "1", "--pictures", "8"]
    command = [sys.executable, str(BENCHMARK), *few]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=HANG,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "observation.json").read_text())
    assert set(results["scenarios"]) == {"pictures", "tiny pictures", "arrays", "Python"}
    for each in results["scenarios"].values():
        assert each["on_over_off"]["min"] <= each["on_over_off"]["median"]
        assert set(each["timings"]) == {"on", "off", "off again"}
        assert each["cpu_on_over_off"]["median"] > 0 and each["cpu_control_over_off"]["median"] > 0


@pytest.mark.parametrize("switch", ["0", "1"])
def test_the_switch(switch):
    run_script(
        """
        import sys
        import torch
        from fastloader import FastLoader
        images = torch.zeros(64, 3, 64, 64)
        loader = FastLoader(torch.utils.data.TensorDataset(images), batch_size=32, num_workers=1)
        list(loader)
        seconds = loader.stats()["stages"]["collate"]["seconds"]
        assert (seconds > 0) == (sys.argv[1] == "1"), seconds
        """,
        switch,
        env={"FASTLOADER_STAGE_TIMES": switch},
    )
