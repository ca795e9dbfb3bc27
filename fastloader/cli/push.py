"""Runs ``fastloader push``: puts a folder of pictures into a MongoDB collection."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Any

from fastloader._core.machine.messages import progress
from fastloader.datasets import ImageFolder
from fastloader.datasets._formats.mongo_collections import hidden, mongo_module, servers_of
from fastloader.transforms._pillow import regular_file

# ---- Puts a folder's pictures into a collection.


_MOST_BYTES = 15 << 20  # of a picture: a document has 16 MB at most
_TOGETHER = 100  # documents that are sent at a time,
_BYTES_TOGETHER = 16 << 20  # or so many bytes


class PushError(Exception):
    """Ends the command with a message and no traceback."""


@dataclasses.dataclass(frozen=True)
class Fields:
    """The names of a document's fields."""

    key: str
    image: str
    label: str


def push(folder: str, uri: str, collection: str, fields: Fields, listed: str | None) -> None:
    """Prints what it did. A second call goes on where a first one was interrupted.

    Raises:
        PushError: with the reason in words.
    """
    pymongo = mongo_module()
    try:
        pictures = ImageFolder(folder, index=None)
    except FileNotFoundError as error:
        raise PushError(str(error)) from None
    names = [os.path.relpath(path, folder) for path, _label in pictures.samples]
    for name in names:
        if not name.isprintable() and name.encode(errors="replace").decode() != name:
            raise PushError(f"{name!r}: the name is no UTF-8, which MongoDB's text has to be")
    try:
        with pymongo.MongoClient(uri, appname="fastloader") as client:
            try:
                database = client.get_default_database()
            except pymongo.errors.ConfigurationError:
                raise PushError("the URI names no database: mongodb://SERVER/DATABASE") from None
            there = _push(database[collection], pictures, names, fields)
            more = database[collection].count_documents({}) - len(names)
            place = f"{servers_of(uri)}/{database.name}.{collection}"
    except (PushError, OSError):
        raise
    except Exception as error:  # pymongo raises more than its own errors
        what = hidden(f"{type(error).__name__}: {error}", uri)[:500]
        raise PushError(f"MongoDB at {servers_of(uri)}: {what}") from None
    if there:
        print(f"{there} of {len(names)} pictures were there already")
    print(f"{place}: {len(names)} pictures")
    if more:
        print(f"the collection has {more} other documents beside them")
    if listed is not None:
        content = {"path_list": names, "label_list": pictures.targets.tolist()}
        with open(listed, "w", encoding="utf-8") as file:
            json.dump(content, file)


def _push(collection: Any, pictures: ImageFolder, names: list[str], fields: Fields) -> int:
    """Puts what is missing into the collection, and returns how many pictures were there already."""
    collection.create_index(fields.key, unique=True)
    there = 0
    with progress("pushing", len(names)) as line:
        for begin in range(0, len(names), _TOGETHER):
            some = range(begin, min(begin + _TOGETHER, len(names)))
            found = _names_there(
                collection, pictures, {names[index]: index for index in some}, fields
            )
            there += len(found)
            missing = [index for index in some if names[index] not in found]
            for documents in _documents(pictures, names, missing, fields):
                collection.insert_many(documents, ordered=False)
            line.step(len(some))
    return there


def _names_there(
    collection: Any, pictures: ImageFolder, wanted: dict[str, int], fields: Fields
) -> set[str]:
    """Returns the names that are there. Their documents are read, because another folder may have files
    of the same names."""
    found = set()
    for document in collection.find({fields.key: {"$in": list(wanted)}}):
        name = document[fields.key]
        path, label = pictures.samples[wanted[name]]
        with regular_file(path) as file:
            same = document.get(fields.image) == file.read(_MOST_BYTES + 1)
        if not same or document.get(fields.label) != label:
            what = "another label" if same else "another picture"
            raise PushError(
                f"{collection.name} has {what} for {name}: push each folder into a collection of its "
                "own (--collection)"
            )
        found.add(name)
    return found


def _documents(
    pictures: ImageFolder, names: list[str], indices: list[int], fields: Fields
) -> Iterator[list[dict[str, Any]]]:
    """Makes the documents, as many at a time as are sent together."""
    some: list[dict[str, Any]] = []
    size = 0
    for index in indices:
        path, label = pictures.samples[index]
        with regular_file(path) as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise PushError(
                f"{path} has more than {_MOST_BYTES >> 20} MB, and a document of MongoDB 16 MB at most: "
                "make the picture smaller, or keep such pictures in GridFS"
            )
        if some and size + len(content) > _BYTES_TOGETHER:
            yield some
            some, size = [], 0
        some.append({fields.key: names[index], fields.image: content, fields.label: int(label)})
        size += len(content)
    if some:
        yield some
