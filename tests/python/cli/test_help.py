"""``--help`` of every command, and what is said of a number that is none."""

import re

import pytest

from fastloader.cli.__main__ import main

COMMANDS = ["bench", "check", "demo", "doctor", "index", "pack", "push", "tune"]
NUMBERS = [
    ["demo", "--steps"],
    ["demo", "--workers"],
    ["bench", "--repeats"],
    ["check", "DIR", "--workers"],
    ["pack", "SRC", "DST", "--workers"],
    ["index", "DIR", "--workers"],
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [80, 120])
def test_lines_fit_the_terminal_and_name_defaults(command, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit):
        main([command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert [
        each for each in lines if len(each) > width and not each.startswith("fastloader ")
    ] == []
    assert not re.search(r"default: (None|\[\]|False)", " ".join(lines))


@pytest.mark.parametrize("command", NUMBERS, ids=" ".join)
def test_a_number_that_is_none_is_said_in_words(command, capsys):
    with pytest.raises(SystemExit):
        main([*command, "abc"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert "'abc' is not a whole number" in said
