"""Recognises datasets whose pictures the native path can read, decode and transform by itself."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from fastloader import datasets
from fastloader._core.batch.augmentation import Mixing
from fastloader._core.machine import identity
from fastloader._core.machine.identity import Rows, change, found, function_change, is_a, true_name
from fastloader._core.machine.torch_datasets import kind_of
from fastloader._core.order.loader import Loader, collation_of
from fastloader._core.order.position import holds_twice
from fastloader._core.pictures.images import NativeImages
from fastloader._core.pictures.store import FolderStore, ImageStore, LmdbStore, MappedStore
from fastloader._core.sources import collation
from fastloader._core.sources.arguments import check_batches
from fastloader._core.sources.reading import (
    Known,
    KnownBeginning,
    KnownSamples,
    OnlyLookedAt,
    Reading,
    Refusals,
    WholeTransform,
    copied,
    flat,
    last_time,
)
from fastloader._core.sources.recognize_torchvision import DATASETS
from fastloader._core.sources.sequences import by_place, picked_by
from fastloader.datasets._formats.sample_form import SampleForm
from fastloader.datasets.files import FileList
from fastloader.datasets.hugging_face import CLASS_LABEL, IMAGE, HFImages
from fastloader.datasets.lmdb import LMDBDataset
from fastloader.datasets.pictures import Pictures, format_of, formats
from fastloader.errors import NotNative
from fastloader.transforms import _pillow
from fastloader.transforms._chain import Chain
from fastloader.transforms._reader.kinds import is_ours
from fastloader.transforms.tensors import Rolled

# ---- Subset and ConcatDataset over known datasets.


def subset(dataset: Any, inner: NativeImages) -> NativeImages:
    picked = picked_by(dataset)
    if picked.size and picked.min() < 0:
        picked = np.where(picked < 0, picked + len(inner), picked)
    if picked.size and (picked.min() < 0 or picked.max() >= len(inner)):
        raise NotNative("a Subset holds indices that its dataset has not")
    indices = picked if inner.indices is None else inner.indices[picked]
    kept = last_time.get(dataset)
    if kept is not None and np.array_equal(kept[0], indices):
        indices, repeats = kept
    else:
        repeats = holds_twice(indices)
    last_time[dataset] = indices, repeats
    name = f"Subset of {inner.name}"
    return dataclasses.replace(inner, indices=indices, name=name, repeats=repeats)


def concatenated(dataset: Any, parts: list[NativeImages], sized: bool) -> NativeImages:
    """Joins the pictures of a ConcatDataset. ``sized``: whether they are to have one size."""
    if not sized and len({part.chain.size for part in parts}) > 1:
        parts = list(map(_of_own_sizes, parts))
    first = parts[0]
    sizes = by_place(dataset.cumulative_sizes, "the sizes of a ConcatDataset")
    if not np.array_equal(sizes, np.cumsum([len(part) for part in parts])):
        raise NotNative("the datasets of a ConcatDataset have other sizes than when it was made")
    chains = _joined_chains(parts)
    if any(part.attempts != first.attempts for part in parts):
        raise NotNative("the datasets of a ConcatDataset treat bad samples differently")
    form = _joined_form(parts)
    kept = last_time.get(dataset)
    if kept is not None and _same_files(kept[0], parts):
        joined: NativeImages = kept[1]
        return dataclasses.replace(
            joined, chain=first.chain, chains=chains, attempts=first.attempts, form=form
        )
    joined = dataclasses.replace(_join(parts), chains=chains, form=form)
    last_time[dataset] = (parts, joined)
    return joined


def _of_own_sizes(images: NativeImages) -> NativeImages:
    """Returns pictures whose chains do not say how large they come out."""
    chain, *chains = (
        dataclasses.replace(each, size=None) for each in (images.chain, *images.chains)
    )
    return dataclasses.replace(images, chain=chain, chains=tuple(chains))


def _same_files(some: list[NativeImages], others: list[NativeImages]) -> bool:
    return len(some) == len(others) and all(a.same_files(b) for a, b in zip(some, others))


def _join(parts: list[NativeImages]) -> NativeImages:
    first = parts[0]
    counts = np.cumsum([0, *(len(part.store) for part in parts)])
    indices = None
    if any(part.indices is not None for part in parts):
        indices = np.concatenate(
            [
                (np.arange(len(part)) if part.indices is None else part.indices) + before
                for part, before in zip(parts, counts)
            ]
        )
    return NativeImages(
        _joined([part.store for part in parts]),
        np.concatenate([part.targets for part in parts]),
        indices,
        first.chain,
        "ConcatDataset of " + ", ".join(_counted(part.name for part in parts)),
        first.attempts,
        tuple(int(before) + start for part, before in zip(parts, counts) for start in part.starts),
        any(part.repeats for part in parts),
        watched=tuple(names for part in parts for names in part.watched),
    )


def _counted(names: Iterable[str]) -> Iterator[str]:
    """Gives each name once, with how often it stands in a row."""
    for name, same in itertools.groupby(names):
        count = len(list(same))
        yield name if count == 1 else f"{count} times {name}"


def _joined_chains(parts: list[NativeImages]) -> tuple[Chain, ...]:
    """Returns the chain of each of these datasets; none if they have one and the same.

    Raises:
        NotNative: if their pictures would not be stacked, or are normalised or erased differently.
    """
    first = parts[0].chain
    for number, part in enumerate(parts):
        for name in _END:
            own, other = getattr(part.chain, name), getattr(first, name)
            if own != other:
                raise NotNative(
                    "the datasets of a ConcatDataset have transforms that end differently: "
                    f"{_END[name]} is {other} in the first, and {own} in {_part_name(number)}"
                )
    chains = [each for part in parts for each in part.chains or [part.chain] * len(part.starts)]
    return tuple(chains) if any(each != first for each in chains) else ()


# What the chains of one batch have in common, and what messages call it.
_END = {
    "size": "the size of the pictures",
    "grey": "whether they are grey",
    "tensor": "whether they are tensors",
    "floating": "whether they are floats",
    "mean": "the mean",
    "std": "the std",
    "erasing": "what is erased",
}


def _joined_form(parts: list[NativeImages]) -> SampleForm:
    """Returns the form of the samples of these datasets, one after the other."""
    forms = [part.form for part in parts]
    if len({(form.keys, form.reader is None) for form in forms}) > 1:
        raise NotNative("the datasets of a ConcatDataset have samples of different forms")
    if forms[0].reader is None:
        return forms[0]
    counts = [len(part.store) for part in parts]
    return SampleForm(forms[0].keys, ConcatReader([form.reader for form in forms], counts))


@dataclasses.dataclass(frozen=True)
class ConcatReader:
    """Reads the columns of datasets, one after the other, which have so many samples each."""

    readers: list[Any]
    counts: list[int]

    def __call__(self, files: list[int]) -> list[tuple[Any, ...]]:
        ends = list(itertools.accumulate(self.counts))
        rows = []
        for file in files:
            part = bisect.bisect_right(ends, file)
            rows += self.readers[part]([file - ends[part] + self.counts[part]])
        return rows


def _joined(stores: list[ImageStore]) -> ImageStore:
    first, *others = stores
    if any(type(other) is not type(first) for other in others):
        kinds = sorted({store.kind for store in stores}, key=str.lower)
        raise NotNative(f"a ConcatDataset holds {' and '.join(kinds)}")
    if any(other.upright != first.upright for other in others):
        raise NotNative(
            "a ConcatDataset holds datasets that turn pictures as EXIF says, and others"
        )
    return first.joined(others)


# ---- Datasets of pictures that derive from ours: `Pictures`.


def recognize_pictures(dataset: Pictures, reading: Reading) -> NativeImages:
    if isinstance(dataset, LMDBDataset) and dataset.legacy:
        raise NotNative("the dataset is a legacy LMDB file: its samples are pickled")
    reading.target_transform(dataset.target_transform)
    chain = reading.chain(dataset.transform, ours_ends_in_tensor=True)
    kind = format_of(type(dataset))
    assert kind is not None  # the caller has asked for its row
    if dataset.spans is not None and len(dataset) > len(dataset.spans):
        raise NotNative(
            f"the dataset has {len(dataset)} samples, and its spans have {len(dataset.spans)}"
        )
    files = dataset._own_files()
    store: ImageStore
    if files is not None:
        store = FolderStore(*files, upright=dataset.upright)
    elif isinstance(dataset, LMDBDataset):
        store = LmdbStore([dataset])
    else:
        store = MappedStore([dataset], formats()[kind])
    targets = np.asarray(
        by_place(dataset.targets, "the dataset's targets")
    )  # which the user may have set
    if targets.dtype.kind not in "iu" or targets.shape != (len(store),):
        raise NotNative("the dataset's targets are not a whole number for each file")
    name = f"{kind.__module__.partition('.')[0]} {kind.__qualname__}{dataset._plan_note()}"
    return NativeImages(store, targets, None, chain, name, form=dataset.form)


def is_here(dataset: Pictures) -> bool:
    return dataset._elsewhere() is None


# The formats that fastloader has. One of a user's may be anything, and is `Pictures` if it leaves these
# as they are:
_OURS = frozenset(getattr(datasets, name) for name in datasets.__all__)
_MAKE_SAMPLES = (
    "__getitem__", "__getitems__", "_encoded", "_label", "_picture", "_target", "open_rgb",
)  # fmt: skip


def own_samples(kind: type) -> str:
    """Says which method that makes samples a format of a user's has of its own; empty if none."""
    for own in kind.__mro__:
        if own in _OURS:
            return ""
        for name in _MAKE_SAMPLES:
            if name in vars(own):
                return f"{own.__qualname__} has a {name} of its own"
    return ""


# ---- Data sets of Hugging Face's ``datasets`` that were given a transform of ours.


# What gives the rows of a data set to its transform.
FORMATTER = ("datasets.formatting.formatting", "CustomFormatter")

# The pictures of a data set, as long as its transform is the same.
_found: weakref.WeakKeyDictionary[Any, HFImages] = weakref.WeakKeyDictionary()


def has_our_transform(dataset: Any) -> bool:
    """Returns whether ``with_transform`` gave the dataset a transform of ours, which is one of pictures:
    any other data set may hold text, or anything."""
    return is_ours(_transform_of(dataset))


def _transform_of(dataset: Any) -> Any:
    format = dataset.format
    return format["format_kwargs"].get("transform") if format["type"] == "custom" else None


def recognize_hugging_face(dataset: Any, reading: Reading) -> NativeImages:
    """Reads a dataset of Hugging Face. A sample is a dict of the columns, in which the picture is a
    tensor."""
    transform = _transform_of(dataset)
    decode = getattr(found(*IMAGE), "decode_example", None)
    if changed := function_change(decode, IMAGE[0], "Image.decode_example"):
        raise NotNative(changed)
    if changed is None:
        raise NotNative(f"datasets.Image.decode_example was replaced by {true_name(decode)}")
    formatter = found(*FORMATTER)
    if formatter is not None and (changed := change(formatter, formatter)):
        raise NotNative(changed)
    images = _found.get(dataset)
    if images is None or images.transform is not transform:
        images = _found[dataset] = _images(dataset, transform)
    return recognize_pictures(images, reading)


def _images(dataset: Any, transform: Any) -> HFImages:
    columns = list(dataset.format["columns"])
    pictures = [name for name in columns if is_a(dataset.features[name], IMAGE)]
    if len(pictures) != 1 or dataset.format["output_all_columns"]:
        raise NotNative(f"the data set has {len(pictures)} columns of pictures: one is native")
    (picture,) = pictures
    label = next((name for name in columns if is_a(dataset.features[name], CLASS_LABEL)), None)
    rest = [name for name in columns if name not in (picture, label)]
    try:
        images = HFImages(dataset, transform, image=picture, label=label, columns=rest)
    except (TypeError, ValueError) as error:  # a mode, labels that are null
        raise NotNative(str(error)) from None
    images.form = SampleForm((picture, label, *rest), images.form.reader, tuple(columns))
    return images


# ---- What a collate_fn mixes, in the batches of a dataset of pictures.


def checked_mixing(pictures: NativeImages, mixing: Mixing | Rolled) -> Mixing | Rolled:
    """Returns the mixing for these pictures: of bytes, if their chain ends in bytes.

    Raises:
        NotNative: for what cannot be mixed, or not natively.
    """
    chain = pictures.chain
    if isinstance(mixing, Mixing):
        if chain.floating:
            raise NotNative("collate_fn mixes bytes, and the transform ends in floats")
        if mixing.multi_label:
            raise NotNative("collate_fn mixes dense targets, and the dataset has classes")
    else:
        mixing = dataclasses.replace(mixing, before_normalize=not chain.floating)
    targets = pictures.targets
    if len(targets) and not 0 <= targets.min() <= targets.max() < (mixing.num_classes or 0):
        raise NotNative(
            f"collate_fn mixes {mixing.num_classes} classes, and the dataset has others: "
            f"{targets.min()} to {targets.max()}"
        )
    return mixing


# ---- timm's ImageDataset.


READERS = Rows[str](
    {
        ("timm.data.readers.reader_image_folder", "ReaderImageFolder"): "folder",
        ("fastloader.compat.timm.dataset", "ReaderImageFolder"): "folder",
    }
)


def recognize_timm(dataset: Any, reading: Reading) -> NativeImages:
    """Recognises timm's own ImageDataset and that of compat.timm."""
    reader = type(dataset.reader)
    known = READERS.known(reader)
    if known is None:
        raise NotNative(f"the dataset's reader is a {reader.__module__}.{reader.__qualname__}")
    if changed := identity.change(reader, known, ("samples",)):
        raise NotNative(changed)
    plain = {
        "load_bytes": False,
        "input_img_mode": "RGB",
        "additional_features": None,
    }
    for name, value in plain.items():
        if getattr(dataset, name) != value:
            raise NotNative(f"the dataset has {name}={getattr(dataset, name)!r}")
    reading.target_transform(dataset.target_transform)
    attempts = getattr(dataset, "_max_retries", None)
    if not isinstance(attempts, int) or attempts < 1:
        raise NotNative("this version of timm treats bad samples by a rule that is not known")
    chain = reading.chain(dataset.transform)
    store, targets = flat(dataset, copied(dataset.reader.samples))
    return NativeImages(store, targets, None, chain, attempts=attempts)


# ---- By which plugins Pillow opens the pictures that are decoded natively.


# Of each of these formats: the module that registers it, and what it registers.
_OPENED_BY = {
    "JPEG": ("PIL.JpegImagePlugin", "jpeg_factory", "_accept"),
    "PNG": ("PIL.PngImagePlugin", "PngImageFile", "_accept"),
    "WEBP": ("PIL.WebPImagePlugin", "WebPImageFile", "_accept"),
}
# How files of these formats begin, as far as a plugin is shown them.
_BEGINNINGS = {
    "JPEG": (
        b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01",
        b"\xff\xd8\xff\xe1\x00\x10Exif\x00\x00II*\x00",
        b"\xff\xd8\xff\xdb\x00C\x00\x08\x06\x06\x07\x06\x05\x08\x07\x07",
    ),
    "PNG": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",),
    "WEBP": (
        b"RIFF\x24\x00\x00\x00WEBPVP8 ",
        b"RIFF\x24\x00\x00\x00WEBPVP8L",
        b"RIFF\x24\x00\x00\x00WEBPVP8X",
    ),
}
# The decoders of Pillow's own that these formats name.
_DECODERS = ("jpeg", "raw", "zip")


def other_plugin() -> str:
    """Describes what opens or decodes a natively decoded format in Pillow, if it is not Pillow's own
    plugin; empty if it is."""
    decoders = identity.found("PIL.Image", "DECODERS") or {}
    for name in _DECODERS:
        if name in decoders:
            return f"Pillow decodes {name!r} by {identity.true_name(decoders[name])}"
    order = identity.found("PIL.Image", "ID") or []
    plugins = identity.found("PIL.Image", "OPEN") or {}
    for format_, (module, *names) in _OPENED_BY.items():
        own = tuple(identity.found(module, name) for name in names)
        if None in own:
            continue  # its module was not imported: Pillow will register it when it opens a picture
        if format_ not in order or format_ not in plugins:
            return f"Pillow opens no {format_}"
        registered = plugins[format_]
        if not _same(registered, own):
            changed = next(
                (one for one, other in zip(registered, own, strict=False) if one is not other), None
            )
            return f"Pillow opens {format_} by {identity.true_name(changed)}"
    # A file is shown to all plugins, in their order, until one takes it.
    for format_ in _OPENED_BY:
        before = order[: order.index(format_)] if format_ in order else order
        for first in before:
            factory, accept = plugins.get(first, (None, None))
            if factory is not None and first not in _OPENED_BY and _takes(factory, accept, format_):
                return f"Pillow opens {format_} by {identity.true_name(factory)}"
    return ""


def _same(registered: Any, own: tuple[Any, ...]) -> bool:
    return len(registered) == len(own) and all(
        map(lambda one, other: one is other, registered, own)
    )


def _takes(factory: Any, accept: Any, format_: str) -> bool:
    """Returns whether a plugin would open files of this format; True if that cannot be told."""
    if _is_pillows(factory) and (accept is None or _is_pillows(accept)):
        return False
    if accept is None:
        return True
    try:
        return any(accept(beginning) for beginning in _BEGINNINGS[format_])
    except Exception:
        return True


def _is_pillows(value: Any) -> bool:
    """Returns whether a function or class is one of Pillow's for another format than those above."""
    home = getattr(value, "__module__", "")
    others = [module for module, *_ in _OPENED_BY.values()]
    return str(home).startswith("PIL.") and home not in others and identity.is_librarys(value)


# ---- Recognising datasets whose pictures the native path can read, decode and transform by
# itself.
#
# `machine/identity.py` says what a class is, and nothing of torchvision or timm is imported. A
# subclass is known as long as it has nothing of its own that matters. If something is not
# known, `NotNative` names it.


# What a dataset says of its pictures: of those in files, of records, and of those that lie in memory.
_FILES = ("ends", "form", "paths", "seek_file")
_RECORDS = ("environment", "image_bytes", "indexed", "name", "open_rgb", "record", "will_need")
_OF_MAPPED_PICTURES = (
    "form", "image_bytes", "name", "open_rgb", "_own_files", "places", "spans", "upright",
    "will_need",
)  # fmt: skip

# The formats of `Pictures`. Each is of the first row that it derives from.
_FORMATS = {
    FileList: Known(recognize_pictures, _FILES, only=is_here),
    LMDBDataset: Known(recognize_pictures, _RECORDS),
    HFImages: Known(recognize_pictures, ("files", *_OF_MAPPED_PICTURES)),
    Pictures: Known(recognize_pictures, _OF_MAPPED_PICTURES, only=is_here),
}
# What makes `NativeImages` of any other dataset, by the dataset's class. A kind of dataset in these two
# tables is an image dataset: `warn_if_pictures` warns if Python makes its batches.
RECOGNIZERS = Rows[Known](
    {
        ("datasets.arrow_dataset", "Dataset"): Known(
            recognize_hugging_face, only=has_our_transform
        ),
        ("timm.data.dataset", "ImageDataset"): Known(recognize_timm),
        ("fastloader.compat.timm.dataset", "ImageDataset"): Known(recognize_timm),
        **DATASETS,
    }
)


def first_part(dataset: Any) -> Any:
    """Returns the first of the datasets of which ``dataset`` is a selection: itself, unless it is a
    Subset or a ConcatDataset."""
    while (kind := kind_of(dataset)) in (Subset, ConcatDataset):
        if kind is Subset:
            dataset = dataset.dataset
        elif not dataset.datasets:
            break
        else:
            dataset = dataset.datasets[0]
    return dataset


def holds_images(dataset: Any) -> bool:
    """Returns whether `recognize_images` knows the kind of the dataset, or of its first part: a
    ConcatDataset may have thousands of parts, of which the first one that is not known decides."""
    return _known_class(first_part(dataset)) is not None


def known_kind(kind: type) -> type | None:
    """Returns the class that is known, which ``kind`` is or derives from: a format, or one in
    `RECOGNIZERS`."""
    return format_of(kind) or RECOGNIZERS.known(kind)


def _row(known: type) -> Known:
    """Returns the row of a class that is known."""
    row = RECOGNIZERS.get(known)
    return row or next(each for base, each in _FORMATS.items() if issubclass(known, base))


def _known_class(dataset: Any) -> type | None:
    """Returns the `known_kind` of the dataset, if it is one that holds pictures."""
    known = known_kind(type(dataset))
    if known is None:
        return None
    only = _row(known).only
    return known if only is None or only(dataset) else None


# Where Pillow opens pictures, as native decoders do: each file is offered to all of these plugins.
_PILLOW = (
    "PIL.BmpImagePlugin",
    "PIL.GifImagePlugin",
    "PIL.ImageFile",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "PIL.PpmImagePlugin",
    "PIL.WebPImagePlugin",
    _pillow.__name__,
)
# What a subclass may not have of its own, beside what the methods of a sample look at: it says which
# samples there are, or what they are.
_WHAT_MATTERS = (
    "imgs", "loader", "path", "reader", "samples", "target_transform", "targets", "transform",
    "transforms",
)  # fmt: skip


def own_part(dataset: Any) -> str:
    """Describes what a dataset of a known kind does otherwise than the source of that kind says, so that
    its samples may be anything; empty if there is nothing that matters."""
    known = _known_class(dataset)
    assert known is not None  # the caller has asked holds_images
    if own := identity.own_part(dataset, known, (*_WHAT_MATTERS, *_row(known).reads)):
        return own
    if issubclass(known, Pictures) and (own := own_samples(known)):
        return own
    return identity.modules_change(*_PILLOW) or other_plugin()


def recognize_images(loader: Loader) -> NativeImages:
    """Returns the pictures that the loader's dataset holds.

    Raises:
        NotNative: with the reason in words, if the native path cannot make the batches.
    """
    check_batches(loader)
    container = collation.container(collation_of(loader))
    mixing = collation.mixing_of(collation_of(loader))
    found = _recognize(loader.dataset, WholeTransform())
    if container is tuple and not found.form.plain:
        raise NotNative("collate_fn is of pictures and labels, and the samples have another form")
    if mixing is not None:
        mixing = checked_mixing(found, mixing)
    return dataclasses.replace(found, container=container, mixing=mixing)


def recognize_beginning(dataset: Any) -> tuple[NativeImages, KnownBeginning]:
    """Returns the pictures of a dataset, as far as the beginning of its transform makes them.

    Raises:
        NotNative: if there is no such beginning.
    """
    reading = KnownBeginning()
    return _recognize(dataset, reading), reading


def recognize_samples(dataset: Any) -> tuple[NativeImages, KnownSamples]:
    """Returns the pictures of a dataset, as its whole transform makes them, for any collate_fn.

    Raises:
        NotNative: if the transform is not known to its end.
    """
    reading = KnownSamples()
    return _recognize(dataset, reading), reading


def _recognize(dataset: Any, reading: Reading) -> NativeImages:
    kind = type(dataset)
    selection = kind_of(dataset)
    if selection in (Subset, ConcatDataset):
        if own := identity.own_part(dataset, selection):
            raise NotNative(own)
        if selection is Subset:
            return subset(dataset, _recognize(dataset.dataset, reading))
        parts = []
        for number, each in enumerate(dataset.datasets):
            try:
                parts.append(_recognize(each, reading))
            except NotNative as refusal:
                if isinstance(refusal, OnlyLookedAt):
                    raise
                raise NotNative(f"{refusal} ({_part_name(number)})") from None
        return concatenated(dataset, parts, reading.sized)
    known = _known_class(dataset)
    if known is None:
        raise NotNative(unknown(dataset))
    if own := own_part(dataset):
        raise NotNative(own)
    images = _row(known).recognize(dataset, reading)
    name = images.name or f"{known.__module__.partition('.')[0]} {known.__qualname__}"
    if kind is not known:
        name = f"{kind.__qualname__}, {name}"
    watched = *_WHAT_MATTERS, *_row(known).reads
    return dataclasses.replace(images, name=name, watched=(watched,))


def _part_name(number: int) -> str:
    return f"datasets[{number}] of the ConcatDataset"


def refusals(dataset: Any) -> Refusals:
    """Collects all that keeps a dataset that `holds_images` from the native path."""
    found = Refusals()
    try:
        _recognize(dataset, found)
    except OnlyLookedAt:
        pass
    except NotNative as refusal:
        found.found.append(str(refusal))
    return found


def unknown(dataset: Any) -> str:
    """Explains why a dataset that is no selection is not native, if its class is not in the table."""
    if isinstance(dataset, Pictures) and (why := dataset._elsewhere()) is not None:
        return why
    return f"the dataset is a {type(dataset).__module__}.{type(dataset).__qualname__}"
