"""``fastloader bench`` measures a folder, and says what has left it. Nothing here is timed."""

import sys
import types

import pytest
from PIL import Image

from fastloader.cli import commands
from fastloader.cli.__main__ import main


@pytest.fixture
def folder(tmp_path):
    for number in range(6):
        path = tmp_path / "photos" / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40 + number, 30)).save(path)
    return tmp_path / "photos"


class Dataset:
    """Torchvision's ImageFolder, as far as this command needs it."""

    seen: list = []

    def __init__(self, root, transform):
        self.transform = transform
        Dataset.seen.append(root)

    def __getitem__(self, index):
        return self.transform(index), 0


def torchvision():
    """As much of it as is asked for, since a real one may not be here."""
    import torch

    def nothing(*_):
        return None

    def compose(_steps):
        return lambda _picture: torch.zeros(3, 224, 224, dtype=torch.uint8)

    transforms = types.SimpleNamespace(
        Compose=compose,
        RandomResizedCrop=nothing,
        RandomHorizontalFlip=nothing,
        PILToTensor=nothing,
    )
    datasets = types.SimpleNamespace(ImageFolder=Dataset)
    return types.SimpleNamespace(transforms=transforms, datasets=datasets)


FEW = ["--pictures", "10", "--batch-size", "4", "--repeats", "2", "--threads", "1"]


@pytest.mark.parametrize("how", ["DIR", "--data"])
def test_it_compares_the_loaders_that_are_here(folder, capsys, monkeypatch, how):
    monkeypatch.setitem(sys.modules, "torchvision", torchvision())
    given = [str(folder)] if how == "DIR" else ["--data", str(folder)]
    assert main(["bench", *given, *FEW]) == 0
    said = capsys.readouterr().out
    assert f"{folder}: 6 of 6 pictures, 10 in an epoch" in said and "medians of 2 rounds" in said
    rows = [line for line in said.splitlines() if "(" in line and " to " in line]
    names = [line.partition("  ")[0] for line in rows if not line.startswith(str(folder))]
    assert names[-3:] == [
        "FastLoader",
        "DataLoader, torchvision's ImageFolder",
        "DataLoader, the same dataset with Pillow",
    ]
    assert "python -m benchmarks.peers" in said and "Not compared" not in said
    assert Dataset.seen[-1] == str(folder)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["photos"]


def test_what_is_not_here_is_named(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert main(["bench", str(folder), *FEW]) == 0
    said = capsys.readouterr().out
    assert "Not compared: torchvision (ModuleNotFoundError: " in said
    assert "torchvision's ImageFolder" not in said


@pytest.mark.parametrize("option", commands.MOVED)
def test_what_has_left_says_where_it_is(folder, capsys, option):
    with pytest.raises(SystemExit) as raised:
        main(["bench", str(folder), option, "x"])
    said = capsys.readouterr().err
    assert raised.value.code == 2
    assert f"error: {option} is an option" in said and "benchmarks/peers" in said


def test_it_says_what_is_wrong_with_its_arguments(folder, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for arguments, said in (
        ([tmp_path / "nowhere"], "nowhere"),
        ([tmp_path / "empty"], "empty"),
        ([folder, "--pictures", 10, "--batch-size", 10], "a single batch of 10"),
    ):
        assert main(["bench", *map(str, arguments)]) == 1
        error = capsys.readouterr().err
        assert error.startswith("fastloader bench: ") and said in error
    for arguments in ([], [str(folder), "--data", str(folder)]):
        with pytest.raises(SystemExit) as raised:
            main(["bench", *arguments])
        assert raised.value.code == 2
    (folder / "class0" / "0.jpg").write_bytes(b"no picture")
    assert main(["bench", str(folder), *FEW]) == 1
    assert "0.jpg" in capsys.readouterr().err
