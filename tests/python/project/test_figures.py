"""Numbers in README.md and docs/ are those of benchmarks/results/."""

import importlib
import json

import pytest

from support import PACKAGE_ROOT

if not (PACKAGE_ROOT / "benchmarks" / "results").is_dir():
    pytest.skip("needs the source tree", allow_module_level=True)

figures = importlib.import_module("figures")


def test_documents_agree_with_the_results(capsys):
    assert figures.main(["--check"]) == 0, capsys.readouterr().out


def test_every_figure_can_be_had():
    results = figures.Results(PACKAGE_ROOT / "benchmarks" / "results")
    for name in figures.FIGURES:
        number = float(results.text(name))
        # Differences may be within the noise.
        assert number > 0 or name.startswith(("observation.", "ray_workers.")), name


@pytest.fixture
def project(tmp_path):
    """A project of one benchmark; ``project(text)`` writes its README."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    what = {"cpu": "Z80", "cores": 1, "isa": "scalar", "gpu": None, "date": "2026-01-02"}
    what |= {"python": "3.11", "torch": "2.13", "fastloader": "0.1"}
    peers = {
        "machine": what,
        "busy": False,
        "ratios": [{"slow": "dali", "ratio": {"median": 2.149}}],
        "scenarios": {"dali": {"pictures_per_s": {"median": 871.4}}},
        "further": [{"what": "fastloader-index is faster than dali by", "value": {"median": 3.88}}],
        "sets": {"420q85": {"ratios": [{"slow": "dali", "ratio": {"median": 4.04}}]}},
    }
    (tmp_path / "benchmarks" / "results" / "peers.json").write_text(json.dumps(peers))
    ratios = {"workers": {"ratio": {"median": 3.14}}, "native=False": {"ratio": {"median": 0.98}}}
    recipes = {"machine": what, "recipes": {"crop": {"ratios": ratios}}}
    (tmp_path / "benchmarks" / "results" / "recipes.json").write_text(json.dumps(recipes))

    def write(text):
        (tmp_path / "README.md").write_text(text)
        return tmp_path

    return write


def mark(name, text):
    return f"is <!-- figure: {name} -->{text}<!-- /figure -->."


def test_fills_in_and_is_content_then(project, capsys):
    text = mark("peers.ratio.dali", "9") + mark("peers.speed.dali", "") + mark("peers.machine", "x")
    root = project(text)
    assert figures.main(["--check"], root) == 1
    assert "peers.ratio.dali is '9', the results say '2.1'" in capsys.readouterr().out
    assert (root / "README.md").read_text() == text, "--check changes nothing"
    assert figures.main([], root) == 0
    machine = "Z80, 1 cores, scalar; Python 3.11, torch 2.13, fastloader 0.1; 2026-01-02"
    assert (root / "README.md").read_text() == (
        mark("peers.ratio.dali", "2.1")
        + mark("peers.speed.dali", "871")
        + mark("peers.machine", machine)
    )
    assert figures.main(["--check"], root) == 0


def test_ratios_with_an_index_and_over_other_sets(project):
    marks = ("peers.index.dali", "3.9"), ("peers.set.420q85.dali", "4.0")
    root = project("".join(mark(name, "") for name, _ in marks))
    assert figures.main([], root) == 0
    assert (root / "README.md").read_text() == "".join(mark(*each) for each in marks)


def test_ratios_of_recipes(project):
    marks = ("recipes.ratio.crop", "3.1"), ("recipes.in-python.crop", "0.98")
    root = project("".join(mark(name, "") for name, _ in marks))
    assert figures.main([], root) == 0
    assert (root / "README.md").read_text() == "".join(mark(*each) for each in marks)


def test_results_of_a_gpu_are_said_to_be_missing_until_there_are_some(project):
    root = project("nothing")
    page = root / "docs" / "gpu.md"
    page.write_text(mark("gpu.results", ""))
    results = root / "benchmarks" / "results"
    rehearsal = {"plan": {"name": "rehearsal"}}
    (results / "gpu-rehearsal.json").write_text(json.dumps(rehearsal))
    assert figures.main([], root) == 0
    assert page.read_text() == mark("gpu.results", figures.NO_GPU)
    about = json.loads((results / "peers.json").read_text())["machine"]
    run = {
        "machine": about,
        **{"device": "Z80", "driver": "1.0", "torch": "2.13", "threads": 2},
        "plan": {"name": "full"},
        "failed": {"peers": "Traceback"},
        "goals": [
            {
                **{"what": "normalise", "value": 0.876, "predicted": 0.9, "remark": ""},
                **{"goal": "at least", "limit": 0.9, "met": False},
            }
        ],
    }
    (results / "gpu-z80.json").write_text(json.dumps(run))
    assert figures.main(["--check"], root) == 1
    assert figures.main([], root) == 0
    assert "| normalise | 0.9 | 0.876 | at least 0.9 | **not met** |" in page.read_text()
    assert "Failed: peers." in page.read_text() and figures.NO_GPU not in page.read_text()
    assert figures.main(["--check"], root) == 0


def test_results_of_sources_are_said_to_be_missing_until_there_are_some(project):
    root = project("nothing")
    page = root / "docs" / "storage.md"
    page.write_text(mark("sources.results", ""))
    assert figures.main([], root) == 0
    assert page.read_text() == mark("sources.results", figures.NO_SOURCES)
    results = root / "benchmarks" / "results"
    settings = {"distinct_pictures": 500, "pictures": 2000, "batch_size": 64}
    row = {"what": "TarImages, of the folder", "ratio": {"median": 0.9349}, "at_least": 0.95}
    free = {"what": "MongoImages, of the recipe", "ratio": {"median": 1.5}, "at_least": None}
    speed = {"pictures_per_s": {"median": 1871.4}, "cpu_s_per_picture": [0.002, 0.001, 0.004]}
    run = {
        "machine": json.loads((results / "peers.json").read_text())["machine"],
        "busy": False,
        "settings": {**settings, "threads": 2, "repeats": 5},
        "ratios": {"tar.folder": {**row, "met": False}, "mongo.recipe": {**free, "met": None}},
        "contenders": {"tar": {"label": "FastLoader, TarImages", **speed}},
        "skipped": {"hf": "ModuleNotFoundError"},
        "failed": {"mongo": "Traceback"},
    }
    (results / "sources.json").write_text(json.dumps(run))
    assert figures.main(["--check"], root) == 1
    assert figures.main([], root) == 0
    text = page.read_text()
    for said in (
        "| TarImages, of the folder | 0.93 |",
        "| MongoImages, of the recipe | 1.50 |",
        "| FastLoader, TarImages | 1871 | 2.00 |",
        "Z80, 1 cores, scalar; Python 3.11, torch 2.13, fastloader 0.1; 2026-01-02. 500 photographs",
        "Not measured: hf, mongo.",
    ):
        assert said in text, text
    assert figures.NO_SOURCES not in text
    assert figures.main(["--check"], root) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (mark("peers.ratio.tf", "1"), "no figure 'peers.ratio.tf'"),
        (mark("recipes.without-workers.crop", "1"), "no figure 'recipes.without-workers.crop'"),
        (mark("recipes.machine.crop", "1"), "no figure 'recipes.machine.crop'"),
        (mark("arrays.ratio", "1"), "arrays.json does not exist"),
        ("is <!-- figure: peers.machine -->", "has no partner"),
        ("1<!-- /figure -->", "has no partner"),
        (mark("peers.machine", "")[3:], "begins the line"),
    ],
)
def test_refuses(project, capsys, text, said):
    root = project(text)
    for arguments in ([], ["--check"]):
        assert figures.main(arguments, root) == 1
        assert said in capsys.readouterr().out
    assert (root / "README.md").read_text() == text
