"""What .ci/run's stages do with a test that fails once, and with a run that takes too long; what they
call, and what tests/emulation/run calls, is there."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from support import HANG, PACKAGE_ROOT, eventually

STAGES = PACKAGE_ROOT / ".ci" / "stages"
EMULATION = PACKAGE_ROOT / "tests" / "emulation"

if not STAGES.is_file() or shutil.which("bash") is None:
    pytest.skip("needs the source tree, and bash", allow_module_level=True)

UNSTEADY = """
    import pathlib

    def test_once():
        seen = pathlib.Path(__file__).with_name("seen")
        first = not seen.exists()
        seen.touch()
        assert not first, "only the first time"

    def test_good():
        pass
"""

FOUR_UNSTEADY = """
    import pathlib
    import pytest

    @pytest.mark.parametrize("number", range(4))
    def test_once(number):
        seen = pathlib.Path(__file__).with_name(f"seen{number}")
        first = not seen.exists()
        seen.touch()
        assert not first
"""


def run(folder, commands, **variables):
    """Runs bash behind what .ci/run has at its beginning, with the folder's ``clone`` as the clone."""
    (folder / "work" / "clone").mkdir(parents=True, exist_ok=True)
    begin = f"set -euo pipefail\ncheckout={PACKAGE_ROOT}\nwork={folder}/work\nclone=$work/clone\n"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-c", begin + textwrap.dedent(commands)],
        capture_output=True,
        text=True,
        timeout=HANG,
        env={**kept, "PATH": path, **variables},
        check=False,
    )


def with_tests(folder, source, retries="yes", options="-ra"):
    """A stage over these tests."""
    clone = folder / "work" / "clone"
    clone.mkdir(parents=True)
    (clone / "pytest.ini").write_text(f"[pytest]\naddopts = {options}\n")
    (clone / "test_toys.py").write_text(textwrap.dedent(source))
    commands = f"""
        retries={retries}
        source {STAGES}
        toys() {{
          again=(python -m pytest)
          with_counts 100 python -m pytest
        }}
        stage toys toys
        finish
    """
    return run(folder, commands)


def test_a_test_that_fails_once_leaves_the_run_green_and_is_named(tmp_path):
    done = with_tests(tmp_path, UNSTEADY)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-2:]
    assert (
        last[0].startswith("unsteady: test_toys.py::test_once (")
        and "only the first time" in last[0]
    )
    assert last[1] == "3 passed, 0 failed"  # two tests and the stage


@pytest.mark.parametrize(
    "source, names",
    [
        ("def test_bad():\n    assert False\n", 1),
        (FOUR_UNSTEADY, 4),
    ],
)
def test_what_fails_again_and_more_than_three_fail_the_run(tmp_path, source, names):
    done = with_tests(tmp_path, source)
    assert done.returncode == 1, done.stdout
    assert "unsteady:" not in done.stdout
    assert done.stdout.splitlines()[-1].endswith(f", {names + 1} failed")


def test_nothing_is_run_again_but_in_ci(tmp_path):
    done = with_tests(tmp_path, UNSTEADY, retries="")
    assert done.returncode == 1 and "unsteady:" not in done.stdout


def test_a_crash_is_not_run_again(tmp_path):
    crash = """
        import os, pathlib
        def test_once():
            seen = pathlib.Path(__file__).with_name("seen")
            if not seen.exists():
                seen.touch()
                os.abort()
    """
    done = with_tests(tmp_path, crash, options="-ra -n 1")
    assert done.returncode == 1 and "crashed while running" in done.stdout, done.stdout
    assert "unsteady:" not in done.stdout


def test_more_than_three_unsteady_ones_in_several_stages_fail_the_run(tmp_path):
    commands = f"""
        source {STAGES}
        two() {{ unsteady one "this"; unsteady two "that"; }}
        stage first two
        stage second two
        finish
    """
    done = run(tmp_path, commands)
    assert done.returncode == 1
    assert (
        done.stdout.count("\nunsteady: ") == 4
        and "more than three tests were unsteady" in done.stdout
    )


def test_the_table_names_every_stage(tmp_path):
    commands = f"""
        source {STAGES}
        stage "the first" true
        stage "the second" false
        finish
    """
    done = run(tmp_path, commands)
    assert done.returncode == 1
    table = [line.split() for line in done.stdout.splitlines()[-3:-1]]
    assert [(row[2], row[-1]) for row in table] == [("ok", "first"), ("FAILED", "second")]
    assert done.stdout.splitlines()[-1] == "1 passed, 1 failed"


def test_a_run_that_takes_too_long_ends_with_its_table(tmp_path):
    commands = f"""
        most=2
        source {STAGES}
        stage "quick" true
        stage "endless" timeout 900 sleep 800.25
        stage "behind it" touch {tmp_path}/begun
        finish
    """
    begun = time.monotonic()
    done = run(tmp_path, commands)
    assert time.monotonic() - begun < 100 and done.returncode == 1
    assert "ok      quick" in done.stdout and "FAILED  endless" in done.stdout
    assert not (tmp_path / "begun").exists()
    # timeout has a process group of its own.
    eventually(lambda: not sleeping("800.25"), lambda: "what the stage has started ended")
    assert done.stdout.splitlines()[-1] == "1 passed, 1 failed"


def sleeping(seconds):
    lines = [
        path.read_bytes().split(b"\0")
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if alive(path)
    ]
    return [line for line in lines if line[:2] == [b"sleep", seconds.encode()]]


def alive(path):
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


@pytest.mark.parametrize("end", ["finish", "kill -TERM $$; wait"])
def test_the_end_of_a_run(tmp_path, end):
    """It has the stages' status, ends what runs beside them, and leaves no folder."""
    commands = f"""
        source {STAGES}
        trap clean_up EXIT
        beside sleep {800.5 if end != "finish" else 0}
        stage "quick" sleep 1
        {end}
    """
    done = run(tmp_path, commands)
    assert done.returncode == (0 if end == "finish" else 143), done.stdout + done.stderr
    assert not (tmp_path / "work").exists()
    eventually(lambda: not sleeping("800.5"), lambda: "what ran beside has ended")


def test_what_runs_beside_the_stages_is_waited_for_and_fails_its_own(tmp_path):
    commands = f"""
        source {STAGES}
        beside bash -c 'echo {{begun,}}; until [[ -e {tmp_path}/go ]]; do sleep 0.01; done; exit 3'
        stage "another" touch {tmp_path}/go
        stage "joined" joined
        finish
    """
    done = run(tmp_path, commands)
    assert done.returncode == 1
    assert (
        "ok      another" in done.stdout
        and "FAILED  joined" in done.stdout
        and "begun" in done.stdout
    )


def test_every_stage_is_a_function_of_a_file_that_is_sourced():
    for script in STAGES.with_name("run"), STAGES.with_name("long"), EMULATION / "run":
        text = script.read_text()
        sourced = re.findall(r'^source "\$checkout/(.*)"$', text, re.M)
        texts = [text, *((PACKAGE_ROOT / name).read_text() for name in sourced)]
        functions = {name for each in texts for name in re.findall(r"^([\w-]+)\(\) \{", each, re.M)}
        called = {
            each[1] for each in re.findall(r'^ *(stage|required) "[^"]*" ([\w-]+)', text, re.M)
        }
        if listed := re.search(r"^names=\((.*?)\)", text, re.M | re.S):
            called |= {f"long_{name}" for name in listed[1].split()}
        assert called and called <= functions, script


def test_the_parts_of_the_emulation_are_those_of_its_page():
    """And each has a sample and a whole."""
    done = subprocess.run([EMULATION / "run", "--whole", "speed"], capture_output=True, text=True)
    assert done.returncode == 2
    parts = done.stderr.removeprefix("tests/emulation/run has no part speed: ").split()
    page = (EMULATION / "README.md").read_text()
    table = page[page.index("## The parts") : page.index("## How the parts")]
    assert parts == re.findall(r"^\| `(\w+)`", table, re.M)
    cases = re.findall(r'^    "(\w+) (\w*)', (EMULATION / "parts").read_text(), re.M)
    assert set(cases) == {
        *((part, share) for part in parts if part != "profile" for share in ("sample", "whole")),
        ("profile", ""),  # has no cases to choose from
    }
