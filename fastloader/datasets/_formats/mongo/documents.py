"""The documents of a batch, in one query."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from fastloader.datasets._formats.mongo.connection import BadDocument
from fastloader.datasets._formats.mongo.raw_reply import documents

# What a batch's documents may take together: a batch of 256 pictures of 16 MB, the most that MongoDB
# has in a document, would take 4 GB.
MOST_BYTES = 1 << 30

TWICE = object()  # stands for the picture where two documents have one key


class Documents:
    """Reads pictures and labels by their keys. ``image``: the field of pictures, bytes. ``label``: the
    field of labels or None; a dotted name is a field within a field."""

    def __init__(self, collection: str, key: str, image: str, label: str | None) -> None:
        self.collection = collection
        self.key = key
        self.image = image
        self.label = label

    def check_index(self, database: Any) -> None:
        """Raises BadDocument if there is no such collection, or if the server would look through all of
        it for a key."""
        there = sorted(database.list_collection_names())
        if self.collection not in there:
            raise BadDocument(
                f"the database {database.name} has no collection {self.collection}; it has "
                f"{', '.join(there) or 'none'}"
            )
        # A partial index does not have all documents, and is not used for such a query.
        found = [
            each["key"][0][0]
            for each in database[self.collection].index_information().values()
            if "partialFilterExpression" not in each
        ]
        if self.key != "_id" and self.key not in found:
            raise BadDocument(
                f"the collection {self.collection} has no index on {self.key!r}, so that the server "
                "would look through all of it for each batch: "
                f"client[{database.name!r}][{self.collection!r}].create_index({self.key!r}) makes one"
            )

    def of(self, database: Any, keys: list[Any]) -> dict[Any, tuple[Any, Any]]:
        """(picture, label) by key, of the keys for which there is a document; `TWICE` is the picture of
        a key that two documents have.

        Raises:
            BadDocument: if all take more than `MOST_BYTES` together.
        """
        wanted = list(dict.fromkeys(keys))
        fields = {self.key: 1, self.image: 1, **({self.label: 1} if self.label else {})}
        if self.key != "_id":
            fields["_id"] = 0
        collection = database[self.collection]
        asked = set(wanted)
        found: dict[Any, tuple[Any, Any]] = {}
        with collection.find_raw_batches({self.key: {"$in": wanted}}, fields) as replies:
            for document in self._bounded(replies, collection.codec_options):
                key = field_of(document, self.key)
                if not isinstance(key, Hashable) or key not in asked:
                    continue  # a document whose key is a list has each of its values for a key
                label = field_of(document, self.label) if self.label else None
                if key in found:
                    found[key] = TWICE, label
                    continue
                found[key] = field_of(document, self.image), label
        return found

    def _bounded(self, replies: Iterable[bytes], options: Any) -> Iterator[Any]:
        total = 0
        for reply in replies:
            for document in documents(reply, self.image, options):
                value = field_of(document, self.image)
                total += len(value) if isinstance(value, memoryview | bytes | str) else 0
                _check_total(total)
                yield document

    def all_keys(self, database: Any) -> Iterator[tuple[Any, Any]]:
        """(key, label) of all documents, by ascending ``_id``."""
        fields = {"_id": 1, self.key: 1, **({self.label: 1} if self.label else {})}
        with database[self.collection].find({}, fields).sort("_id", 1) as cursor:
            for document in cursor:
                key = field_of(document, self.key)
                if key is None:
                    raise BadDocument(
                        f"the document with _id={document.get('_id')!r} of {self.collection} has no "
                        f"{self.key!r}"
                    )
                yield key, field_of(document, self.label) if self.label else None


class GridFiles(Documents):
    """Pictures in GridFS: files by name in ``<collection>.files``, of which the newest of a name counts,
    and their contents in ``<collection>.chunks``."""

    def __init__(self, collection: str, label: str | None) -> None:
        super().__init__(f"{collection}.files", "filename", "length", label)
        self.chunks = f"{collection}.chunks"

    def check_index(self, database: Any) -> None:
        """The driver makes the indices of a bucket with its first file."""
        if database[self.collection].find_one({}, {"filename": 1}) is None:
            raise BadDocument(
                f"there is no file in GridFS: {database.name}.{self.collection} is empty"
            )

    def all_keys(self, database: Any) -> Iterator[tuple[Any, Any]]:
        """(name, label) of the newest file of each name, by the time of its upload."""
        fields = {"filename": 1, **({self.label: 1} if self.label else {})}
        newest: dict[Any, Any] = {}
        with database[self.collection].find({}, fields).sort("uploadDate", 1) as cursor:
            for document in cursor:
                name = document.get("filename")
                newest.pop(name, None)
                newest[name] = field_of(document, self.label) if self.label else None
        yield from newest.items()

    def of(self, database: Any, keys: list[Any]) -> dict[Any, tuple[Any, Any]]:
        fields = {"filename": 1, "length": 1, **({self.label: 1} if self.label else {})}
        # Not `$in`, of which a server of the tests knows nothing here: to mongod both are one.
        wanted = {"$or": [{"filename": key} for key in dict.fromkeys(keys)]}
        files: dict[Any, dict[str, Any]] = {}
        with database[self.collection].find(wanted, fields).sort("uploadDate", 1) as cursor:
            for document in cursor:
                files[document["filename"]] = document  # the newest comes last
        _check_total(sum(int(each["length"]) for each in files.values()))
        return {
            name: (
                self._content(database, each),
                field_of(each, self.label) if self.label else None,
            )
            for name, each in files.items()
        }

    def _content(self, database: Any, file: dict[str, Any]) -> bytes | None:
        """None if the chunks are not the file's: it is being written, or removed."""
        length, read = int(file["length"]), 0
        parts: list[bytes] = []
        with database[self.chunks].find({"files_id": file["_id"]}).sort("n", 1) as chunks:
            for chunk in chunks:
                parts.append(bytes(chunk["data"]))
                read += len(parts[-1])
                if read > length:
                    return None
        return b"".join(parts) if read == length else None


def _check_total(total: int) -> None:
    if total > MOST_BYTES:
        raise BadDocument(
            f"the pictures of one batch take more than {MOST_BYTES >> 20} MB together: take a smaller "
            "batch_size"
        )


def field_of(document: Any, name: str) -> Any:
    """The value of a field, None if it is missing."""
    if name in document:
        return document[name]
    for part in name.split("."):
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    return document
