"""``fastloader tune``: what it measures, what it says, and the diff, which is applied and run."""

import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
import torch
from pictures import random_folder
from terminal import on_terminal
from torch.utils.data import DataLoader

from fastloader import FastLoader
from fastloader.cli import tune as tuning
from fastloader.cli.__main__ import main
from fastloader.cli.tune import Native, Step
from support import require_program, run_script

NUMBERS = itertools.count()
PICTURES = """
    from torch.utils.data import DataLoader
    from fastloader import transforms as T
    from fastloader.datasets import ImageFolder

    def make_loader():
        transform = T.Compose([
            T.Resize(40), T.CenterCrop(32),
            T.ToTensor(), T.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.25)),
        ])
        return DataLoader(ImageFolder("photos", transform), batch_size=4)
"""
OWN = """
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Own(Dataset):
        taken = 0
        def __len__(self):
            return 10
        def __getitem__(self, index):
            Own.taken += 1
            return torch.full((3, 8, 8), index), index

    def make_loader():
        return DataLoader(Own(), batch_size=4)
"""
OURS = """
    from fastloader import FastLoader

    def ours():
        return FastLoader(Own(), batch_size=4)
"""


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    """Modules are found in the folder of the test, and are no longer there after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    random_folder(tmp_path / "photos", seed=5)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("users_"):
            del sys.modules[name]


def write(source):
    """A module of the user's. Returns its name."""
    name = f"users_{next(NUMBERS)}"
    with open(f"{name}.py", "w") as file:
        file.write(textwrap.dedent(source))
    return name


def tune(target, seconds=0.4):
    return main(["tune", target, "--seconds", str(seconds)])


def rates(printed):
    """(samples/s, samples, batches, seconds, epochs) by the kind of loader."""
    pattern = (
        r"^(\w+): ([\d.]+) samples/s \((\d+) samples in (\d+) batches and ([\d.]+) s, (\d+) epochs"
    )
    return {
        kind: tuple(map(float, numbers))
        for kind, *numbers in re.findall(pattern, printed, re.MULTILINE)
    }


def applied(printed, name):
    """The module after the diff that was printed, as ``patch`` applies it."""
    shutil.copy(f"{name}.py", f"{name}_before.py")
    change = printed[printed.index(f"--- {name}.py") :]
    require_program("patch")
    subprocess.run(["patch", "-p0"], input=change, text=True, check=True, capture_output=True)
    spec = importlib.util.spec_from_file_location(f"{name}_after", f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rate_is_that_of_the_samples_counted(capsys):
    name = write(OWN)
    assert tune(f"{name}:make_loader") == 0
    printed = capsys.readouterr().out
    found = rates(printed)
    assert found.keys() == {"DataLoader", "FastLoader"}
    for rate, samples, batches, seconds, epochs in found.values():
        assert rate == pytest.approx(samples / seconds, rel=0.02, abs=0.1)
        # Epochs of 4, 4 and 2. The first batch of two measurements is left out, and the last epoch of
        # each may be any part of one.
        assert 0 <= samples - (10 * epochs - 8) <= 20 and 0 <= batches - (3 * epochs - 2) <= 6
        assert 0.2 <= seconds < 5  # a busy machine may pause between two batches
    taken = sys.modules[name].Own.taken
    counted = sum(samples for _rate, samples, *_ in found.values())
    assert counted + 16 <= taken <= counted + 16 + 4 * 8  # first batches, and those begun ahead
    ratio = float(re.search(r"gives ([\d.]+) times", printed)[1])
    assert ratio == pytest.approx(found["FastLoader"][0] / found["DataLoader"][0], abs=0.01)


def test_the_diff_gives_a_file_that_gives_the_same_batches(capsys):
    name = write(PICTURES)
    assert tune(f"{name}:make_loader") == 0
    printed = capsys.readouterr().out
    assert "the plan: native images: fastloader ImageFolder" in printed
    before, after = sys.modules[name].make_loader(), applied(printed, name).make_loader()
    assert type(before) is DataLoader and type(after) is FastLoader
    assert after.mean == (0.4, 0.5, 0.6) and after.std == (0.2, 0.3, 0.25)
    assert after.plan().startswith("native images")
    assert "uint8" in after.plan()
    count = 0
    for (images, labels), (wanted, wanted_labels) in zip(after, before, strict=True):
        torch.testing.assert_close(images.cpu(), wanted, rtol=1e-6, atol=1e-6)
        assert torch.equal(labels.cpu(), wanted_labels)
        count += 1
    assert count == len(before) > 2
    with open(f"{name}.py") as file:
        changed = file.read()
    assert "from torch.utils.data import DataLoader" not in changed
    assert 'num_workers="auto"' in changed


def test_each_has_half_of_the_time_in_two_turns(monkeypatch):
    turns, measured = [], tuning.measure

    def measure(loader, seconds, *rest):
        turns.append((type(loader).__name__, seconds))
        measured(loader, 0.01, *rest)

    monkeypatch.setattr(tuning, "measure", measure)
    assert tune(f"{write(OWN)}:make_loader", 8) == 0
    assert turns == [("DataLoader", 2), ("FastLoader", 2), ("FastLoader", 2), ("DataLoader", 2)]
    turns.clear()
    name = write(OWN + OURS)
    assert tune(f"{name}:ours", 8) == 0
    assert turns == [("FastLoader", 8)]


@pytest.mark.parametrize(("load", "busy"), [(1.1, True), (0.9, False)])
def test_a_busy_machine_is_told(capsys, monkeypatch, load, busy):
    monkeypatch.setattr(tuning, "available_threads", lambda: 2)
    monkeypatch.setattr(tuning.os, "getloadavg", lambda: (load, 9.0, 9.0))
    assert tune(f"{write(OWN)}:make_loader", 0.1) == 0
    said = "This machine was busy with other work (load 1.1 on 2 CPUs)" in capsys.readouterr().out
    assert said == busy


def test_a_path_and_an_object(capsys):
    name = write(OWN + "\n    loader = make_loader()\n")
    for target in (f"./{name}.py:loader", f"{name}.py:make_loader"):
        assert tune(target, 0.1) == 0
        printed = capsys.readouterr().out
        assert rates(printed).keys() == {"DataLoader", "FastLoader"}
        assert f"+++ {name}.py" in printed and "+    return FastLoader(Own(), batch" in printed


def test_a_fast_loader_of_the_users(capsys):
    name = write(
        PICTURES.replace("DataLoader", "FastLoader").replace("torch.utils.data", "fastloader")
    )
    assert tune(f"{name}:make_loader", 0.2) == 0
    printed = capsys.readouterr().out
    assert rates(printed).keys() == {"FastLoader"}
    assert "No diff: this is a FastLoader already." in printed and "decode" in printed


def test_the_step_that_is_not_native_is_named(capsys):
    name = write(PICTURES.replace("T.CenterCrop(32),", "T.CenterCrop(32), strange,") + STRANGE)
    assert tune(f"{name}:make_loader", 0.2) == 0
    printed = capsys.readouterr().out
    assert re.search(r"to change: .*strange.* is not a native transform", printed)
    assert "without it, all is native: resize the shorter edge to 40" in printed


STRANGE = """
    def strange(picture):
        return picture
"""


def test_pictures_of_an_own_dataset(capsys):
    assert tune(f"{write(OWN)}:make_loader", 0.1) == 0
    printed = capsys.readouterr().out
    assert "not native: the dataset is a users_" in printed and "EncodedImage" in printed
    assert 'num_workers="auto"' not in printed


def test_short_epochs_and_one_process_are_named(capsys, monkeypatch):
    monkeypatch.setattr(tuning, "available_threads", lambda: 4)
    short, workers = "An epoch has", "as num_workers=0 says, FastLoader on 4 processors"
    pictures, own = write(PICTURES), write(OWN)
    assert tune(f"{pictures}:make_loader", 0.1) == 0
    printed = capsys.readouterr().out
    batches = len(sys.modules[pictures].make_loader())
    assert batches < 10 and f"{short} {batches} batches" in printed and workers in printed
    assert tune(f"{own}:make_loader", 0.1) == 0
    printed = capsys.readouterr().out
    assert f"{short} 3 batches" in printed and workers not in printed
    enough = write(OWN.replace("return 10", "return 40"))
    assert tune(f"{enough}:make_loader", 0.1) == 0
    assert short not in capsys.readouterr().out


def test_arrays_are_native(capsys):
    name = write("""
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        def make():
            return DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4)
    """)
    assert tune(f"{name}:make", 0.2) == 0
    printed = capsys.readouterr().out
    assert "the plan: arrays" in printed and "not native" not in printed


def test_what_is_slower_is_called_so(capsys, monkeypatch):
    def measured(loader, _seconds, rate, *_more):
        rate.samples, rate.batches, rate.first_batch_s = 100, 10, 0.1
        rate.seconds = 1.0 if type(loader) is DataLoader else 2.0

    monkeypatch.setattr(tuning, "measure", measured)
    assert tune(f"{write(OWN)}:make_loader", 0.1) == 0
    printed = capsys.readouterr().out
    assert "gives 0.50 times" in printed and "That is slower." in printed
    assert "next to nothing" not in printed


def test_the_users_module_reads_arguments_of_its_own(capsys):
    name = write(
        OWN
        + """
    import argparse

    def parsed():
        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", default=3)
        assert parser.parse_args().epochs == 3
        return make_loader()
"""
    )
    before = list(sys.argv)
    assert tune(f"{name}:parsed", 0.1) == 0
    assert sys.argv == before


STEP = """
    taken = []

    def step(batch):
        taken.append(batch[1].tolist())

    def fails(batch):
        raise KeyError("seven")

    def alone(): pass

    number = 3
"""


def test_the_training_step_is_called_with_each_batch(capsys):
    """Also with the one of the headspace, which the report then has."""
    name = write(OWN.replace("return 10", "return 48") + STEP)
    assert main(["tune", f"{name}:make_loader", "--step", f"{name}:step", "--seconds", "0.5"]) == 0
    printed = capsys.readouterr().out
    module = sys.modules[name]
    taken = module.taken
    epoch = [list(range(n, n + 4)) for n in range(0, 48, 4)]
    assert taken[:4] == epoch[:4] and all(each in epoch for each in taken)
    batches = sum(each[2] for each in rates(printed).values())
    alone = len(taken) - batches - 4  # the first batch of four measurements is not counted
    assert alone >= 4 and taken[-4:] == [epoch[0]] * 4
    assert f"whose loop calls {name}:step with each batch" in printed
    assert re.search(r"training step alone: [\d.]+ steps/s; with this loader [\d.]+", printed)
    assert "Your training step was not run" not in printed


def test_a_fastloader_and_a_step_of_the_same_file(capsys):
    """The file is imported once: the step would otherwise train another model."""
    name = write(OWN + OURS + STEP)
    os.rename(f"{name}.py", f"{name}-it.py")
    target = f"{name}-it.py"
    assert main(["tune", f"{target}:ours", "--step", f"{target}:step", "--seconds", "0.3"]) == 0
    assert sys.modules[f"{name}-it"].taken and "training step alone" in capsys.readouterr().out


def test_the_step_alone_behind_a_slow_loader():
    """Its batches fill the seconds; the step's own are fewer than the report asks for no more."""
    loader = FastLoader(range(4))
    Step("x:step", len).measure_alone(loader, 0.3, SimpleNamespace(batch_ms=400.0))
    assert "training step alone" in str(loader.report())


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("fails", "{name}:fails raised KeyError: 'seven'"),
        ("alone", r"{name}:alone\(\) cannot be called with a batch"),
        ("number", "{name}:number is of type int: a function that takes a batch is needed"),
        ("none", "{name} has no none"),
    ],
)
def test_errors_of_a_step(step, said, capsys):
    name = write(OWN + STEP)
    assert main(["tune", f"{name}:make_loader", "--step", f"{name}:{step}"]) == 2
    assert re.search(said.format(name=name), capsys.readouterr().err)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("users_none:make", "there is no module users_none"),
        ("nowhere.py:make", "there is no file nowhere.py"),
        ("make", "make is not MODULE:NAME"),
        ("{name}:missing", "{name} has no missing; it has .*make_loader"),
        ("{name}:number", "{name}:number is of type int: a DataLoader or a FastLoader is needed"),
        ("{name}:wrong", "{name}:wrong returned an object of type list"),
        ("{name}:more", r"{name}:more\(folder\) cannot be called with nothing"),
        ("{name}:fails", "{name}:fails raised KeyError: 'seven'\n  .*{name}.py, line 17"),
        ("{name}:ends", "{name}:ends raised SystemExit: 3 .*__main__"),
        (
            "{name}:empty",
            "{name}:empty: the loader gave no batch in an epoch: its dataset is empty",
        ),
        ("{name}:broken", "{name}:broken raised ZeroDivisionError: .*\n  .*{name}.py, line 24"),
        ("{name}:worker", "{name}:worker raised ZeroDivisionError: .*\n  .*{name}.py, line 24"),
    ],
)
def test_errors(target, said, capsys):
    name = write(
        OWN
        + """
    def fails(): seven()
    def seven(): raise KeyError("seven")
    def ends(): raise SystemExit(3)
    def wrong(): return [1]
    def more(folder): return 1
    number = 3
    empty = DataLoader([])
    class Broken(Own):
        def __getitem__(self, index): return 1 // 0
    def broken(): return DataLoader(Broken())
    def worker(): return DataLoader(Broken(), num_workers=1)
"""
    )
    assert tune(target.format(name=name), 0.1) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    wanted = f"fastloader tune: {said.format(name=name)}"
    assert re.match(wanted, captured.err, re.DOTALL), captured.err
    assert "Traceback" not in captured.err and captured.err.count("\n") <= 2


def test_a_module_that_cannot_be_imported(capsys):
    name = write("import users_that_is_missing\n")
    assert tune(f"{name}:make") == 2
    said = capsys.readouterr().err
    assert "raised ModuleNotFoundError: No module named 'users_that_is_missing'" in said
    assert f"{name}.py, line 1" in said


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "abc"])
def test_seconds_that_are_none(seconds, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["tune", "a:b", "--seconds", seconds])
    assert ended.value.code == 2 and "--seconds" in capsys.readouterr().err


def test_a_minute_is_the_default(monkeypatch):
    seen = []
    monkeypatch.setattr(tuning, "tune", lambda *given: seen.append(given))
    assert main(["tune", "a:b"]) == 0
    assert seen == [("a:b", 60.0, None)]


def test_a_subclass_is_not_compared(capsys):
    name = write(
        OWN.replace("DataLoader(Own", "Mine(Own")
        + """
    class Mine(DataLoader):
        def __iter__(self):
            return super().__iter__()
"""
    )
    assert tune(f"{name}:make_loader", 0.1) == 0
    assert "Not compared: Mine has an __iter__" in capsys.readouterr().out


BAR = """
    import sys
    from fastloader.cli.__main__ import main
    sys.exit(main(["tune", sys.argv[1] + ":make_loader", "--seconds", "0.8"]))
"""


@pytest.mark.processes
def test_quiet_but_on_a_terminal():
    name = write(OWN)
    assert run_script(BAR, name).stderr == ""
    status, _printed, shown = on_terminal(BAR, name)
    assert status == 0 and re.search(r"measuring for 0.8 s: \d+ samples, \d+/s", shown)


# --- what FastLoader would refuse --------------------------------------------------------------------

REFUSED = """
    def make_loader():
        loader = DataLoader(Own(), batch_size=4)
        loader.{name} = (0.5, 0.5, 0.5)
        return loader
"""


def test_a_change_that_fastloader_refuses_is_not_proposed(capsys):
    name = write(OWN.partition("    def make_loader")[0] + REFUSED.format(name="mean"))
    assert tune(f"{name}:make_loader") == 0
    printed = capsys.readouterr().out
    assert "No diff, because FastLoader would refuse it" in printed and "--- " not in printed
    assert "mean attribute should not be set after FastLoader is initialized" in printed
    assert re.search(rf"{name}.py, line \d+", printed) and "another name" in printed


def test_an_attribute_of_the_users_own_is_no_hindrance(capsys):
    name = write(OWN.partition("    def make_loader")[0] + REFUSED.format(name="classes"))
    assert tune(f"{name}:make_loader") == 0
    printed = capsys.readouterr().out
    assert applied(printed, name).make_loader().classes == (0.5, 0.5, 0.5)


def test_a_loader_that_no_function_makes_is_read(capsys):
    made = "\n".join(line[4:] for line in REFUSED.format(name="std").splitlines()[2:-1])
    name = write(OWN.partition("    def make_loader")[0] + made + "\n")
    assert tune(f"{name}:loader") == 0
    printed = capsys.readouterr().out
    assert "No diff, because FastLoader would refuse it: line" in printed and "--- " not in printed


# --- what is no dataset of samples by their indices --------------------------------------------------

BATCHES = """
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class Batches(IterableDataset):
        def __iter__(self):
            for _ in range(5):
                yield {what}

    def make_loader():
        return DataLoader(Batches(), batch_size=None)
"""


@pytest.mark.parametrize(
    ("what", "count"),
    [
        ("torch.zeros(7, 3, 8, 8), torch.zeros(7)", 7),
        ("torch.zeros(7, 3, 8, 8), ['text'] * 7", 7),
        ("{'image': torch.zeros(7, 8, 8, 3).numpy()}", 7),
        ("torch.zeros(3, 8, 8), 1", 1),
        ("torch.zeros(3, 8, 8)", 1),
        ("torch.zeros(3, 8, 8), torch.zeros(2)", 1),
    ],
)
def test_without_a_batch_size_the_samples_of_the_datasets_batches_are_counted(what, count, capsys):
    name = write(BATCHES.replace("{what}", what))
    assert tune(f"{name}:make_loader") == 0
    for _rate, samples, batches, _seconds, _epochs in rates(capsys.readouterr().out).values():
        assert samples == count * batches


class Indexed(torch.utils.data.Dataset):
    pass


class Streamed(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(())


def of(module, kind, **more):
    return type("Kind", (kind,), {"__module__": module, **more})()


@pytest.mark.parametrize(
    ("dataset", "advice"),
    [
        (Indexed(), "return fastloader.EncodedImage(path, transform) from __getitem__"),
        (Streamed(), "yield fastloader.EncodedImage(path, transform) from __iter__"),
        (of("datasets.arrow_dataset", Indexed, features={}), "give fastloader.datasets.HFImages("),
        (
            of("datasets.iterable_dataset", Streamed, features={}),
            "load it without streaming, and give",
        ),
        (of("datasets", Indexed), "from __getitem__"),
        (of("webdataset.compat", Streamed), "give fastloader.datasets.TarImages("),
        ([1, 2], "put fastloader.EncodedImage(path, transform) into them"),
    ],
)
def test_the_advice_fits_the_kind_of_dataset(dataset, advice):
    lines = Native("Python path: ...", None, "the dataset is its own").lines(dataset)
    assert advice in lines[-1]
    assert ("__getitem__" in lines[-1]) == ("__getitem__" in advice)
