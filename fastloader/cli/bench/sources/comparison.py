"""From the rounds of the contenders to ratios, held against their promises.

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

What was measured stands beside this in sources.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fastloader.cli.bench.contender import Contender
from fastloader.cli.bench.measure import ratio
from fastloader.cli.bench.scenarios import Scenario
from fastloader.cli.bench.sources import FOLDER, Source

Json = dict[str, Any]


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


def compared(
    sources: Mapping[str, Source], contenders: Mapping[str, Contender], judged: bool
) -> dict[str, Json]:
    """By the row's name; those whose contenders were measured. ``judged``: whether it is said of each if
    it keeps its promise."""
    rows = {}
    for row in (row for source in sources.values() for row in source.rows):
        if row.slow not in contenders or row.fast not in contenders:
            continue
        slow, fast = contenders[row.slow], contenders[row.fast]
        value = ratio(slow.timing, fast.timing)
        met = None
        if judged and row.at_least is not None:
            met = value["median"] >= row.at_least
        cpu = ratio(slow.cpu, fast.cpu)
        rows[row.name] = {**dataclasses.asdict(row), "ratio": value, "cpu_ratio": cpu, "met": met}
    return rows
