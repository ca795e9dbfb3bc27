"""The change that ``fastloader tune`` prints: what it adds, and what it leaves as it is."""

import re
import subprocess
from pathlib import Path

import pytest

from fastloader.cli import tune_change
from fastloader.cli.tune_change import Change, diff_of
from support import require_program


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(source):
    """A file of the user's. Returns its name."""
    Path("users.py").write_text(source)
    return "users.py"


WANTED = Change({"device": '"auto"', "num_workers": '"auto"'}, ((0.5,) * 3, (0.25,) * 3), "home")


def changed_lines(source, wanted=WANTED, lines=None):
    """The lines that a diff adds, without the sign."""
    name = write(source)
    count = len(source.splitlines())
    found = diff_of(name, lines or (1, count), wanted)
    return [line[1:] for line in found.splitlines() if re.match(r"\+(?!\+\+)", line)]


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("DataLoader(data)", 'FastLoader(data, device="auto", num_workers="auto")'),
        ("DataLoader(data, num_workers=0)", 'FastLoader(data, num_workers="auto", device="auto")'),
        ("u.d.DataLoader(d, 4)", 'FastLoader(d, 4, device="auto", num_workers="auto")'),
        ("DataLoader(data, 'ä',)", "FastLoader(data, 'ä', device=\"auto\", num_workers=\"auto\",)"),
    ],
)  # fmt: skip
def test_calls(call, wanted):
    assert changed_lines(f"import u\nloader = {call}\n") == [
        "from fastloader import FastLoader",
        f"loader = {wanted}",
    ]


@pytest.mark.parametrize(
    "call", ["DataLoader(d, **more)", "DataLoader(*d)", "DataLoader(d, 2, True, None, None, 0)"]
)
def test_arguments_that_may_have_num_workers(call):
    """FastLoader would get it twice."""
    (_, _, shown) = changed_lines(f"more = {{}}\nloader = {call}\n")
    assert shown.startswith("loader = FastLoader(dataset, ...")
    device = Change({"device": '"auto"'}, None)
    changed = call.replace("DataLoader", "FastLoader")[:-1] + ', device="auto")'
    assert changed_lines(f"more = {{}}\nloader = {call}\n", device)[1:] == [f"loader = {changed}"]


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        # In a notebook that was exported, imports stand between what uses them.
        (
            "import a\nloader = DataLoader(d)\nimport b\n",
            "import a\nfrom fastloader import FastLoader\nloader = FastLoader(d)\nimport b\n",
        ),
        (
            "import os; from t import DataLoader\nDataLoader(d)\n",
            "import os; from t import DataLoader\nfrom fastloader import FastLoader\nFastLoader(d)\n",
        ),
        (
            "from t import DataLoader\nimport t\nt.DataLoader(d)\nf(DataLoader)\n",
            "from t import DataLoader\nimport t\nfrom fastloader import FastLoader\nFastLoader(d)\n"
            "f(DataLoader)\n",
        ),
        (
            "from t import DataLoader\nDataLoader(d)\n",
            "from fastloader import FastLoader\nFastLoader(d)\n",
        ),
    ],
)
def test_where_the_import_goes(source, changed):
    wanted = Change({}, None)
    assert tune_change._changed(source.encode(), (1, 0), wanted).decode() == changed


def test_a_transform_of_another_dataset_stays():
    source = (
        "t = [ToTensor(), Normalize(m, s)]\n"
        "def make():\n"
        "    other = [ToTensor(), Normalize(m, s)]\n"
        "    data = Folder(root, t)\n"
        "    return DataLoader(data), other\n"
    )
    assert changed_lines(source, lines=(2, 5))[1:] == [
        '    return FastLoader(data, device="auto", num_workers="auto"), other'
    ]
    own = changed_lines(source.replace("root, t", "root, other"), lines=(2, 5))
    assert "    other = [PILToTensor()]" in own and "mean=(0.5" in own[-1]


def test_a_form_feed_ends_no_line():
    name = write("import u\n\x0cx = 1\nloader = DataLoader(d)\n")
    found = diff_of(name, (1, 0), Change({}, None))
    assert " \x0cx = 1\n" in found
    require_program("patch")
    subprocess.run(["patch", "-p0"], input=found, text=True, check=True, capture_output=True)


def test_arguments_on_lines_of_their_own():
    source = "loader = DataLoader(\n    data,\n    batch_size=4,  # four\n)\n"
    assert changed_lines(source) == [
        "from fastloader import FastLoader",
        "loader = FastLoader(",
        "    batch_size=4,",
        '    device="auto",',
        '    num_workers="auto",  # four',
    ]


def test_bare_names_are_imported():
    source = "def make():\n    t = [ToTensor(), Normalize(m, s)]\n    return DataLoader(t)\n"
    assert changed_lines(source) == [
        "from fastloader import FastLoader",
        "from home import PILToTensor",
        "    t = [PILToTensor()]",
        '    return FastLoader(t, device="auto", num_workers="auto", mean=(0.5, 0.5, 0.5), '
        "std=(0.25, 0.25, 0.25))",
    ]


def test_a_transform_elsewhere_stays():
    source = "t = [ToTensor(), Normalize(m, s)]\ndef make():\n    return DataLoader(t)\n"
    assert changed_lines(source, lines=(2, 3))[1:] == [
        '    return FastLoader(t, device="auto", num_workers="auto")'
    ]


@pytest.mark.parametrize(
    "source", ["a = DataLoader(x)\nb = DataLoader(y)\n", "a = make()\n", "a = DataLoader(x"]
)
def test_where_it_is_not_clear_the_change_is_shown(source):
    assert changed_lines(source) == [
        "from fastloader import FastLoader",
        "    PILToTensor()",
        'loader = FastLoader(dataset, ..., device="auto", num_workers="auto", mean=(0.5, 0.5, 0.5), '
        "std=(0.25, 0.25, 0.25))",
    ]
    assert "+loader = FastLoader" in diff_of(None, (1, 0), WANTED)
