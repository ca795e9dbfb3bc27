"""A short soak; the long one is benchmarks/soak.py."""

import os
import subprocess
import sys

import pytest
from ways import WAYS

from support import HANG, PACKAGE_ROOT, run_script

pytestmark = [pytest.mark.covering, pytest.mark.slow, pytest.mark.processes]


@pytest.mark.parametrize("way", ["none", "cpu", "twin", "streams"])
def test_early_breaks_and_epochs_keep_the_figures_flat(way):
    options = ["--breaks", "400", "--epochs", "30", "--workers", "0,persistent"]
    done = subprocess.run(
        [sys.executable, PACKAGE_ROOT / "benchmarks" / "soak.py", "--ways", way, *options],
        capture_output=True,
        text=True,
        timeout=HANG,
        env={**os.environ, **(WAYS[way].env if way in WAYS else {})},
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("flat") == 4


def test_what_grows_is_seen():
    """The soak itself: a descriptor and a kibibyte kept at each step are not flat."""
    source = f"""
        import sys
        sys.path.insert(0, {str(PACKAGE_ROOT / "benchmarks")!r})
        import soak
        kept = []
        assert soak.soak("nothing", lambda: None, 20)
        assert not soak.soak("file", lambda: kept.append(open("/dev/null")), 20)
        assert not soak.soak("memory", lambda: kept.append(bytearray(1 << 20)), 20)
    """
    assert "GROWN" in run_script(source).stdout
