"""Pictures in a Parquet file, plain and uncompressed, as ``datasets`` writes them."""

from __future__ import annotations

from pathlib import Path

import pyarrow
from pyarrow import parquet

from benchmarks.peers.scenarios import Settings
from benchmarks.peers.scenarios.recipes.loaders import Epochs
from benchmarks.peers.scenarios.sources import folder
from benchmarks.peers.scenarios.sources.readers import CHAIN, copied, natively
from fastloader.datasets import ParquetImages

_ROWS = 100  # in a row group
_IMAGE = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
_SCHEMA = pyarrow.schema({"image": _IMAGE, "label": pyarrow.int64()})


def versions() -> dict[str, str]:
    return {**folder.versions(), "pyarrow": pyarrow.__version__}


def fastloader(settings: Settings) -> Epochs:
    samples = settings.samples()

    def write(path: Path) -> None:
        options = {"compression": "none", "use_dictionary": False}
        with parquet.ParquetWriter(path, _SCHEMA, **options) as file:
            for begin in range(0, len(samples), _ROWS):
                rows = [
                    {"image": {"bytes": Path(each).read_bytes(), "path": None}, "label": label}
                    for each, label in samples[begin : begin + _ROWS]
                ]
                file.write_table(pyarrow.Table.from_pylist(rows, _SCHEMA))

    return natively(ParquetImages(copied(settings, "set.parquet", write), CHAIN), settings)
