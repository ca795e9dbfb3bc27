"""Samples of any structure in every layout, by chance: the same as by hand, however they travel."""

import collections
import dataclasses
import io
import itertools
from typing import Any

import covering
import numpy as np
import pytest
import tiers
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from PIL import Image

from fastloader import EncodedClip, EncodedImage, EncodedMask, FastLoader, Packed, Padded
from support import same

MEAN, STD = (0.1, 0.4, 0.7), (0.2, 0.3, 0.6)
Pair = collections.namedtuple("Pair", "left, right")


@dataclasses.dataclass(frozen=True)
class Part:
    """One place of every sample. ``kind``: what stands there; ``ragged``: whether sizes differ."""

    kind: str
    ragged: bool

    def made(self, draw: np.random.Generator) -> Any:
        first, second = (int(draw.integers(1, 7)) if self.ragged else 4 for _ in range(2))
        if self.kind == "bytes":
            shape = (3, first, second)
            return torch.from_numpy(draw.integers(0, 256, shape, dtype=np.uint8))
        if self.kind == "by pixel":
            shape = (first, second, 3)
            return torch.from_numpy(draw.integers(0, 256, shape, dtype=np.uint8)).permute(2, 0, 1)
        if self.kind == "grey floats":
            return torch.from_numpy(draw.random((1, first, second), dtype=np.float32))
        if self.kind in ENCODED:
            frames = 2 if self.kind == "clip" else 1
            pixels = draw.integers(0, 256, (frames, first, second, 3), dtype=np.uint8)
            return Encoded(pixels, draw.integers(0, 9, (first, second), dtype=np.uint8))
        if self.kind == "rows":
            length = first - 1 if self.ragged else first
            return torch.from_numpy(draw.integers(-9, 9, (length, 4)))
        if self.kind == "array":
            return draw.random(first)
        if self.kind == "scalar":
            return torch.tensor(draw.random())
        if self.kind == "nested":
            return {"a": [torch.ones(first)], "b": (1, "x")}
        return {"number": first, "float": first / 2, "text": "x" * first}[self.kind]


def png_of(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


class Encoded:
    """Pixels of frames, (T, H, W, C), and indices, (H, W), that a sample gives as PNGs."""

    def __init__(self, frames, indices):
        self.frames, self.indices = frames, indices

    def given(self, kind):
        files = list(map(png_of, self.frames))
        if kind == "clip":
            return EncodedClip(files)
        mask = EncodedMask(png_of(self.indices), ignore=77)
        return EncodedImage(files[0], with_={"mask": mask} if kind == "masked" else None)

    @property
    def clip(self):
        return torch.from_numpy(self.frames).permute(0, 3, 1, 2).contiguous()

    @property
    def mask(self):
        return torch.from_numpy(self.indices)


PICTURES = ("bytes", "by pixel", "grey floats", "encoded", "masked")
OF_BYTES = ("bytes", "by pixel", "encoded", "masked")
ENCODED = ("encoded", "masked", "clip")
KINDS = (*PICTURES, "clip", "rows", "array", "scalar", "nested", "number", "float", "text")
PARTS = st.builds(Part, st.sampled_from(KINDS), st.booleans())


@st.composite
def structures(draw):
    """(parts, what makes a sample of their values, what takes a batch apart into theirs)."""
    kind = draw(st.sampled_from(["tuple", "dict", "pair", "bare"]))
    if kind == "bare":
        # Else it is the container, or there is nothing to stand in one.
        part = draw(PARTS.filter(lambda part: part.kind != "nested"))
        return [part], lambda values: values[0], lambda batch: [batch]
    if kind == "pair":
        return [draw(PARTS), draw(PARTS)], lambda values: Pair(*values), pair_opened
    parts = draw(st.lists(PARTS, min_size=1, max_size=5))
    if kind == "tuple":
        return parts, tuple, list_opened
    names = [f"part {number}" for number in range(len(parts))]
    return parts, lambda values: dict(zip(names, values, strict=True)), dict_opened


def pair_opened(batch):
    assert type(batch) is Pair
    return list(batch)


def list_opened(batch):
    assert type(batch) is list
    return batch


def dict_opened(batch):
    assert type(batch) is dict
    return list(batch.values())


def by_hand(part, values, layout, normalized, pad_to, value):
    """What is to stand in a batch for these values; None if the layout refuses them."""
    if part.kind in ("text", "nested"):
        return values
    if part.kind in ("number", "float"):
        return torch.tensor(values, dtype=None if part.kind == "number" else torch.float64)
    if part.kind == "masked":
        plain = dataclasses.replace(part, kind="encoded")
        found = by_hand(plain, values, layout, normalized, pad_to, value)
        masks = [each.mask for each in values]
        if layout == "pad":
            masks = pictures([each[None] for each in masks], layout, pad_to, 77).tensor[:, 0]
        return None if found is None else {"image": found, "mask": masks}
    if part.kind == "clip":
        clips = [each.clip for each in values]
        if normalized:  # as any tensor of four dimensions with three channels
            clips = [torch.stack(list(map(normalize, each))) for each in clips]
        return packed(clips) if layout == "packed" else clips
    if part.kind == "encoded":
        values = [each.clip[0] for each in values]
    tensors = [torch.as_tensor(each) for each in values]
    if part.kind in PICTURES:
        if normalized and part.kind != "grey floats":
            tensors = list(map(normalize, tensors))
        return None if layout == "nested" else pictures(tensors, layout, pad_to, value)
    if layout in ("list", "pad"):
        return tensors
    if part.kind == "scalar":
        return torch.stack(tensors)
    return tensors if layout == "nested" else packed(tensors)


def differ(part, values):
    """Whether there are clips of several sizes, which are ragged in more than one dimension."""
    return part.kind == "clip" and len({each.clip.shape for each in values}) > 1


def normalize(picture):
    (found,) = FastLoader([picture[None].contiguous()], None, mean=MEAN, std=STD)
    return found[0]


def pictures(tensors, layout, pad_to, value):
    if layout == "list":
        return tensors
    if layout == "packed":
        flat = packed([each.permute(1, 2, 0).flatten(0, 1) for each in tensors])
        return flat._replace(shapes=torch.tensor([each.shape for each in tensors]))
    sides = [-(-max(each.shape[side] for each in tensors) // pad_to) * pad_to for side in (1, 2)]
    tensor = tensors[0].new_full((len(tensors), tensors[0].shape[0], *sides), value)
    mask = torch.ones((len(tensors), *sides), dtype=torch.bool)
    for place, each in enumerate(tensors):
        tensor[place, :, : each.shape[1], : each.shape[2]] = each
        mask[place, : each.shape[1], : each.shape[2]] = False
    return Padded(tensor, mask)


def packed(rows):
    ends = list(itertools.accumulate(map(len, rows), initial=0))
    shapes = torch.tensor([tuple(each.shape) for each in rows])
    return Packed(torch.cat(rows), torch.tensor(ends, dtype=torch.int32), shapes)


def check(structure, layout, count, size, makers, normalized, pad, way):
    parts, made, opened = structure
    draw = np.random.default_rng(count)
    values = [[part.made(draw) for part in parts] for _ in range(count)]
    options = {**makers, **way.options}
    normalized = normalized and any(part.kind in OF_BYTES for part in parts)
    if normalized:
        options |= {"mean": MEAN, "std": STD}
    if layout == "pad":
        options |= {"pad_to": pad[0], "pad_value": pad[1]}
    given = [
        made(
            [
                each.given(part.kind) if part.kind in ENCODED else each
                for part, each in zip(parts, row, strict=True)
            ]
        )
        for row in values
    ]
    loader = FastLoader(given, size, batch=layout, **options)
    pictured = any(part.kind in PICTURES for part in parts)
    rows = [values[begin : begin + size] for begin in range(0, count, size)]
    unlike = any(any(map(differ, parts, zip(*of_batch, strict=True))) for of_batch in rows)
    if layout in ("nested", "packed") and unlike:
        with pytest.raises(ValueError, match=r"differ in more than|ragged in two dimensions"):
            list(loader)
        return
    if (layout, pictured) in (("nested", True), ("pad", False)):
        try:
            next(iter(loader))
        except ValueError as error:
            said = "batch='pad' or batch='packed'" if pictured else "there is no picture to pad"
            assert said in str(error)
            return
        raise AssertionError("pictures in a nested tensor, or none to pad")
    batches = list(loader)
    assert len(batches) == -(-count // size)
    for number, batch in enumerate(batches):
        columns = zip(*values[number * size : (number + 1) * size], strict=True)
        for part, column, found in zip(parts, columns, opened(batch), strict=True):
            if layout == "nested" and part.kind in ("rows", "array", "clip"):
                assert found.layout is torch.jagged
                found = list(found.unbind())
            same(found, by_hand(part, list(column), layout, normalized, *pad))


MAKERS = [{}, {"num_workers": 1, "worker_backend": "thread"}, {"native": False}]


def test_samples_of_any_structure(request, way):
    """300 by chance with --all, 30 without."""
    numbers = st.integers(1, 5)

    @seed(covering.SEED)
    @settings(
        max_examples=300 if tiers.takes_all(request.config) else 30,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        structures(),
        st.sampled_from(["list", "pad", "nested", "packed"]),
        numbers,
        numbers,
        st.sampled_from(MAKERS),
        st.booleans(),
        st.tuples(numbers, st.sampled_from([0, 3, 255])),
    )
    def run(structure, layout, count, size, makers, normalized, pad):
        check(structure, layout, count, size, makers, normalized, pad, way)

    run()
