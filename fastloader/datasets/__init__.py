"""Datasets whose samples the native path reads."""

from __future__ import annotations

from fastloader.datasets._remote.cache.shard_cache import ShardCache
from fastloader.datasets.hf_images import HFImages
from fastloader.datasets.image_folder import ImageFolder
from fastloader.datasets.list_images import ListImages
from fastloader.datasets.lmdb_dataset import LMDBDataset
from fastloader.datasets.mongo_images import MongoImages
from fastloader.datasets.packed_arrays import PackedArrays
from fastloader.datasets.parquet_images import ParquetImages
from fastloader.datasets.shardwise_sampler import ShardwiseSampler
from fastloader.datasets.tar_images import TarImages

__all__ = [
    "HFImages",
    "ImageFolder",
    "LMDBDataset",
    "ListImages",
    "MongoImages",
    "PackedArrays",
    "ParquetImages",
    "ShardCache",
    "ShardwiseSampler",
    "TarImages",
]
