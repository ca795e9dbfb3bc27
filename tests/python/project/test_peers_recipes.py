"""``python -m benchmarks.peers --recipe`` runs what its table of recipes says, and shows what it
measured. Nothing here is timed."""

import dataclasses
import importlib
import json
import random
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pictures import import_timm, import_torchvision, plain_folder
from PIL import Image
from plot_files import assert_is_a_plot

from fastloader._core.machine import extension
from fastloader.datasets.put_off import PutOff
from support import run_script

pytest.importorskip("benchmarks.peers")  # needs the source tree

from benchmarks import measure
from benchmarks.peers import comparison, plots, recipes, suite, tables
from benchmarks.peers.__main__ import main
from benchmarks.peers.recipes import RECIPES
from benchmarks.peers.scenarios import ENCODED, NATIVE, PYTHON, Settings, named
from benchmarks.peers.scenarios.recipes import loaders

pytestmark = pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")

KINDS = [
    "fastloader",
    "dataloader",
    "dataloader-v2",
    "fastloader-python",
    "fastloader@0",
    "dataloader@0",
]
ROWS = ["workers", "without workers", "torchvision v2", "native=False"]
V2 = "dataloader-v2"  # needs torchvision's binary, which is not here beside every torch


def module_of(name):
    """The module that makes a recipe's contenders; skips without its packages."""
    import_timm() if RECIPES[name].module == "timm" else import_torchvision()
    return importlib.import_module(f"benchmarks.peers.scenarios.recipes.{RECIPES[name].module}")


def settings_of(root, name):
    pictures, work = str(plain_folder(root / "pictures", 6)), str(root)
    return Settings(pictures, work, threads=0, batch_size=3, recipe=name)


EDGES = {"simclr": [224] * 2, "dino": [224] * 2 + [96] * 8, "cifar10": 32}  # of the others: 224


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_runs_as_the_table_says(tmp_path, monkeypatch, name):
    module, settings = module_of(name), settings_of(tmp_path, name)
    # With other draws timm's own posterize may ask Pillow 13 for 0 bits, which it refuses.
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    ours, in_python = module.fastloader(settings), module.fastloader_python(settings)
    original = module.dataloader(settings)
    assert in_python.plan.startswith("Python path: native=False")
    inside = original.loader
    if RECIPES[name].module == "timm":
        assert type(inside).__module__.startswith("timm.")
        inside = inside.loader
    assert type(inside) is torch.utils.data.DataLoader and not original.plan
    monkeypatch.setattr(PutOff, "any_made", False)
    assert_is_the_originals(original.loader.dataset)
    edges = EDGES.get(name, 224)
    count = 6 * module.TIMES if name == "cifar10" else 6
    for epochs in (ours, in_python, original):
        assert list(epochs()) == [3] * (count // 3)
        images, _labels = next(iter(epochs.loader))
        assert type(images) is (list if isinstance(edges, list) else torch.Tensor)
        views = images if isinstance(images, list) else [images]
        for view, edge in zip(views, edges if isinstance(edges, list) else [edges], strict=True):
            assert view.shape == (3, 3, edge, edge)
            assert str(view.dtype) == f"torch.{RECIPES[name].output}"
    assert (loaders.way_of(ours._made_by), ours._looked) == (RECIPES[name].way, True)
    assert ours.plan.startswith("native") == (RECIPES[name].way == NATIVE)
    assert ("for encoded pictures" in ours.plan) == (RECIPES[name].way == ENCODED)


@pytest.fixture
def second_torchvision(monkeypatch):
    """The module of torchvision v2's contenders. Pillow stands for torchvision's decoder, whose binary
    need not be here."""
    import_torchvision()
    name = "benchmarks.peers.scenarios.recipes.torchvision_v2"
    operators = torch.ops.image
    monkeypatch.setattr(operators, "decode_image", None, raising=False)
    module = importlib.import_module(name)
    yield module
    for each in (name, "benchmarks.peers.scenarios.torchvision_v2"):
        sys.modules.pop(each, None)


OF_TORCHVISION = [
    name for name, each in RECIPES.items() if each.module in ("torchvision", "encoded")
]


@pytest.mark.parametrize("name", OF_TORCHVISION)
def test_torchvisions_second_transforms_make_the_same_recipe(
    tmp_path, monkeypatch, second_torchvision, name
):
    def decoded(path, mode):
        assert mode == second_torchvision.ImageReadMode.RGB
        return torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1)

    monkeypatch.setattr(second_torchvision, "read_file", lambda path: path)
    monkeypatch.setattr(second_torchvision, "decode_image", decoded)
    assert V2 in recipes.scenarios(RECIPES[name])
    epochs = second_torchvision.dataloader(settings_of(tmp_path, name))
    assert type(epochs.loader) is torch.utils.data.DataLoader and not epochs.plan
    assert list(epochs()) == [3, 3]
    images, _labels = next(iter(epochs.loader))
    edges = EDGES.get(name, 224)
    views = images if isinstance(images, list) else [images]
    for view, edge in zip(views, edges if isinstance(edges, list) else [edges], strict=True):
        assert view.shape == (3, 3, edge, edge)
        assert str(view.dtype) == f"torch.{RECIPES[name].output}"
    # The same steps, and behind the pixels floats.
    first = RECIPES[name].module == "torchvision"
    theirs = module_of(name).CHAINS[name] if first else module_of(name).VIEWS[name][0].transforms
    pairs = zip(second_torchvision.VIEWS[name][0].transforms, theirs, strict=True)
    renamed = {"ToTensor": "ToDtype"}
    for new, old in pairs:
        assert type(new).__name__ == renamed.get(type(old).__name__, type(old).__name__)


def assert_is_the_originals(dataset):
    """A dataset and transforms in which nothing of fastloader works, except for a user's dataset that
    gives no EncodedImages."""
    assert len(dataset[0]) == 2 and not PutOff.any_made
    kind = type(dataset)
    if kind.__name__ == "Cifar":
        assert kind.__mro__[1].__module__ == "torchvision.datasets.cifar"
        assert not any(callable(each) for each in vars(kind).values())
    elif kind.__name__ != "Opened":
        assert not kind.__module__.startswith("fastloader")


@pytest.mark.parametrize(
    ("name", "claimed", "change", "runs"),
    [
        ("crop", PYTHON, "", NATIVE),
        ("crop", NATIVE, "native=False", PYTHON),
        ("crop-and-own-step", NATIVE, "", PYTHON),
        ("encoded", NATIVE, "", ENCODED),
        ("encoded", ENCODED, "native=False", PYTHON),
        ("encoded", ENCODED, "no native module", PYTHON),
        ("encoded", ENCODED, "own step", PYTHON),
        ("simclr", ENCODED, "own step", PYTHON),  # in one view of the two
    ],
)
def test_what_runs_otherwise_than_the_table_says_is_an_error(
    tmp_path, monkeypatch, name, claimed, change, runs
):
    module, settings = module_of(name), settings_of(tmp_path, name)
    monkeypatch.setitem(RECIPES, name, dataclasses.replace(RECIPES[name], way=claimed))
    if change == "own step":
        *others, last = module.VIEWS[name]
        last = module.torchvision.transforms.Compose(
            [*last.transforms[:-2], lambda each: each, *last.transforms[-2:]]
        )
        monkeypatch.setitem(module.VIEWS, name, [*others, last])
    if change == "no native module":
        monkeypatch.setattr(extension, "load", lambda: None)
    epochs = module.fastloader(settings)
    if change == "native=False":
        epochs._made_by.native = False
    with pytest.raises(RuntimeError, match=f"is to run {claimed}, but it runs {runs}: "):
        next(epochs())


def test_the_original_opens_a_picture_once_for_all_its_views(tmp_path, monkeypatch):
    module, settings = module_of("dino"), settings_of(tmp_path, "dino")
    opened, really_open = [], Image.open

    def noted(path, *arguments, **options):
        opened.append(path)
        return really_open(path, *arguments, **options)

    assert sum(module.fastloader(settings)()) == 6
    monkeypatch.setattr(Image, "open", noted)
    assert sum(module.dataloader(settings)()) == 6
    assert sorted(opened) == [path for path, _label in settings.samples()]


def test_cifar10_holds_the_pictures_and_is_written_once(tmp_path):
    module, settings = module_of("cifar10"), settings_of(tmp_path, "cifar10")
    made = module.dataloader(settings).loader.dataset
    samples = settings.samples()
    assert len(made) == module.TIMES * len(samples) == len(made.targets)
    for number in (0, 4, 5, len(made) - 1):
        path, label = samples[number % len(samples)]
        with Image.open(path) as file:
            small = file.convert("RGB").resize((32, 32), Image.Resampling.BOX)
        assert np.array_equal(made.data[number], np.asarray(small))
        assert made.targets[number] == label
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / made.base_folder).iterdir()}
    assert len(written) == 6
    again = module.fastloader(settings).loader.dataset
    assert np.array_equal(again.data, made.data)
    assert written == {path: path.stat().st_mtime_ns for path in written}


RUN = """
    import sys
    from benchmarks.peers.__main__ import main
    if __name__ == "__main__":
        sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_command_compares_and_writes_everything(tmp_path):
    module_of("crop")
    out = tmp_path / "out"
    done = run_script(
        RUN,
        *("--recipe", "crop", "--out", out, "--data", plain_folder(tmp_path / "data", 8)),
        *("--pictures", 8, "--batch-size", 4, "--repeats", 2, "--threads", 1, 2),
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "recipes.json").read_text())
    assert {"machine", "settings", "busy", "recipes"} == set(results)
    assert results["settings"]["distinct_pictures"] == 8 and results["settings"]["threads"] == 2
    crop = results["recipes"]["crop"]
    assert not crop["failed"] and crop["skipped"].keys() <= {V2}
    assert crop["label"] == RECIPES["crop"].label and crop["predicted"] == RECIPES["crop"].predicted
    assert list(crop["contenders"]) == [kind for kind in KINDS if kind not in crop["skipped"]]
    for kind, each in crop["contenders"].items():
        assert each["threads"] == (0 if kind.endswith("@0") else 2), kind
        assert len(each["seconds_per_picture"]) == 2 and min(each["seconds_per_picture"]) > 0, kind
        assert each["versions"]["torchvision"], kind
        assert bool(each["plan"]) == kind.startswith("fastloader"), kind
    assert [row for row in ROWS if row in crop["ratios"]] == list(crop["ratios"])
    assert set(ROWS) - crop["ratios"].keys() == ({"torchvision v2"} if crop["skipped"] else set())
    seconds = {kind: each["seconds_per_picture"] for kind, each in crop["contenders"].items()}
    for row in crop["ratios"].values():
        pairs = zip(seconds[row["slow"]], seconds[row["fast"]], strict=True)
        assert row["ratio"] == pytest.approx(measure.spread([slow / fast for slow, fast in pairs]))
    table = (out / "recipes.md").read_text()
    assert table in done.stdout and crop["contenders"]["fastloader"]["plan"] in table
    assert_is_a_plot(out / "recipes.png")


def test_it_refuses_what_it_does_not_know(tmp_path, capsys):
    with pytest.raises(SystemExit) as raised:
        main(["--recipe", "resnet"])
    said = capsys.readouterr().err
    assert raised.value.code == 2 and "invalid choice: 'resnet'" in said and "timm-default" in said
    for option, value in (
        ("--only", "dali"),
        ("--device", "cpu"),
        ("--python", f"dali={sys.executable}"),
    ):
        out = tmp_path / "out"
        with pytest.raises(SystemExit):
            main(["--recipe", "crop", option, value, "--out", str(out)])
        assert f"{option} does not go with --recipe" in capsys.readouterr().err
        assert not out.exists()


def test_the_names_of_recipes():
    assert list(named(RECIPES, ["all"])) == list(RECIPES)
    assert list(named(RECIPES, ["crop", "timm-default", "crop"])) == ["timm-default", "crop"]


def contenders(**seconds):
    """As if measured: seconds per picture of each round."""
    made = {}
    for kind, values in seconds.items():
        kind = kind.replace("_at_0", "@0").replace("_", "-")
        made[kind] = SimpleNamespace(
            scenario=recipes.scenarios(RECIPES["timm-default"])[kind],
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


def compared(name, measured):
    return comparison.by_name(comparison.compared(recipes.rows(RECIPES[name], 2), measured))


def results_of(measured):
    """As the command would write them."""
    recipe = RECIPES["timm-default"]
    what = {"date": "2026-01-02", "cpu": "Z80", "cores": 2, "isa": "scalar"}
    settings = {"data": "d", "distinct_pictures": 1, "pictures": 4, "batch_size": 2, "repeats": 2}
    return {
        "machine": what,
        "settings": {**settings, "threads": 2, "load_before": 3.0},
        "busy": True,
        "recipes": {
            "timm-default": {
                **dataclasses.asdict(recipe),
                "ratios": compared("timm-default", measured),
                "contenders": suite.Group(measured).described(),
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
    rows = compared("timm-default", measured)
    assert list(rows) == ["workers", "native=False"]
    assert rows["workers"]["ratio"] == {"median": 3.0, "min": 2.0, "max": 3.1}
    assert (rows["workers"]["at_least"], rows["workers"]["met"]) == (3.0, True)
    assert rows["native=False"]["at_least"] == 0.97 and rows["native=False"]["met"] is False
    measured[V2] = measured["dataloader"]
    rows = compared("crop-and-own-step", measured)
    assert rows["torchvision v2"]["ratio"]["median"] == 3.0
    assert rows["torchvision v2"]["at_least"] is None and rows["torchvision v2"]["met"] is None
    del measured[V2]
    rows = compared("crop", measured)
    assert rows["workers"]["at_least"] is None and rows["workers"]["met"] is None
    assert rows["native=False"]["at_least"] == 0.97
    rows = compared("simclr", measured)
    assert (rows["workers"]["at_least"], rows["workers"]["met"]) == (4.0, False)
    assert rows["native=False"]["at_least"] == 0.97


def test_tables_and_plot_show_what_there_is(tmp_path):
    results = results_of(
        contenders(fastloader=[1.0, 2.0], dataloader=[2.0, 6.0], fastloader_python=[2.0, 6.0])
    )
    table = tables.markdown(results)
    for said in (
        "2.50 x (2.00 to 3.00)",
        "Preliminary",
        "- timm-default, fastloader: native images",
        "- timm-default, fastloader@0: RuntimeError: it does not run native",
        "No module named 'timm'",
    ):
        assert said in table
    # Results, not what the project has set itself: that is in the JSON.
    assert not re.search("target|at least|predicted|met", table, re.IGNORECASE)
    (drawn,) = plots.draw(results, tmp_path)
    assert drawn == tmp_path / "recipes.png"
    assert_is_a_plot(drawn)
    nothing = results_of({})
    assert plots.draw(nothing, tmp_path / "none") == []
    assert "No module named 'timm'" in tables.markdown(nothing)
