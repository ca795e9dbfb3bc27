"""The places of ``fastloader bench --source``, each of which a line here adds: where the same
photographs lie, and what is compared there.

``comparison.py`` names the contenders of a further place, such as an object store, and a module of
``scenarios/sources`` has them. Nothing is imported here but the standard library, since the command line
reads this.
"""

from __future__ import annotations

import dataclasses

from fastloader.cli.bench.recipes import EVERY

FOLDER = "folder"  # what the readers are held against

OF_THE_FOLDER = 0.95  # with a warm cache
OF_THE_PEER = 3.0
# For which this is promised: against so many workers, and at least so many rounds.
THREADS, ROUNDS = 2, 5


@dataclasses.dataclass(frozen=True)
class Row:
    """``fast`` is promised to be ``at_least`` times as fast as ``slow``. None: there is no promise, and
    the ratio stands beside the others. ``name``: what the results and the documents' figures call it."""

    name: str
    what: str
    fast: str
    slow: str
    at_least: float | None = None


@dataclasses.dataclass(frozen=True)
class Source:
    label: str
    rows: tuple[Row, ...] = ()

    @property
    def contenders(self) -> list[str]:
        """The names of all that its rows need, and the folder."""
        return list(
            dict.fromkeys([FOLDER, *(n for row in self.rows for n in (row.fast, row.slow))])
        )


def _of_the_folder(name: str, label: str) -> Row:
    return Row(f"{name}.folder", f"{label}, of the folder's rate", name, FOLDER, OF_THE_FOLDER)


SOURCES = {
    FOLDER: Source("a folder for each class"),
    "list": Source("a CSV list of files", (_of_the_folder("list", "ListImages"),)),
    "lmdb": Source(
        "one file of fastloader pack, without seek indices",
        (_of_the_folder("lmdb", "LMDBDataset"),),
    ),
    "tar": Source(
        "tar shards",
        (
            Row(
                "tar.webdataset",
                "TarImages, of WebDataset + DataLoader",
                "tar",
                "tar-webdataset",
                OF_THE_PEER,
            ),
            _of_the_folder("tar", "TarImages"),
        ),
    ),
    "s3": Source(
        "tar shards in a bucket, all of them in the cache",
        (Row("s3.tar", "TarImages by URL, of TarImages of local shards", "s3", "tar", 0.9),),
    ),
    "hf": Source(
        "a Hugging Face data set, with the pictures' bytes in it",
        (
            Row(
                "hf.datasets",
                "HFImages, of datasets + DataLoader",
                "hf",
                "hf-datasets",
                OF_THE_PEER,
            ),
            _of_the_folder("hf", "HFImages"),
        ),
    ),
    "parquet": Source(
        "a Parquet file, with the pictures plain in it",
        (_of_the_folder("parquet", "ParquetImages"),),
    ),
    "mongo": Source(
        "a MongoDB collection",
        (
            Row(
                "mongo.drained",
                "MongoImages, of pymongo alone with the same queries",
                "mongo",
                "mongo-drained",
                0.95,
            ),
            Row(
                "mongo.replayed",
                "MongoImages with replies from memory, of LMDBDataset",
                "mongo-replayed",
                "lmdb",
                0.9,
            ),
            Row(
                "mongo.server",
                "MongoImages, of the server alone: nobody decodes its replies",
                "mongo",
                "mongo-server",
            ),
            Row(
                "mongo.recipe",
                "MongoImages, of the recipe: one find_one a picture, in workers",
                "mongo",
                "mongo-recipe",
            ),
        ),
    ),
}


def named(names: list[str]) -> dict[str, Source]:
    """Those of these names, in the table's order."""
    return {name: each for name, each in SOURCES.items() if {name, EVERY} & set(names)}
