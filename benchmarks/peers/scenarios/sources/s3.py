"""Pictures in tar shards in a bucket, whose shards are all in the cache when the rounds begin."""

from __future__ import annotations

import functools
import os
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any

import obstore
from moto.server import ThreadedMotoServer

from benchmarks.peers.scenarios import Settings
from benchmarks.peers.scenarios.recipes.loaders import Epochs
from benchmarks.peers.scenarios.sources import tar
from benchmarks.peers.scenarios.sources.readers import CHAIN, natively
from fastloader.datasets import ShardCache, TarImages

BUCKET = "pictures"


def versions() -> dict[str, str]:
    return {**tar.versions(), "obstore": version("obstore"), "moto": version("moto")}


def fastloader(settings: Settings) -> Epochs:
    paths = tar.shards(settings)
    options = _served(tuple(paths))
    size = sum(map(os.path.getsize, paths))
    # Room for the shards and their indices: what does not fit is read by ranges, which is not warm.
    cache = ShardCache(Path(settings.work, "cache"), 2 * size, storage_options=options)
    urls = [f"s3://{BUCKET}/{Path(path).name}" for path in paths]
    return natively(TarImages(urls, CHAIN, cache=cache), settings)


@functools.cache  # new loaders find it there
def _served(paths: tuple[str, ...]) -> dict[str, Any]:
    """Puts the files into a bucket of a server that runs as long as this process. Returns the options of
    its clients. An epoch on a warm cache asks it for nothing."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    options = {
        "endpoint": endpoint,
        "access_key_id": "key",
        "secret_access_key": "secret",
        "region": "us-east-1",
    }
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")).close()
    store = obstore.store.from_url(f"s3://{BUCKET}", **options, client_options={"allow_http": True})
    for path in paths:
        store.put(Path(path).name, Path(path))
    return options
