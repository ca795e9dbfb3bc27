"""``fastloader push`` into a real server, and ``fastloader pack`` out of it."""

import json
import os
import random
import shutil

import pytest
from mongodb import given_uri, server_or_skip
from pictures import plain_folder, random_folder

from fastloader.cli import push
from fastloader.cli.__main__ import main
from fastloader.datasets import ImageFolder, LMDBDataset, MongoImages

pymongo = pytest.importorskip("pymongo")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if given_uri():
        yield given_uri().rstrip("/")
        return
    server = server_or_skip(tmp_path_factory.mktemp("mongodb"))
    yield server.uri.rstrip("/")
    server.close()


@pytest.fixture
def uri(server):
    name = f"fastloader_{random.SystemRandom().randrange(1 << 40)}"
    yield f"{server}/{name}"
    with pymongo.MongoClient(server) as client:
        client.drop_database(name)


@pytest.fixture
def folder(tmp_path):
    random_folder(tmp_path / "photos", seed=5)
    return tmp_path / "photos"


def pushed(uri, **options):
    server, _slash, name = uri.rpartition("/")
    return MongoImages(server, name, "photos", **options)


def test_what_was_pushed_is_the_folder(folder, uri, tmp_path, capsys):
    assert main(["push", str(folder), uri, "--list", str(tmp_path / "list.json")]) == 0
    own = ImageFolder(folder)
    assert f"{len(own)} pictures" in capsys.readouterr().out
    for dataset in (pushed(uri, label="label"), pushed(uri, order=tmp_path / "list.json")):
        assert dataset.targets.tolist() == own.targets.tolist()
        assert list(dataset.keys) == [path[len(str(folder)) + 1 :] for path, _ in own.samples]
        for index in (0, len(own) - 1):
            with open(own.path(index), "rb") as file:
                assert dataset.image_bytes(index) == file.read()
    names = json.loads((tmp_path / "list.json").read_text())["path_list"]
    assert names == list(dataset.keys)


def test_another_folder_of_the_same_names(folder, uri, tmp_path, capsys):
    assert main(["push", str(folder), uri]) == 0
    other = tmp_path / "val"
    random_folder(other, seed=6)
    assert main(["push", str(other), uri]) == 1
    assert "photos has another picture for " in capsys.readouterr().err
    assert main(["push", str(other), uri, "--collection", "val"]) == 0


def test_another_numbering_of_classes(folder, uri, tmp_path, capsys):
    assert main(["push", str(folder), uri]) == 0
    shutil.copytree(folder, tmp_path / "more")
    (tmp_path / "more" / "0 first").mkdir()
    path, _label = ImageFolder(folder).samples[0]
    shutil.copy(path, tmp_path / "more" / "0 first")
    assert main(["push", str(tmp_path / "more"), uri]) == 1
    assert "photos has another label for " in capsys.readouterr().err


def test_an_interrupted_push_goes_on(folder, uri, capsys, monkeypatch):
    own = ImageFolder(folder)
    real = push._documents
    monkeypatch.setattr(push, "_TOGETHER", 4)

    def interrupted(*arguments):
        yield from real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(push, "_documents", interrupted)
    assert main(["push", str(folder), uri]) == 130
    monkeypatch.setattr(push, "_documents", real)
    monkeypatch.setattr(push, "_BYTES_TOGETHER", 1)
    assert main(["push", str(folder), uri]) == 0
    assert f"4 of {len(own)} pictures were there already" in capsys.readouterr().out
    assert len(pushed(uri)) == len(own)


def test_a_collection_is_packed_with_its_bytes(folder, uri, tmp_path, monkeypatch):
    assert main(["push", str(folder), uri]) == 0
    server, _slash, name = uri.rpartition("/")
    (tmp_path / "here.py").write_text(
        "from fastloader.datasets import MongoImages\n"
        f"photos = MongoImages({server!r}, {name!r}, 'photos', label='label')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["pack", "here:photos", "set.lmdb"]) == 0
    own, packed = ImageFolder(folder), LMDBDataset("set.lmdb")
    assert packed.targets.tolist() == own.targets.tolist()
    for index in range(len(own)):
        with open(own.path(index), "rb") as file:
            assert packed.image_bytes(index) == file.read()


def test_what_cannot_be_pushed(folder, uri, tmp_path, capsys, monkeypatch):
    server = uri.rpartition("/")[0]
    assert main(["push", str(folder), server]) == 1
    assert "the URI names no database" in capsys.readouterr().err
    assert main(["push", str(tmp_path / "none"), uri]) == 1
    assert "none" in capsys.readouterr().err
    wrong = "mongodb://user:s%40cret@127.0.0.1:1/x?serverSelectionTimeoutMS=100"
    assert main(["push", str(folder), wrong]) == 1
    said = capsys.readouterr().err
    assert "MongoDB at 127.0.0.1:1: ServerSelectionTimeoutError" in said
    assert "cret" not in said
    monkeypatch.setattr(push, "_MOST_BYTES", 10)
    assert main(["push", str(folder), uri]) == 1
    assert "keep such pictures in GridFS" in capsys.readouterr().err


def test_a_pipe_is_refused_by_name(tmp_path):
    """And not waited for."""
    plain_folder(tmp_path / "photos", count=2, classes=1)
    os.mkfifo(tmp_path / "photos" / "c0" / "pipe.jpg")
    pictures = ImageFolder(tmp_path / "photos")
    fields = push.Fields("_id", "image", "label")
    with pytest.raises(OSError, match=r"not a regular file: .*pipe\.jpg"):
        list(push._documents(pictures, ["0", "1", "2"], [2], fields))
