"""`fastloader pack --ray` and `index --ray` write the files that they write without, to the byte, go on
where they were interrupted, and name the node of what went wrong."""

import pytest
from pictures import random_folder
from ray_cluster import cluster_of

from fastloader._core.machine import extension
from fastloader.cli import tasks
from fastloader.cli.__main__ import main
from fastloader.cli.pack_source import SourceError
from fastloader.datasets import ImageFolder, LMDBDataset

pytestmark = pytest.mark.processes

native = extension.load()


@pytest.fixture(scope="module")
def cluster():
    with cluster_of({"num_cpus": 1}) as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    random_folder(root, 5, each=2)
    return root


@pytest.fixture
def short_runs(monkeypatch):
    """Several tasks for few pictures."""
    monkeypatch.setattr(tasks, "_RUN", 5)


def packed(path):
    dataset = LMDBDataset(str(path))
    return [
        (dataset.image_bytes(n), dataset.targets[n], dataset.name(n)) for n in range(len(dataset))
    ]


def test_pack(cluster, folder, short_runs, tmp_path, monkeypatch, capsys):
    pytest.importorskip("lmdb")
    here, there = tmp_path / "here.lmdb", tmp_path / "there.lmdb"
    options = ["--max-side", "30"]
    assert main(["pack", str(folder), str(here), *options]) == 0
    monkeypatch.chdir(folder.parent)  # a path that says something else in another folder
    command = ["pack", folder.name, str(there), *options, "--ray", "auto"]
    real = tasks._take_results
    taken = []

    def interrupted(*arguments):
        taken.append(True)
        if len(taken) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(tasks, "_take_results", interrupted)
    assert main(command) == 130
    assert 0 < len(LMDBDataset(str(there))) < len(LMDBDataset(str(here)))
    assert main(command) == 0
    assert "goes on after 10 of" in capsys.readouterr().out
    assert [sample[0] for sample in packed(there)] == [sample[0] for sample in packed(here)]
    assert [sample[1] for sample in packed(there)] == [sample[1] for sample in packed(here)]


@pytest.mark.skipif(native is None, reason="seek indices are made by the native module")
def test_index(cluster, folder, short_runs, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    assert main(["index", str(folder), "--out", str(here)]) == 0
    assert main(["index", str(folder), "--out", str(there), "--ray", "auto"]) == 0
    assert there.read_bytes() == here.read_bytes()


def test_a_picture_that_a_node_does_not_have(cluster, tmp_path, capsys):
    pytest.importorskip("lmdb")
    root = tmp_path / "photos"
    root.mkdir()
    random_folder(root, 5, each=1)
    gone = ImageFolder(str(root)).path(3)

    def begin():  # in the task: the file has gone since the command looked
        import os

        from fastloader.cli.pack import preparation
        from fastloader.cli.pack_source import Encoding, open_source

        source = open_source(str(root))
        os.unlink(gone)
        return preparation(source, Encoding())

    got = []
    with pytest.raises(SourceError) as caught:
        for sample in tasks.on_ray("auto", begin, range(6), SourceError):
            got.append(sample)
    assert len(got) == 3
    assert gone in str(caught.value) and "sample 3" in str(caught.value)
    assert f"on node {cluster.head_node.node_ip_address}" in str(caught.value)
