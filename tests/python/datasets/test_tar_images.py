"""`TarImages`: shards of every tar format, their indices, and batches from them."""

import io
import os
import pickle
import random
import re
import tarfile
import threading
import types

import numpy as np
import pytest
import torch
from pictures import save_jpeg
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

import fastloader.transforms as T
from fastloader import FastLoader
from fastloader._core.machine import extension
from fastloader._core.pictures.store import MappedStore
from fastloader.datasets import TarImages
from fastloader.datasets._formats import mapped_file, tar_shards
from fastloader.datasets._formats.tar_shards import DamagedTar, TarShard
from fastloader.errors import Error

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def add(tar, name, content, **options):
    info = tarfile.TarInfo(name)
    for option, value in options.items():
        setattr(info, option, value)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def jpeg(rng, path, size=(60, 40)):
    save_jpeg(rng, path, *size)
    return path.read_bytes()


@pytest.fixture
def shards(tmp_path):
    """Three shards of eight pictures; ``files`` are these and their labels in order."""
    rng = random.Random(18)
    files = []
    for shard in range(3):
        with tarfile.open(tmp_path / f"train-{shard:04}.tar", "w") as tar:
            for number in range(8):
                file, label = jpeg(rng, tmp_path / "x.jpg"), rng.randrange(1000)
                key = f"a.b/{shard}_{number:03}"
                add(tar, f"{key}.JPG", file)
                add(tar, f"{key}.cls", str(label).encode())
                add(tar, f"{key}.seg.png", b"a mask")
                files.append((file, label))
    os.unlink(tmp_path / "x.jpg")
    return tmp_path / "train-*.tar", files


@pytest.mark.parametrize("form", FORMATS)
def test_members_are_those_of_pythons_reader(tmp_path, form):
    rng = random.Random(form)
    path = tmp_path / "x.tar"
    long = form != tarfile.USTAR_FORMAT
    with tarfile.open(path, "w", format=form) as tar:
        for number in range(200):
            folder = rng.choice(["", "a/", "b/c/", ("d" * 60 + "/") * 2])
            name = f"{folder}{'n' * rng.choice([3, 80, 300] if long else [3, 80])}{number}.jpg"
            name = "ä" + name if long and rng.random() < 0.1 else name
            kind = rng.random()
            if kind < 0.1:
                add(tar, name, b"", type=tarfile.DIRTYPE)
            elif kind < 0.2:
                link = "x" * rng.choice([3, 200] if long else [3])
                add(tar, name, b"", type=tarfile.SYMTYPE, linkname=link)
            else:
                headers = {"comment": "ü" * 50, "mtime": "1.5"} if rng.random() < 0.2 else {}
                content = rng.randbytes(rng.choice([0, 1, 511, 512, 513, 3000]))
                add(tar, name, content, pax_headers=headers)
    with tarfile.open(path) as tar:
        expected = [(m.name, m.offset_data, m.size) for m in tar if m.isreg()]
    assert len(expected) > 100
    assert [tuple(member) for member in mapped_members(path)] == expected


def mapped_members(path):
    import mmap

    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return tar_shards.members_of(data, str(path))


def test_a_tar_that_was_cut_off_anywhere_is_an_error(shards, tmp_path):
    data = (tmp_path / "train-0000.tar").read_bytes()
    end = len(data.rstrip(b"\0"))
    rng = random.Random(1)
    for size in [1, 511, 512, 513, *(rng.randrange(1, end) for _ in range(60))]:
        (tmp_path / "cut.tar").write_bytes(data[:size])
        with pytest.raises(DamagedTar, match=r"cut\.tar"):
            mapped_members(tmp_path / "cut.tar")
    (tmp_path / "cut.tar").write_bytes(data[: end + (-end % 512)])
    with pytest.raises(DamagedTar, match="no block of zeros ends it"):
        mapped_members(tmp_path / "cut.tar")


def test_what_is_no_tar(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"x" * 2000)
    with pytest.raises(ValueError, match=r"x\.tar"):
        TarImages(tmp_path / "x.tar")
    (tmp_path / "x.tar").write_bytes(b"")
    with pytest.raises(ValueError, match=r"x\.tar is empty"):
        TarImages(tmp_path / "x.tar")
    with pytest.raises(FileNotFoundError, match=r"y\.tar: no file matches"):
        TarImages(tmp_path / "y.tar")


def test_samples(shards):
    pattern, files = shards
    dataset = TarImages(pattern)
    assert len(dataset) == len(files)
    assert dataset.targets.tolist() == [label for _, label in files]
    for index, (file, label) in enumerate(files):
        assert dataset.image_bytes(index) == file
        picture, found = dataset[index]
        assert found == label
        expected = Image.open(io.BytesIO(file)).convert("RGB")
        assert np.array_equal(np.asarray(picture), np.asarray(expected))
    assert dataset.name(9) == f"a.b/1_001.JPG in {dataset.shards[1]}"
    assert dataset[-1][1] == files[-1][1]


def test_the_pictures_of_a_batch_are_read_ahead_and_nothing_else_is(shards, monkeypatch):
    """Also below a ConcatDataset: each part is asked for its own samples."""
    pattern, files = shards
    first, second = TarImages(pattern), TarImages(pattern)
    asked = []
    monkeypatch.setattr(
        TarShard,
        "will_need",
        lambda shard, offset, size: asked.append(shard.mapping[offset : offset + size]),
    )
    store = MappedStore([first, second], "tar shards")
    batch = random.sample(range(2 * len(files)), 11)
    store.prepare(batch)
    assert sorted(asked) == sorted(files[index % len(files)][0] for index in batch)


def test_the_samples_are_webdatasets(shards):
    webdataset = pytest.importorskip("webdataset")
    pattern, _ = shards
    dataset = TarImages(pattern)
    theirs = list(webdataset.WebDataset(dataset.shards, shardshuffle=False))
    assert [sample["__key__"] for sample in theirs] == [
        dataset.name(index).split(".JPG in ")[0] for index in range(len(dataset))
    ]
    for index, sample in enumerate(theirs):
        assert sample["jpg"] == dataset.image_bytes(index)
        assert int(sample["cls"]) == dataset.targets[index]


def test_braces(shards, tmp_path):
    _, files = shards
    assert len(TarImages(tmp_path / "train-{0000..0002}.tar")) == len(files)
    assert len(TarImages(str(tmp_path / "train-{0002,0000}.tar"))) == 16
    assert TarImages(str(tmp_path / "train-{0002,0000}.tar")).targets[0] == files[16][1]
    assert len(TarImages([tmp_path / "train-0001.tar"])) == 8


def test_batches_are_the_pictures(shards):
    pattern, files = shards
    dataset = TarImages(pattern, T.Resize((24, 20)))
    loader = FastLoader(
        dataset, 5, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(3)
    )
    if extension.load() is not None:
        assert loader.plan().startswith("native images: fastloader TarImages")
    seen = []
    for images, labels in loader:
        for image, label in zip(images, labels.tolist(), strict=True):
            file = next(file for file, its in files if its == label)
            expected = Image.open(io.BytesIO(file)).convert("RGB")
            expected = expected.resize((20, 24), Image.Resampling.BILINEAR)
            assert np.array_equal(image.permute(1, 2, 0).numpy(), np.asarray(expected))
            seen.append(label)
    assert sorted(seen) == sorted(label for _, label in files)


def test_subsets_and_concatenations(shards, tmp_path):
    _, files = shards
    one, two = (TarImages(tmp_path / f"train-000{n}.tar", T.CenterCrop(16)) for n in (0, 1))
    both = Subset(ConcatDataset([one, two]), list(range(15, -1, -1)))
    loader = FastLoader(both, 4, num_workers=2)
    labels = torch.cat([labels for _, labels in loader]).tolist()
    assert labels == [label for _, label in files[15::-1]]


def test_the_index_is_kept_and_made_anew_for_another_shard(shards, tmp_path, monkeypatch):
    pattern, files = shards
    first = TarImages(pattern)
    made = []
    make = tar_shards.make_index
    monkeypatch.setattr(tar_shards, "make_index", lambda *a: made.append(a[1]) or make(*a))
    again = TarImages(pattern)
    assert made == []
    assert np.array_equal(again.offsets, first.offsets) and again.name(3) == first.name(3)
    path = tmp_path / "train-0001.tar"
    with tarfile.open(path, "a") as tar:
        add(tar, "z.jpg", files[0][0])
    assert len(TarImages(pattern)) == len(files) + 1
    assert made == [str(path)]


def test_an_index_that_is_damaged_is_made_anew(shards, tmp_path):
    pattern, files = shards
    expected = TarImages(pattern)
    kept = tmp_path / "train-0000.tar.fastloader-tar"
    good = kept.read_bytes()
    rng = random.Random(4)
    for turn in range(120):
        data = bytearray(good)
        if turn % 3 == 0:
            del data[rng.randrange(len(data)) :]
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data)) : rng.randrange(len(data)) + 1] = rng.randbytes(1)
        kept.write_bytes(data)
        found = TarImages(pattern)
        assert len(found) == len(files)
        assert np.array_equal(found.targets, expected.targets)


def test_where_nothing_can_be_written(shards, tmp_path, monkeypatch):
    pattern, files = shards

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tar_shards, "_save", full)
    assert len(TarImages(pattern)) == len(files)
    assert not list(tmp_path.glob("*.fastloader-tar"))


def test_a_folder_for_indices(shards, tmp_path):
    pattern, files = shards
    assert len(TarImages(pattern, index_dir=tmp_path / "kept")) == len(files)
    assert len(list((tmp_path / "kept").iterdir())) == 3
    assert not list(tmp_path.glob("*.fastloader-tar"))


def test_pickle_maps_anew(shards, tmp_path):
    pattern, files = shards
    dataset = TarImages(pattern)
    data = pickle.dumps(dataset)
    copy = pickle.loads(data)
    assert copy.image_bytes(20) == files[20][0] and copy.name(20) == dataset.name(20)
    os.utime(tmp_path / "train-0002.tar", ns=(1, 1))
    with pytest.raises(ValueError, match="has changed since its dataset was made"):
        pickle.loads(data)


def test_samples_without_a_picture_are_left_out(tmp_path):
    rng = random.Random(5)
    file = jpeg(rng, tmp_path / "x.jpg")
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        add(tar, "__meta__", b"no sample")
        add(tar, "README", b"no extension")
        add(tar, "1.txt", b"no picture")
        add(tar, "2.png", b"another")
        add(tar, "2.jpg", file)
        add(tar, "3.jpg", file)
        add(tar, "3.cls", b"three")
    dataset = TarImages(tmp_path / "x.tar")
    assert len(dataset) == 2 and dataset.targets.tolist() == [-1, -1]
    assert dataset.image_bytes(0) == file
    assert len(TarImages(tmp_path / "x.tar", image="PNG")) == 1
    with pytest.raises(ValueError, match=r"no sample has a picture \(\.webp\)"):
        TarImages(tmp_path / "x.tar", image=["webp"])


def test_two_files_of_one_extension(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        add(tar, "1.jpg", b"one")
        add(tar, "1.JPG", b"another")
    with pytest.raises(DamagedTar, match=r"the sample 1 has two files \.jpg"):
        TarImages(tmp_path / "x.tar")


def written_by_wds2idx(path, version="v1.2"):
    """The file that DALI's program writes beside a tar; of version 1.1 it has no names."""
    samples = []
    with tarfile.open(path) as tar:
        for member in tar:
            base, extension = split(member.name)
            entry = [extension, str(member.offset_data), str(member.size)]
            entry += [member.name] if version == "v1.2" else []
            if not samples or samples[-1][0] != base:
                samples.append((base, []))
            samples[-1][1].extend(entry)
    lines = [f"{version} {len(samples)}", *(" ".join(entries) for _base, entries in samples)]
    path.with_suffix(".idx").write_text("\n".join(lines) + "\n")


def split(name):
    folder, _, file = name.rpartition("/")
    base, _dot, extension = file.partition(".")
    return f"{folder}/{base}" if folder else base, extension


@pytest.mark.parametrize("version", ["v1.1", "v1.2"])
def test_indices_of_dali(shards, tmp_path, version, monkeypatch):
    pattern, files = shards
    expected = TarImages(pattern)
    for path in sorted(tmp_path.glob("*.tar")):
        os.unlink(f"{path}.fastloader-tar")
        written_by_wds2idx(path, version)
    monkeypatch.setattr(tar_shards, "members_of", lambda *_: pytest.fail("the tar was walked over"))
    found = TarImages(pattern)
    assert found.targets.tolist() == [label for _file, label in files]
    assert [found.image_bytes(i) for i in range(len(found))] == [file for file, _label in files]
    if version == "v1.2":
        assert found.name(9) == expected.name(9)


def test_indices_of_dali_that_do_not_fit(shards, tmp_path):
    pattern, files = shards
    path = min(tmp_path.glob("*.tar"))
    TarImages(pattern)
    written_by_wds2idx(path)
    idx = path.with_suffix(".idx")
    right = idx.read_text()
    lines = right.splitlines(keepends=True)
    wrong = {
        "older": right,
        "cut off": right[: len(right) // 2],
        "another version": right.replace("v1.2", "v9"),
        "no index": "hello",
        "empty": "",
        "without the last sample": "".join([lines[0].replace("8", "7"), *lines[1:-1]]),
        "of another shard": right.replace(" 512 ", " 1024 "),
        "beyond the end": right.replace(" 512 ", " 51200000 "),
        "a name with a space": right.replace("a.b/", "a b/"),
    }
    for what, text in wrong.items():
        idx.write_text(text)
        if what == "older":
            os.utime(idx, ns=(1, 1))
        os.unlink(f"{path}.fastloader-tar")
        found = TarImages(pattern)
        assert [found.image_bytes(i) for i in range(8)] == [file for file, _ in files[:8]], what


@pytest.mark.parametrize(
    ("shards", "error", "message"),
    [
        ("pipe:cat a.tar", ValueError, "shards are files or URLs"),
        (["https://host/a.tar", "a.tar"], ValueError, "the shards of a dataset are files or URLs"),
        ([], ValueError, "no shard is named"),
        ("none-*.tar", FileNotFoundError, "no file matches"),
        (".", IsADirectoryError, r"name the files in it, such as .*/\*\.tar"),
    ],
)
def test_what_is_no_shard(tmp_path, monkeypatch, shards, error, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tar").write_bytes(b"x")
    with pytest.raises(error, match=message):
        TarImages(shards)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_compressed_shards(tmp_path, kind):
    with tarfile.open(tmp_path / "x.tar", f"w:{kind}") as tar:
        add(tar, "a.jpg", b"x")
    with pytest.raises(DamagedTar, match=r"x\.tar is compressed \(.*unpack it"):
        TarImages(tmp_path / "x.tar")


def test_labels_that_are_no_numbers_are_told(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, content in (("a.jpg", b"x"), ("a.cls", b"3"), ("b.jpg", b"x"), ("b.cls", b"cat")):
            add(tar, name, content)
    with pytest.warns(RuntimeWarning, match=r"x\.tar: the \.cls of 1 samples is no .* that of b"):
        dataset = TarImages(tmp_path / "x.tar")
    assert dataset.targets.tolist() == [3, -1]


def cut(path):
    os.truncate(path, 3 * 512)


def write_over(path):
    content = path.read_bytes()
    path.write_bytes(content[::-1])
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", [cut, write_over])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_shard_that_changes_in_the_middle(shards, tmp_path, change, num_workers):
    """In memory that a file no longer has, a read would end the process. A sample that cannot be had is
    an error, and one whose bytes are others now is no picture."""
    pattern, _files = shards
    dataset = TarImages(pattern, T.Resize((20, 20)))
    loader = FastLoader(dataset, batch_size=1, num_workers=num_workers, depth=1)
    batches = iter(loader)
    next(batches)
    change(tmp_path / "train-0002.tar")
    with pytest.raises(DamagedTar, match=r"train-0002\.tar was written over or cut off"):
        list(batches)
    with pytest.raises(DamagedTar, match=r"train-0002\.tar was written over or cut off"):
        dataset[-1]


def test_a_shard_that_is_replaced_goes_on_being_read(shards, tmp_path):
    pattern, files = shards
    dataset = TarImages(pattern)
    (tmp_path / "other").write_bytes(b"x")
    os.replace(tmp_path / "other", tmp_path / "train-0002.tar")
    os.unlink(tmp_path / "train-0001.tar")
    assert [dataset.image_bytes(i) for i in range(len(dataset))] == [file for file, _ in files]


def small(path, key, label):
    with tarfile.open(path, "w") as tar:
        for name, content in ((f"{key}.jpg", b"x"), (f"{key}.cls", label)):
            add(tar, name, content)
    os.utime(path, ns=(5, 5))


@pytest.mark.parametrize(("key", "label"), [("b", b"1"), ("a", b"2")])
def test_a_shard_of_one_size_and_one_time_is_another(tmp_path, key, label):
    small(tmp_path / "x.tar", "a", b"1")
    assert TarImages(tmp_path / "x.tar").targets.tolist() == [1]
    small(tmp_path / "x.tar", key, label)
    found = TarImages(tmp_path / "x.tar")
    assert (found.name(0)[0], found.targets.tolist()) == (key, [int(label)])


def test_any_damage_of_an_index_is_a_walk(shards, tmp_path):
    pattern, files = shards
    TarImages(pattern)
    index = tmp_path / "train-0000.tar.fastloader-tar"
    right = index.read_bytes()
    rng = random.Random(4)
    damaged = [b"", right[:100], b"PK" + right, bytes(3000)]
    for _ in range(150):
        one = bytearray(right)
        one[rng.randrange(len(one))] ^= 1 << rng.randrange(8)
        damaged.append(bytes(one))
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    damaged.append(array.getvalue())
    for content in damaged:
        index.write_bytes(content)
        found = TarImages(pattern)
        assert found.targets.tolist() == [label for _file, label in files]
        assert found.image_bytes(3) == files[3][0]


def test_extensions_of_any_bytes(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for name in ("a.jpg", "a.caf\udce9"):
            add(tar, name, b"x")
    for _ in range(2):
        assert TarImages(tmp_path / "x.tar", columns=["caf\udce9"]).columns == ["caf\udce9"]


def test_the_loop_waits_for_no_look_over_a_network(shards, monkeypatch):
    """Threads look at shards of which the system says late what they are, all at the same time: the
    thread of the loop has waited for one."""
    pattern, _files = shards
    dataset = TarImages(pattern, T.Resize((20, 20)))
    stat, clock, looked = os.stat, [0.0], []

    def late(path, *arguments, **options):
        if str(path).endswith(".tar"):
            clock[0] += 0.001
            looked.append((threading.current_thread() is threading.main_thread(), str(path)))
        return stat(path, *arguments, **options)

    monkeypatch.setattr(mapped_file, "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(mapped_file.os, "stat", late)
    loader = FastLoader(dataset, batch_size=len(dataset), shuffle=True)
    for _ in range(5):
        assert len(list(loader)) == 1
    assert sum(main for main, _path in looked) == 1
    assert [path for _main, path in looked].count(dataset.shards[0]) == 5
    assert len(looked) == 5 * len(dataset.shards)


def test_the_end_of_an_epoch_waits_for_no_look(shards, monkeypatch):
    """Such as one at a server that is gone."""
    pattern, _files = shards
    dataset = TarImages(pattern, T.Resize((20, 20)))
    for shard in dataset._shards:
        shard.slow = True
    gone = threading.Event()
    monkeypatch.setattr(TarShard, "look", lambda shard: gone.wait())
    batches = iter(FastLoader(dataset, batch_size=4))
    ending = threading.Timer(0.3, batches.close)
    ending.start()
    try:
        with pytest.raises(Error, match="closed while next"):
            next(batches)
    finally:
        ending.join()
        gone.set()


def test_files_are_looked_at_where_there_is_no_thread(shards, monkeypatch):
    pattern, _files = shards
    dataset = TarImages(pattern)
    for shard in dataset._shards:
        shard.slow = True

    def refused(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    every = mapped_file.Looks(dataset._shards)
    assert every.wait(0) and not any(shard.slow for shard in dataset._shards)
    every.check()


LONG = "/".join(["a folder of many letters"] * 6)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("native", [True, False])
def test_an_error_calls_the_member_what_the_tar_calls_it(tmp_path, form, native):
    """`tar -x` takes that name and no other. Long names stand elsewhere in a tar, and the index has
    extensions in lower case."""
    names = ["a/broken.jpg", "a/B.JPG", f"{LONG}/c.Jpeg", "\u00e9.jpg", f"{LONG}/d.d.JPG", "e.jpg"]
    with tarfile.open(tmp_path / "x.tar", "w", format=form) as tar:
        for name in names:
            for each in (name, name.rpartition(".")[0] + ".Json"):
                member = tarfile.TarInfo(each)
                member.size, member.mtime = 5, 1.5 if form == tarfile.PAX_FORMAT else 1
                tar.addfile(member, io.BytesIO(b"\xff\xd8\xff{["))
    shard = tmp_path / "x.tar"
    dataset = TarImages(shard, T.Resize((20, 20)), image=["jpg", "jpeg", "d.jpg"])
    named = [dataset.name(index) for index in range(len(dataset))]
    assert named == [f"{name} in {shard}" for name in names]
    loader = FastLoader(dataset, batch_size=1, native=native)
    batches = iter(loader)
    for name in names:
        with pytest.raises(Exception, match=re.escape(f"{name} in {shard}")):
            next(batches)
        if not native:  # which ends the epoch
            break
    columns = TarImages(shard, image=["jpg", "jpeg"], columns=["json"])
    with pytest.raises(ValueError, match=re.escape(f"a/B.JPG in {shard}: .json: ")):
        columns._rest([1])
    with pytest.raises(ValueError, match=re.escape(f"e.jpg in {shard}: the sample has no .cls")):
        dataset._file(5, "cls")


def test_a_name_of_a_shard_that_is_gone(shards, tmp_path):
    pattern, _files = shards
    dataset = TarImages(pattern)
    os.truncate(tmp_path / "train-0001.tar", 0)
    assert dataset.name(9) == f"a.b/1_001.jpg in {dataset.shards[1]}"
