"""`HFImages`: the pictures and labels that ``datasets`` itself gives, from every kind of selection."""

import datetime
import io
import pickle
import random
import tarfile
import warnings
import zlib

import numpy as np
import png_files
import pytest
import torch
from image_source import image_source
from pictures import picture
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader

import fastloader.transforms as T
from fastloader import FastLoader
from fastloader._core.machine import extension
from fastloader.datasets import HFImages, TarImages
from support import same

datasets = pytest.importorskip("datasets")

COUNT = 40
NAMES = ["ape", "bee", "cat", "dog"]


def encoded(rng, number):
    """Every third picture is one that EXIF turns; formats take turns."""
    image = picture(rng, 40 + number % 7, 30 + number % 5)
    out = io.BytesIO()
    exif = image.getexif()
    if number % 3 == 0:
        exif[0x0112] = 1 + number // 3 % 8
    if number % 10 == 9:
        image.save(out, "PNG", **({"exif": exif} if number % 20 == 9 else {}))
    elif number % 10 == 8:
        image.convert("L").save(out, "JPEG", exif=exif)
    else:
        image.save(out, "JPEG", quality=90, progressive=number % 4 == 0, exif=exif)
    return out.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hf")


@pytest.fixture(scope="module")
def whole(folder):
    """A data set of two files, mapped from the disk."""
    rng = random.Random(19)
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)}
    )
    rows = {
        "image": [{"bytes": encoded(rng, i), "path": f"{i}.jpg"} for i in range(COUNT)],
        "label": [rng.randrange(len(NAMES)) for _ in range(COUNT)],
    }
    made = datasets.Dataset.from_dict(rows, features=features)
    made.save_to_disk(str(folder / "set"), num_shards=2)
    return datasets.load_from_disk(str(folder / "set"))


SELECTIONS = {
    "whole": lambda data: data,
    "shuffled": lambda data: data.shuffle(seed=3),
    "selected": lambda data: data.select(range(COUNT - 1, 2, -2)),
    "a slice": lambda data: data.select(range(11, 29)),
    "filtered": lambda data: data.filter(lambda row: row["label"] != 2),
    "twice": lambda data: data.shuffle(seed=1).select(range(20)).shuffle(seed=2),
    "concatenated": lambda data: datasets.concatenate_datasets([data, data.select([5, 3])]),
    "in memory": lambda data: datasets.Dataset.from_dict(data[:], features=data.features),
}


@pytest.mark.parametrize("selection", SELECTIONS)
def test_samples_and_batches_are_those_of_datasets(whole, selection):
    data = SELECTIONS[selection](whole)
    dataset = HFImages(data, T.Resize((24, 28)))
    assert len(dataset) == len(data)
    assert dataset.targets.tolist() == list(data["label"])
    assert dataset.classes == NAMES and dataset.class_to_idx["cat"] == 2
    theirs = [row["image"].convert("RGB") for row in data]
    bare = HFImages(data)
    for index, expected in enumerate(theirs):
        assert np.array_equal(np.asarray(bare[index][0]), np.asarray(expected)), index
    loader = FastLoader(dataset, 7, num_workers=2)
    if extension.load() is not None:
        assert loader.plan().startswith("native images: fastloader HFImages")
    images = torch.cat([images.clone() for images, _ in loader])
    for index, expected in enumerate(theirs):
        resized = np.asarray(expected.resize((28, 24), Image.Resampling.BILINEAR))
        assert np.array_equal(images[index].permute(1, 2, 0).numpy(), resized), index


def test_crops_are_drawn_of_the_picture_as_it_is_shown(whole):
    dataset = HFImages(whole, T.RandomResizedCrop(16))
    loader = FastLoader(dataset, 8, shuffle=True, num_workers=2)
    images = torch.cat([images.clone() for images, _ in loader])
    assert images.shape == (COUNT, 3, 16, 16)
    for index in range(0, COUNT, 3):
        found = loader.replay(index)
        left, top, width, height = found["box"]
        shown = whole[index]["image"].convert("RGB")
        assert left + width <= shown.width and top + height <= shown.height


def test_pictures_that_are_paths(whole, folder):
    paths = []
    for index in range(6):
        paths.append(folder / f"{index}.jpg")
        paths[-1].write_bytes(whole.data.table.column("image")[index].as_py()["bytes"])
    data = datasets.Dataset.from_dict(
        {"image": [str(path) for path in paths], "label": list(range(6))}
    ).cast_column("image", datasets.Image())
    chosen = data.select([4, 3, 0])
    mixed = datasets.concatenate_datasets([data, whole.select([7]).cast(data.features)])
    for given, rows, how in (
        (data, range(6), " (files), 6 samples"),
        (chosen, (4, 3, 0), " (files), 3 samples"),
        (mixed, (*range(6), 7), " (6 pictures are paths or missing: Pillow reads these)"),
    ):
        loader = FastLoader(HFImages(given, T.Resize((20, 20))), 7)
        if extension.load() is not None:
            assert f"native images: fastloader HFImages{how}" in loader.plan()
        images, labels = next(iter(loader))
        if given is not mixed:
            assert labels.tolist() == list(rows)
        for image, row in zip(images, rows, strict=True):
            picture = whole[row]["image"].convert("RGB")  # which EXIF turns
            expected = picture.resize((20, 20), Image.Resampling.BILINEAR)
            assert np.array_equal(image.permute(1, 2, 0).numpy(), np.asarray(expected))
        copied = pickle.loads(pickle.dumps(HFImages(given, T.Resize((20, 20)))))
        assert torch.equal(next(iter(FastLoader(copied, 7)))[0], images)


def test_files_are_read_natively(whole, folder, monkeypatch):
    """By no other than the decode threads."""
    if extension.load() is None:
        pytest.skip("needs the native module")
    path = folder / "one.jpg"
    path.write_bytes(whole.data.table.column("image")[0].as_py()["bytes"])
    rows = {"image": [str(path)] * 8, "label": [1] * 8}
    data = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
    loader = FastLoader(HFImages(data, T.Resize((20, 20))), 4)
    list(loader)
    jpegs = loader.stats()["images"]["jpegs"]
    assert jpegs["own"] + jpegs["libjpeg"] == 8
    missing = datasets.Dataset.from_dict({"image": [str(path), str(folder / "none.jpg")]})
    gone = HFImages(missing.cast_column("image", datasets.Image()), T.Resize(9), label=None)
    with pytest.raises(FileNotFoundError, match=r"none\.jpg"):
        list(FastLoader(gone, 2))


def test_a_sample_without_a_picture_is_an_error_that_names_it(whole):
    rows = [{"bytes": encoded(random.Random(1), 1), "path": None}, None]
    data = datasets.Dataset.from_dict(
        {"image": rows, "label": [0, 1]},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}),
    )
    dataset = HFImages(data, T.Resize((20, 20)))
    with pytest.raises(ValueError, match="row 1 has no picture: column image is null there"):
        dataset[1]
    with pytest.raises(Exception, match="sample 1"):
        list(FastLoader(dataset, 2, num_workers=2))


def test_labels(whole):
    assert HFImages(whole, label=None).targets.tolist() == [-1] * COUNT
    renamed = whole.rename_columns({"image": "pixels", "label": "fine"})
    dataset = HFImages(renamed, image="pixels", label="fine")
    assert dataset.targets.tolist() == list(whole["label"])
    with pytest.raises(KeyError, match=r"^the data set has no column 'image'; it has pixels, fine"):
        HFImages(renamed)
    with pytest.raises(KeyError, match="no column 'label'"):
        HFImages(renamed, image="pixels")
    texts = whole.add_column("text", ["x"] * COUNT)
    with pytest.raises(TypeError, match="labels are whole numbers"):
        HFImages(texts, label="text")
    with pytest.raises(TypeError, match="of the feature Value, not Image"):
        HFImages(texts, image="text")


def test_what_is_no_data_set(whole):
    with pytest.raises(TypeError, match=r"name a split, such as dataset\['test'\]"):
        HFImages(datasets.DatasetDict({"test": whole}))
    with pytest.raises(TypeError, match="load it without streaming=True"):
        HFImages(whole.to_iterable_dataset())
    with pytest.raises(TypeError, match=r"takes a datasets\.Dataset, not a builtins\.list"):
        HFImages([1, 2])


def test_pickle_finds_the_pictures_anew(whole):
    dataset = HFImages(whole.shuffle(seed=9), T.Resize((16, 16)))
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.targets.tolist() == dataset.targets.tolist()
    for (some, _), (others, _) in zip(FastLoader(copy, 8), FastLoader(dataset, 8), strict=True):
        assert torch.equal(some, others)


def test_concatenations(whole):
    transform = T.Resize((16, 16))
    parts = [HFImages(whole.select(range(n, n + 5)), transform) for n in (0, 20)]
    loader = FastLoader(ConcatDataset(parts), 5, num_workers=2)
    labels = torch.cat([labels for _, labels in loader]).tolist()
    assert labels == [whole[i]["label"] for i in (*range(5), *range(20, 25))]


def test_beside_tar_shards_pictures_are_turned_each_as_its_dataset_does(whole, folder):
    """One JPEG that EXIF turns, which TarImages leaves as it is."""
    with tarfile.open(folder / "turned.tar", "w") as tar:
        file = HFImages(whole).image_bytes(3)
        info = tarfile.TarInfo("a.jpg")
        info.size = len(file)
        tar.addfile(info, io.BytesIO(file))
    chain = T.Resize((20, 20))
    both = ConcatDataset([TarImages(folder / "turned.tar", chain), HFImages(whole, chain)])
    loader = FastLoader(both, 2)
    if extension.load() is not None:
        assert "others" in loader.plan() and "turn pictures as EXIF says" in loader.plan()
    images = torch.cat([images for images, _ in loader])
    for index in (0, 1, 4):
        assert torch.equal(images[index], both[index][0])
    assert not torch.equal(images[0], images[4])


def test_a_null_that_has_bytes_below_it(folder):
    pyarrow = pytest.importorskip("pyarrow")
    rng = random.Random(2)
    files = pyarrow.array([encoded(rng, i) for i in range(1, 4)])
    names = pyarrow.array([None] * 3, pyarrow.string())
    column = pyarrow.StructArray.from_arrays(
        [files, names], ["bytes", "path"], mask=pyarrow.array([False, True, False])
    )
    table = pyarrow.table({"image": column, "label": pyarrow.array([0, 1, 2])})
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    found = datasets.Dataset(table.cast(features.arrow_schema))
    dataset = HFImages(found, T.Resize((20, 20)))
    with pytest.raises(ValueError, match="row 1 has no picture"):
        dataset[1]
    loader = FastLoader(dataset, 3, on_error="skip" if extension.load() else "raise")
    if extension.load() is not None:
        assert next(iter(loader))[1].tolist() == [0, 2]


def test_labels_and_modes_that_are_none(whole):
    rows = {"image": [None, None], "label": [None, 1]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    nulls = datasets.Dataset.from_dict(rows, features=features)
    with pytest.raises(ValueError, match="'label' is null in 1 rows, the first of which is row 0"):
        HFImages(nulls)
    grey = whole.cast_column("image", datasets.Image(mode="L"))
    with pytest.raises(TypeError, match="of the mode L, and HFImages gives RGB"):
        HFImages(grey)
    text = whole.cast_column("label", datasets.Value("string"))
    with pytest.raises(TypeError, match=r"dataset\.class_encode_column\('label'\)"):
        HFImages(text)


def given_a_transform(whole, transform, **columns):
    made = whole
    for name, values in columns.items():
        made = made.add_column(name, values)
    return made.with_transform(transform)


@pytest.mark.parametrize("label", [True, False])
def test_a_data_set_with_a_transform_of_ours(whole, label, way):
    """Batches are dicts of its columns, in their order, as a DataLoader gives them."""
    texts = [f"text {number}" for number in range(COUNT)]
    chain = T.Compose([T.Resize(20), T.CenterCrop(16)])
    dataset = given_a_transform(whole, chain, text=texts, number=list(range(COUNT)))
    if not label:
        dataset = dataset.remove_columns("label").with_transform(chain)
    for each in (dataset, dataset.shuffle(seed=3).select(range(11))):
        loader = FastLoader(each, 4, num_workers=2, **way.options)
        if way.name != "pure":
            assert loader.plan().startswith("native images: fastloader HFImages"), loader.plan()
        expected = list(DataLoader(each, 4))
        assert list(expected[0]) == ["image", *(["label"] if label else []), "text", "number"]
        found = list(loader)
        assert [list(batch) for batch in found] == [list(batch) for batch in expected]
        same(found, expected)


def test_epochs_of_such_a_data_set_keep_the_decoder(whole):
    dataset = given_a_transform(whole, T.Compose([T.RandomResizedCrop(16)]))
    loader = FastLoader(dataset, 8, num_workers=2)
    list(loader)
    decoder = image_source(loader).decoder
    list(loader)
    assert image_source(loader).decoder is decoder


def test_data_sets_that_are_not_ours_to_read(whole):
    def plan_of(dataset):
        return FastLoader(dataset, 4).plan()

    assert "native images" not in plan_of(whole)
    assert "native images" not in plan_of(whole.with_transform(lambda rows: rows))
    assert "native images" not in plan_of(whole.with_format("torch"))
    twice = given_a_transform(whole, T.Resize(8), other=[None] * COUNT)
    twice = twice.cast_column("other", datasets.Image()).with_transform(T.Resize(8))
    assert "2 columns of pictures" in plan_of(twice)
    text = datasets.Dataset.from_dict({"text": ["a", "b"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert next(iter(FastLoader(text, 2))) == {"text": ["a", "b"]}


def of_many_features(rng, folder):
    """A data set of three files with a column of each kind, of random values."""
    value, count = datasets.Value, 24
    moments = [datetime.datetime(2020, 1, 1, second=rng.randrange(60)) for _ in range(count)]
    columns = {
        "class": (datasets.ClassLabel(names=NAMES), lambda at: rng.randrange(4)),
        "text": (value("string"), lambda at: rng.choice(["", "an ape", "zwei Bären"])),
        "float": (value("float32"), lambda at: rng.random()),
        "half": (value("float16"), lambda at: rng.randrange(9) / 4),
        "truth": (value("bool"), lambda at: rng.random() < 0.5),
        "small": (value("uint8"), lambda at: rng.randrange(256)),
        "bytes": (value("binary"), lambda at: rng.randbytes(rng.randrange(9))),
        "time": (value("timestamp[us]"), lambda at: moments[at]),
        "null": (value("int64"), lambda at: rng.choice([None, 7])),
        "list": (datasets.List(value("int64")), lambda at: [at] * rng.randrange(4)),
        "fixed": (datasets.List(value("float32"), length=2), lambda at: [rng.random()] * 2),
        "large": (datasets.LargeList(value("int64")), lambda at: [rng.randrange(9)] * 3),
        "matrix": (datasets.Array2D((2, 3), "float32"), lambda at: [[rng.random()] * 3] * 2),
        "dict": (
            {"u": value("int32"), "v": datasets.List(value("string"))},
            lambda at: {"u": at, "v": ["s", str(at)]},
        ),
        "dicts": (datasets.List({"p": value("int64")}), lambda at: [{"p": at}] * rng.randrange(3)),
    }
    features = {name: feature for name, (feature, _make) in columns.items()}
    rows = {name: [make(at) for at in range(count)] for name, (_feature, make) in columns.items()}
    features |= {"image": datasets.Image(), "label": value("int64")}
    rows["image"] = [{"bytes": encoded(rng, at), "path": None} for at in range(count)]
    rows["label"] = [rng.randrange(1 << 40) for _ in range(count)]
    made = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    made.save_to_disk(str(folder), num_shards=3)
    return datasets.load_from_disk(str(folder)), list(columns)


OF_FEATURES = {
    "whole": lambda data: data,
    "shuffled": lambda data: data.shuffle(seed=1),
    "some, twice": lambda data: data.select([5, 3, 3, 23, 0]),
    "filtered": lambda data: data.filter(lambda row: row["class"] != 1),
    "sorted": lambda data: data.sort("label"),
    "a shard": lambda data: data.shard(3, 1, contiguous=False),
    "a split": lambda data: data.train_test_split(0.3, seed=1)["test"],
    "concatenated": lambda data: datasets.concatenate_datasets(
        [data.skip(9), data.shuffle(seed=4)]
    ),
    "side by side": lambda data: datasets.concatenate_datasets(
        [data.remove_columns("text"), data.select_columns("text")], axis=1
    ),
    "numpy": lambda data: data.with_format("numpy"),
    "torch": lambda data: data.shuffle(seed=2).with_format("torch", columns=["image"]),
    "mapped": lambda data: data.map(lambda row: {"label": row["label"] + 1}),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("selection", OF_FEATURES)
def test_columns_of_every_feature(tmp_path, selection):
    """Whatever format a data set has, the values are those of a data set without one."""
    data, names = of_many_features(random.Random(), tmp_path / "set")
    data = OF_FEATURES[selection](data)
    dataset = HFImages(data, T.Resize((8, 8)), columns=names)
    theirs = data.with_format(None)
    assert len(dataset) == len(theirs)
    assert dataset.targets.tolist() == list(theirs["label"])
    for index, row in enumerate(theirs):
        picture, label, *others = dataset[index]
        assert label == row["label"] and others == [row[name] for name in names]
        resized = row["image"].convert("RGB").resize((8, 8), Image.Resampling.BILINEAR)
        assert np.array_equal(picture.permute(1, 2, 0).numpy(), np.asarray(resized))
    collated = [name for name in names if name not in ("time", "null", "list", "dicts")]
    dataset = HFImages(data, T.Resize((8, 8)), columns=collated)
    loader = FastLoader(dataset, 4, num_workers=2)
    if extension.load() is not None:
        assert loader.plan().startswith("native images: fastloader HFImages")
    same(list(loader), list(DataLoader(dataset, 4)))


@pytest.mark.parametrize("chunk", ["tEXt", "zTXt", "iTXt"])
@pytest.mark.parametrize("keyword", ["exif", "Raw profile type exif", "XML:com.adobe.xmp", "other"])
def test_an_orientation_in_the_text_of_a_png(chunk, keyword):
    """Pillow keeps a text by its keyword, which is where it looks for EXIF and XMP."""
    exif = Image.Exif()
    exif[0x0112] = 6
    value = exif.tobytes()[6:]
    if keyword.startswith("Raw"):
        value = f"\nexif\n{len(value):8}\n{value.hex()}\n".encode()
    elif keyword.startswith("XML"):
        value = b'<x tiff:Orientation="6"/>'
    body = keyword.encode() + b"\0"
    body += {
        "tEXt": value,
        "zTXt": b"\0" + zlib.compress(value),
        "iTXt": b"\0\0\0\0" + value,
    }[chunk]
    out = io.BytesIO()
    picture(random.Random(3), 40, 30).save(out, "PNG")
    plain = out.getvalue()
    png = plain[:33] + png_files.chunk(chunk.encode(), body) + plain[33:]
    data = datasets.Dataset.from_dict(
        {"image": [{"bytes": png, "path": None}], "label": [0]},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}),
    )
    loader = FastLoader(HFImages(data, T.Resize((24, 24))), 1)
    if keyword == "exif" and chunk != "tEXt":  # Pillow keeps text there, where it then wants bytes
        for make in (lambda: data[0], lambda: list(loader)):
            with pytest.raises(TypeError, match="bytes pattern"):
                make()
        return
    wanted = np.asarray(data[0]["image"].convert("RGB").resize((24, 24), Image.Resampling.BILINEAR))
    ((images, _),) = loader
    assert np.array_equal(images[0].permute(1, 2, 0).numpy(), wanted)


def test_it_is_shown_as_torchvisions(whole):
    shown = repr(HFImages(whole, T.CenterCrop(8))).splitlines()
    assert shown[0] == "Dataset HFImages"
    assert shown[1] == f"    Number of datapoints: {COUNT}" and "Transform: CenterCrop" in shown[-1]
