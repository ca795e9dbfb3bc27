"""Pictures in tar shards, as WebDataset keeps them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from benchmarks.peers.scenarios import Settings
from benchmarks.peers.scenarios.recipes.loaders import Epochs
from benchmarks.peers.scenarios.sources.folder import versions
from benchmarks.peers.scenarios.sources.readers import CHAIN, copied, natively
from fastloader.datasets import TarImages

__all__ = ["fastloader", "shards", "versions"]


def fastloader(settings: Settings) -> Epochs:
    return natively(TarImages(shards(settings), CHAIN), settings)


def shards(settings: Settings) -> list[str]:
    """Their paths: two shards for each worker, since WebDataset gives each worker shards of its own. The
    classes are spread over all shards, since WebDataset shuffles no further than its buffer."""
    samples = list(enumerate(settings.samples()))
    count = min(max(2, 2 * settings.threads), len(samples))

    def write(folder: Path) -> None:
        folder.mkdir()
        for number in range(count):
            with tarfile.open(folder / f"{number:06d}.tar", "w") as tar:
                for key, (path, label) in samples[number::count]:
                    for name, content in (
                        (f"{key:08d}.jpg", Path(path).read_bytes()),
                        (f"{key:08d}.cls", str(label).encode()),
                    ):
                        member = tarfile.TarInfo(name)
                        member.size = len(content)
                        tar.addfile(member, io.BytesIO(content))

    return sorted(map(str, copied(settings, "shards", write).glob("*.tar")))
