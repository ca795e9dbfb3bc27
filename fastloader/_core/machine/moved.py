"""Finds modules by the names that they had in version 0.2, so that datasets and transforms that it has
pickled still load. Version 0.4 will not have this."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

# Below fastloader: what a module is called, and what its parts were called.
_HOMES = {
    "datasets._formats.lmdb_files": "datasets._formats.lmdb.file",
    "datasets._formats.lmdb_legacy": "datasets._formats.lmdb.legacy",
    "datasets._formats.mapped_file": """
        datasets._formats.files.kept_arrays datasets._formats.files.mapped_file
        datasets._formats.files.seek_file
    """,
    "datasets._formats.mongo_collections": """
        datasets._formats.mongo.connection datasets._formats.mongo.documents
        datasets._formats.mongo.order datasets._formats.mongo.raw_reply
    """,
    "datasets._formats.parquet_files": """
        datasets._formats.parquet.file datasets._formats.parquet.footer
        datasets._formats.parquet.index
    """,
    "datasets._formats.parquet_pages": """
        datasets._formats.parquet.compact datasets._formats.parquet.header
        datasets._formats.parquet.pages datasets._formats.parquet.runs
    """,
    "datasets._formats.paths": "datasets._formats.tar.paths datasets._formats.urls",
    "datasets._formats.sample_form": "datasets._formats.counters",
    "datasets._formats.tar_shards": """
        datasets._formats.tar.content datasets._formats.tar.dali datasets._formats.tar.index
        datasets._formats.tar.members datasets._formats.tar.shard
    """,
    "datasets._remote.cache_folder": """
        datasets._remote.cache.cache_folder datasets._remote.cache.cache_full
        datasets._remote.cache.file_lock datasets._remote.cache.held_file
        datasets._remote.cache.kept_files datasets._remote.cache.other_maker
    """,
    "datasets._remote.object_store": """
        datasets._remote.store.bucket datasets._remote.store.connection
        datasets._remote.store.failures datasets._remote.store.fsspec_bucket
        datasets._remote.store.listing datasets._remote.store.obstore_bucket
        datasets._remote.store.remote_object datasets._remote.store.spans
    """,
    "datasets._remote.remote_tar": "datasets._remote.tar.remote_tar datasets._remote.tar.shards",
    "datasets._remote.shard_cache": "datasets._remote.cache.etag datasets._remote.cache.shard_cache",
    "datasets.arrays": "datasets._formats.arrays.folder datasets.packed_arrays",
    "datasets.encoded": """
        datasets._encoded.encoded_image datasets._encoded.keeping datasets._encoded.parameters
        datasets._encoded.single datasets._encoded.wanted
    """,
    "datasets.decode_image": "datasets._encoded.decode_image",
    "datasets.picture_source": "datasets._encoded.picture_source",
    "datasets.files": """
        datasets._formats.files.file_list datasets._formats.files.whole_objects
        datasets._remote.class_files datasets.image_folder datasets.list_images
    """,
    "datasets.hugging_face": "datasets._formats.label_column datasets.hf_images",
    "datasets.lmdb": "datasets.lmdb_dataset",
    "datasets.mongo": "datasets.mongo_images",
    "datasets.parquet": "datasets._formats.parquet.row_groups datasets.parquet_images",
    "datasets.shardwise": "datasets._remote.tar.fetch_ahead datasets.shardwise_sampler",
    "datasets.tar": "datasets.tar_images",
    "transforms._apply": "transforms.steps.apply",
    "transforms._reader.chain": """
        transforms._reader.counterpart transforms._reader.erasing transforms._reader.grey
        transforms._reader.head
    """,
    "transforms._recipe.draws": "transforms._recipe.philox",
    "transforms._recipe.operations": "transforms._recipe.parameters",
    "transforms._recipe.recipe": "transforms._recipe.number",
    "transforms._recipe.sized": "transforms._recipe.geometry",
    "transforms.geometry": """
        transforms.steps.geometry.crop transforms.steps.geometry.flip
        transforms.steps.geometry.resize transforms.steps.geometry.warp
    """,
    "transforms.pixels": """
        transforms.steps.pixels.colour transforms.steps.pixels.sharpness
        transforms.steps.pixels.tones
    """,
    "transforms.policies": """
        transforms.steps.policies.aug_mix transforms.steps.policies.auto_augment
        transforms.steps.policies.rand_augment transforms.steps.policies.space
    """,
    "transforms.structure": "transforms.steps.structure",
    "transforms.tensors": """
        transforms.steps.tensors.erasing transforms.steps.tensors.mixing
        transforms.steps.tensors.named_steps transforms.steps.tensors.rolled
    """,
    "transforms.timm": """
        transforms.steps.timm.aug_mix transforms.steps.timm.augment_op
        transforms.steps.timm.auto_augment transforms.steps.timm.config
        transforms.steps.timm.geometry transforms.steps.timm.magnitude
        transforms.steps.timm.policies transforms.steps.timm.rand_augment
    """,
    "transforms.transform": "transforms.steps.conversion transforms.steps.transform",
}
_OLD = {
    f"fastloader.{old}": f"fastloader.{new}"
    for new, parts in _HOMES.items()
    for old in parts.split()
}


class _Finder:
    """Finds modules by their old names. Python asks it last, for modules that are nowhere else."""

    @staticmethod
    def find_spec(
        name: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith("fastloader."):
            return None
        if name in _OLD:
            return importlib.machinery.ModuleSpec(name, _Alias(_OLD[name]))
        if any(old.startswith(f"{name}.") for old in _OLD):  # a package of which nothing is left
            return importlib.machinery.ModuleSpec(name, None, is_package=True)
        return None


class _Alias(importlib.abc.Loader):
    """Loads a module by its old name: the result is the module of the new name, unchanged."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._spec: Any = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._home)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # which Python has replaced


def find_by_old_names() -> None:
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())
