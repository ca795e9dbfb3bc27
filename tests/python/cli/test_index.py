"""``fastloader index``: the file that it writes, what it says, and what it leaves behind."""

import os
import random
import shutil
import struct

import numpy as np
import pytest
from indexed_pictures import index, large_folder, needs_native, save_large
from interrupts import interrupt_at_line
from pictures import picture

from fastloader._core.machine import extension
from fastloader.cli import index as indexer
from fastloader.cli import index as writer
from fastloader.cli.index import SeekWriter

SUFFIX = ".fastloader-index"


@pytest.fixture
def folder(tmp_path):
    return large_folder(tmp_path / "photos")


def records(path):
    """The indices in a file by the hash of their pictures, read as docs/seek-index.md says."""
    data = path.read_bytes()
    magic, version, zero, count, table = struct.unpack_from("<8sIIQQ", data)
    assert (magic, version, zero) == (b"fljpseek", 1, 0)
    assert len(data) == table + 24 * count
    rows = list(struct.iter_unpack("<QQQ", data[table:]))
    assert [row[0] for row in rows] == sorted({row[0] for row in rows})
    assert sum(row[2] for row in rows) == table - 32
    return {row[0]: data[row[1] : row[1] + row[2]] for row in rows}


def wanted(paths):
    made = [extension.load().jpeg_seek_index(path.read_bytes()) for path in paths]
    return {int.from_bytes(each[16:24], "little"): each for each in made}


def left(tmp_path):
    return sorted(os.listdir(tmp_path))


@needs_native
@pytest.mark.parametrize("most_recent", [1 << 16, 2])
def test_the_file(folder, tmp_path, capsys, monkeypatch, most_recent):
    monkeypatch.setattr(writer._Hashes, "_MOST_RECENT", most_recent)
    monkeypatch.setattr(writer, "_ROWS_AT_ONCE", 4)
    pictures = sorted(folder.rglob("*.jpg"))
    for number in (0, 5):
        shutil.copy(pictures[number], folder / "c1" / f"copy {number}.jpg")
    assert index(folder, "--workers", 2) == 0
    target = tmp_path / f"photos{SUFFIX}"
    assert records(target) == wanted(pictures)
    said = capsys.readouterr().out
    assert f"{target}: 8 of 8 pictures have a seek index (2 of them equal others)" in said
    assert f"{target.stat().st_size / 1e3:.1f} kB" in said and "have none" not in said
    assert left(tmp_path) == ["photos", target.name]
    assert target.stat().st_mode == next(folder.rglob("*.jpg")).stat().st_mode


@needs_native
def test_what_has_none_is_counted(folder, tmp_path, capsys):
    save_large(folder / "c0" / "progressive.jpg", 1, progressive=True)
    save_large(folder / "c0" / "restarts.jpg", 2, restart_marker_rows=1)
    save_large(folder / "c0" / "small.jpg", 3, size=(20, 20))
    whole = (folder / "c0" / "0.jpg").read_bytes()
    (folder / "c0" / "damaged.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "c0" / "empty.jpg").write_bytes(b"")
    picture(random.Random(0), 600, 500).save(folder / "c1" / "other.png")
    assert index(folder, "--out", tmp_path / "here") == 0
    assert len(records(tmp_path / "here")) == 6
    said = capsys.readouterr().out
    assert "6 of 12 pictures have a seek index" in said
    assert "6 of 12 pictures have none" in said
    assert left(tmp_path) == ["here", "photos"]


@needs_native
def test_a_folder_without_class_folders(folder, tmp_path):
    loose = folder / "c0"
    (loose / "no.txt").write_text("no picture")
    os.rename(loose / "0.jpg", loose / "0.JPEG")
    assert index(f"{loose}/") == 0
    assert records(folder / f"c0{SUFFIX}") == wanted(
        [p for p in loose.iterdir() if p.suffix != ".txt"]
    )
    # Classes without pictures are no class folders.
    (loose / "empty").mkdir()
    assert index(loose) == 0
    assert len(records(folder / f"c0{SUFFIX}")) == 3


@needs_native
def test_an_index_is_made_anew(folder, tmp_path):
    target = tmp_path / f"photos{SUFFIX}"
    assert index(folder) == 0
    save_large(folder / "c0" / "0.jpg", 77)
    assert index(folder) == 0
    assert records(target) == wanted(folder.rglob("*.jpg"))
    assert left(tmp_path) == ["photos", target.name]


def refused(capsys, *arguments):
    assert index(*arguments) == 1
    captured = capsys.readouterr()
    assert not captured.out and captured.err.startswith("fastloader index: ")
    assert "Traceback" not in captured.err
    return captured.err


@needs_native
def test_what_is_refused(folder, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert "no folder" in refused(capsys, tmp_path / "nothing")
    assert "no pictures" in refused(capsys, tmp_path / "empty")
    one = folder / "c0" / "0.jpg"
    before = one.read_bytes()
    assert "not a file of `fastloader index`" in refused(capsys, folder, "--out", one)
    assert one.read_bytes() == before
    assert "is a folder" in refused(capsys, folder, "--out", tmp_path / "empty")
    said = refused(capsys, folder, "--out", tmp_path / "missing" / "here")
    assert "cannot be written: No such file" in said
    (folder / "c1" / "gone.jpg").symlink_to(tmp_path / "nothing")
    assert f"{folder}/c1/gone.jpg cannot be read: No such file" in refused(capsys, folder)
    assert left(tmp_path) == ["empty", "photos"]


@needs_native
def test_a_place_that_cannot_be_written_names_the_remedy(tmp_path, capsys):
    folder = large_folder(tmp_path / ("long" * 62), count=1)
    said = refused(capsys, folder)
    assert "cannot be written: File name too long. --out FILE writes it elsewhere" in said
    assert index(folder, "--out", tmp_path / "short") == 0


@needs_native
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(folder, tmp_path, capsys):
    os.chmod(tmp_path, 0o555)
    try:
        assert "cannot be written: Permission denied. --out FILE" in refused(capsys, folder)
    finally:
        os.chmod(tmp_path, 0o755)


@needs_native
def test_a_full_disk_leaves_what_was_there(folder, tmp_path, capsys, monkeypatch):
    target = tmp_path / f"photos{SUFFIX}"
    assert index(folder) == 0
    capsys.readouterr()
    before = target.read_bytes()

    def fail(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer.os, "fsync", fail)
    assert "No space left on device" in refused(capsys, folder)
    assert target.read_bytes() == before and left(tmp_path) == ["photos", target.name]


def test_without_the_native_module(folder, capsys, monkeypatch):
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    assert "native module" in refused(capsys, folder)


@pytest.mark.parametrize("workers", ["0", "two"])
def test_a_wrong_number_of_workers(folder, capsys, workers):
    with pytest.raises(SystemExit) as ended:
        index(folder, "--workers", workers)
    assert ended.value.code == 2 and workers in capsys.readouterr().err


@needs_native
def test_ctrl_c_leaves_nothing(folder, tmp_path, monkeypatch):
    real = indexer.ahead

    def interrupted(*arguments):
        for number, each in enumerate(real(*arguments)):
            if number == 3:
                assert len(left(tmp_path)) == 2  # the unfinished file
                raise KeyboardInterrupt
            yield each

    monkeypatch.setattr(indexer, "ahead", interrupted)
    assert index(folder) == 130
    assert left(tmp_path) == ["photos"]


@needs_native
def test_ctrl_c_in_any_line_of_the_writer(folder, tmp_path):
    record = extension.load().jpeg_seek_index((folder / "c0" / "0.jpg").read_bytes())
    functions = [SeekWriter.__enter__, SeekWriter.add, SeekWriter.finish]
    finished = 0
    for number in range(100):
        path = tmp_path / "out" / "index"
        path.parent.mkdir()
        with interrupt_at_line(functions, number) as came:
            try:
                with SeekWriter(str(path)) as made:
                    made.add(record)
                    made.finish()
            except KeyboardInterrupt:
                assert came
        kept = left(path.parent)
        assert kept in ([], ["index"])
        if kept:
            finished += 1
            assert list(records(path).values()) == [record]
        shutil.rmtree(path.parent)
        if not came:
            break
    assert not came and finished and number > 15


def test_hashes_are_told_apart(monkeypatch):
    monkeypatch.setattr(writer._Hashes, "_MOST_RECENT", 50)
    numbers = np.random.default_rng(random.randrange(1 << 32)).integers(0, 1 << 64, 400, np.uint64)
    drawn = [*numbers.tolist(), 0, (1 << 64) - 1, *numbers.tolist()[:150]]
    random.shuffle(drawn)
    hashes, seen = writer._Hashes(), set()
    for number in drawn:
        assert hashes.add(number) == (number not in seen)
        seen.add(number)


@needs_native
@pytest.mark.parametrize("loose", [False, True])
def test_a_pipe_is_refused_by_name(folder, tmp_path, capsys, loose):
    """And not waited for."""
    root = folder
    if loose:
        root = tmp_path / "loose"
        root.mkdir()
    os.mkfifo(next(root.glob("c*"), root) / "pipe.jpg")
    said = refused(capsys, root)
    assert "pipe.jpg" in said and "not a regular file" in said


@needs_native
def test_links_in_a_circle(tmp_path, capsys):
    """The pictures are those of ImageFolder, which names the link."""
    root = tmp_path / "photos"
    save_large(root / "a" / "a.jpg", 1)
    (root / "a" / "again").symlink_to("..")
    with pytest.warns(RuntimeWarning, match="again is a link to a folder that it lies in"):
        assert index(root) == 0
    assert "of them equal others" in capsys.readouterr().out
    (root / "a" / "self.jpg").symlink_to("self.jpg")
    with pytest.warns(RuntimeWarning, match="again is a link"):
        assert "self.jpg cannot be read: Too many levels" in refused(capsys, root)
