"""`MongoImages` on a real server: the recipe's layout, orders, and errors."""

import io
import json
import multiprocessing
import pickle

import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Subset

import fastloader.transforms as T
from fastloader import FastLoader
from fastloader.datasets import ImageFolder, MongoImages
from fastloader.datasets._formats import mongo_collections
from support import same

pymongo = pytest.importorskip("pymongo")

COUNT = 24
DRAWS_NOTHING = T.Compose([T.Resize(20), T.CenterCrop(16)])
CROPS = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


def made(collection, uri, transform=None, **options):
    options.setdefault("label", None)
    return MongoImages(uri, collection.database.name, "photos", transform, **options)


def test_samples_of_the_recipe(photos, uri, listed, rows):
    dataset = made(photos, uri, order=listed, return_index=True, mode="L")
    assert len(dataset) == COUNT
    assert dataset.targets.tolist() == [label for _name, _file, label in rows]
    for number in (0, 7, -1):
        found, label, index = dataset[number]
        name, file, expected = rows[number]
        assert (label, index) == (expected, number % COUNT)
        with Image.open(io.BytesIO(file)) as own:
            assert (found.mode, found.tobytes()) == ("L", own.convert("L").tobytes())
        assert dataset.keys[number % COUNT] == name
    assert repr(dataset).startswith("Dataset MongoImages\n    Number of datapoints: 24\n")
    assert uri.partition("://")[2].rstrip("/") in repr(dataset)


def test_orders(photos, uri, rows, listed):
    by_name = {name: label for name, _file, label in rows}
    stored = [document["img_name"] for document in photos.find().sort("_id", 1)]
    whole = made(photos, uri, label="meta.label")
    assert list(whole.keys) == stored
    assert whole.targets.tolist() == [by_name[name] for name in stored]
    some = made(photos, uri, order=stored[5:2:-1], label="meta.label")
    assert list(some.keys) == stored[5:2:-1]
    assert some.targets is None
    assert [some[i][1] for i in range(3)] == [by_name[name] for name in stored[5:2:-1]]
    assert [label for _picture, label in made(photos, uri, order=stored[:2])] == [-1, -1]
    ids = [document["_id"] for document in photos.find().sort("_id", -1)]
    by_id = made(photos, uri, key="_id", order=ids, label="meta.label")
    assert by_id[0][1] == by_name[stored[-1]]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 2, "backend": "thread"}]
)
def test_batches_are_those_of_the_same_files(tmp_path, photos, uri, rows, listed, options, way):
    """The same draws too: a sample's picture does not know where it lay."""
    for name, file, _label in rows:
        (tmp_path / "files" / "x").mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / "x" / name.replace("/", "_")).write_bytes(file)
    by_name = sorted(rows, key=lambda row: row[0].replace("/", "_"))
    names, _files, labels = zip(*by_name)
    listed.write_text(json.dumps({"path_list": names, "label_list": labels}))
    options = dict(options)
    if backend := options.pop("backend", None):
        options["worker_backend"] = backend
    options |= {"batch_size": 5, "shuffle": True, **way.options}
    epochs = []
    folder = ImageFolder(tmp_path / "files", CROPS)
    folder.targets = torch.tensor(labels, dtype=torch.int32).numpy()
    for dataset in (made(photos, uri, CROPS, order=listed), folder):
        loader = FastLoader(dataset, generator=torch.Generator().manual_seed(6), **options)
        epochs.append([list(loader) for _ in range(2)])
    same(*epochs)


def test_a_plain_dataloader(photos, uri, listed):
    dataset = made(photos, uri, DRAWS_NOTHING, order=listed)
    plain = list(DataLoader(dataset, batch_size=5))
    same(plain, list(FastLoader(dataset, batch_size=5, num_workers=2)))
    same(plain, list(DataLoader(dataset, batch_size=5, num_workers=2)))
    parts = ConcatDataset([Subset(dataset, [3, 1]), dataset])
    same(list(DataLoader(parts, batch_size=6)), list(FastLoader(parts, batch_size=6)))


def test_one_query_a_batch(photos, uri, listed):
    from pymongo import monitoring

    asked = []

    class Listener(monitoring.CommandListener):
        def started(self, event):
            asked.append(event)

        def succeeded(self, event):
            pass

        def failed(self, event):
            pass

    dataset = made(photos, uri, DRAWS_NOTHING, order=listed)
    connection_of = dataset._connection
    connection_of._own_client()
    connection_of._client = pymongo.MongoClient(uri, event_listeners=[Listener()])
    loader = FastLoader(dataset, batch_size=6, shuffle=True)
    assert sum(len(labels) for _pictures, labels in loader) == COUNT
    finds = [event.command for event in asked if event.command_name == "find"]
    assert len(finds) == COUNT // 6
    assert all(len(find["filter"]["img_name"]["$in"]) == 6 for find in finds)
    assert all(set(find["projection"]) == {"img_name", "bson_img", "_id"} for find in finds)
    connection_of._client.close()


def test_without_an_index(database, uri, rows):
    database.photos.insert_one({"img_name": rows[0][0], "bson_img": rows[0][1]})
    with pytest.raises(
        ValueError, match=r"no index on 'img_name'.*\['photos'\].create_index\('img_name'\)"
    ):
        made(database.photos, uri)
    database.photos.create_index([("other", 1), ("img_name", 1)])
    with pytest.raises(ValueError, match="no index on 'img_name'"):
        made(database.photos, uri)
    assert len(made(database.photos, uri, key="_id")) == 1


def test_no_such_collection(photos, uri):
    name = photos.database.name
    with pytest.raises(ValueError, match=f"{name} has no collection photo; it has photos"):
        MongoImages(uri, name, "photo")


def test_arguments_that_are_no_text(uri):
    with pytest.raises(TypeError, match="collection is text, not a Compose"):
        MongoImages(uri, "db", DRAWS_NOTHING)
    with pytest.raises(ValueError, match=r"begins with mongodb://"):
        MongoImages("localhost:1", "db")


def test_documents_that_are_wrong(photos, uri, rows, listed):
    names = [name for name, _file, _label in rows]
    photos.delete_one({"img_name": names[2]})
    photos.update_one({"img_name": names[4]}, {"$unset": {"bson_img": 1}})
    photos.update_one({"img_name": names[6]}, {"$set": {"bson_img": "text"}})
    photos.update_one({"img_name": names[8]}, {"$set": {"bson_img": b"\xff\xd8 no picture"}})
    expected = {
        2: f"there is no document with img_name='{names[2]}' in ",
        4: f"the document with img_name='{names[4]}' in .* has no 'bson_img', and no picture",
        6: f"the document with img_name='{names[6]}' in .* has a str as 'bson_img', and no picture",
        8: f"img_name='{names[8]}'",
    }
    dataset = made(photos, uri, DRAWS_NOTHING, order=listed)
    plain = made(photos, uri, order=listed)
    for number, text in expected.items():
        for batches in (
            FastLoader(Subset(dataset, [0, number]), batch_size=2, num_workers=1),
            DataLoader(Subset(dataset, [0, number]), batch_size=2),
        ):
            with pytest.raises(Exception, match=text):
                list(batches)
        with pytest.raises(Exception, match=text):
            plain[number]
    loader = FastLoader(dataset, batch_size=5, num_workers=2, on_error="skip")
    left = [row[2] for number, row in enumerate(rows) if number not in expected]
    assert torch.cat([labels for _pictures, labels in loader]).tolist() == left
    loader = FastLoader(dataset, batch_size=5, num_workers=2, on_error="replace")
    assert sum(len(labels) for _pictures, labels in loader) == COUNT


def test_labels_that_are_none(photos, uri, rows):
    photos.update_one({"img_name": rows[3][0]}, {"$set": {"meta.label": "three"}})
    with pytest.raises(ValueError, match="'three', and labels are whole numbers; with label=None"):
        made(photos, uri, label="meta.label")
    some = made(photos, uri, label="meta.label", order=[rows[3][0]])
    with pytest.raises(ValueError, match=rf"img_name='{rows[3][0]}'.*the label is 'three'"):
        some[0]
    photos.update_one({"img_name": rows[4][0]}, {"$set": {"meta.label": 2.0}})
    some = made(photos, uri, DRAWS_NOTHING, label="meta.label", order=[r[0] for r in rows[3:5]])
    assert next(iter(FastLoader(some, batch_size=2, on_error="skip")))[1].tolist() == [2]


def test_two_documents_of_one_key(photos, uri, rows, listed):
    photos.insert_one({"img_name": rows[1][0], "bson_img": rows[1][1]})
    with pytest.raises(ValueError, match=rf"two documents have img_name='{rows[1][0]}'"):
        made(photos, uri, order=listed)[1]
    dataset = made(photos, uri, DRAWS_NOTHING, order=listed)
    labels = next(iter(FastLoader(dataset, batch_size=3, on_error="skip")))[1]
    assert labels.tolist() == [rows[0][2], rows[2][2]]


def test_keys_that_are_none(photos, uri):
    for keys in ([None], [["a"]], [{}]):
        with pytest.raises(ValueError, match=r"key 0 is .*: documents are not asked for by that"):
            made(photos, uri, order=keys)
    photos.update_many({}, {"$set": {"img_name": ["n", "m"]}})
    with pytest.raises(ValueError, match="key 0 is "):
        made(photos, uri)
    dataset = made(photos, uri, order=["n"])
    with pytest.raises(ValueError, match="there is no document with img_name='n'"):
        dataset[0]


def test_numbers_of_numpy_are_keys(database, uri, rows):
    database.photos.insert_many([{"img_name": i, "bson_img": rows[i][1]} for i in range(4)])
    database.photos.create_index("img_name")
    dataset = made(database.photos, uri, DRAWS_NOTHING, order=torch.arange(4).numpy())
    assert len(next(iter(FastLoader(dataset, batch_size=4)))[1]) == 4


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_timeouts_that_are_none(uri, timeout):
    with pytest.raises(ValueError, match="timeout="):
        MongoImages(uri, "db", timeout=timeout)


@pytest.mark.parametrize(
    ("uri", "servers", "secrets"),
    [
        ("mongodb://h1,h2:7/db?x=y", "h1,h2:7", []),
        ("mongodb://u:p%3Aw@h1,h2/db?appname=x@y", "h1,h2", ["p%3Aw", "p:w"]),
        ("mongodb+srv://u:pw@h?tlsCertificateKeyFilePassword=ab%20c&z=1", "h", ["pw", "ab c"]),
        ("mongodb://u@h", "h", []),
    ],
)
def test_servers_and_secrets_of_a_uri(uri, servers, secrets):
    assert mongo_collections.servers_of(uri) == servers
    said = mongo_collections.hidden(f"{uri} {' '.join(secrets)}", uri)
    assert not any(secret in said for secret in secrets)
    assert servers in said


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_missing_end_marker_is_put_there(photos, uri, rows, listed, num_workers):
    for name, file, _label in rows[:3]:
        assert file.endswith(b"\xff\xd9")
        photos.update_one({"img_name": name}, {"$set": {"bson_img": file[:-2]}})
    dataset = made(photos, uri, DRAWS_NOTHING, order=listed)
    found = list(FastLoader(dataset, batch_size=8, num_workers=num_workers))
    assert dataset.counts() == {"retries": 0, "repaired": 3}
    loader = FastLoader(ConcatDataset([dataset, made(photos, uri)]), batch_size=8)
    assert loader.stats()["documents"] == dataset.counts()
    for name, file, _label in rows[:3]:
        photos.update_one({"img_name": name}, {"$set": {"bson_img": file}})
    same(found, list(FastLoader(dataset, batch_size=8)))
    assert dataset.counts()["repaired"] == 3


def test_lists_that_are_no_lists(photos, uri, tmp_path):
    for content, text in {
        "{": "is no JSON file",
        "[]": "is not",
        '{"path_list": []}': "is not",
        '{"path_list": ["a"], "label_list": []}': "1 paths and not as many labels",
        '{"path_list": [1], "label_list": [1]}': "no list of text",
        '{"path_list": ["a"], "label_list": [1.5]}': "label 0 is 1.5",
        '{"path_list": ["a"], "label_list": [true]}': "label 0 is True",
        '{"path_list": [], "label_list": []}': "there is no sample",
    }.items():
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(ValueError, match=text):
            made(photos, uri, order=tmp_path / "x.json")
    with pytest.raises(FileNotFoundError):
        made(photos, uri, order=tmp_path / "none.json")


def test_gridfs(database, uri, rows):
    from gridfs import GridFS

    files = GridFS(database)
    files.put(b"an older file", filename=rows[0][0])
    for name, file, label in rows:
        files.put(file, filename=name, chunk_size=500, metadata={"label": label})
    names = [name for name, _file, _label in rows]
    dataset = MongoImages(
        uri,
        database.name,
        transform=DRAWS_NOTHING,
        gridfs=True,
        order=names,
        label="metadata.label",
    )
    pictures, labels = next(iter(FastLoader(dataset, batch_size=COUNT, num_workers=1)))
    assert labels.tolist() == [label for _name, _file, label in rows]
    expected = [
        T.PILToTensor()(DRAWS_NOTHING(Image.open(io.BytesIO(file)).convert("RGB")))
        for _name, file, _label in rows
    ]
    same(pictures, torch.stack(expected))
    whole = MongoImages(uri, database.name, gridfs=True, label="metadata.label")
    assert dict(zip(whole.keys, whole.targets.tolist())) == {row[0]: row[2] for row in rows}
    newest = database.fs.files.find_one({"filename": names[5]})
    database.fs.chunks.delete_one({"files_id": newest["_id"], "n": 1})
    with pytest.raises(Exception, match=f"filename='{names[5]}'.* has no 'length', and no picture"):
        list(FastLoader(Subset(dataset, [5]), batch_size=1))


@pytest.mark.processes
def test_a_process_makes_its_own_client(photos, uri, listed):
    dataset = made(photos, uri, DRAWS_NOTHING, order=listed)
    expected = dataset[3][1]
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy._connection._client is None
    assert copy[3][1] == expected
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(dataset[3][1]))
    child.start()
    assert answers.get() == expected
    child.join()
    loader = FastLoader(dataset, batch_size=8, num_workers=1, multiprocessing_context="spawn")
    assert sum(len(labels) for _pictures, labels in loader) == COUNT


def test_what_is_asked_for_together_is_bounded(photos, uri, rows, listed, monkeypatch):
    monkeypatch.setattr(mongo_collections, "MOST_BYTES", 3 * len(rows[0][1]))
    dataset = made(photos, uri, DRAWS_NOTHING, order=listed)
    dataset[0]
    with pytest.raises(ValueError, match="take a smaller batch_size"):
        list(FastLoader(dataset, batch_size=COUNT))


def test_a_document_that_is_deleted_in_the_middle(photos, uri, rows, listed):
    dataset = made(photos, uri, DRAWS_NOTHING, order=listed)
    batches = iter(FastLoader(dataset, batch_size=2, on_error="skip"))
    got = [next(batches)[1]]
    photos.delete_one({"img_name": rows[20][0]})
    got += [labels for _pictures, labels in batches]
    left = [row[2] for number, row in enumerate(rows) if number != 20]
    assert torch.cat(got).tolist() == left
