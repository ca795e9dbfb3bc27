"""Pictures in a data set of Hugging Face's ``datasets``, with their bytes in its Arrow files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import PIL
from torch.utils.data import DataLoader, default_collate

from benchmarks.peers.scenarios import Settings
from benchmarks.peers.scenarios.pillow import cropped
from benchmarks.peers.scenarios.recipes.loaders import Epochs, options
from benchmarks.peers.scenarios.sources import folder
from benchmarks.peers.scenarios.sources.readers import CHAIN, copied, natively
from fastloader.datasets import HFImages


def versions() -> dict[str, str]:
    return {
        **folder.versions(),
        "datasets": datasets.__version__,
        "pillow": PIL.__version__,
    }


def fastloader(settings: Settings) -> Epochs:
    return natively(HFImages(saved(settings), CHAIN), settings)


def dataloader(settings: Settings) -> Epochs:
    dataset = saved(settings).with_transform(_cropped)
    return Epochs(DataLoader(dataset, collate_fn=_pair, **options(settings)))


def _cropped(rows: dict[str, Any]) -> dict[str, Any]:
    return {**rows, "image": [cropped(image.convert("RGB")) for image in rows["image"]]}


def _pair(rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    batch = default_collate(rows)
    return batch["image"], batch["label"]


def saved(settings: Settings) -> Any:
    """The data set, mapped from the folder in which it was saved."""

    def write(path: Path) -> None:
        classes = sorted({Path(file).parent.name for file, _label in settings.samples()})
        made = datasets.Dataset.from_generator(
            _rows,
            features=datasets.Features(
                {"image": datasets.Image(), "label": datasets.ClassLabel(names=classes)}
            ),
            gen_kwargs={"samples": settings.samples()},
            cache_dir=str(path.parent / "cache"),
        )
        made.save_to_disk(str(path))

    return datasets.load_from_disk(str(copied(settings, "hf", write)))


def _rows(samples: list[tuple[str, int]]) -> Iterator[dict[str, Any]]:
    for path, label in samples:
        yield {"image": {"bytes": Path(path).read_bytes(), "path": None}, "label": label}
