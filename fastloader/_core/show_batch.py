"""Shows a batch as the network will see it, ``loader.show_batch()``, as a grid with titles."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fastloader._core.batch.tree import Key, described, rebuild
from fastloader._core.order.generators import distinct, put_back, states_of
from fastloader._core.order.loader import Loader
from fastloader.transforms._normalization import Normalization

# ---- A batch's pictures as one looks at them: bytes, with what is known of each as its title.


_LABELS = ("label", "labels", "target", "targets", "y")


@dataclasses.dataclass(frozen=True)
class ShownPictures:
    """``pixels``: an array (H, W, 3) or (H, W, 4) of bytes for each picture. ``titles``: one for each;
    empty if the batch has no labels. ``note``: what else was done to the pixels."""

    pixels: list[NDArray[np.uint8]]
    titles: list[str]
    note: str


def find_pictures(
    batch: Any, normalization: Normalization | None, classes: Sequence[str] | None, count: int
) -> ShownPictures:
    """The first ``count`` pictures of a batch. ``normalization``: the loader's, which is undone in
    the float leaf that it looks like. Raises ValueError for a batch without pictures."""
    leaves = _tensors(batch)
    found = _normalised(leaves, normalization)
    if found is not None and normalization is not None:
        images, note = _undone(found[:count], normalization), ""
    else:
        plain = _plain(leaves)
        if plain is None:
            raise _no_pictures(leaves)
        images, note = _as_bytes(plain[:count])
    if images.shape[1] in (1, 2):  # of two channels the first
        images = images[:, :1].expand(-1, 3, -1, -1)
    pixels = images.permute(0, 2, 3, 1).contiguous().numpy()
    return ShownPictures(list(pixels), _titles(leaves, classes, pixels.shape[0]), note)


def _tensors(batch: Any) -> list[tuple[Key, torch.Tensor]]:
    leaves: list[tuple[Key, torch.Tensor]] = []

    def visit(value: Any, key: Key) -> Any:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            leaves.append((key, value.detach()))
        return value

    rebuild(batch, visit, None)
    return leaves


def _normalised(
    leaves: list[tuple[Key, torch.Tensor]], normalization: Normalization | None
) -> torch.Tensor | None:
    """The leaf that the loader has normalised, as (N, C, H, W)."""
    if normalization is None:
        return None
    for key, leaf in leaves:
        if normalization.image_key is not None and key != normalization.image_key:
            continue
        if leaf.is_floating_point() and leaf.dim() == 4:
            if normalization.allows_channels(leaf.shape[1]):
                return leaf
    return None


def _plain(leaves: list[tuple[Key, torch.Tensor]]) -> torch.Tensor | None:
    """The first leaf that looks like pictures, as (N, C, H, W)."""
    for _, leaf in leaves:
        if leaf.dim() == 4 and (leaf.dtype is torch.uint8 or leaf.is_floating_point()):
            if leaf.shape[1] in (1, 3):
                return leaf
            if leaf.shape[3] in (1, 3):
                return leaf.permute(0, 3, 1, 2)
    return None


def _undone(images: torch.Tensor, normalization: Normalization) -> torch.Tensor:
    images = images.float().cpu()
    if normalization.mean is not None and normalization.std is not None:
        mean, std = (
            torch.tensor(values, device="cpu").view(1, -1, 1, 1)
            for values in (normalization.mean, normalization.std)
        )
        images = images * std + mean
    return _to_bytes(images * 255)


def _as_bytes(images: torch.Tensor) -> tuple[torch.Tensor, str]:
    """Pictures that the loader has not normalised."""
    if images.dtype is torch.uint8:
        return images.cpu(), ""
    images = images.float().cpu()
    least, most = (float(images.min()), float(images.max())) if images.numel() else (0.0, 1.0)
    if least >= -1e-3 and most <= 1 + 1e-3:
        return _to_bytes(images * 255), ""
    if least >= 0 and most <= 255:
        return _to_bytes(images), ""
    stretched = (images - least) / max(most - least, 1e-12)
    return _to_bytes(stretched * 255), (
        f"brightness stretched from {least:.2f}..{most:.2f}: not normalised by this loader"
    )


def _to_bytes(images: torch.Tensor) -> torch.Tensor:
    return images.nan_to_num(0.0).round().clamp(0, 255).to(torch.uint8)


def _titles(
    leaves: list[tuple[Key, torch.Tensor]], classes: Sequence[str] | None, count: int
) -> list[str]:
    labels = [
        (key, leaf)
        for key, leaf in leaves
        if leaf.dim() == 1
        and leaf.shape[0] >= count
        and not leaf.is_floating_point()
        and not leaf.is_complex()
        and leaf.dtype is not torch.bool
    ]
    if not labels:
        return []
    _, chosen = next((each for each in labels if each[0] in _LABELS), labels[0])
    numbers = [int(number) for number in chosen[:count].tolist()]
    if classes is None:
        return [str(number) for number in numbers]
    return [
        str(classes[number]) if 0 <= number < len(classes) else str(number) for number in numbers
    ]


def _no_pictures(leaves: list[tuple[Key, torch.Tensor]]) -> ValueError:
    return ValueError(
        "the batch has no pictures to show: they are a tensor of bytes or floats of 4 dimensions, "
        f"NCHW or NHWC, with 1 or 3 channels; this batch holds {described(leaves)}"
    )


# ---- ``loader.show_batch()``: what the network will see.


def show_batch(loader: Loader, batch: Any, count: int) -> Any:
    """The figure. Raises what `FastLoader.show_batch` says."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"count must be a whole number of pictures, got {count!r}")
    if count < 1:
        raise ValueError(f"count={count}: show at least one picture")
    try:  # before a batch is made
        pass
    except ImportError as error:
        raise ImportError(
            f"show_batch() draws with matplotlib: pip install matplotlib ({error})"
        ) from error
    if batch is None:
        batch = _first_batch(loader)
    normalization = loader._runtime.delivery.normalization
    shown = find_pictures(batch, normalization, _classes(loader.dataset), count)
    if not shown.pixels:
        raise ValueError("the batch is empty, so there is no picture to show")
    return PictureGrid(shown)


def _first_batch(loader: Loader) -> Any:
    """Of an epoch that a copy of the loader begins, so that the loader itself stays where it is."""
    own: Any = copy.copy(loader)
    # One worker is enough, and persistent ones are the loader's.
    own.__dict__.update(persistent_workers=False, _iterator=None, **_own_samplers(loader))
    if own.worker_backend != "ray":
        own.__dict__["num_workers"] = min(1, loader.num_workers)
    own._runtime.position.keep_to_itself(own)
    with _kept_random_state(own):
        try:
            iterator = iter(own)
            for batch in iterator:
                return batch
        finally:
            own.close()
    raise ValueError("the loader has no batch to show")


def _own_samplers(loader: Loader) -> dict[str, Any]:
    """Copies of the loader's samplers, for one that counts its epochs, or what it has given."""
    made: dict[int, Any] = {}

    def copied(sampler: Any) -> Any:
        if id(sampler) not in made:
            made[id(sampler)] = own = copy.copy(sampler)
            for name in ("batch_sampler", "sampler"):
                if getattr(own, "__dict__", {}).get(name) is not None:
                    own.__dict__[name] = copied(own.__dict__[name])
        return made[id(sampler)]

    names = ("sampler", "batch_sampler")
    return {name: copied(getattr(loader, name)) for name in names}


@contextlib.contextmanager
def _kept_random_state(loader: Loader) -> Iterator[None]:
    """Puts back what a shuffle and a dataset draw from: the generators of Python, numpy and torch on
    the CPU, and those of the loader and its samplers."""
    sampler, batch_sampler = loader.sampler, loader.batch_sampler
    holders = (loader, sampler, batch_sampler, getattr(batch_sampler, "sampler", None))
    generators = distinct(*[getattr(holder, "generator", None) for holder in holders])
    states = states_of(generators)
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        put_back(generators, states)


def _classes(dataset: Any) -> Any:
    """The names of the classes, also of a dataset inside a Subset; None if there are none."""
    for _ in range(8):
        classes = getattr(dataset, "classes", None)
        if isinstance(classes, list | tuple):
            return classes
        dataset = getattr(dataset, "dataset", None)
    return None


# ---- A grid of pictures with their titles, drawn by matplotlib.


_INCHES = 1.7  # the width of a picture
_LONGEST_TITLE = 18


class PictureGrid(Figure):
    """A Figure without pyplot: it needs no display, and nothing has to close it."""

    def __init__(self, shown: ShownPictures) -> None:
        count = len(shown.pixels)
        columns = min(count, max(4, math.ceil(math.sqrt(count))))
        rows = math.ceil(count / columns)
        height, width = shown.pixels[0].shape[:2]
        cell = _INCHES * min(3.0, max(0.3, height / width)) + (0.3 if shown.titles else 0.1)
        size = (_INCHES * columns, cell * rows + (0.4 if shown.note else 0.0))
        super().__init__(figsize=size, layout="constrained")
        if shown.note:
            self.suptitle(shown.note, fontsize=9)
        axes = self.subplots(rows, columns, squeeze=False).flat
        for number, cell_axes in enumerate(axes):
            cell_axes.axis("off")
            if number < count:
                cell_axes.imshow(shown.pixels[number], interpolation="antialiased")
                if shown.titles:
                    cell_axes.set_title(_shortened(shown.titles[number]), fontsize=9)

    def _repr_png_(self) -> bytes:
        """What a notebook shows, also where pyplot was never imported."""
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=100)
        return file.getvalue()


def _shortened(title: str) -> str:
    # A $ would begin a formula.
    title = title.replace("$", r"\$")
    return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…"
