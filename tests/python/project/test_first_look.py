"""README's chart shows what the results have, and says where they have nothing."""

import importlib
import json

import pytest
from PIL import Image
from plot_files import assert_is_a_plot

from support import PACKAGE_ROOT

RESULTS = PACKAGE_ROOT / "benchmarks" / "results"
if not RESULTS.is_dir():
    pytest.skip("needs the source tree", allow_module_level=True)
pytest.importorskip("matplotlib")

first_look = importlib.import_module("first_look")


@pytest.fixture
def results():
    return [json.loads((RESULTS / f"{name}.json").read_text()) for name in ("peers", "recipes")]


def test_it_shows_the_medians_of_the_results(results):
    peers, recipes = results
    peers["scenarios"]["dali"]["pictures_per_s"]["median"] = 543.4
    recipes["recipes"]["simclr"]["contenders"]["dataloader"]["pictures_per_s"]["median"] = 32.1
    left, right = first_look.draw(peers, recipes).axes
    assert {"543", "* timm also normalises (float32)"} <= {each.get_text() for each in left.texts}
    shown = [each.get_text() for each in right.texts]
    assert "32" in shown
    said = [text for text in shown if not text.isdigit()]
    assert said == ["not offered"] * 4
    second = recipes["recipes"]["simclr"]["contenders"]["dataloader-v2"]["pictures_per_s"]
    assert f"{second['median']:.0f}" in shown


def test_the_fastest_stands_first(results):
    left, _ = first_look.draw(*results).axes
    shown = [int(each.get_text()) for each in left.texts if each.get_text().isdigit()]
    assert len(shown) == len(first_look.PEERS) and shown == sorted(shown, reverse=True)


def test_a_peer_that_was_not_measured_has_no_bar(results):
    peers, recipes = results
    del peers["scenarios"]["ffcv"]
    left, _ = first_look.draw(peers, recipes).axes
    labels = [each.get_text() for each in left.get_yticklabels()]
    assert "DALI, on the CPU" in labels and "FFCV" not in labels


def test_the_machine_and_the_date_are_said(results):
    peers, recipes = results
    recipes["machine"]["date"] = "2031-02-03"
    peers["busy"], recipes["busy"] = True, False
    left, right = first_look.draw(peers, recipes).axes
    assert peers["machine"]["date"] in left.get_xlabel() and "preliminary" in left.get_xlabel()
    assert "2031-02-03" in right.get_xlabel() and "preliminary" not in right.get_xlabel()


def test_the_command_writes_the_chart_and_the_readme_shows_it(tmp_path, capsys):
    assert first_look.main(["--out", str(tmp_path / "chart.png")]) == 0
    assert "chart.png" in capsys.readouterr().out
    assert_is_a_plot(tmp_path / "chart.png")
    assert_is_a_plot(RESULTS / "first-look.png")
    assert "(benchmarks/results/first-look.png)" in (PACKAGE_ROOT / "README.md").read_text()


def test_the_committed_chart_is_of_the_committed_results(results):
    """By the description in the file, because other fonts make other pixels."""
    with Image.open(RESULTS / "first-look.png") as file:
        was = file.text["Description"]
    assert was == first_look.described(first_look.shown(first_look.draw(*results)))
    results[0]["scenarios"]["spdl"]["pictures_per_s"]["median"] += 1
    assert was != first_look.described(first_look.shown(first_look.draw(*results)))
