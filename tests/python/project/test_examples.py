"""Every file in examples/ runs, as a user would run it."""

import subprocess
import sys

import pytest

from support import HANG, PACKAGE_ROOT

EXAMPLES = sorted((PACKAGE_ROOT / "examples").glob("*.py"))


@pytest.mark.skipif(not EXAMPLES, reason="the examples lie in the source tree, which is not here")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout, "it prints what it did"
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"
