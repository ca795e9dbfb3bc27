"""``python -m benchmarks.peers --source`` reads what its table says, once a picture, and shows what
it measured. Nothing here is timed."""

import contextlib
import dataclasses
import importlib
import json
import os
import re
import shutil
from types import SimpleNamespace

import pytest
import torch
from one_colour import BATCH, COUNT, assert_an_epoch, contender, photographs_in, settings_of
from plot_files import assert_is_a_plot

from fastloader._core.machine import extension
from support import PACKAGE_ROOT, run_script

pytest.importorskip("benchmarks.peers")  # needs the source tree

from benchmarks import measure
from benchmarks.peers import collection as collection_module
from benchmarks.peers import comparison, places, plots, suite, tables
from benchmarks.peers.__main__ import main
from benchmarks.peers.collection import NoServer
from benchmarks.peers.places import SOURCES
from benchmarks.peers.scenarios import NATIVE, named
from benchmarks.peers.scenarios.recipes import loaders

pytestmark = pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    return photographs_in(tmp_path_factory.mktemp("photographs"))


@pytest.mark.parametrize(
    "name", [name for name in places.CONTENDERS if not name.startswith("mongo")]
)
def test_every_contender_makes_each_picture_once(photographs, tmp_path, name):
    epochs = contender(name, settings_of(photographs, tmp_path))
    assert_an_epoch(epochs, photographs)
    native = places.CONTENDERS[name].label.startswith("FastLoader")
    assert epochs.plan.startswith("native images") == native
    if native:
        assert loaders.way_of(epochs._made_by) == NATIVE
    else:
        assert type(epochs.loader) is torch.utils.data.DataLoader and not epochs.plan


@pytest.mark.parametrize("name", ["folder", "list", "lmdb", "tar", "s3", "hf", "parquet"])
def test_readers_have_as_many_processors_as_threads(photographs, tmp_path, monkeypatch, name):
    """As the one has that takes MongoDB's replies from memory."""
    asked = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {3, 8, 5}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *of: asked.append(of), raising=False)
    settings = dataclasses.replace(settings_of(photographs, tmp_path), threads=2)
    contender(name, settings)
    assert asked == [(0, [3, 5])]


def test_copies_are_made_once_and_whole(photographs, tmp_path):
    readers = importlib.import_module("benchmarks.peers.scenarios.sources.readers")
    settings = settings_of(photographs, tmp_path)

    def broken(path):
        path.write_text("the beginning")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        readers.copied(settings, "copy", broken)
    assert not list(tmp_path.iterdir())
    path = readers.copied(settings, "copy", lambda path: path.write_text("all"))
    assert path == tmp_path / "copy" and path.read_text() == "all"
    assert readers.copied(settings, "copy", broken) == path


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("mongodb://127.0.0.1:5/x", ""),
        ("mongodb+srv://a.example/x", r"mongodb\+srv"),
        ("mongodb://a:1,b:2/x", "several servers"),
        ("mongodb://u:p@a/x", "neither a password nor TLS"),
        ("mongodb://a/x?tls=true", "neither a password nor TLS"),
    ],
)
def test_who_needs_a_driver_is_not_asked_without(photographs, tmp_path, monkeypatch, uri, said):
    pytest.importorskip("pymongo")
    why = collection_module._why_not_bare(uri)
    assert re.search(said, why) and bool(why) == bool(said)
    described = {"server": "x", "server_processor": None, "client_processor": 1}
    made = collection_module.Collection({"mongodb": uri}, described, why)
    ran = []
    monkeypatch.setattr(suite, "filled", lambda *_: contextlib.nullcontext(made))
    monkeypatch.setattr(
        suite, "measured", lambda wanted, *_: ran.extend(wanted) or suite.Group(measured(wanted))
    )
    given = ["--source", "mongo", "--data", str(photographs[0]), "--out", str(tmp_path)]
    assert main(given) == 0 and ("mongo-server" in ran) == (not said)
    assert len(ran) == 7 - bool(said)
    results = json.loads((tmp_path / "sources.json").read_text())
    assert results["skipped"] == ({"mongo-server": why} if said else {})


@pytest.mark.parametrize(("error", "word"), [(NoServer, "skipped"), (RuntimeError, "failed")])
def test_without_a_server_the_others_are_measured(photographs, tmp_path, monkeypatch, error, word):
    def none(_folder, _work):
        raise error("out of luck")

    ran = []
    monkeypatch.setattr(suite, "filled", none)
    monkeypatch.setattr(
        suite, "measured", lambda wanted, *_: ran.extend(wanted) or suite.Group(measured(wanted))
    )
    out = tmp_path / "out"
    given = ["--source", "mongo", "--data", str(photographs[0]), "--out", str(out)]
    assert (main(given), ran) == (int(word == "failed"), ["folder", "lmdb"])
    results = json.loads((out / "sources.json").read_text())
    asking = ["mongo", "mongo-drained", "mongo-server", "mongo-recipe", "mongo-replayed"]
    assert results[word] == dict.fromkeys(asking, "out of luck")
    assert not results[{"failed": "skipped", "skipped": "failed"}[word]]
    assert results["settings"]["mongodb"] is None and not results["ratios"]
    assert "- mongo-recipe: out of luck" in (out / "sources.md").read_text()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("threads", "repeats", "judged"),
    [([2], 5, True), ([2], 6, True), ([1, 2], 5, True), ([2], 4, False), ([4], 5, False)],
)
def test_a_verdict_is_for_what_was_promised(
    photographs, tmp_path, monkeypatch, threads, repeats, judged
):
    monkeypatch.setattr(suite, "measured", lambda wanted, *_: suite.Group(measured(wanted)))
    given = ["--source", "list", "--data", str(photographs[0]), "--out", str(tmp_path)]
    given += ["--threads", *map(str, threads), "--repeats", str(repeats)]
    assert main(given) == 0
    results = json.loads((tmp_path / "sources.json").read_text())
    assert results["judged"] == judged
    assert results["ratios"]["list.folder"]["met"] == (True if judged else None)
    assert "met" not in (tmp_path / "sources.md").read_text().split()


RUN = """
    import sys
    from benchmarks.peers.__main__ import main
    if __name__ == "__main__":
        sys.exit(main(sys.argv[1:]))
"""


def run_bench(photographs, out, *names, env=None):
    """Its results as JSON, its table, and its exit status."""
    done = run_script(
        RUN,
        *("--source", *names, "--data", photographs[0], "--out", out),
        *("--pictures", COUNT, "--batch-size", BATCH, "--repeats", 2, "--threads", 1, 2),
        timeout=600,
        check=False,
        env=env,
    )
    assert (out / "sources.json").exists(), done.stderr
    table = (out / "sources.md").read_text()
    assert table in done.stdout
    return json.loads((out / "sources.json").read_text()), table, done.returncode


@pytest.mark.slow
def test_the_command_compares_and_writes_everything(photographs, tmp_path):
    for package in ("lmdb", "webdataset", "datasets", "pyarrow", "pymongo", "nx_27017", "moto"):
        pytest.importorskip(package)
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two processors")
    results, table, status = run_bench(photographs, tmp_path, "all")
    assert status == 0 and not results["failed"] and not results["skipped"], table
    assert list(results["sources"]) == list(SOURCES)
    assert list(results["contenders"]) == list(places.CONTENDERS)
    about = results["settings"]
    assert (about["distinct_pictures"], about["pictures"], about["threads"]) == (COUNT, COUNT, 2)
    assert about["mongodb"]["server_processor"] != about["mongodb"]["client_processor"]
    for name, each in results["contenders"].items():
        assert each["threads"] == 2 and each["versions"]["torch"], name
        assert len(each["seconds_per_picture"]) == 2 and min(each["seconds_per_picture"]) > 0, name
        assert len(each["first_batch_s"]) == (2 if each["output"] else 0), name
        assert bool(each["plan"]) == each["label"].startswith("FastLoader"), name
        assert each["label"] in table, name
    seconds = {name: each["seconds_per_picture"] for name, each in results["contenders"].items()}
    rows = [row for source in SOURCES.values() for row in source.rows]
    assert list(results["ratios"]) == [row.name for row in rows]
    for row in results["ratios"].values():
        pairs = zip(seconds[row["slow"]], seconds[row["fast"]], strict=True)
        assert row["ratio"] == pytest.approx(measure.spread([slow / fast for slow, fast in pairs]))
    assert_is_a_plot(tmp_path / "sources.png")


@pytest.mark.slow
def test_who_is_not_installed_is_named(photographs, tmp_path):
    """A package that cannot be imported stands before the one that may be there."""
    (tmp_path / "gone").mkdir()
    missing = "raise ModuleNotFoundError(\"No module named 'webdataset'\")"
    (tmp_path / "gone" / "webdataset.py").write_text(missing)
    paths = [str(tmp_path / "gone"), str(PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]
    env = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    results, table, status = run_bench(photographs, tmp_path, "tar", env=env)
    assert status == 0 and list(results["contenders"]) == ["folder", "tar"]
    assert list(results["ratios"]) == ["tar.folder"]
    why = "ModuleNotFoundError: No module named 'webdataset'"
    assert results["skipped"] == {"tar-webdataset": why} and f"- tar-webdataset: {why}" in table
    assert results["settings"]["mongodb"] is None


def test_it_refuses_what_it_does_not_know(tmp_path, capsys):
    with pytest.raises(SystemExit) as raised:
        main(["--source", "floppy"])
    said = capsys.readouterr().err
    assert raised.value.code == 2 and "invalid choice: 'floppy'" in said and "mongo" in said
    for option, value in (
        ("--recipe", ["crop"]),
        ("--only", ["dali"]),
        ("--device", ["cpu"]),
        ("--sets", []),
        ("--python", [f"dali={shutil.which('sh')}"]),
    ):
        out = tmp_path / "out"
        with pytest.raises(SystemExit):
            main(["--source", "tar", option, *value, "--out", str(out)])
        assert f"{option} does not go with --source" in capsys.readouterr().err
        assert not out.exists()


def test_the_names_of_places_and_who_is_compared_there():
    assert list(named(SOURCES, ["all"])) == list(SOURCES)
    assert list(named(SOURCES, ["tar", "list", "tar"])) == ["list", "tar"]
    assert list(places.scenarios(named(SOURCES, ["folder"]))) == ["folder"]
    assert list(places.scenarios(named(SOURCES, ["hf", "lmdb"]))) == [
        *("folder", "lmdb", "hf", "hf-datasets"),
    ]
    assert list(places.scenarios(named(SOURCES, ["all"]))) == list(places.CONTENDERS)


def measured(wanted, **seconds):
    """As if measured: seconds per picture of each round; 1 and 2 of those that are not named."""
    made = {}
    for name in wanted:
        values = seconds.get(name.replace("-", "_"), [1.0, 2.0])
        scenario = places.CONTENDERS[name]
        made[name] = SimpleNamespace(
            scenario=scenario,
            threads=2,
            versions={"python": "3.11"},
            timing=measure.Timing(values),
            cpu=measure.Timing([2 * value for value in values]),
            plan="native images" if scenario.label.startswith("FastLoader") else "",
            first_batches=[0.5] if scenario.output else [],
            waits=[],
            cold_first_batch_s=6.0,
            memory=[],
        )
    return made


def compared(chosen, contenders, judged):
    rows = (row for each in chosen.values() for row in each.rows)
    return comparison.by_name(comparison.compared(rows, contenders, judged))


def results_of(contenders, chosen=SOURCES, judged=True):
    """As the command would write them."""
    what = {"date": "2026-01-02", "cpu": "Z80", "cores": 2, "isa": "scalar"}
    settings = {"data": "d", "distinct_pictures": 1, "pictures": 4, "batch_size": 2, "repeats": 2}
    server = {"server": "nx-27017 1.2", "server_processor": 0, "client_processor": 1}
    return {
        "machine": what,
        "settings": {**settings, "threads": 2, "load_before": 3.0, "mongodb": server},
        "busy": True,
        "sources": {name: each.label for name, each in chosen.items()},
        "judged": judged,
        "ratios": compared(chosen, contenders, judged),
        "contenders": suite.Group(contenders).described(),
        "skipped": {"hf": "ModuleNotFoundError: No module named 'datasets'"},
        "failed": {"tar": "Traceback\nRuntimeError: it does not run native"},
    }


def test_ratios_are_paired_by_round_and_held_against_the_promises():
    contenders = measured(
        [
            *("folder", "list", "lmdb", "tar", "tar-webdataset"),
            "mongo",
            "mongo-drained",
            "mongo-recipe",
        ],
        folder=[1.0, 2.0, 4.0],
        list=[1.0, 2.2, 4.0],
        tar=[1.1, 2.2, 4.4],
        tar_webdataset=[3.0, 6.6, 13.4],
        lmdb=[1.0, 1.0, 1.0],
        mongo=[1.0, 1.0, 1.0],
        mongo_drained=[0.94, 0.9, 0.98],
        mongo_recipe=[2.0, 3.0, 4.0],
    )
    rows = compared(SOURCES, contenders, True)
    assert list(rows) == [
        *("list.folder", "lmdb.folder", "tar.webdataset", "tar.folder"),
        *("mongo.drained", "mongo.recipe"),
    ]
    expected = {"median": 1.0, "min": 1 / 1.1, "max": 1.0}
    assert rows["list.folder"]["ratio"] == pytest.approx(expected)
    assert (rows["list.folder"]["at_least"], rows["list.folder"]["met"]) == (0.95, True)
    assert rows["tar.folder"]["ratio"]["median"] == pytest.approx(1 / 1.1)
    assert rows["tar.folder"]["met"] is False
    assert rows["tar.webdataset"]["ratio"]["median"] == pytest.approx(3.0)
    assert rows["tar.webdataset"]["at_least"] == 3.0
    assert (rows["mongo.drained"]["at_least"], rows["mongo.drained"]["met"]) == (0.95, False)
    assert (rows["mongo.recipe"]["at_least"], rows["mongo.recipe"]["met"]) == (None, None)
    assert rows["mongo.recipe"]["ratio"]["median"] == 3.0
    # Without a verdict the numbers stay.
    others = compared(SOURCES, contenders, False)
    assert others == {name: {**row, "met": None} for name, row in rows.items()}
    promised = {row.name: row.at_least for each in SOURCES.values() for row in each.rows}
    assert promised["hf.datasets"] == 3.0 and promised["hf.folder"] == 0.95
    assert promised["parquet.folder"] == 0.95
    assert promised["mongo.replayed"] == 0.9 and promised["mongo.server"] is None


def test_tables_and_plot_show_what_there_is(tmp_path):
    some = ["folder", "list", "lmdb", "mongo", "mongo-drained", "mongo-server", "mongo-replayed"]
    results = results_of(measured(some, list=[2.0, 8.0], mongo=[0.5, 1.0]))
    table = tables.markdown(results)
    for said in (
        "| ListImages, of the folder's rate | 0.38 x (0.25 to 0.50) | 0.38 x |",
        "of pymongo alone with the same queries | 2.00 x (2.00 to 2.00) | 2.00 x |",
        "| mongo-server | the server alone |  | 1 (0 to 1) | 3000.00 |  |",
        "| folder | FastLoader, ImageFolder | uint8 | 1 (0 to 1) | 3000.00 | 500 |",
        "Preliminary",
        "nx-27017 1.2, on processor 0; those who ask it on processor 1",
        "- mongo: native images",
        "- tar: RuntimeError: it does not run native",
        "- hf: ModuleNotFoundError: No module named 'datasets'",
    ):
        assert said in table, table
    # Results, not what the project has set itself: that is in the JSON.
    assert not re.search("target|at least|met\\b|verdict", table, re.IGNORECASE)
    (drawn,) = plots.draw(results, tmp_path)
    assert drawn == tmp_path / "sources.png"
    assert_is_a_plot(drawn)
    (alone,) = plots.draw(results_of(measured(["folder"]), named(SOURCES, ["folder"])), tmp_path)
    assert_is_a_plot(alone)
    nothing = results_of({})
    assert plots.draw(nothing, tmp_path / "none") == []
    assert "No module named 'datasets'" in tables.markdown(nothing)
