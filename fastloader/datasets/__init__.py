"""Datasets whose samples the native path reads."""

from __future__ import annotations

from fastloader.datasets._remote.shard_cache import ShardCache
from fastloader.datasets.arrays import PackedArrays
from fastloader.datasets.files import ImageFolder, ListImages
from fastloader.datasets.hugging_face import HFImages
from fastloader.datasets.lmdb import LMDBDataset
from fastloader.datasets.mongo import MongoImages
from fastloader.datasets.parquet import ParquetImages
from fastloader.datasets.pictures import FileSpans, Pictures
from fastloader.datasets.shardwise import ShardwiseSampler
from fastloader.datasets.tar import TarImages

__all__ = [
    "FileSpans",
    "HFImages",
    "ImageFolder",
    "LMDBDataset",
    "ListImages",
    "MongoImages",
    "PackedArrays",
    "ParquetImages",
    "Pictures",
    "ShardCache",
    "ShardwiseSampler",
    "TarImages",
]
