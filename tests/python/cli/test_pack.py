"""``fastloader pack``: what it writes, interruptions, and the check."""

import io
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from pictures import import_torchvision, plain_folder
from PIL import Image

from fastloader.cli.__main__ import main
from fastloader.datasets import ImageFolder, LMDBDataset
from fastloader.datasets._formats.lmdb_files import HEADER_BYTES, META, WITH_INDICES, key_of
from support import HANG

lmdb = pytest.importorskip("lmdb")


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "photos"
    plain_folder(root, count=18, size=(160, 120), seed=3)
    return root


def pack(*arguments):
    return main(["pack", *map(str, arguments)])


def pack_in_process(*arguments, limit=None, **options):
    def set_limit():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-m", "fastloader.cli", "pack", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=set_limit,
        **options,
    )


def contents(path):
    dataset = LMDBDataset(path)
    return [(dataset.image_bytes(i), int(dataset.targets[i])) for i in range(len(dataset))]


def folder_contents(root):
    result = []
    for path, label in ImageFolder(root).samples:
        with open(path, "rb") as file:
            result.append((file.read(), label))
    return result


def flip_byte(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0xFF]))


def test_a_folder_byte_for_byte(folder, tmp_path, capsys):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path) == 0
    assert "verified" in capsys.readouterr().out
    assert contents(path) == folder_contents(folder)
    assert sorted(os.listdir(tmp_path)) == ["photos", "set.lmdb"]
    packed, files = LMDBDataset(path), ImageFolder(folder)
    assert packed.classes == files.classes and packed.class_to_idx == files.class_to_idx
    for index in range(len(files)):
        assert os.path.join(folder, packed.name(index)) == files.path(index)
    assert pack("--check", path) == 0


def test_an_environment_in_folder_form(folder, tmp_path):
    path = tmp_path / "set"
    path.mkdir()
    assert pack(folder, path) == 0
    assert os.listdir(path) == ["data.mdb"]
    assert contents(path) == folder_contents(folder)
    assert pack("--check", path) == 0


def test_again_changes_nothing(folder, tmp_path, capsys):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path) == 0
    before = path.read_bytes()
    assert pack(folder, path) == 0
    assert "there already" in capsys.readouterr().out
    assert path.read_bytes() == before


@pytest.mark.parametrize("workers", [1, 3])
def test_re_encoding(folder, tmp_path, workers):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path, "--max-side", 40, "--quality", 80, "--workers", workers) == 0
    files = ImageFolder(folder)
    for (data, label), (name, wanted) in zip(contents(path), files.samples, strict=True):
        with Image.open(io.BytesIO(data)) as small, Image.open(name) as large:
            assert small.format == "JPEG" and label == wanted
            scale = min(1, 40 / max(large.size))
            assert small.size == tuple(max(1, round(edge * scale)) for edge in large.size)


def test_a_side_that_is_small_enough_keeps_the_bytes(folder, tmp_path):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path, "--max-side", 100_000) == 0
    assert contents(path) == folder_contents(folder)


def test_the_map_grows(folder, tmp_path, monkeypatch):
    from fastloader.cli import pack as writer

    monkeypatch.setattr(writer, "_FIRST_MAP", 1 << 16)
    monkeypatch.setattr(writer, "_BATCH_RECORDS", 2)
    path = tmp_path / "set.lmdb"
    assert pack(folder, path) == 0
    assert contents(path) == folder_contents(folder)
    assert path.stat().st_size > 1 << 16


MODULE = """
import numpy as np, torch
from PIL import Image

class Arrays:
    classes = ["even", "odd"]
    def __init__(self, kind, count=7):
        self.kind, self.count = kind, count
    def __len__(self):
        return self.count
    def pixels(self, index):
        return np.random.default_rng(index).integers(0, 256, (9 + index, 8, 3), dtype=np.uint8)
    def __getitem__(self, index):
        made = self.pixels(index)
        if self.kind == "pil":
            made = Image.fromarray(made)
        if self.kind == "tensor":
            made = torch.from_numpy(made).permute(2, 0, 1)
        if self.kind == "float":
            made = made.astype("float32")
        if self.kind == "bare":
            return made
        labels = {"label": "text", "numpy": np.int64(index % 2), "none": None, "huge": 2**70}
        return made, labels.get(self.kind, index % 2)

def stream():
    return iter([1])
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_pictures.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "my_pictures"
    sys.modules.pop("my_pictures", None)


@pytest.mark.parametrize("kind", ["array", "pil", "tensor", "numpy", "none", "bare"])
def test_any_dataset_without_loss(module, kind, tmp_path):
    assert pack(f"{module}:Arrays({kind!r})", "set.lmdb") == 0
    packed = LMDBDataset("set.lmdb")
    made = sys.modules[module].Arrays(kind)
    assert len(packed) == 7 and packed.classes == ["even", "odd"]
    for index in range(7):
        image, label = packed[index]
        assert np.array_equal(np.asarray(image), made.pixels(index))
        assert label == (-1 if kind in ("none", "bare") else index % 2)


def test_an_image_folder_object_keeps_its_files(folder, module, tmp_path):
    with open("my_pictures.py", "a") as file:
        file.write(
            f"\nfrom fastloader.datasets import ImageFolder\nphotos = ImageFolder({str(folder)!r})\n"
        )
    assert pack(f"{module}:photos", "set.lmdb") == 0
    assert contents("set.lmdb") == folder_contents(folder)


FOLDERS = """
from fastloader.datasets import ImageFolder

class Brightness(ImageFolder):
    def __getitem__(self, index):
        picture, label = super().__getitem__(index)
        return picture.point(lambda value: 255 - value), label

class Named(ImageFolder):
    def __init__(self, root):
        super().__init__(root)
        self.classes = [("tench", "Tinca tinca"), *self.classes[1:]]
"""


def test_a_folder_that_makes_something_of_its_files(folder, module, tmp_path):
    with open("my_pictures.py", "a") as file:
        file.write(FOLDERS)
    assert pack(f"{module}:Brightness({str(folder)!r})", "set.lmdb") == 0
    packed, made = LMDBDataset("set.lmdb"), sys.modules[module].Brightness(str(folder))
    for index in (0, 17):
        assert np.array_equal(np.asarray(packed[index][0]), np.asarray(made[index][0]))


def test_a_loader_of_the_users_own(folder, module, tmp_path):
    import_torchvision()
    with open("my_pictures.py", "a") as file:
        file.write(
            "\nfrom torchvision.datasets import ImageFolder"
            "\ndef load(path): return Image.new('RGB', (4, 3), (1, 2, 3))"
            f"\nphotos = ImageFolder({str(folder)!r}); made = ImageFolder({str(folder)!r}, loader=load)"
        )
    assert pack(f"{module}:photos", "set.lmdb") == 0
    assert contents("set.lmdb") == folder_contents(folder)
    assert pack(f"{module}:made", "made.lmdb") == 0
    assert LMDBDataset("made.lmdb")[3][0].size == (4, 3)


def test_synonyms_are_one_name(folder, module, tmp_path):
    """torchvision's ImageNet has a tuple of names for each class."""
    with open("my_pictures.py", "a") as file:
        file.write(FOLDERS)
    assert pack(f"{module}:Named({str(folder)!r})", "set.lmdb") == 0
    assert contents("set.lmdb") == folder_contents(folder)
    packed = LMDBDataset("set.lmdb")
    assert packed.classes[0] == "tench, Tinca tinca"
    assert packed.classes[1:] == ImageFolder(folder).classes[1:]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("my_pictures:Arrays('huge')", "sample 0: the label 1180591620717411303424 does not fit"),
        ("my_pictures:Arrays('float')", "sample 1: array 0 is float32 (10, 8, 3), and that of"),
        ("my_pictures:Arrays('label')", "sample 0: the label is a str"),
        ("my_pictures:Arrays('pil', 0)", "has no samples"),
        ("my_pictures:stream()", "without a length"),
        ("my_pictures:missing", "NameError"),
        ("no_such_module:x", "ModuleNotFoundError"),
        ("nowhere", "neither a folder nor module:expression"),
    ],
)
def test_what_cannot_be_packed(module, source, message, capsys):
    assert pack(source, "set.lmdb") == 1
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def test_usage(tmp_path, capsys):
    assert pack("only-one") == 2
    assert pack("--check", "a", "b") == 2
    for arguments in (["--quality", "0"], ["--quality", "101"], ["--max-side", "0"]):
        with pytest.raises(SystemExit) as exited:
            pack("a", "b", *arguments)
        assert exited.value.code == 2
    assert "between 1 and 100" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        pack("a", "b", "--max-side", "large")
    assert "'large' is not a whole number" in capsys.readouterr().err


# --- interruptions --------------------------------------------------------------------------------

# Every read waits for a line on standard input; batches of two records.
GATED = """
    import sys
    from fastloader.cli import pack, pack_source
    from fastloader.cli.__main__ import main
    pack._BATCH_RECORDS = 2
    opened = pack.open_source
    def gated(text):
        source = opened(text)
        def read(index):
            print(index, flush=True)
            sys.stdin.readline()
            return source.read(index)
        return pack_source.PackSource(source.count, source.classes, source.identity, read)
    pack.open_source = gated
    sys.exit(main(["pack", *sys.argv[1:], "--workers", "1"]))
"""


def begin_gated(folder, path, reads):
    """A packing that has been let through ``reads`` reads, and waits in the next one."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(GATED), str(folder), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(reads):
        child.stdout.readline()
        child.stdin.write("\n")
        child.stdin.flush()
    child.stdout.readline()
    return child


def wait_for_records(path, count):
    """Until the other process has committed so many."""
    for _ in range(600):
        environment = lmdb.open(str(path), subdir=False, readonly=True, lock=False)
        try:
            with environment.begin() as transaction:
                if transaction.get(META) and transaction.get(key_of(count - 1)):
                    return
        finally:
            environment.close()
        time.sleep(0.05)
    raise AssertionError("nothing was written")


@pytest.mark.processes
def test_kill_keeps_what_was_written_and_a_rerun_goes_on(folder, tmp_path, capsys):
    path = tmp_path / "set.lmdb"
    child = begin_gated(folder, path, reads=9)  # and two are written at a time
    wait_for_records(path, 8)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=HANG)
    with pytest.warns(RuntimeWarning, match="interrupted after 8"):
        assert contents(path) == folder_contents(folder)[:8]
    assert pack("--check", path) == 2
    assert pack(folder, path) == 0
    assert "goes on after 8" in capsys.readouterr().out
    assert contents(path) == folder_contents(folder)


@pytest.mark.processes
def test_kill_before_anything_was_written(folder, tmp_path, capsys):
    path = tmp_path / "set.lmdb"
    child = begin_gated(folder, path, reads=0)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=HANG)
    with pytest.warns(RuntimeWarning, match="interrupted after 0"):
        assert contents(path) == []
    assert pack("--check", path) == 2
    assert pack(folder, path) == 0
    assert contents(path) == folder_contents(folder)


@pytest.mark.processes
def test_ctrl_c_keeps_everything_that_was_read(folder, tmp_path):
    path = tmp_path / "set.lmdb"
    child = begin_gated(folder, path, reads=9)
    wait_for_records(path, 8)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate("\n" * 20, timeout=HANG)
    assert child.returncode == 130 and "goes on from there" in said and "Traceback" not in said
    with pytest.warns(RuntimeWarning, match="interrupted"):
        written = contents(path)
    assert 8 <= len(written) < len(folder_contents(folder))
    assert written == folder_contents(folder)[: len(written)]
    assert pack(folder, path) == 0
    assert contents(path) == folder_contents(folder)


@pytest.mark.processes
def test_a_full_disk(folder, tmp_path, monkeypatch):
    path = tmp_path / "set.lmdb"
    total = sum(len(data) for data, _ in folder_contents(folder))
    program = textwrap.dedent("""
        import sys
        from fastloader.cli import pack
        from fastloader.cli.__main__ import main
        pack._BATCH_RECORDS = 2
        pack.shutil.disk_usage = lambda folder: type("Usage", (), {"free": 96})
        sys.exit(main(["pack", *sys.argv[1:]]))
    """)
    limit = total // 2
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), str(path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 1 and "can be read" in done.stderr, done.stderr
    assert "the disk is full: 96 bytes are left" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.warns(RuntimeWarning, match="interrupted"):
        written = contents(path)
    assert 0 < len(written) < len(folder_contents(folder))
    assert pack(folder, path) == 0
    assert contents(path) == folder_contents(folder)


@pytest.mark.processes
def test_two_writers(folder, tmp_path, capsys):
    path = tmp_path / "set.lmdb"
    child = begin_gated(folder, path, reads=1)
    try:
        assert pack(folder, path) == 1
        assert "in use" in capsys.readouterr().err
        with pytest.raises(BlockingIOError, match="being packed"):
            LMDBDataset(path)
    finally:
        child.kill()
        child.communicate(timeout=HANG)


def test_going_on_from_something_else_is_refused(folder, tmp_path, capsys):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path) == 0
    other = tmp_path / "others"
    plain_folder(other, count=20)
    for arguments, message in [
        ((other, path), "from other samples"),
        ((folder, path, "--quality", 50), "with other options"),
    ]:
        assert pack(*arguments) == 1
        assert message in capsys.readouterr().err
    assert contents(path) == folder_contents(folder)


def test_destinations_that_cannot_be(folder, tmp_path, capsys):
    text = tmp_path / "notes.txt"
    text.write_text("not LMDB" * 1000)
    foreign = tmp_path / "foreign.lmdb"
    with lmdb.open(str(foreign), subdir=False) as environment, environment.begin(write=True) as t:
        t.put(b"a", b"b")
    for path, message in [
        (text, "cannot be continued"),
        (foreign, "not a file of"),
        (tmp_path / "missing" / "x.lmdb", "there is no folder"),
        (folder, "is a folder of other files"),
    ]:
        before = path.read_bytes() if path.is_file() else None
        assert pack(folder, path) == 1
        said = capsys.readouterr().err
        assert message in said and "Traceback" not in said
        assert (path.read_bytes() if path.is_file() else None) == before
    assert not (folder / "data.mdb").exists()


# --- the check ------------------------------------------------------------------------------------


def test_damage_is_reported_by_key(folder, tmp_path, capsys):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path) == 0
    capsys.readouterr()
    data = path.read_bytes()
    pictures = folder_contents(folder)
    for index in (2, 5):
        flip_byte(path, data.index(pictures[index][0]) + len(pictures[index][0]) // 2)
    assert pack("--check", path) == 1
    said = capsys.readouterr().err
    for index in (2, 5):
        assert f"sample {index}: record {key_of(index)!r} is damaged: its checksum" in said
    assert f"2 of {len(pictures)} samples are damaged" in said


def test_a_file_holds_nothing_of_the_process_that_packed_it(folder, tmp_path):
    """A record ends within a page, whose rest must not be what the memory of that page held before."""
    marker = b"of no concern to a reader " * 6
    for _ in range(3):
        left = [marker * (pages * 30) for pages in range(1, 200)]
        del left
        path = tmp_path / "set.lmdb"
        assert pack(folder, path) == 0
        assert marker not in path.read_bytes()
        path.unlink()


def test_a_damaged_header_is_an_error_when_read(folder, tmp_path):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path) == 0
    start = path.read_bytes().index(folder_contents(folder)[1][0]) - HEADER_BYTES[WITH_INDICES]
    flip_byte(path, start + 17)  # in the length of the image
    dataset = LMDBDataset(path)
    dataset[0]
    with pytest.raises(ValueError, match=r"record .* is damaged: its header"):
        dataset[1]


@pytest.mark.processes
def test_a_file_that_was_cut_off(folder, tmp_path, capsys):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path) == 0
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(ValueError, match="cut off"):
        LMDBDataset(path)
    capsys.readouterr()
    assert pack("--check", path) == 1
    assert "Traceback" not in capsys.readouterr().err
    with pack_in_process(folder, path) as going_on:  # in this process it would be a SIGBUS
        _, said = going_on.communicate(timeout=HANG)
    assert going_on.returncode == 1 and "is cut off" in said


def test_check_of_what_is_no_such_file(tmp_path, capsys):
    text = tmp_path / "notes.txt"
    text.write_text("not LMDB" * 1000)
    for path in (text, tmp_path / "missing"):
        assert pack("--check", path) == 1
        said = capsys.readouterr().err
        assert str(path) in said and "Traceback" not in said


def test_a_pipe_is_refused_by_name(folder, tmp_path, capsys):
    """And not waited for."""
    os.mkfifo(next(folder.glob("*/")) / "0pipe.jpg")
    assert pack(folder, tmp_path / "set.lmdb") == 1
    said = capsys.readouterr().err
    assert "not a regular file" in said and "0pipe.jpg" in said


def test_a_file_that_no_picture_is_as_large_as(folder, tmp_path, capsys):
    with open(next(folder.glob("*/")) / "0sparse.jpg", "wb") as file:
        file.truncate(1 << 40)
    assert pack(folder, tmp_path / "set.lmdb") == 1
    said = capsys.readouterr().err
    assert "more than 1 GiB" in said and "0sparse.jpg" in said


def test_without_lmdb_nothing_is_left(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "lmdb", None)
    assert pack(folder, tmp_path / "set.lmdb") == 1
    assert "pip install lmdb" in capsys.readouterr().err
    assert not (tmp_path / "set.lmdb").exists()
