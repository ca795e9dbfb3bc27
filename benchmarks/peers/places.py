"""The places of ``--source``, each of which a line here adds: where the same photographs lie, and what
is compared there. A further place also names its contenders here, and a module of ``scenarios/sources``
has them.

Predicted, in CPU time for a photograph of 470x400 with 224 pixels to make, of which decoding and
resampling take 1.05 ms:

| contender | beside decoding and resampling | ratio |
|---|---|---|
| folder | 0.03 ms: a path, an open, a read | |
| list | the same | 1.00 of the folder |
| lmdb | 0.005 ms: the record's address is looked up once, the system is asked to read ahead | 1.02 |
| tar | 0.005 ms: the system is asked to read ahead, a stat a shard and batch | 1.02 |
| hf | 0.01 ms: the header is asked for its orientation | 1.02 |
| s3 | the same: all shards are in the cache, and then they are local files | 1.00 of tar |
| tar-webdataset | 0.1 ms for the tar's members; Pillow's decode and resize take 3.2 ms | 3.9 |
| hf-datasets | 0.2 ms for the row and the feature, and the same | 4.0 |
| parquet | the same as hf | 1.02 |
| mongo | the client's processor decodes while the server takes 2.4 ms for a document | 0.98 of pymongo |
| mongo-replayed | 0.03 ms of Python a sample; the picture stays in the reply | 0.97 of lmdb |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from benchmarks.peers.scenarios import Row, Scenario

FOLDER = "folder"  # what the readers are held against

OF_THE_FOLDER = 0.95  # with a warm cache
OF_THE_PEER = 3.0
# For which this is promised: against so many workers, and at least so many rounds.
THREADS, ROUNDS = 2, 5


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


def _scenario(
    label: str,
    module: str,
    function: str,
    peer: str = "fastloader",
    remark: str = "",
    made: bool = True,
) -> Scenario:
    """``made``: whether it makes pictures of 224 pixels, or only fetches what is stored."""
    output = "uint8" if made else ""
    return Scenario(label, peer, f"sources.{module}", function, output, remark)


_LOADER = "DataLoader"
BARE = "mongo-server"  # asks without a driver
CONTENDERS = {
    FOLDER: _scenario("FastLoader, ImageFolder", "folder", "folder"),
    "list": _scenario("FastLoader, ListImages", "folder", "listed"),
    "lmdb": _scenario("FastLoader, LMDBDataset", "lmdb", "fastloader"),
    "tar": _scenario("FastLoader, TarImages", "tar", "fastloader"),
    "tar-webdataset": _scenario(
        f"WebDataset + {_LOADER}",
        "webdataset",
        "dataloader",
        "webdataset",
        "each worker reads its own shards and shuffles a buffer of 1000 samples",
    ),
    "s3": _scenario("FastLoader, TarImages by URL", "s3", "fastloader", "moto"),
    "hf": _scenario("FastLoader, HFImages", "hugging_face", "fastloader", "datasets"),
    "hf-datasets": _scenario(f"datasets + {_LOADER}", "hugging_face", "dataloader", "datasets"),
    "parquet": _scenario("FastLoader, ParquetImages", "parquet", "fastloader", "pyarrow"),
    "mongo": _scenario("FastLoader, MongoImages", "mongo", "fastloader", "pymongo"),
    "mongo-drained": _scenario("pymongo alone", "mongo", "drained", "pymongo", made=False),
    BARE: _scenario("the server alone", "wire", "received", "pymongo", made=False),
    "mongo-recipe": _scenario(f"find_one a picture + {_LOADER}", "mongo", "recipe", "pymongo"),
    "mongo-replayed": _scenario(
        "FastLoader, MongoImages, replies from memory", "mongo", "replayed", "pymongo"
    ),
}
FROM_A_SERVER = [name for name in CONTENDERS if name.startswith("mongo")]


def scenarios(sources: Mapping[str, Source]) -> dict[str, Scenario]:
    """What these sources compare, each contender once."""
    wanted = {name for source in sources.values() for name in source.contenders}
    return {name: each for name, each in CONTENDERS.items() if name in wanted}
