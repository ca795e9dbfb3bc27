"""`ParquetImages`: the pictures and labels that ``datasets`` reads from the same files."""

import io
import multiprocessing
import os
import pickle
import random
import re

import numpy as np
import pytest
import torch
from pictures import picture
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Subset

import fastloader.transforms as T
from fastloader import FastLoader
from fastloader.datasets import ImageFolder, ParquetImages
from support import same

datasets = pytest.importorskip("datasets")
parquet = pytest.importorskip("pyarrow.parquet")
pyarrow = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.covering

COUNT = 46
NAMES = ["ape", "bee", "cat"]
DRAWS_NOTHING = T.Compose([T.Resize(20), T.CenterCrop(16)])
CROPS = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


def encoded(rng, number):
    """Every third picture is one that EXIF turns; formats take turns."""
    image = picture(rng, 40 + number % 7, 30 + number % 5)
    out = io.BytesIO()
    exif = image.getexif()
    if number % 3 == 0:
        exif[0x0112] = 1 + number // 3 % 8
    form, options = ("PNG", {}) if number % 10 == 9 else ("JPEG", {"exif": exif, "quality": 90})
    image.save(out, form, **options)
    return out.getvalue()


@pytest.fixture(scope="module")
def data():
    rng = random.Random(41)
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=NAMES),
            "text": datasets.Value("string"),
            "boxes": datasets.List(datasets.List(datasets.Value("float32"))),
        }
    )
    rows = {
        "image": [{"bytes": encoded(rng, i), "path": f"{i}.jpg"} for i in range(COUNT)],
        "label": [rng.randrange(len(NAMES)) for _ in range(COUNT)],
        "text": [rng.choice(["", "an ape", "zwei Bären\n"]) for _ in range(COUNT)],
        "boxes": [[[rng.randrange(9) / 2 for _ in range(4)]] * 2 for _ in range(COUNT)],
    }
    return datasets.Dataset.from_dict(rows, features=features)


def by_datasets(data, folder):
    """Two files of ``datasets``' own making, in several row groups."""
    for number, rows in enumerate((range(19), range(19, COUNT))):
        data.select(rows).to_parquet(str(folder / f"p-{number}.parquet"), batch_size=8)


def rewritten(options):
    """A maker of files that pyarrow writes with these options, as older tools do it."""

    def make(data, folder):
        by_datasets(data, folder)
        for path in folder.glob("*.parquet"):
            table = parquet.read_table(path)
            parquet.write_table(table, path, row_group_size=7, **options)

    return make


def one_of_each(data, folder):
    """The first is plain, the second compressed."""
    by_datasets(data, folder)
    path = folder / "p-1.parquet"
    parquet.write_table(parquet.read_table(path), path, compression="zstd")


FILES = {
    "datasets": by_datasets,
    "dictionaries": rewritten({"compression": "none"}),
    "snappy": rewritten({"compression": "snappy"}),
    "one of each": one_of_each,
}
MAPPED = ("datasets", "dictionaries")


@pytest.fixture(params=FILES)
def files(request, data, tmp_path):
    """(pattern, whether the pictures lie in the files as they are)"""
    FILES[request.param](data, tmp_path)
    return tmp_path / "p-*.parquet", request.param in MAPPED


def loaded(pattern, cache):
    """What ``datasets`` itself reads."""
    names = sorted(map(str, pattern.parent.glob(pattern.name)))
    return datasets.Dataset.from_parquet(names, cache_dir=str(cache))


def test_samples_are_those_of_datasets(files, tmp_path):
    pattern, mapped = files
    theirs = loaded(pattern, tmp_path / "cache")
    dataset = ParquetImages(pattern)
    assert dataset.mapped == mapped and (dataset.why is None) == mapped
    assert len(dataset) == len(theirs) == COUNT
    assert dataset.targets.tolist() == list(theirs["label"])
    assert dataset.classes == NAMES and dataset.class_to_idx["cat"] == 2
    for index, row in enumerate(theirs):
        found, label = dataset[index]
        assert label == row["label"]
        assert found.mode == "RGB"
        assert np.array_equal(np.asarray(found), np.asarray(row["image"].convert("RGB"))), index
    assert dataset.name(20) == f"row 1 of {pattern.parent}/p-1.parquet"
    assert dataset[-1][1] == theirs[-1]["label"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}])
def test_batches(files, tmp_path, options, way):
    """The same pixels and draws as of the same files in a folder, whose pictures are upright."""
    pattern, mapped = files
    folder = tmp_path / "files"
    dataset = ParquetImages(pattern, CROPS)
    plain = ParquetImages(pattern)
    turns = []
    for index in range(COUNT):
        (folder / "x").mkdir(parents=True, exist_ok=True)
        file = plain.image_bytes(index)
        with Image.open(io.BytesIO(file)) as own:
            turns.append(own.getexif().get(0x0112, 1) != 1)
        if turns[-1]:
            out = io.BytesIO()
            plain[index][0].save(out, "PNG")
            file = out.getvalue()
        (folder / "x" / f"{index:03}.jpg").write_bytes(file)
    assert 5 < sum(turns) < COUNT - 5
    upright = ImageFolder(folder, CROPS)
    upright.targets = dataset.targets
    options = {"batch_size": 5, "shuffle": True, **options, **way.options}
    picked = [30, 5, 5, 40, 5, 0, 30]
    for parts in ((dataset, upright), [Subset(each, picked) for each in (dataset, upright)]):
        epochs = []
        for each in parts:
            loader = FastLoader(each, generator=torch.Generator().manual_seed(6), **options)
            if way.name != "pure" and mapped:
                assert loader.plan().startswith("native images: "), loader.plan()
            epochs.append([list(loader) for _ in range(2)])
        same(*epochs)


def test_an_epoch_that_is_resumed(files):
    def loader():
        generator = torch.Generator().manual_seed(2)
        dataset = ParquetImages(files[0], CROPS)
        return FastLoader(dataset, 5, shuffle=True, num_workers=2, generator=generator)

    first = loader()
    batches = iter(first)
    for _ in range(3):
        next(batches)
    state = first.state_dict()
    rest = [[leaf.clone() for leaf in batch] for batch in batches]
    second = loader()
    second.load_state_dict(state)
    same([[leaf.clone() for leaf in batch] for batch in second], rest)


@pytest.mark.exhaustive
@pytest.mark.parametrize("as_dict", [False, True])
def test_columns_are_those_of_datasets(files, tmp_path, as_dict, way):
    pattern, _mapped = files
    theirs = loaded(pattern, tmp_path / "cache")
    names = ["text", "boxes", "label"]
    dataset = ParquetImages(pattern, DRAWS_NOTHING, columns=names, as_dict=as_dict)
    for each in (dataset, ConcatDataset([Subset(dataset, [40, 3, 19]), dataset])):
        loader = FastLoader(each, batch_size=4, num_workers=2, **way.options)
        same(list(loader), list(DataLoader(each, batch_size=4)))
    for index in (0, 18, 19, COUNT - 1):
        sample = dataset[index]
        found = [sample[name] for name in names] if as_dict else list(sample[2:])
        assert found == [theirs[index][name] for name in names]
        assert (sample["labels"] if as_dict else sample[1]) == theirs[index]["label"]


def test_bytes_without_a_struct_and_no_labels(data, tmp_path):
    files = [row["bytes"] for row in data.data.table.column("image").to_pylist()]
    table = pyarrow.table({"jpg": files, "key": [f"k{number}" for number in range(COUNT)]})
    for compression in ("none", "snappy"):
        path = tmp_path / f"{compression}.parquet"
        parquet.write_table(table, path, compression=compression)
        dataset = ParquetImages(path, image="jpg", label=None, columns=["key"])
        assert dataset.mapped == (compression == "none")
        assert dataset.classes is None and dataset.targets.tolist() == [-1] * COUNT
        assert [dataset.image_bytes(index) for index in range(COUNT)] == files
        assert dataset[7][1:] == (-1, "k7")


@pytest.mark.exhaustive
@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_nulls_paths_and_what_is_no_picture(data, tmp_path, compression, way):
    """Of each such row: where it is, in an error, and ``on_error``."""
    rng = random.Random(5)
    (tmp_path / "own.jpg").write_bytes(own := encoded(rng, 1))
    rows = [
        {"bytes": encoded(rng, 1), "path": None},
        None,
        {"bytes": None, "path": str(tmp_path / "own.jpg")},
        {"bytes": b"no picture", "path": "x"},
        {"bytes": b"", "path": "x"},
        {"bytes": None, "path": str(tmp_path / "missing.jpg")},
        {"bytes": encoded(rng, 2), "path": None},
        {"bytes": None, "path": str(tmp_path / "pipe.jpg")},
    ]
    # Good ones: a replacement is one of ten others that are drawn.
    rows += [{"bytes": encoded(rng, 1), "path": None} for _ in range(16)]
    os.mkfifo(tmp_path / "pipe.jpg")
    type_ = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
    table = pyarrow.table({"image": pyarrow.array(rows, type_), "label": range(len(rows))})
    parquet.write_table(table, tmp_path / "x.parquet", compression=compression, row_group_size=3)
    dataset = ParquetImages(tmp_path / "x.parquet", DRAWS_NOTHING)
    assert dataset.image_bytes(2) == own
    errors = {
        1: r"row 1 of .*x\.parquet has no picture: column image is null there",
        3: r"row 3 of .*x\.parquet",
        4: r"row 4 of .*x\.parquet",
        5: r"missing\.jpg",
        7: r"not a regular file: .*pipe\.jpg",
    }
    for index, message in errors.items():
        assert re.search(message, error_of(DataLoader(Subset(dataset, [index]))))
        loader = FastLoader(Subset(dataset, [0, index]), 2, num_workers=1, **way.options)
        assert re.search(message, error_of(loader))
    if way.name == "pure" and compression == "none":
        return  # there is no on_error on the Python path of pictures
    options = dict(batch_size=len(rows), num_workers=1, **way.options)
    good = [0, 2, 6, *range(8, len(rows))]
    ((pixels, labels),) = list(FastLoader(dataset, on_error="skip", **options))
    assert labels.tolist() == good and len(pixels) == len(good)
    ((pixels, labels),) = list(FastLoader(dataset, on_error="replace", **options))
    assert labels[good].tolist() == good and set(labels.tolist()) == set(good)
    assert len(pixels) == len(rows)


def error_of(loader):
    """What a loop over it ends with, and the notes."""
    with pytest.raises(Exception) as caught:
        list(loader)
    return " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_files_and_columns_that_are_none(data, tmp_path):
    by_datasets(data, tmp_path)
    pattern = tmp_path / "p-*.parquet"
    with pytest.raises(FileNotFoundError, match=r"q-\*\.parquet: no file matches"):
        ParquetImages(tmp_path / "q-*.parquet")
    with pytest.raises(ValueError, match="no file is named"):
        ParquetImages([])
    with pytest.raises(IsADirectoryError, match=r"name the files in it, such as .*/\*\.parquet"):
        ParquetImages(tmp_path)
    with pytest.raises(KeyError, match="no column 'photo'; it has image, label, text, boxes"):
        ParquetImages(pattern, image="photo")
    with pytest.raises(KeyError, match="no column 'klass'"):
        ParquetImages(pattern, label="klass")
    with pytest.raises(KeyError, match="no column 'caption'"):
        ParquetImages(pattern, columns=["caption"])
    with pytest.raises(TypeError, match="'text' is of the type string: encoded pictures are bytes"):
        ParquetImages(pattern, image="text")
    with pytest.raises(TypeError, match="'boxes' is of the type list"):
        ParquetImages(pattern, image="boxes")
    with pytest.raises(TypeError, match="'label' is of the type int64"):
        ParquetImages(pattern, image="label")
    with pytest.raises(TypeError, match="'text' is string, and labels are whole numbers"):
        ParquetImages(pattern, label="text")
    with pytest.raises(TypeError, match=r"columns is a list of names: \['text'\]"):
        ParquetImages(pattern, columns="text")
    grey = data.cast_column("image", datasets.Image(mode="L"))
    grey.to_parquet(str(tmp_path / "grey.parquet"))
    with pytest.raises(TypeError, match=r"grey\.parquet: column 'image' is of the mode L"):
        ParquetImages(tmp_path / "grey.parquet")
    other = data.cast_column("label", datasets.ClassLabel(names=NAMES[::-1]))
    other.to_parquet(str(tmp_path / "p-2.parquet"))
    with pytest.raises(ValueError, match="differ in their names of classes"):
        ParquetImages(pattern)
    data.select([]).to_parquet(str(tmp_path / "empty.parquet"))
    with pytest.raises(ValueError, match=r"empty\.parquet: no row"):
        ParquetImages(tmp_path / "empty.parquet")
    both = ParquetImages([tmp_path / "empty.parquet", tmp_path / "p-1.parquet"])
    assert both.targets.tolist() == data["label"][19:]
    nulls = pyarrow.table({"image": [b"x", b"y"], "label": pyarrow.array([1, None])})
    parquet.write_table(nulls, tmp_path / "nulls.parquet")
    with pytest.raises(
        ValueError,
        match=r"nulls\.parquet: column 'label' is null in 1 rows, the first of which is row 1",
    ):
        ParquetImages(tmp_path / "nulls.parquet")


def test_errors_of_columns_name_the_file(tmp_path):
    """And the row in it, also behind another file."""

    def write(name, **columns):
        columns = {"image": [b"x"] * len(columns["label"]), **columns}
        parquet.write_table(pyarrow.table(columns), tmp_path / f"{name}.parquet")

    def opened(**options):
        return ParquetImages(tmp_path / "?.parquet", **options)

    write("a", label=[5, 6], text=["x", "y"])
    write("b", label=pyarrow.array([1, 2, None], pyarrow.int32()), text=[1, 2, 3])
    with pytest.raises(ValueError, match=r"b\.parquet: column 'label' is null in 1 rows.* row 2$"):
        opened()
    with pytest.raises(
        ValueError, match=r"b\.parquet has .*text: int64.*a\.parquet has .*text: str"
    ):
        opened(label=None, columns=["text"])
    assert len(opened(label=None)) == 5
    write("b", label=pyarrow.array([1, 2], pyarrow.int32()), text=["z", None])
    assert opened().targets.tolist() == [5, 6, 1, 2]
    assert opened(columns=["text"]).form.reader([3, 0, 2]) == [(None,), ("x",), ("z",)]
    write("b", label=["1"], text=["z"])
    with pytest.raises(
        TypeError, match=r"b\.parquet: column 'label' is string, and labels are whole"
    ):
        opened()
    write("b", label=[1])
    with pytest.raises(KeyError, match=r"b\.parquet has no column 'text'"):
        opened(columns=["text"])


def test_columns_are_not_copied_for_a_batch(data, tmp_path):
    by_datasets(data, tmp_path)
    dataset = ParquetImages(tmp_path / "p-0.parquet", columns=["text", "boxes"])
    pool = pyarrow.default_memory_pool()
    texts = pyarrow.array(["x" * 1000 + str(number) for number in range(10_000)])
    boxes = pyarrow.array([[[float(number)] * 100] for number in range(10_000)])
    many = {
        name: pyarrow.chunked_array([each] * 20)
        for name, each in (("text", texts), ("boxes", boxes))
    }
    dataset._further = pyarrow.table(many)  # 300 MB, of which memory has a twentieth
    before = pool.max_memory()
    found = dataset.form.reader([10_007, 3])
    assert found == [("x" * 1000 + "7", [[7.0] * 100]), ("x" * 1000 + "3", [[3.0] * 100])]
    assert pool.max_memory() < before + (1 << 20)


def test_a_sample_that_comes_twice_is_two(data, tmp_path):
    by_datasets(data, tmp_path)
    pattern = tmp_path / "p-*.parquet"
    wanted = [20, 3, 20, -1, 20]
    dataset = ParquetImages(pattern, columns=["boxes"], as_dict=True)
    samples = dataset.__getitems__(wanted)
    for index, sample in zip(wanted, samples, strict=True):
        assert sample.pop("labels") == data[index]["label"]  # as a collate_fn may do
        assert sample["boxes"] == data[index]["boxes"]
        sample["boxes"].clear()
    # A crop is drawn for each of them.
    crops = ParquetImages(pattern, T.Compose([T.RandomResizedCrop(24), T.ToTensor()]))
    ((pixels, _labels),) = DataLoader(Subset(crops, [3] * 8), 8)
    assert len({each.numpy().tobytes() for each in pixels}) > 1


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_a_file_that_is_replaced_goes_on_being_read(data, tmp_path, compression):
    """By whoever has mapped it: also by a worker process, which asks pyarrow for the first time then."""
    rewritten({"compression": compression})(data, tmp_path)
    path = tmp_path / "p-0.parquet"
    dataset = ParquetImages(path)
    files = [dataset.image_bytes(index) for index in range(len(dataset))]
    copy = pickle.loads(pickle.dumps(dataset))
    os.replace(tmp_path / "p-1.parquet", path)
    assert [copy.image_bytes(index) for index in range(len(dataset))] == files
    with pytest.raises(ValueError, match=r"p-0\.parquet has changed since its dataset was made"):
        pickle.loads(pickle.dumps(dataset))


def test_a_file_takes_one_descriptor(data, tmp_path):
    """Python keeps one for what is mapped."""
    by_datasets(data, tmp_path)

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    dataset = ParquetImages([tmp_path / "p-0.parquet"] * 7, columns=["text"])
    assert len(dataset) == 7 * 19 and descriptors() <= before + 7


def test_a_file_that_is_written_over(data, tmp_path):
    by_datasets(data, tmp_path)
    path = tmp_path / "p-0.parquet"
    dataset = ParquetImages(path, DRAWS_NOTHING)
    whole = path.read_bytes()
    with open(path, "r+b") as file:
        file.truncate(5000)
    with pytest.raises(ValueError, match=r"p-0\.parquet was written over or cut off"):
        dataset[3]
    with pytest.raises(ValueError, match=r"p-0\.parquet was written over or cut off"):
        list(FastLoader(dataset, 4))
    with pytest.raises(ValueError, match=r"p-0\.parquet has changed since"):
        pickle.loads(pickle.dumps(dataset))
    path.write_bytes(whole)
    again = ParquetImages(path, DRAWS_NOTHING)
    (tmp_path / "new").write_bytes(b"another file")
    (tmp_path / "new").rename(path)
    assert sum(len(labels) for _images, labels in FastLoader(again, 4)) == 19


def test_where_indices_are_kept(data, tmp_path):
    by_datasets(data, tmp_path)
    (tmp_path / "kept").mkdir()
    for _ in range(2):
        dataset = ParquetImages(tmp_path / "p-*.parquet", index_dir=tmp_path / "kept" / "here")
        assert dataset.image_bytes(30) == data.data.table.column("image")[30].as_py()["bytes"]
    assert len(list((tmp_path / "kept" / "here").iterdir())) == 2
    assert not list(tmp_path.glob("*.fastloader-parquet"))


def in_a_process(dataset, results):
    results.put(
        torch.cat([images.clone() for images, _ in FastLoader(dataset, 8)]).numpy().tobytes()
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_other_processes(files, start):
    pattern, _mapped = files
    dataset = ParquetImages(pattern, DRAWS_NOTHING, columns=[])
    expected = torch.cat([images.clone() for images, _ in FastLoader(dataset, 8)])
    context = multiprocessing.get_context(start)
    results = context.SimpleQueue()
    process = context.Process(target=in_a_process, args=(dataset, results))
    process.start()
    found = results.get()
    process.join()
    assert found == expected.numpy().tobytes()
    copy = pickle.loads(pickle.dumps(dataset))
    same(list(FastLoader(copy, 8)), list(FastLoader(dataset, 8)))


def test_row_groups_are_read_once_in_order_and_kept_within_bounds(data, tmp_path, monkeypatch):
    from fastloader.datasets import parquet as row_groups

    rewritten({"compression": "snappy"})(data, tmp_path)
    read = []
    dataset = ParquetImages(tmp_path / "p-*.parquet", DRAWS_NOTHING)
    own = type(dataset._files[0]).read_group
    monkeypatch.setattr(
        type(dataset._files[0]),
        "read_group",
        lambda file, n: read.append((file.path, n)) or own(file, n),
    )
    monkeypatch.setattr(row_groups, "_MOST_BYTES", 1)  # the last one is kept
    list(FastLoader(dataset, 5))
    groups = [(path, n) for path, count in zip(dataset.files, (3, 4)) for n in range(count)]
    assert read == groups
    read.clear()
    order = [0, COUNT - 1, 1, COUNT - 2]
    samples = dataset.__getitems__(order)
    assert read == [groups[0], groups[-1]]
    assert [label for _image, label in samples] == [data[index]["label"] for index in order]


def test_pack_keeps_the_bytes(files, tmp_path, monkeypatch, capsys):
    pytest.importorskip("lmdb")
    from fastloader.cli.__main__ import main
    from fastloader.datasets import LMDBDataset

    pattern, _mapped = files
    expression = f"fastloader.datasets:ParquetImages({str(pattern)!r})"
    assert main(["pack", expression, str(tmp_path / "x.lmdb"), "--no-index"]) == 0
    dataset, packed = ParquetImages(pattern), LMDBDataset(tmp_path / "x.lmdb")
    assert packed.targets.tolist() == dataset.targets.tolist()
    assert packed.classes == NAMES
    kept = 0
    for index in range(COUNT):
        assert np.array_equal(np.asarray(packed[index][0]), np.asarray(dataset[index][0])), index
        kept += packed.image_bytes(index) == dataset.image_bytes(index)
    assert COUNT - 20 < kept < COUNT  # those that EXIF turns are written anew
