"""FASTLOADER_LOG: what stands in the log, and what does not."""

import re
import tarfile

import pytest

from support import run_script

EPOCH = """
    import torch
    from fastloader import FastLoader
    loader = FastLoader(torch.utils.data.TensorDataset(torch.arange(4)), batch_size=2)
    list(loader), list(loader)
"""


@pytest.mark.processes
@pytest.mark.parametrize("level", ["info", "debug", "INFO"])
def test_epochs_stand_in_the_log(level):
    said = run_script(EPOCH, env={"FASTLOADER_LOG": level}).stderr.splitlines()
    begun = [line for line in said if "an epoch begins: " in line]
    assert len(begun) == 2 and all("INFO" in line and "batches are" in line for line in begun)
    assert any("fastloader: native module " in line for line in said)


@pytest.mark.processes
def test_debug_says_when_epochs_end():
    said = run_script(EPOCH, env={"FASTLOADER_LOG": "debug"}).stderr
    assert "an epoch has ended: 2 batches, " in said and "an epoch has ended: 4 batches, " in said
    assert "has ended" not in run_script(EPOCH, env={"FASTLOADER_LOG": "info"}).stderr


def test_scans_stand_in_the_log(tmp_path, caplog):
    from fastloader.datasets import ImageFolder, TarImages

    (tmp_path / "a").mkdir()
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / "a" / name).write_bytes(b"")
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        tar.add(tmp_path / "a" / "1.jpg", "1.jpg")
    with caplog.at_level("DEBUG", "fastloader"):
        ImageFolder(tmp_path)
        TarImages(tmp_path / "0.tar")
        TarImages(tmp_path / "0.tar")  # whose index was kept
    said = [re.sub(r"\d+\.\d\d s", "S", message) for message in caplog.messages]
    assert said == [
        f"fastloader: {tmp_path}: 2 pictures, in S",
        f"fastloader: looked through {tmp_path}/0.tar: 1 samples",
        f"fastloader: {tmp_path}/0.tar: 1 shards, in S",
        f"fastloader: {tmp_path}/0.tar: 1 shards, in S",
    ]


def test_a_request_that_is_made_again_stands_in_the_log(caplog, monkeypatch):
    from fastloader.datasets._formats.sample_form import Counters
    from fastloader.datasets._remote import object_store

    answers = iter([ConnectionError("the signature is secret"), b"bytes"])

    class Bucket:
        def whole(self, _path):
            if isinstance(answer := next(answers), Exception):
                raise answer
            return answer

    monkeypatch.setattr(object_store, "open_bucket", lambda *_given: Bucket())
    made = object_store.Connection({}, 5.0, Counters(("requests", "retries", "bytes")))
    with caplog.at_level("INFO", "fastloader"):
        assert made.whole(["s3://bucket/a.jpg"]) == [b"bytes"]
    wanted = "fastloader: asks for s3://bucket/a.jpg again (attempt 2, ConnectionError)"
    assert caplog.messages == [wanted]


@pytest.mark.processes
def test_nothing_without_it():
    done = run_script(EPOCH)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.processes
def test_an_empty_value_is_none():
    assert run_script(EPOCH, env={"FASTLOADER_LOG": ""}).stderr == ""


@pytest.mark.processes
def test_another_value_is_an_error():
    done = run_script("import fastloader", env={"FASTLOADER_LOG": "verbose"}, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith(
        "ValueError: FASTLOADER_LOG='verbose': use info, or debug for more; unset it for neither\n"
    )


@pytest.mark.processes
def test_why_there_is_no_native_module():
    said = run_script(EPOCH, env={"FASTLOADER_LOG": "info", "FASTLOADER_NATIVE": "0"}).stderr
    assert "fastloader: no native module: FASTLOADER_NATIVE=0" in said


@pytest.mark.processes
def test_workers_do_not_say_it_again():
    script = """
        import torch
        from fastloader import FastLoader
        if __name__ == "__main__":
            data = torch.utils.data.TensorDataset(torch.arange(4))
            options = dict(num_workers=2, multiprocessing_context="forkserver", native=False)
            list(FastLoader(data, **options))
    """
    # Fresh: what its fork server starts has the environment that this one began with.
    said = run_script(script, env={"FASTLOADER_LOG": "info"}, fresh=True).stderr
    assert said.count("native module ") == 1, said


def test_a_retry_of_mongodb_names_no_password(caplog, monkeypatch):
    errors = pytest.importorskip("pymongo.errors")
    from fastloader.datasets._formats import mongo_collections
    from fastloader.datasets._formats.sample_form import Counters

    uri = "mongodb://me:secret@host.example/data"
    monkeypatch.setattr(mongo_collections, "_client", lambda uri, timeout: {"data": None})
    answers = iter([errors.AutoReconnect(uri), None])

    def work(_database):
        if (answer := next(answers)) is not None:
            raise answer

    with caplog.at_level("INFO", "fastloader"):
        mongo_collections.Connection(uri, "data", 5.0, Counters(("retries",))).call(work)
    assert caplog.messages == ["fastloader: asks MongoDB at host.example again (AutoReconnect)"]
