"""A file that is mapped into memory is cut off or written over while batches are under way: the samples
that it lost are errors that name it, and the process goes on."""

import io
import tarfile
import textwrap

import pytest
import torch
from pictures import import_torchvision, plain_folder
from PIL import Image
from torch.utils.data import TensorDataset

import fastloader.transforms as T
from fastloader import FastLoader
from fastloader._core.machine import extension
from fastloader._core.pictures.store import LmdbStore, MappedStore
from fastloader.cli.__main__ import main
from fastloader.datasets import LMDBDataset, ParquetImages, TarImages
from fastloader.datasets._formats.mapped_file import MappedFile
from support import run_script

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        extension.load() is None, reason="numpy and torch read the files themselves"
    ),
]

START = """
    import os, sys, tarfile
    import numpy as np, torch
    import fastloader.transforms as T
    from fastloader import EncodedImage, FastLoader, decode_image
    from fastloader.cli.__main__ import main

    base, change, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    photos = os.path.join(base, "photos")
    SAME = T.Compose([T.Resize((24, 24))])

    def destroy(path):
        if change == "cut off":
            with open(path, "r+b") as file:
                file.truncate(4096)
        elif change == "other bytes":
            with open(path, "r+b") as file:
                file.write(os.urandom(os.path.getsize(path)))
        else:  # as open(path, "wb") does, before it has written all
            with open(path, "wb") as file:
                file.write(b"x" * 6000)

    def files():
        for folder, _, names in sorted(os.walk(photos)):
            for name in sorted(names):
                with open(os.path.join(folder, name), "rb") as file:
                    yield name, file.read()
"""

# How the dataset is made, and what the errors are called.
MAKERS = {
    "tar": """
        from fastloader.datasets import TarImages
        path = os.path.join(base, "a.tar")
        with tarfile.open(path, "w") as tar:
            for name, content in files():
                tar.add(os.path.join(photos, "c" + str(int(name[:3]) % 3), name), name)
        dataset, wanted = TarImages(path, SAME), ValueError
    """,
    "lmdb": """
        from fastloader.datasets import LMDBDataset
        path = os.path.join(base, "a.lmdb")
        assert main(["pack", photos, path]) == 0
        dataset, wanted = LMDBDataset(path, SAME), ValueError
    """,
    "parquet": """
        import pyarrow, pyarrow.parquet
        from fastloader.datasets import ParquetImages
        path = os.path.join(base, "a.parquet")
        rows = [{"bytes": content, "path": None} for _, content in files()]
        table = pyarrow.table({"image": rows, "label": list(range(len(rows)))})
        pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False)
        dataset, wanted = ParquetImages(path, SAME), ValueError
        assert dataset.mapped
    """,
    "arrow": """
        import datasets
        from fastloader.datasets import HFImages
        rows = [{"bytes": content, "path": name} for name, content in files()]
        features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
        made = datasets.Dataset.from_dict({"image": rows, "label": list(range(len(rows)))}, features)
        made.save_to_disk(os.path.join(base, "hf"))
        made = datasets.load_from_disk(os.path.join(base, "hf"))
        path = made.cache_files[0]["filename"]
        dataset, wanted = HFImages(made, SAME), OSError
    """,
    "encoded": """
        import mmap
        path = os.path.join(base, "all")
        places = []
        with open(path, "wb") as out:
            for _, content in files():
                places.append((out.tell(), len(content)))
                out.write(content)
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

        class Views(torch.utils.data.Dataset):
            def __len__(self):
                return len(places)
            def __getitem__(self, index):
                begin, size = places[index]
                return EncodedImage(memoryview(mapped)[begin : begin + size], SAME)

        dataset, wanted = Views(), OSError
    """,
    "memmap of pictures": """
        from pictures import import_torchvision
        import_torchvision()
        from torchvision.datasets import CIFAR10
        path = os.path.join(base, "pixels.npy")
        np.save(path, np.random.default_rng(0).integers(0, 255, (90, 32, 32, 3), dtype=np.uint8))
        dataset = CIFAR10.__new__(CIFAR10)
        dataset.data, dataset.targets = np.load(path, mmap_mode="r"), list(range(90))
        steps = T.Compose([T.Resize((24, 24)), T.PILToTensor()])
        dataset.transform, dataset.target_transform, dataset.transforms = steps, None, None
        wanted = OSError
    """,
}

LOOP = """
    options = {"batch_size": 4, "num_workers": workers}
    loader = FastLoader(dataset, depth=1, **options)
    plan = loader.plan()
    whole = list(loader)
    batches = iter(loader)
    next(batches)
    destroy(path)
    said = []
    for _ in range(len(loader)):
        try:
            next(batches)
        except StopIteration:
            break
        except wanted as error:
            said.append("\\n".join([str(error), *getattr(error, "__notes__", [])]))
    assert said, "no error"
    for each in said:
        print(each)
    print("PLAN", plan)
"""


# The file changes behind the last look at it, and before the threads read it.
BETWEEN = """
    from fastloader._core.pictures.store import MappedStore
    prepare, prepared = MappedStore.prepare, []

    def prepared_and_destroyed(self, indices):
        prepare(self, indices)
        prepared.append(indices)
        if len(prepared) == 12:
            destroy(path)

    MappedStore.prepare = prepared_and_destroyed
"""


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_between_look_and_read(tmp_path, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    plain_folder(tmp_path / "photos", count=30)
    parts = START, MAKERS[kind], BETWEEN, LOOP.replace("    destroy(path)\n", "")
    said = run_script("".join(map(textwrap.dedent, parts)), tmp_path, "cut off", 2).stdout
    assert "was written over or cut off" in said


def same_layout(kind, path, colours):
    """Writes pictures of these colours, labelled by their places: all files have the same layout."""
    pictures = []
    for colour in colours:
        out = io.BytesIO()
        Image.new("RGB", (16, 16), (colour, 0, 0)).save(out, "PNG", compress_level=0)
        pictures.append(out.getvalue())
    if kind == "tar":
        with tarfile.open(path, "w") as tar:
            for number, content in enumerate(pictures):
                for ending, each in (("png", content), ("cls", str(number).encode())):
                    member = tarfile.TarInfo(f"{number:03}.{ending}")
                    member.size = len(each)
                    tar.addfile(member, io.BytesIO(each))
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        rows = [{"bytes": content, "path": None} for content in pictures]
        table = pyarrow.table({"image": rows, "label": list(range(len(rows)))})
        pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False)
    else:
        pytest.importorskip("lmdb")
        for number, content in enumerate(pictures):
            folder = path.parent / f"{path.name}-photos" / f"c{number:03}"
            folder.mkdir(parents=True)
            (folder / "a.png").write_bytes(content)
        assert main(["pack", str(folder.parent), str(path)]) == 0


SAME_LAYOUT = {"tar": TarImages, "parquet": ParquetImages, "lmdb": LMDBDataset}


def changeable(tmp_path, kind):
    """A dataset whose labels are its colours, and what writes other pictures over its file."""
    if kind == "parquet":
        pytest.importorskip("pyarrow.parquet")
    path, other = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    same_layout(kind, path, range(40))
    same_layout(kind, other, range(40)[::-1])
    assert path.stat().st_size == other.stat().st_size

    def write_over():
        with open(path, "r+b") as file:
            file.write(other.read_bytes())

    return SAME_LAYOUT[kind](path, T.Compose([T.Resize((16, 16)), T.PILToTensor()])), write_over


@pytest.mark.covering
@pytest.mark.parametrize("kind", SAME_LAYOUT)
@pytest.mark.parametrize("number", [3, 10])
@pytest.mark.parametrize("workers", [0, 2])
def test_no_batch_has_the_labels_of_other_pictures(tmp_path, monkeypatch, kind, number, workers):
    """The file becomes another whole one, behind whatever is done before a batch is read; the last batch
    of the second epoch, too."""
    dataset, write_over = changeable(tmp_path, kind)
    loader = FastLoader(dataset, batch_size=4, num_workers=workers, depth=1)
    assert loader.plan().startswith("native images")
    assert len(list(loader)) == 10
    store = LmdbStore if kind == "lmdb" else MappedStore
    prepare, prepared = store.prepare, []

    def prepared_and_written_over(self, indices):
        prepare(self, indices)
        prepared.append(indices)
        if len(prepared) == number:
            write_over()

    monkeypatch.setattr(store, "prepare", prepared_and_written_over)
    batches, good = iter(loader), 0
    with pytest.raises(ValueError, match=rf"a\.{kind} was written over or cut off"):
        for pictures, labels in batches:
            assert pictures[:, 0, 0, 0].tolist() == labels.tolist()
            good += 1
    assert good < number
    with pytest.raises(ValueError, match=rf"a\.{kind} was written over or cut off"):
        next(iter(loader))  # the next epoch does not begin either


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_a_sample_that_is_read_while_its_file_changes(tmp_path, monkeypatch, kind):
    dataset, write_over = changeable(tmp_path, kind)
    read = MappedFile.read_bytes

    def written_over_and_read(file, offset, size):
        write_over()
        return read(file, offset, size)

    monkeypatch.setattr(MappedFile, "read_bytes", written_over_and_read)
    with pytest.raises(ValueError, match="was written over or cut off"):
        dataset[3]


@pytest.mark.exhaustive
@pytest.mark.covering
@pytest.mark.parametrize("change", ["cut off", "written over", "other bytes"])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_pictures(tmp_path, kind, change, workers):
    if change == "other bytes" and kind in ("memmap of pictures", "arrow", "encoded"):
        pytest.skip("any bytes are pixels, and nobody knows the file of the others")
    if kind == "memmap of pictures":
        import_torchvision()  # skips
    for name, module in {"lmdb": "lmdb", "parquet": "pyarrow", "arrow": "datasets"}.items():
        if kind == name:
            pytest.importorskip(module)
    if kind == "encoded" and workers:
        pytest.skip("a worker copies the bytes, by itself")
    plain_folder(tmp_path / "photos", count=30)
    source = "".join(map(textwrap.dedent, (START, MAKERS[kind], LOOP)))
    said = run_script(source, tmp_path, change, workers).stdout
    named = {
        "tar": "a.tar was written over or cut off",
        "lmdb": "a.lmdb was written over or cut off",
        "parquet": "a.parquet was written over or cut off",
        "arrow": "row ",
        "encoded": "bytes in memory",
        "memmap of pictures": "pixels.npy: cannot read picture",
    }[kind]
    assert named in said and ("native images" in said or kind == "encoded")


LOST = """
    import pickle
    import lmdb
    from fastloader.datasets._formats import lmdb_files as lmdb_file
    KIND = sys.argv[2]
    path = os.path.join(base, "a.lmdb")
    if KIND.startswith("legacy"):
        environment = lmdb.open(path, subdir=False, map_size=1 << 24)
        with environment.begin(write=True) as transaction:
            for number, (_, content) in enumerate(files()):
                transaction.put(str(number).encode(), pickle.dumps((content, number)))
            transaction.put(b"__len__", pickle.dumps(number + 1))
        environment.close()
        key = b"11"
    else:
        assert main(["pack", photos, path]) == 0
        key = lmdb_file.key_of(11)
    from fastloader.datasets import LMDBDataset
    options = {"legacy": True} if KIND.startswith("legacy") else {}
    dataset = LMDBDataset(path, SAME, **options)
    get, lost = lmdb_file.Environment.get, []

    def found_and_lost(self, wanted):
        found = get(self, wanted)
        if wanted == key and not lost:  # cut off right behind the answer of liblmdb
            lost.append(found)
            os.truncate(path, 4096)
        return found

    lmdb_file.Environment.get = found_and_lost
    workers = 0 if KIND == "legacy sample" else workers
    use = {
        "batches": lambda: list(FastLoader(dataset, batch_size=4, num_workers=workers)),
        "sample": lambda: dataset[11],
        "name": lambda: dataset.name(11),
        "record": lambda: dataset.record(11),
        "legacy sample": lambda: dataset[11],
        "legacy batches": lambda: list(FastLoader(dataset, batch_size=4, native=False)),
    }
    try:
        use[KIND]()
    except ValueError as error:
        print(type(error).__name__, error, *getattr(error, "__notes__", []))
    assert lost
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind", ["batches", "sample", "name", "record", "legacy sample", "legacy batches"]
)
def test_a_record_that_is_lost_behind_the_answer_of_lmdb(tmp_path, kind):
    """Its header, name and seek index, and the pickle of a legacy file, are read by Python."""
    pytest.importorskip("lmdb")
    plain_folder(tmp_path / "photos", count=30)
    said = run_script(START + LOST, tmp_path, kind, 2).stdout
    assert "a.lmdb" in said and ("written over or cut off" in said or "cannot be read" in said)
    if kind in ("name", "record", "legacy sample"):
        key = "b'11'" if kind == "legacy sample" else "b'r\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x0b'"
        assert key in said


ARRAYS = {
    "an array": "dataset = mapped",
    "a small batch": "dataset = mapped[:, :3]",
    "with gaps": "dataset = mapped.transpose(0, 2, 1)",
    "every second": "dataset = mapped[:, ::2]",
    "tensors": "dataset = TensorDataset(torch.from_numpy(mapped), torch.arange(len(mapped)))",
    "stacked": "dataset = StackDataset(a=mapped, b=torch.arange(len(mapped)))",
    "a Subset": "dataset = Subset(mapped, list(range(len(mapped)))[::-1])",
    "tensors of a file": """dataset = TensorDataset(torch.from_file(
        path, False, 500 * 96 + 32, dtype=torch.float32)[32:].view(500, 12, 8))""",
    "private": "dataset = np.load(path, mmap_mode='c')",
}

GATHER = """
    import warnings
    from torch.utils.data import DataLoader, StackDataset, Subset, TensorDataset
    warnings.simplefilter("ignore")
    path = os.path.join(base, "rows.npy")
    rows = np.random.default_rng(0).random((500, 12, 8), dtype=np.float32)
    np.save(path, rows)
    mapped = np.load(path, mmap_mode="r")
    DATASET
    loader = FastLoader(dataset, batch_size=20, num_workers=workers)
    assert loader.plan().startswith("arrays:"), loader.plan()

    def flat(batch):
        return list(batch.values() if isinstance(batch, dict) else batch) if not isinstance(
            batch, torch.Tensor) else [batch]

    first = [flat(batch) for batch in loader]
    for got, right in zip(first, DataLoader(dataset, 20), strict=True):
        for one, other in zip(got, flat(right), strict=True):
            assert torch.equal(one, other) and one.stride() == other.stride()
    with open(path, "r+b") as file:
        file.truncate(96000)  # the half
    good, bad = [], []
    batches = iter(loader)
    for number in range(len(loader)):
        try:
            batch = next(batches)
        except OSError as error:
            bad.append(number)
            assert path in str(error) and "sample " in str(error), error
        else:
            good.append(number)
            for one, other in zip(flat(batch), first[number], strict=True):
                assert torch.equal(one, other)
    assert len(good) >= 11 and len(bad) >= 12, (good, bad)
    assert next(batches, None) is None
"""


@pytest.mark.exhaustive
@pytest.mark.covering
@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("workers", [0, 2])
def test_arrays(tmp_path, kind, workers):
    run_script(START + GATHER.replace("DATASET", ARRAYS[kind]), tmp_path, "cut off", workers)


def test_a_seek_index(tmp_path):
    """The pictures are the same without."""
    pytest.importorskip("PIL")
    from indexed_pictures import index, large_folder

    large_folder(tmp_path / "photos", count=12)
    assert index(tmp_path / "photos") == 0
    run_script(
        START
        + """
    from fastloader.datasets import ImageFolder
    dataset = ImageFolder(photos, T.RandomResizedCrop(24, scale=(0.05, 0.1)))
    loader = FastLoader(dataset, batch_size=2, depth=1, generator=torch.Generator())
    wanted = []
    for change in (None, "written over", "cut off"):
        loader.generator.manual_seed(1)
        batches = iter(loader)
        got = [next(batches)]
        if change:
            destroy(photos + ".fastloader-index")
        got += batches
        wanted = wanted or got
        for one, other in zip(got, wanted, strict=True):
            assert torch.equal(one[0], other[0])
    assert loader.stats()["images"]["jpegs"]["indexed"] > 0
    """,
        tmp_path,
        "",
        2,
    )


def test_one_picture(tmp_path):
    """Outside of a loader, too."""
    plain_folder(tmp_path / "photos", count=3)
    said = run_script(
        START
        + """
    import mmap
    path = os.path.join(photos, "c0", "000.jpg")
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert decode_image(mapped).shape[2] == 3
    os.truncate(path, 0)
    for make in (lambda: decode_image(mapped), lambda: EncodedImage(mapped, SAME).decode()):
        try:
            make()
        except OSError as error:
            print(error)
    """,
        tmp_path,
        "",
        0,
    ).stdout
    assert (
        said.count("bytes in memory cannot be read: the file that it is mapped from was cut") == 2
    )


def test_ordinary_memory_counts_as_such():
    from fastloader._core.sources.arrays import recognize_arrays

    loader = FastLoader(TensorDataset(torch.zeros(1000, 300), torch.zeros(5).expand(1000, 5)))
    assert [leaf.file for leaf in recognize_arrays(loader).leaves] == ["", ""]
    shared = torch.zeros(1000, 30).share_memory_()
    loader = FastLoader(TensorDataset(shared))
    assert [leaf.file for leaf in recognize_arrays(loader).leaves] == [""]
