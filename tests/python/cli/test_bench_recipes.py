"""``fastloader bench --recipe`` runs what its table of recipes says, and shows what it measured. Nothing
here is timed."""

import dataclasses
import importlib
import json
import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pictures import import_timm, import_torchvision, plain_folder
from PIL import Image

from fastloader._core.machine import extension
from fastloader.cli.__main__ import main
from fastloader.cli.bench import measure, suite
from fastloader.cli.bench.recipes import RECIPES, comparison, named, plot, tables
from fastloader.cli.bench.scenarios import Settings
from fastloader.cli.bench.scenarios.recipes import loaders
from support import run_script

pytestmark = pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")

KINDS = ["fastloader", "dataloader", "fastloader-python", "fastloader@0", "dataloader@0"]
ROWS = ["workers", "without workers", "native=False"]


def module_of(name):
    """The module that makes a recipe's contenders; skips without its packages."""
    import_timm() if RECIPES[name].module == "timm" else import_torchvision()
    return importlib.import_module(f"fastloader.cli.bench.scenarios.recipes.{RECIPES[name].module}")


def settings_of(root, name):
    return Settings(str(plain_folder(root, 6)), "", threads=0, batch_size=3, recipe=name)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_runs_as_the_table_says(tmp_path, name):
    module, settings = module_of(name), settings_of(tmp_path, name)
    # With other draws timm's own posterize may ask Pillow 13 for 0 bits, which it refuses.
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    ours, in_python = module.fastloader(settings), module.fastloader_python(settings)
    original = module.dataloader(settings)
    assert ours.plan.startswith("native") == RECIPES[name].native
    assert in_python.plan.startswith("Python path: native=False")
    inside = original.loader
    if RECIPES[name].module == "timm":
        assert type(inside).__module__.startswith("timm.")
        inside = inside.loader
    assert type(inside) is torch.utils.data.DataLoader and not original.plan
    assert not type(original.loader.dataset).__module__.startswith("fastloader")
    for epochs in (ours, in_python, original):
        assert list(epochs()) == [3, 3]
        images, _labels = next(iter(epochs.loader))
        assert images.shape == (3, 3, 224, 224)
        assert str(images.dtype) == f"torch.{RECIPES[name].output}"


@pytest.mark.parametrize(
    ("claimed", "asked", "plan", "way"),
    [
        (True, True, "Python path: a step", "native"),
        (False, True, "native images: a folder", "in Python"),
        (True, False, "native images: a folder", "in Python"),
    ],
)
def test_a_plan_that_the_table_does_not_name_is_an_error(monkeypatch, claimed, asked, plan, way):
    monkeypatch.setitem(RECIPES, "crop", dataclasses.replace(RECIPES["crop"], native=claimed))
    settings = Settings("", "", threads=2, batch_size=3, recipe="crop")
    with pytest.raises(RuntimeError, match=f"recipe crop is to run {way} by .* not: {plan}"):
        loaders.checked([], SimpleNamespace(plan=lambda: plan), settings, asked)


RUN = """
    import sys
    from fastloader.cli.__main__ import main
    if __name__ == "__main__":
        sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_command_compares_and_writes_everything(tmp_path):
    module_of("crop")
    out = tmp_path / "out"
    done = run_script(
        RUN,
        *("bench", "--recipe", "crop", "--out", out, "--data", plain_folder(tmp_path / "data", 8)),
        *("--pictures", 8, "--batch-size", 4, "--repeats", 2, "--threads", 1, 2),
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "recipes.json").read_text())
    assert {"machine", "settings", "busy", "recipes"} == set(results)
    assert results["settings"]["distinct_pictures"] == 8 and results["settings"]["threads"] == 2
    crop = results["recipes"]["crop"]
    assert not crop["failed"] and not crop["skipped"]
    assert crop["label"] == RECIPES["crop"].label and crop["predicted"] == RECIPES["crop"].predicted
    assert list(crop["contenders"]) == KINDS
    for kind, each in crop["contenders"].items():
        assert each["threads"] == (0 if kind.endswith("@0") else 2), kind
        assert len(each["seconds_per_picture"]) == 2 and min(each["seconds_per_picture"]) > 0, kind
        assert each["versions"]["torchvision"], kind
        assert bool(each["plan"]) == kind.startswith("fastloader"), kind
    assert list(crop["ratios"]) == ROWS
    seconds = {kind: each["seconds_per_picture"] for kind, each in crop["contenders"].items()}
    for row in crop["ratios"].values():
        pairs = zip(seconds[row["slow"]], seconds[row["fast"]], strict=True)
        assert row["ratio"] == pytest.approx(measure.spread([slow / fast for slow, fast in pairs]))
    table = (out / "recipes.md").read_text()
    assert table in done.stdout and crop["contenders"]["fastloader"]["plan"] in table
    assert_is_a_plot(out / "recipes.png")


def assert_is_a_plot(path):
    with Image.open(path) as file:
        file.load()
        assert file.format == "PNG" and file.width >= 800 and file.height >= 250
        assert np.asarray(file.convert("L")).std() > 5, "an empty figure"


def test_it_refuses_what_it_does_not_know(tmp_path, capsys):
    with pytest.raises(SystemExit) as raised:
        main(["bench", "--recipe", "resnet"])
    said = capsys.readouterr().err
    assert raised.value.code == 2 and "invalid choice: 'resnet'" in said and "timm-default" in said
    for option, value in (
        ("--only", "dali"),
        ("--device", "cpu"),
        ("--python", f"dali={sys.executable}"),
    ):
        out = tmp_path / "out"
        assert main(["bench", "--recipe", "crop", option, value, "--out", str(out)]) == 1
        assert f"{option} does not go with --recipe" in capsys.readouterr().err
        assert not out.exists()


def test_the_names_of_recipes():
    assert list(named(["all"])) == list(RECIPES)
    assert list(named(["crop", "timm-default", "crop"])) == ["timm-default", "crop"]


def contenders(**seconds):
    """As if measured: seconds per picture of each round."""
    made = {}
    for kind, values in seconds.items():
        kind = kind.replace("_at_0", "@0").replace("_", "-")
        made[kind] = SimpleNamespace(
            scenario=comparison.scenarios(RECIPES["timm-default"])[kind],
            threads=0 if kind.endswith("@0") else 2,
            versions={"python": "3.11"},
            timing=measure.Timing(values),
            cpu=measure.Timing([2 * value for value in values]),
            plan="native images" if kind.startswith("fastloader") else "",
            first_batches=[],
            waits=[],
            cold_first_batch_s=6.0,
            memory=[],
        )
    return made


def results_of(measured):
    """As the command would write them."""
    recipe = RECIPES["timm-default"]
    what = {"date": "2026-01-02", "cpu": "Z80", "cores": 2, "isa": "scalar"}
    settings = {"data": "d", "distinct_pictures": 1, "pictures": 4, "batch_size": 2, "repeats": 2}
    described = {
        kind: {**suite.described(each), "plan": each.plan} for kind, each in measured.items()
    }
    return {
        "machine": what,
        "settings": {**settings, "threads": 2, "load_before": 3.0},
        "busy": True,
        "recipes": {
            "timm-default": {
                **dataclasses.asdict(recipe),
                "ratios": comparison.compared(recipe, measured),
                "contenders": described,
                "skipped": {"dataloader@0": "ModuleNotFoundError: No module named 'timm'"},
                "failed": {"fastloader@0": "Traceback\nRuntimeError: it does not run native"},
            }
        },
    }


def test_ratios_are_paired_by_round_and_held_against_the_promises():
    measured = contenders(
        fastloader=[1.0, 2.0, 4.0],
        dataloader=[2.0, 6.0, 12.4],
        fastloader_python=[2.0, 6.5, 13.0],
        fastloader_at_0=[1.0, 1.0, 1.0],
    )
    rows = comparison.compared(RECIPES["timm-default"], measured)
    assert list(rows) == ["workers", "native=False"]
    assert rows["workers"]["ratio"] == {"median": 3.0, "min": 2.0, "max": 3.1}
    assert (rows["workers"]["at_least"], rows["workers"]["met"]) == (3.0, True)
    assert rows["native=False"]["at_least"] == 0.97 and rows["native=False"]["met"] is False
    rows = comparison.compared(RECIPES["crop"], measured)
    assert rows["workers"]["at_least"] is None and rows["workers"]["met"] is None


def test_tables_and_plot_show_what_there_is(tmp_path):
    results = results_of(
        contenders(fastloader=[1.0, 2.0], dataloader=[2.0, 6.0], fastloader_python=[2.0, 6.0])
    )
    table = tables.markdown(results)
    for said in (
        "2.50 x (2.00 to 3.00)",
        "at least 3.0 x: NOT MET",
        "Preliminary",
        "- timm-default: native images",
        "- timm-default, fastloader@0: RuntimeError: it does not run native",
        "No module named 'timm'",
    ):
        assert said in table
    (drawn,) = plot.draw(results, tmp_path)
    assert drawn == tmp_path / "recipes.png"
    assert_is_a_plot(drawn)
    nothing = results_of({})
    assert plot.draw(nothing, tmp_path / "none") == []
    assert "No module named 'timm'" in tables.markdown(nothing)
