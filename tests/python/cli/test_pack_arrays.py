"""``fastloader pack`` of arrays, and `PackedArrays`: batches are those of what was packed."""

import io
import json
import multiprocessing
import pickle
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from fastloader import FastLoader
from fastloader.cli import pack_arrays
from fastloader.cli.__main__ import main
from fastloader.datasets import LMDBDataset, PackedArrays
from fastloader.transforms import RandomHorizontalFlip
from support import same

COUNT = 23
# What a test packs: `samples` is set by it, and read by the expression "packed_here:SAMPLES".
MODULE = "packed_here"


class Listed(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


@pytest.fixture
def pack(tmp_path, monkeypatch):
    """Packs a dataset to a path."""
    module = type(sys)(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)

    def run(samples, path, *options):
        module.SAMPLES = samples if isinstance(samples, Dataset) else Listed(samples)
        return main(["pack", f"{MODULE}:SAMPLES", str(path), *options])

    return run


def random_samples(kind, count=COUNT):
    rng = np.random.default_rng()

    def floats(*shape, dtype=np.float32):
        return rng.standard_normal(shape).astype(dtype)

    make = {
        "an array": lambda: floats(3, 5, 4),
        "a tensor": lambda: torch.from_numpy(floats(7, dtype=np.float64)),
        "one in a tuple": lambda: (floats(2, 2),),
        "a pair": lambda: (
            rng.integers(0, 256, (8, 6, 3), np.uint8),
            floats(8, 6, 3, dtype=np.float16),
        ),
        "a list with numbers": lambda: [
            floats(4),
            int(rng.integers(-9, 9)),
            float(rng.random()),
            bool(rng.integers(2)),
            np.float32(rng.random()),
            torch.tensor(int(rng.integers(9)), dtype=torch.int16),
        ],
        "other layouts": lambda: (
            np.asfortranarray(floats(3, 4)),
            floats(6).astype(">f4"),
            floats(9)[::2],
            torch.from_numpy(floats(3, 4)).T,
            rng.standard_normal(3) + 1j,
            rng.integers(0, 2, 5).astype(bool),
            np.zeros((2, 0), np.int32),
        ),
    }[kind]
    return [make() for _ in range(count)]


KINDS = ["an array", "a tensor", "one in a tuple", "a pair", "a list with numbers"]


def native(sample):
    """The same in the machine's byte order, which is all that torch takes."""
    if isinstance(sample, tuple | list):
        return type(sample)(map(native, sample))
    if isinstance(sample, np.ndarray):
        return np.ascontiguousarray(sample).astype(sample.dtype.newbyteorder("="))
    return sample


@pytest.mark.parametrize("kind", [*KINDS, "other layouts"])
def test_batches_are_those_of_what_was_packed(tmp_path, pack, kind, way):
    samples = random_samples(kind)
    assert pack(samples, tmp_path / "set") == 0
    original, packed = Listed([native(each) for each in samples]), PackedArrays(tmp_path / "set")
    assert len(packed) == COUNT
    picked = [5, 1, 22, 5, 0, -1]
    for theirs, ours in (
        (original, packed),
        (Subset(original, picked), Subset(packed, picked)),
        (ConcatDataset([original, original]), ConcatDataset([packed, packed])),
    ):
        loader = FastLoader(
            ours, 4, shuffle=True, generator=torch.Generator().manual_seed(3), **way.options
        )
        if type(ours) is not ConcatDataset:
            assert loader.plan().startswith("arrays: "), loader.plan()
            assert "PackedArrays of" in loader.plan()
        plain = DataLoader(theirs, 4, shuffle=True, generator=torch.Generator().manual_seed(3))
        same(list(loader), list(plain))
    same(list(DataLoader(packed, 4)), list(DataLoader(original, 4)))


def test_any_program_reads_the_files(tmp_path, pack):
    samples = random_samples("a pair")
    assert pack(samples, tmp_path / "set") == 0
    for number in (0, 1):
        found = np.load(tmp_path / "set" / f"{number}.npy", allow_pickle=False)
        assert np.array_equal(found, np.stack([sample[number] for sample in samples]))


def test_what_is_written_into_a_sample_stays_in_the_process(tmp_path, pack):
    samples = random_samples("an array")
    assert pack(samples, tmp_path / "set") == 0
    packed = PackedArrays(tmp_path / "set")
    packed[3].fill_(7)
    assert packed[3].unique().tolist() == [7]
    assert np.array_equal(PackedArrays(tmp_path / "set")[3].numpy(), samples[3])


def sum_of(dataset, results):
    results.put(sum(float(batch.double().sum()) for batch in FastLoader(dataset, 4)))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_other_processes(tmp_path, pack, start):
    samples = random_samples("an array")
    assert pack(samples, tmp_path / "set") == 0
    packed = PackedArrays(tmp_path / "set")
    same(pickle.loads(pickle.dumps(packed))[2], packed[2])
    context = multiprocessing.get_context(start)
    results = context.SimpleQueue()
    process = context.Process(target=sum_of, args=(packed, results))
    process.start()
    found = results.get()
    process.join()
    assert found == sum(float(batch.double().sum()) for batch in FastLoader(packed, 4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s[:2], "sample 9 is uint8 (8, 6, 3), and sample 0 is uint8 (8, 6, 3), float16"),
        (
            lambda s: (s[0], s[1][:5]),
            "sample 9: array 1 is float16 (5, 6, 3), and that of sample 0 is",
        ),
        (
            lambda s: (s[0], s[1].astype("f8")),
            "sample 9: array 1 is float64 (8, 6, 3), and that of",
        ),
        (
            lambda s: (s[0], "text"),
            "sample 9: array 1 is a str, which numpy and torch do not both have",
        ),
        (
            lambda s: (s[0], torch.zeros(2, dtype=torch.bfloat16)),
            "array 1 is a Tensor, which numpy",
        ),
        (lambda s: (s[0], np.zeros(2, "M8[s]")), "array 1 is a ndarray, which numpy"),
    ],
)
def test_samples_that_are_not_like_the_first(tmp_path, pack, capsys, change, message):
    samples = random_samples("a pair")
    samples[9] = change(samples[9]) if message[:11] != "sample 9 is" else samples[9][:1]
    assert pack(samples, tmp_path / "set") == 1
    said = capsys.readouterr().err
    assert message in said and "9 of 23 samples are in" in said, said
    with pytest.warns(RuntimeWarning, match="interrupted after 9 of 23 samples"):
        packed = PackedArrays(tmp_path / "set")
    same([each[1].numpy().tolist() for each in packed], [each[1].tolist() for each in samples[:9]])


def test_a_dataset_that_fails(tmp_path, pack, capsys):
    class Fails(Listed):
        def __getitem__(self, index):
            if index == 4:
                raise OSError("the disk is gone")
            return super().__getitem__(index)

    assert pack(Fails(random_samples("a pair")), tmp_path / "set") == 1
    assert "sample 4: OSError: the disk is gone" in capsys.readouterr().err
    assert main(["pack", "--check", str(tmp_path / "set")]) == 2


def test_a_first_sample_that_fails_once(tmp_path, pack, capsys):
    """The first sample tells what is packed, so another kind must not be taken in its place."""

    class FailsOnce(Listed):
        failed = False

        def __getitem__(self, index):
            if index == 0 and not self.failed:
                self.failed = True
                raise OSError("the server is busy")
            return super().__getitem__(index)

    samples = random_samples("a pair")
    dataset = FailsOnce(samples)
    assert pack(dataset, tmp_path / "set") == 1
    assert "fastloader pack: sample 0: OSError: the server is busy" in capsys.readouterr().err
    assert not (tmp_path / "set").exists()
    assert pack(dataset, tmp_path / "set") == 0
    same(list(DataLoader(PackedArrays(tmp_path / "set"), 4)), list(DataLoader(Listed(samples), 4)))


def test_pictures_stay_pictures(tmp_path, pack):
    """What was packed as a picture before there were arrays, is packed as one."""
    pytest.importorskip("lmdb")
    rng = np.random.default_rng()
    pixels = rng.integers(0, 256, (COUNT, 6, 5, 3), np.uint8)
    for name, samples in {
        "pairs": [(each, number) for number, each in enumerate(pixels)],
        "alone": list(pixels),
        "tensors": [(torch.from_numpy(each).permute(2, 0, 1), np.int64(4)) for each in pixels],
    }.items():
        assert pack(samples, tmp_path / name) == 0
        packed = LMDBDataset(tmp_path / name)
        assert all(np.array_equal(np.asarray(packed[i][0]), pixels[i]) for i in range(COUNT))


def test_options_of_pictures_are_refused(tmp_path, pack, capsys):
    assert pack(random_samples("a pair"), tmp_path / "set", "--quality", "80") == 1
    assert "the samples are arrays: uint8 (8, 6, 3), float16 (8, 6, 3)" in capsys.readouterr().err
    assert not (tmp_path / "set").exists()


def test_going_on(tmp_path, pack, capsys, monkeypatch):
    """After an error in the middle, with other samples, and when all is there."""
    monkeypatch.setattr(pack_arrays, "_TOGETHER", 3)
    samples = random_samples("a list with numbers")
    broken = [*samples[:14], "text", *samples[15:]]
    assert pack(broken, tmp_path / "set") == 1
    # Bytes behind what was committed: of a sample that was being written.
    with open(tmp_path / "set" / "0.npy", "ab") as file:
        file.write(b"half a sample")
    assert pack(samples[:-1], tmp_path / "set") == 1
    assert "was begun from other samples" in capsys.readouterr().err
    assert pack(samples, tmp_path / "set") == 0
    assert "goes on after 14 of 23 samples" in capsys.readouterr().out
    same(list(DataLoader(PackedArrays(tmp_path / "set"), 5)), list(DataLoader(Listed(samples), 5)))
    assert pack(samples, tmp_path / "set") == 0
    assert "all 23 samples are there already" in capsys.readouterr().out


def test_folders_of_others(tmp_path, pack, capsys):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    assert pack(random_samples("a pair"), tmp_path / "other") == 1
    assert "is a folder of other files" in capsys.readouterr().err
    (tmp_path / "file").write_text("mine")
    assert pack(random_samples("a pair"), tmp_path / "file") == 1
    assert "is a file: samples of arrays are packed to a folder" in capsys.readouterr().err
    assert pack(random_samples("a pair"), tmp_path / "none" / "set") == 1
    assert "there is no folder" in capsys.readouterr().err
    (tmp_path / "other" / "arrays.json.part").write_text("{")
    assert pack(random_samples("a pair"), tmp_path / "other") == 1
    assert sorted(each.name for each in (tmp_path / "other").iterdir()) == [
        *("arrays.json.part", "mine.txt"),
    ]
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        PackedArrays(tmp_path / "none")
    with pytest.raises(ValueError, match=r"other is no folder of `fastloader pack`"):
        PackedArrays(tmp_path / "other")


def test_damage(tmp_path, pack, capsys):
    path = tmp_path / "set"
    assert pack(random_samples("a pair"), path) == 0
    assert main(["pack", "--check", str(path)]) == 0
    assert "23 samples of 2 arrays" in capsys.readouterr().out
    sound = (path / "1.npy").read_bytes()
    at = np.random.default_rng().integers(200, len(sound))
    (path / "1.npy").write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
    assert main(["pack", "--check", str(path)]) == 1
    assert "1.npy is damaged: its checksum does not match" in capsys.readouterr().err
    for content, message in (
        (sound[:-1], "is cut off"),
        (sound[:20], "is no array of"),
        (b"", "is no array of"),
        (b"text" * 100, "is no array of"),
    ):
        (path / "1.npy").write_bytes(content)
        with pytest.raises(ValueError, match=rf"1\.npy {message}"):
            PackedArrays(path)
        assert main(["pack", "--check", str(path)]) == 1
    (path / "1.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"1\.npy"):
        PackedArrays(path)
    assert (
        "1.npy cannot be read" in (main(["pack", "--check", str(path)]), capsys.readouterr().err)[1]
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda array: array.astype(np.float64)[:, :, :2, :2],
        lambda array: array.view(np.int32),
        lambda array: array.astype(">f4"),
        lambda array: array.reshape(COUNT, 5, 4, 3),
        lambda array: np.asfortranarray(array),
        lambda array: np.concatenate([array, array]),
        lambda array: array.reshape(-1),
    ],
)
def test_files_of_other_numbers(tmp_path, pack, capsys, change):
    """Another program may have written a file anew, which has bytes enough."""
    path = tmp_path / "set"
    assert pack(random_samples("an array"), path) == 0
    array = np.load(path / "0.npy")
    np.save(path / "0.npy", array)
    assert np.array_equal(torch.stack(list(PackedArrays(path))).numpy(), array)
    np.save(path / "0.npy", change(array))
    with pytest.raises(
        ValueError, match=r"0\.npy is no array of .*, and <f4 \(23, 3, 5, 4\) was pack"
    ):
        PackedArrays(path)
    assert main(["pack", "--check", str(path)]) == 1
    assert "0.npy cannot be read: it has " in capsys.readouterr().err


class Doubled(PackedArrays):
    """Of the user's own."""

    def __init__(self, path, times):
        super().__init__(path)
        self.times = times

    def __getitem__(self, index):
        return super().__getitem__(index) * self.times


def test_a_subclass_in_another_process(tmp_path, pack, monkeypatch):
    """It stays one, and has as many samples as it had, also if packing has gone on since."""
    monkeypatch.setattr(pack_arrays, "_TOGETHER", 3)
    samples = random_samples("an array")
    assert pack([*samples[:9], "text", *samples[10:]], tmp_path / "set") == 1
    with pytest.warns(RuntimeWarning, match="interrupted after"):
        doubled = Doubled(tmp_path / "set", 2)
    sent = pickle.dumps(doubled)
    assert pack(samples, tmp_path / "set") == 0
    found = pickle.loads(sent)
    assert type(found) is Doubled and len(found) == len(doubled) == 9
    assert np.array_equal(found[4].numpy(), 2 * samples[4])


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"},
        {"version": 2},
        {"count": 24},
        {"count": -1},
        {"count": True},
        {"count": "23"},
        {"arrays": []},
        {"arrays": [{"file": "../0.npy", "dtype": "<f4", "shape": [3, 5, 4], "crc32": 0}]},
        {"arrays": [{"file": "0.npy", "dtype": "|O", "shape": [3, 5, 4], "crc32": 0}]},
        {"arrays": [{"file": "0.npy", "dtype": "<f4", "shape": [1 << 60, 1 << 60], "crc32": 0}]},
        {"arrays": [{"file": "0.npy", "dtype": "<f4", "shape": [3, -5, 4], "crc32": 0}]},
        {"arrays": [{"file": "0.npy", "dtype": "f4,f4", "shape": [3], "crc32": 0}]},
        {"arrays": {"a": 1}},
        {"total": None},
    ],
)
def test_what_a_folder_says_of_itself(tmp_path, pack, change):
    path = tmp_path / "set"
    assert pack(random_samples("an array"), path) == 0
    said = json.loads((path / "arrays.json").read_text())
    (path / "arrays.json").write_text(json.dumps({**said, **change}))
    with pytest.raises(
        ValueError, match=r"set.*(is not of `fastloader pack`|is no array of `fastloader pack`)"
    ):
        PackedArrays(path)
    for text in ("", "[]", "{", "[" * 100_000):
        (path / "arrays.json").write_text(text)
        with pytest.raises(ValueError, match=r"arrays\.json is not of `fastloader pack`"):
            PackedArrays(path)


def test_a_kill_before_the_folder_says_what_it_is(tmp_path, pack):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "arrays.json.part").write_text('{"format"')
    samples = random_samples("a pair")
    assert pack(samples, tmp_path / "set") == 0
    same(list(DataLoader(PackedArrays(tmp_path / "set"), 4)), list(DataLoader(Listed(samples), 4)))
    assert not (tmp_path / "set" / "arrays.json.part").exists()


def test_the_older_lmdb_layout(tmp_path, pack, capsys):
    """Arrays and tuples of arrays become a folder, and pictures become pictures."""
    lmdb = pytest.importorskip("lmdb")
    pairs = random_samples("a pair")
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng().integers(0, 256, (9, 8, 3), np.uint8)).save(out, "PNG")
    for name, samples in (("pairs", pairs), ("pictures", [(out.getvalue(), 3)] * 4)):
        path = str(tmp_path / f"{name}.lmdb")
        with lmdb.open(path, subdir=False, map_size=1 << 24) as old:
            with old.begin(write=True) as records:
                for number, sample in enumerate(samples):
                    records.put(b"%d" % number, pickle.dumps(sample))
                records.put(b"__keys__", pickle.dumps([b"%d" % n for n in range(len(samples))]))
                records.put(b"__len__", pickle.dumps(len(samples)))
        stored = LMDBDataset(path, legacy=True, samples="as stored")
        assert pack(stored, tmp_path / name) == 0
    same(list(DataLoader(PackedArrays(tmp_path / "pairs"), 4)), list(DataLoader(Listed(pairs), 4)))
    packed = LMDBDataset(tmp_path / "pictures")
    assert packed.image_bytes(2) == out.getvalue() and packed.targets.tolist() == [3] * 4
    path = tmp_path / "pictures.lmdb"
    turned = LMDBDataset(path, RandomHorizontalFlip(), legacy=True, samples="as stored")
    assert pack(turned, tmp_path / "turned") == 1
    assert "the picture has a transform, which would be lost" in capsys.readouterr().err
