"""`ListImages`: CSV, TSV and JSON lists."""

import json
import random

import numpy as np
import pytest
import torch
from pictures import save_jpeg
from PIL import Image

import fastloader.transforms as T
from fastloader import FastLoader
from fastloader.datasets import ListImages

COUNT = 9
LABELS = [number * 7 % 5 for number in range(COUNT)]


@pytest.fixture
def folder(tmp_path):
    rng = random.Random(20)
    (tmp_path / "pictures").mkdir()
    for number in range(COUNT):
        save_jpeg(rng, tmp_path / "pictures" / f"{number}, ä.jpg", 40, 30)
    return tmp_path


PATHS = [f"pictures/{number}, ä.jpg" for number in range(COUNT)]


def csv_text(head, rows, delimiter):
    lines = [delimiter.join(head)]
    lines += [delimiter.join(f'"{cell}"' for cell in row) for row in rows]
    return "\n".join(lines) + "\n"


def write(folder, name, labels):
    rows = list(zip(PATHS, labels, strict=True))
    texts = {
        "a.csv": lambda: csv_text(["path", "label"], rows, ","),
        "a.tsv": lambda: csv_text(["path", "label"], rows, "\t"),
        "a.json": lambda: json.dumps([{"path": p, "label": each} for p, each in rows]),
        "columns.json": lambda: json.dumps({"path": PATHS, "label": list(labels)}),
        "a.jsonl": lambda: "\n".join(json.dumps({"path": p, "label": each}) for p, each in rows),
    }
    (folder / name).write_text(texts[name](), encoding="utf-8")
    return folder / name


NAMES = ["a.csv", "a.tsv", "a.json", "columns.json", "a.jsonl"]


@pytest.mark.parametrize("name", NAMES)
def test_samples_and_batches(folder, name):
    dataset = ListImages(write(folder, name, LABELS), T.Resize((20, 20)))
    assert len(dataset) == COUNT and dataset.targets.tolist() == LABELS
    assert dataset.classes is None and dataset.class_to_idx is None
    assert list(dataset.samples) == [
        (str(folder / path), label) for path, label in zip(PATHS, LABELS, strict=True)
    ]
    loader = FastLoader(dataset, 4, num_workers=2)
    assert "fastloader ListImages" in loader.plan() or loader.plan().startswith("Python")
    images = torch.cat([images.clone() for images, _ in loader])
    for index, path in enumerate(PATHS):
        with Image.open(folder / path) as picture:
            expected = picture.convert("RGB").resize((20, 20), Image.Resampling.BILINEAR)
        assert np.array_equal(images[index].permute(1, 2, 0).numpy(), np.asarray(expected))


@pytest.mark.parametrize("name", NAMES)
def test_names_of_classes(folder, name):
    texts = [["cat", "ape", "bee"][number % 3] for number in range(COUNT)]
    dataset = ListImages(write(folder, name, texts))
    assert dataset.classes == ["ape", "bee", "cat"]
    assert [dataset.classes[target] for target in dataset.targets] == texts
    assert dataset.class_to_idx == {"ape": 0, "bee": 1, "cat": 2}


def test_classes_of_another_list(folder):
    train = ListImages(write(folder, "a.csv", ["cat", "ape", "bee"] * 3))
    val = write(folder, "a.tsv", ["bee"] * COUNT)
    assert ListImages(val).targets.tolist() == [0] * COUNT
    found = ListImages(val, classes=train.classes)
    assert (found.classes, found.targets.tolist()) == (["ape", "bee", "cat"], [1] * COUNT)
    assert ListImages(write(folder, "a.json", [7] * COUNT), classes=["5", "7"]).targets[0] == 1
    with pytest.raises(ValueError, match=r"a\.csv: cat: not among the classes"):
        ListImages(folder / "a.csv", classes=["ape", "bee"])


def test_whole_numbers_as_pandas_writes_them(folder):
    labels = [f"{number}.0" for number in range(8, 8 + COUNT)]
    for name in ("a.csv", "a.jsonl"):
        dataset = ListImages(write(folder, name, labels if name == "a.csv" else map(float, labels)))
        assert dataset.classes is None and dataset.targets.tolist() == list(range(8, 8 + COUNT))
    for text in ("0.5", "1_0", "１", "inf", ""):
        labels = [text or "x"] * COUNT
        assert ListImages(write(folder, "a.csv", labels)).classes == [text or "x"]


def test_columns_and_root(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("lists") / "x.csv"
    elsewhere.write_text("file,class,size\n" + "".join(f'"{path}",x,1\n' for path in PATHS))
    dataset = ListImages(elsewhere, path="file", label="class", root=folder)
    assert dataset.path(3) == str(folder / PATHS[3]) and dataset.classes == ["x"]
    assert (
        ListImages(elsewhere, path="file", label=None, root=folder).targets.tolist() == [-1] * COUNT
    )
    absolute = folder / "absolute.json"
    absolute.write_text(json.dumps([{"path": str(folder / PATHS[0]), "label": 3}]))
    assert ListImages(absolute, root="/nowhere").path(0) == str(folder / PATHS[0])


@pytest.mark.parametrize(
    ("name", "text", "error", "message"),
    [
        ("x.csv", "a,b\n1,2\n", KeyError, r"x\.csv: no column 'path'; there are 'a', 'b'$"),
        (
            "x.csv",
            "image_id,n\n1.JPG,2\n",
            KeyError,
            "^[^\"]*x.csv: no column 'path'; .* 'image_id' has the paths: .*path='image_id'",
        ),
        (
            "x.csv",
            "path,n\n1.jpg,2\n",
            KeyError,
            "no column 'label'.*If there are no labels: label=None",
        ),
        ("x.csv", "path;label\na;2\n", KeyError, "no column 'path'; there are 'path;label'"),
        ("x.csv", "path,label\na,b,1\n", ValueError, "line 2: more values than columns"),
        ("x.csv", "path,label\nq.jpg,\n", ValueError, "line 2: column 'label' is empty"),
        ("x.csv", "path,label\nq.jpg\n", ValueError, "line 2: fewer values than columns"),
        ("x.csv", "path,path,label\na,b,1\n", ValueError, "two columns have one name"),
        ("x.csv", "path,label\n", ValueError, "lists no picture"),
        ("x.json", "{", ValueError, r"x\.json: Expecting"),
        ("x.json", "[" * 100_000, ValueError, r"x\.json: "),
        ("x.json", "[1]", ValueError, "neither a list of objects nor an object of lists"),
        ("x.json", '{"path": ["a"], "label": []}', ValueError, "its columns differ in length"),
        ("x.json", '[{"path": 3, "label": 1}]', ValueError, "row 0: the path is 3, no text"),
        ("x.jsonl", "3\n", ValueError, "line 1: no object"),
        ("x.txt", "", ValueError, r"lists are \.csv, \.tsv, \.json and \.jsonl files"),
        ("x.xml", "", ValueError, r"lists are \.csv, \.tsv, \.json and \.jsonl files"),
    ],
)
def test_what_is_no_list(tmp_path, name, text, error, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(error, match=message):
        ListImages(tmp_path / name)


def test_a_file_that_is_missing_is_named(folder):
    path = folder / "x.csv"
    path.write_text("path,label\npictures/none.jpg,1\n")
    dataset = ListImages(path, T.Resize((20, 20)))
    with pytest.raises(FileNotFoundError, match=r"none\.jpg"):
        dataset[0]
    with pytest.raises(FileNotFoundError, match=r"none\.jpg"):
        next(iter(FastLoader(dataset, 1)))
    with pytest.raises(FileNotFoundError):
        ListImages(folder / "y.csv")
