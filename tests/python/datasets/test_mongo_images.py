"""`MongoImages` on a real server: the recipe's layout, orders, errors, and servers that fail."""

import io
import json
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from mongodb import Proxy, given_uri, server_or_skip
from pictures import picture
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Subset

import fastloader.transforms as T
from fastloader import FastLoader
from fastloader.datasets import ImageFolder, MongoImages
from fastloader.datasets._formats.mongo import connection, documents
from fastloader.errors import Error
from support import HANG, same

pymongo = pytest.importorskip("pymongo")

COUNT = 24
DRAWS_NOTHING = T.Compose([T.Resize(20), T.CenterCrop(16)])
CROPS = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


def encoded(rng, number):
    out = io.BytesIO()
    form = "PNG" if number % 8 == 7 else "JPEG"
    picture(rng, 40 + number % 7, 30 + number % 5).save(out, form)
    return out.getvalue()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = server_or_skip(tmp_path_factory.mktemp("mongodb"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def uri(server):
    return given_uri() or server.uri


@pytest.fixture(scope="module")
def rows():
    rng = random.Random(8)
    return [(f"n{i % 3}/{i:03}.jpg", encoded(rng, i), rng.randrange(3)) for i in range(COUNT)]


@pytest.fixture
def database(uri):
    """A new database, and a client of the test's."""
    client = pymongo.MongoClient(uri)
    name = f"fastloader_{random.SystemRandom().randrange(1 << 40)}"
    yield client[name]
    client.drop_database(name)
    client.close()


@pytest.fixture
def photos(database, rows):
    """The recipe's collection, in another order than the rows."""
    collection = database.photos
    order = list(range(COUNT))
    random.Random(1).shuffle(order)
    collection.insert_many(
        [
            {"img_name": rows[i][0], "bson_img": rows[i][1], "meta": {"label": rows[i][2]}}
            for i in order
        ]
    )
    collection.create_index("img_name")
    return collection


@pytest.fixture
def listed(tmp_path, rows):
    names, _files, labels = zip(*rows)
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"path_list": names, "label_list": labels}))
    return path


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
    connection_of._made()
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
    assert connection.servers_of(uri) == servers
    said = connection.hidden(f"{uri} {' '.join(secrets)}", uri)
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
    monkeypatch.setattr(documents, "MOST_BYTES", 3 * len(rows[0][1]))
    dataset = made(photos, uri, DRAWS_NOTHING, order=listed)
    dataset[0]
    with pytest.raises(ValueError, match="take a smaller batch_size"):
        list(FastLoader(dataset, batch_size=COUNT))


# --- servers that fail ------------------------------------------------------------------------------


def test_no_server():
    begun = time.monotonic()
    with pytest.raises(
        Error, match=r"MongoDB at 127\.0\.0\.1:1, database db: gave up after 0.5 s: ServerSel"
    ):
        MongoImages("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100", "db", timeout=0.5)
    assert time.monotonic() - begun < 20


def test_a_password_is_never_shown(uri):
    servers = uri.partition("://")[2]
    with pytest.raises(Error) as caught:
        MongoImages(f"mongodb://user:s%40cret@{servers}", "db", timeout=2)
    shown = [str(caught.value), repr(caught.value), str(caught.getrepr())]
    assert servers.rstrip("/") in shown[0]
    for text in shown[:2]:
        assert "s%40cret" not in text
        assert "s@cret" not in text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_options_of_the_uri_reach_the_driver(monkeypatch):
    given = {}

    def client(uri, **options):
        given.update(options, uri=uri)
        raise RuntimeError("as far as here, s@cret")

    monkeypatch.setattr(pymongo, "MongoClient", client)
    uri = "mongodb://u:s%40cret@a,b/?tls=true&replicaSet=r&authSource=x&socketTimeoutMS=7"
    with pytest.raises(Error, match=r"MongoDB at a,b, database db: .*as far as here, \*\*\*"):
        MongoImages(uri, "db", timeout=12)
    assert given == {
        "uri": uri,
        "connect": False,
        "appname": "fastloader",
        "serverselectiontimeoutms": 5000,
        "connecttimeoutms": 5000,
        "retryreads": False,
    }


@pytest.fixture
def fragile(tmp_path, rows, listed):
    """A server of this test's own, the collection, and the dataset's options."""
    server = server_or_skip(tmp_path)
    client = pymongo.MongoClient(server.uri)
    client.db.photos.insert_many([{"img_name": name, "bson_img": file} for name, file, _ in rows])
    client.db.photos.create_index("img_name")
    client.close()
    yield server
    server.close()


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_server_that_is_killed_and_comes_again(fragile, rows, listed, backend):
    dataset = MongoImages(fragile.uri, "db", "photos", DRAWS_NOTHING, order=listed)
    options = {"num_workers": 2, "prefetch_factor": 1, "worker_backend": backend}
    loader = FastLoader(dataset, batch_size=2, **options)
    batches = iter(loader)
    got = [next(batches) for _ in range(3)]
    fragile.kill()
    again = threading.Timer(1.0, fragile.start)
    again.start()
    got += list(batches)
    again.join()
    assert torch.cat([labels for _, labels in got]).tolist() == [row[2] for row in rows]
    assert dataset.counts()["retries"] > 0
    same(got, list(FastLoader(dataset, batch_size=2)))


def test_a_server_that_does_not_come_again(fragile, listed):
    dataset = MongoImages(fragile.uri, "db", "photos", DRAWS_NOTHING, order=listed, timeout=1)
    batches = iter(FastLoader(dataset, batch_size=2))
    next(batches)
    fragile.kill()
    with pytest.raises(Error, match=r"MongoDB at 127\.0\.0\.1"):
        list(batches)
    assert dataset.counts()["retries"] > 0


def test_connections_that_are_cut(fragile, rows, listed):
    proxy = Proxy(fragile.port)
    dataset = MongoImages(proxy.uri, "db", "photos", DRAWS_NOTHING, order=listed)
    got = []
    for batch in FastLoader(dataset, batch_size=4):
        got.append(batch)
        proxy.cut()
    assert torch.cat([labels for _, labels in got]).tolist() == [row[2] for row in rows]
    assert dataset.counts()["retries"] > 0
    proxy.close()


def test_a_slow_server(fragile, rows, listed):
    """Answers that take longer than the timeout are an error; shorter ones are waited for."""
    proxy = Proxy(fragile.port)
    dataset = MongoImages(proxy.uri, "db", "photos", DRAWS_NOTHING, order=listed, timeout=2)
    proxy.delay = 0.2
    found = next(iter(FastLoader(dataset, batch_size=4)))
    assert found[1].tolist() == [row[2] for row in rows[:4]]
    proxy.delay = 60
    with pytest.raises(Error, match=r"MongoDB at 127\.0\.0\.1.*gave up after 2 s: "):
        list(FastLoader(dataset, batch_size=4))
    proxy.close()


def test_a_document_that_is_deleted_in_the_middle(photos, uri, rows, listed):
    dataset = made(photos, uri, DRAWS_NOTHING, order=listed)
    batches = iter(FastLoader(dataset, batch_size=2, on_error="skip"))
    got = [next(batches)[1]]
    photos.delete_one({"img_name": rows[20][0]})
    got += [labels for _pictures, labels in batches]
    left = [row[2] for number, row in enumerate(rows) if number != 20]
    assert torch.cat(got).tolist() == left


def test_pauses_do_not_draw_from_the_users_generator(monkeypatch):
    """Between two attempts."""
    monkeypatch.setattr(connection, "_FIRST_PAUSE", 0.01)
    random.seed(3)
    expected = random.random()
    random.seed(3)
    with pytest.raises(Error):
        MongoImages("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=10", "db", timeout=0.2)
    assert random.random() == expected


LOOP = """
import sys
import fastloader.transforms as T
from fastloader import FastLoader
from fastloader.datasets import MongoImages
from fastloader.datasets._formats.mongo.documents import Documents

uri, database, keys, options = {arguments!r}
dataset = MongoImages(uri, database, "photos", T.Resize((8, 8)), label=None, order=keys, timeout=300)
print("made", flush=True)
sys.stdin.readline()
of = Documents.of
Documents.of = lambda *arguments: sys.stdout.write("asked\\n") and sys.stdout.flush() or of(*arguments)
try:
    next(iter(FastLoader(dataset, 4, **options)))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 4}, {"num_workers": 4, "worker_backend": "thread"}],
    ids=["alone", "processes", "threads"],
)
def test_ctrl_c_does_not_wait_for_a_server_that_hangs(fragile, rows, options):
    """A worker thread that waits for the answer would be waited for ten seconds, one after the other."""
    proxy = Proxy(fragile.port)
    arguments = (proxy.uri, "db", [name for name, _file, _label in rows], options)
    child = subprocess.Popen(
        [sys.executable, "-c", LOOP.format(arguments=arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout.readline() == "made\n", child.stderr.read()
        proxy.silent = True
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "asked\n"
        begun = time.monotonic()
        os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=HANG)
        assert time.monotonic() - begun < 20
        assert child.returncode == 0 and "interrupted" in out, err
    finally:
        child.kill()
        child.communicate()
        proxy.close()


def test_a_loader_that_is_closed_leaves_its_queries_behind(fragile, rows):
    proxy = Proxy(fragile.port)
    keys = [name for name, _file, _label in rows]
    dataset = MongoImages(
        proxy.uri, "db", "photos", DRAWS_NOTHING, label=None, order=keys, timeout=300
    )
    loader = FastLoader(dataset, 4, num_workers=4, worker_backend="thread")
    asked = threading.Semaphore(0)
    of = dataset._documents.of
    dataset._documents.of = lambda *arguments: asked.release() or of(*arguments)
    proxy.silent = True
    batches = iter(loader)
    for _ in range(4):
        assert asked.acquire(timeout=HANG)
    workers = [each for each in threading.enumerate() if each.name.startswith("fastloader-worker")]
    assert len(workers) == 4
    begun = time.monotonic()
    loader.close()
    assert time.monotonic() - begun < 4  # torch waits five seconds for each
    assert not any(each.is_alive() for each in workers)
    with pytest.raises(StopIteration):
        next(batches)
    proxy.close()  # which ends the queries
