"""A server, and photographs in a collection of it."""

import io
import json
import random

import pytest
from mongodb import given_uri, server_or_skip
from pictures import picture

pymongo = pytest.importorskip("pymongo")

COUNT = 24


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
