"""``fastloader check``: which pictures it lists, and what it says of them."""

import json
import os
import random
import re
import sys
import tarfile

import bombs
import pytest
from pictures import picture
from PIL import Image
from terminal import on_terminal

from fastloader.cli import check as checker
from fastloader.cli.__main__ import main
from fastloader.datasets import LMDBDataset


@pytest.fixture
def folder(tmp_path):
    """Twelve sound pictures, two folders deep, and a text."""
    rng = random.Random(3)
    root = tmp_path / "photos"
    for number in range(12):
        inside = root / "deep" / f"class{number % 3}"
        inside.mkdir(parents=True, exist_ok=True)
        ending = ("jpg", "png", "webp", "bmp")[number % 4]
        picture(rng, 40 + number, 30).save(inside / f"{number}.{ending}")
    (root / "README.txt").write_text("no picture")
    return root


def spoil(folder):
    """Makes bad pictures of every kind. Returns their paths, with a word of each one's reason."""
    whole = (folder / "deep" / "class0" / "0.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(whole[: len(whole) * 2 // 3])
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.png").write_bytes(b"no picture")
    (folder / "bomb.jpg").write_bytes(bombs.progressive(8000, 8000, 400))
    png = bytearray((folder / "deep" / "class1" / "1.png").read_bytes())
    (folder / "half.png").write_bytes(bytes(png[: len(png) // 2]))
    Image.new("1", (30000, 30000)).save(folder / "huge.png")
    return {
        "bomb.jpg": "DecompressionBombError: .*scans",
        "cut.jpg": "OSError: .*truncated",
        "empty.jpg": "UnidentifiedImageError: Pillow cannot identify the picture",
        "half.png": "OSError: .*truncated",
        "huge.png": "DecompressionBombError: .*(900000000|30000)",
        "text.png": "UnidentifiedImageError: Pillow cannot identify the picture",
    }


def check(*arguments):
    return main(["check", *map(str, arguments)])


@pytest.fixture(params=["1", "0"], ids=["native", "pure"])
def native(request, monkeypatch):
    monkeypatch.setenv("FASTLOADER_NATIVE", request.param)


@pytest.mark.usefixtures("native")
def test_sound_pictures(folder, capsys):
    assert check(folder) == 0
    said = capsys.readouterr()
    assert re.fullmatch(
        rf"{folder}: all 12 pictures are sound, .* s, \d+ pictures/s; "
        "1 other files were not looked at\n",
        said.out,
    )
    assert said.err == ""


@pytest.mark.covering
@pytest.mark.exhaustive
@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("workers", [1, 4])
def test_bad_pictures_are_listed_in_order(folder, capsys, workers):
    wanted = spoil(folder)
    assert check(folder, "--workers", workers) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == len(wanted)
    for line, (name, reason) in zip(lines, sorted(wanted.items()), strict=True):
        assert re.match(f"{folder / name}: {reason}", line), line
    assert f"{len(wanted)} of {12 + len(wanted)} pictures are bad" in last


def test_json(folder, capsys):
    wanted = spoil(folder)
    assert check(folder, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["checked"], found["bad"], found["other_files"]) == (18, 6, 1)
    assert [os.path.relpath(each["file"], folder) for each in found["files"]] == sorted(wanted)
    for each, (_name, reason) in zip(found["files"], sorted(wanted.items()), strict=True):
        assert re.match(reason, f"{each['error']}: {each['message']}")


def test_json_has_names_as_they_are(folder, capsys):
    (folder / "a\nb.jpg").write_bytes(b"no picture")
    assert check(folder, "--json") == 1
    (bad,) = json.loads(capsys.readouterr().out)["files"]
    assert bad["file"] == str(folder / "a\nb.jpg")


def test_a_reader_that_has_seen_enough(folder, monkeypatch):
    """As `| head -1`: the command ends as others do then, and has nothing to say."""
    spoil(folder)

    def closed(*_args, **_more):
        raise BrokenPipeError

    monkeypatch.setattr("fastloader.cli.check.print", closed, raising=False)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # which the command takes away then
    assert check(folder) == 141


def test_json_of_sound_pictures(folder, capsys):
    assert check(folder, "--json") == 0
    assert json.loads(capsys.readouterr().out)["files"] == []


@pytest.mark.usefixtures("native")
def test_damage_that_training_need_not_meet_is_found(folder, capsys):
    """The native decoder passes over a header that Pillow refuses, unless all of the file is wanted."""
    whole = (folder / "deep" / "class0" / "0.jpg").read_bytes()
    short = b"\xff\xe0\0\x08JFIF\0\1"  # without a version
    (folder / "header.jpg").write_bytes(whole[:2] + short + whole[2:])
    (folder / "late.jpg").write_bytes(whole[:-60])
    assert check(folder) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [os.path.basename(line.split(":")[0]) for line in lines[:2]] == [
        "header.jpg",
        "late.jpg",
    ]
    assert "2 of 14 pictures are bad" in lines[2]


def test_tar_shards(folder, tmp_path, capsys):
    spoil(folder)
    (tmp_path / "shards").mkdir()
    for number in range(2):
        with tarfile.open(tmp_path / "shards" / f"{number}.tar", "w") as tar:
            for path in sorted(folder.glob("*.jpg" if number else "deep/*/*")):
                tar.add(path, str(path.relative_to(folder)))
    (tmp_path / "shards" / "2.tar").write_bytes(b"no tar" * 500)
    assert check(tmp_path / "shards") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(".*/", "", line.split(":")[0]) for line in lines[:-1]] == [
        "2.tar", "1.tar", "1.tar", "1.tar"
    ]  # fmt: skip
    assert "3 of 15 pictures are bad, and 1 files or folders cannot be read" in lines[-1]
    assert check(tmp_path / "shards" / "0.tar") == 0
    assert sorted(os.listdir(tmp_path / "shards")) == ["0.tar", "1.tar", "2.tar"]


def test_an_lmdb_file(folder, tmp_path, capsys):
    spoil(folder)
    os.rename(folder / "bomb.jpg", folder / "deep" / "bomb.jpg")
    assert main(["pack", str(folder), str(tmp_path / "set.lmdb")]) == 0
    capsys.readouterr()
    assert check(tmp_path / "set.lmdb") == 1
    said = capsys.readouterr().out.splitlines()
    count = len(LMDBDataset(tmp_path / "set.lmdb"))
    assert re.match("deep/bomb.jpg in .*set.lmdb: DecompressionBombError: ", said[0])
    assert f"1 of {count} pictures are bad" in said[-1]


def test_a_folder_that_links_to_itself_ends(folder, capsys):
    (folder / "deep" / "again").symlink_to(folder)
    assert check(folder) == 0
    assert "all 12 pictures" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    [b"new\nline.jpg", b"\xff.jpg", b"\x1b[2J.jpg", b"\x07\x08.jpg", "a\u202eb\u2028.jpg".encode()],
)
def test_a_name_stays_on_its_line(folder, capsys, name):
    with open(os.path.join(os.fsencode(folder), name), "wb"):
        pass
    assert check(folder) == 1
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 2 and out.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("path", "said"),
    [("nowhere", "there is no "), ("s3://bucket/a", "no URL"), (".", "no pictures")],
)
def test_nothing_to_check(path, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert check(path) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("fastloader check: ") and said in captured.err
    assert captured.out == ""


def test_what_is_no_collection(tmp_path, capsys):
    """A file is named for what it is, not by what LMDB calls it; and a pipe is not waited for."""
    (tmp_path / "list.csv").write_text("path,label\n" + "a.jpg,1\n" * 1000)
    os.mkfifo(tmp_path / "pipe.tar")
    assert check(tmp_path / "list.csv") == 2
    said = capsys.readouterr().err
    assert "list.csv is no tar (.tar) and no LMDB file" in said and "MDB_" not in said
    for path in (tmp_path / "pipe.tar", "/dev/null"):
        assert check(path) == 2
        assert "not a regular file" in capsys.readouterr().err


def test_as_many_threads_as_wanted(folder, monkeypatch):
    seen = []

    def ahead(prepare, indices, workers):
        seen.append(workers)
        return map(prepare, indices)

    monkeypatch.setattr(checker, "ahead", ahead)
    monkeypatch.setattr(checker, "available_threads", lambda: 7)
    assert check(folder) == 0 and check(folder, "--workers", 3) == 0
    assert seen == [7, 3]


@pytest.mark.processes
def test_progress_on_a_terminal_only(folder):
    slow = """
        import sys, time
        from fastloader.cli.__main__ import main
        from fastloader.cli import check
        trial = check._Trial.error
        def error(self, index):
            time.sleep(0.1)
            return trial(self, index)
        check._Trial.error = error
        sys.exit(main(["check", sys.argv[1], "--workers", "1"]))
    """
    spoil(folder)
    status, printed, shown = on_terminal(slow, folder)
    assert status == 1 and printed.count("\n") == 7
    assert re.search(r"checking: \d+ of 18 pictures, [\d.]+/s, \d s left", shown)
