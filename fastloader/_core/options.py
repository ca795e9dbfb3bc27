"""Checks the arguments that `FastLoader` has and DataLoader does not, and says which of them the
pictures contradict, and why Python makes the batches."""

from __future__ import annotations

import dataclasses
import inspect
import numbers
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    IterDataPipe,
    MapDataPipe,
    Subset,
    default_collate,
    default_convert,
)

from fastloader._core.batch.layout import LAYOUTS, Layout
from fastloader._core.delivery.delivery import Delivery
from fastloader._core.delivery.path import DeliverySpec
from fastloader._core.handoff import Obstacles, SamplePart, lines_of
from fastloader._core.machine import extension
from fastloader._core.machine.identity import is_a, true_name
from fastloader._core.machine.limits import own_threads
from fastloader._core.machine.messages import users_level, warn_deprecated
from fastloader._core.machine.torch_datasets import kind_of
from fastloader._core.order.loader import (
    AutoWorkers,
    Loader,
    OwnArguments,
    WorkerMethod,
    collation_of,
)
from fastloader._core.pictures.in_place import parts_of
from fastloader._core.sources.arguments import (
    REQUIRE,
    asked_of_pictures,
    check_batches,
    check_extension,
    check_native,
    requires_native,
)
from fastloader._core.sources.arrays import holds_arrays
from fastloader._core.sources.collation import container
from fastloader._core.sources.python.arguments import of_torch
from fastloader._core.sources.recognize import (
    READERS,
    first_part,
    holds_images,
    own_part,
    refusals,
    unknown,
)
from fastloader._core.sources.recognize_torchvision import STANDARD, opens_otherwise
from fastloader._core.sources.remote.cluster import check_ray_options
from fastloader.datasets._formats.sample_form import PLAIN, SampleForm
from fastloader.errors import NotNative, PythonPathWarning
from fastloader.transforms._normalization import (
    MAX_CHANNELS,
    Normalization,
    check_same_values,
    checked_keys,
)
from fastloader.transforms._reader.chain import own_normalization, step_to_floats
from fastloader.transforms.transform import shown


def check_picture_arguments(loader: Loader) -> None:
    """Raises, when the loader is made, what `find_images` would raise for its first batch. Only
    pictures of a known dataset are looked at and, unless their transform normalises them, with a known
    ``collate_fn``: any other batch shows what is in it when it comes.

    Raises:
        TypeError: if the transform gives floats, and mean, std or dtype ask for bytes.
        ValueError: if it normalises by other values than these, or ``image_key`` names something else
            than the picture.
    """
    wanted = loader._runtime.normalization
    if wanted is None or not holds_images(loader.dataset):
        return
    collated = _is_collation_known(loader)
    for dataset in parts_of(loader.dataset):
        form = _form_of(dataset)
        if form is None:
            continue
        if collated:
            _check_keys(dataset, form, wanted.image_key)
        # A column may be an image leaf, too.
        if form.reader is None and _transforms_alone(dataset):
            _check_floats(dataset, wanted, collated)


def come_normalized(loader: Loader) -> Normalization | None:
    """Returns what is left to do to samples that Python makes, if they come normalised by the loader's
    own mean and std; None if they do not. The ``collate_fn`` may be anybody's: it gets these samples."""
    wanted = loader._runtime.normalization
    if wanted is None or loader._runtime.augmentation is not None:
        return None
    for dataset in parts_of(loader.dataset):
        form = _form_of(dataset)
        if form is None or form.reader is not None or not _transforms_alone(dataset):
            return None
        own = own_normalization(step_to_floats(getattr(dataset, "transform", None)))
        if own is None or not own.same_values(wanted):
            return None
    return dataclasses.replace(wanted, done=True)


def _is_collation_known(loader: Loader) -> bool:
    """Returns whether it is known what becomes of samples in a batch before there is one."""
    try:
        check_batches(loader)
        container(collation_of(loader))
    except NotNative:
        return False
    return True


def _form_of(dataset: Any) -> SampleForm | None:
    if not holds_images(dataset) or own_part(dataset):  # its samples may be anything
        return None
    # torchvision's and timm's have none. Those of Hugging Face have columns of any name.
    form = getattr(dataset, "form", PLAIN if isinstance(dataset, Dataset) else None)
    return form if isinstance(form, SampleForm) else None


def _check_keys(dataset: Any, form: SampleForm, keys: tuple[int | str, ...] | None) -> None:
    picture = form.picture_key
    if form.reader is not None:
        return
    for key in keys or ():
        if key != picture:
            raise ValueError(
                f"image_key={key!r}: the picture of a sample of {type(dataset).__name__} is under "
                f"{picture!r}. Leave image_key out, or give image_key={picture!r}"
            )


def _transforms_alone(dataset: Any) -> bool:
    """Returns whether ``transform`` is all that is done to a picture."""
    both = getattr(
        dataset, "transforms", None
    )  # torchvision's function of a picture and its target
    return both is None or is_a(both, STANDARD)


def _check_floats(dataset: Any, wanted: Normalization, collated: bool) -> None:
    step = step_to_floats(getattr(dataset, "transform", None))
    own = own_normalization(step)
    if own is not None:
        check_same_values(own, wanted, f"the transform of {type(dataset).__name__}", shown(step))
    elif step is not None and collated:
        raise TypeError(
            "mean, std or dtype asks for normalised images, but the transform of "
            f"{type(dataset).__name__} makes floats: {shown(step)}. Let the dataset return uint8 (end "
            "its transform in PILToTensor() instead of ToTensor() and Normalize(...)), or drop mean, "
            "std and dtype here."
        )


# ---- Why Python makes the batches, and the warning for users who may expect the native path.


def why_no_source(loader: Loader) -> str:
    """Explains why no source but Python's makes the batches, if none of them knows the dataset."""
    try:
        check_native(loader)
        check_extension()
        check_batches(loader)
        container(collation_of(loader))
    except NotNative as refusal:
        return str(refusal)
    return unknown(first_part(loader.dataset))


def obstacles(loader: Loader, first: str) -> str:
    """Lists every reason for Python's batches that can be seen, ``first`` in front, so that a user who
    removes one does not meet the next only then."""
    try:
        check_native(loader)
        check_extension()
    except NotNative:
        return first  # which says it all
    found = [first]
    for check in (lambda: check_batches(loader), lambda: container(collation_of(loader))):
        try:
            check()
        except NotNative as refusal:
            found.append(str(refusal))
        if loader.collate_fn is default_convert:  # torch's own, where samples are not collated
            break
    dataset = first_part(loader.dataset)
    if not holds_images(dataset):
        if not holds_arrays(loader.dataset):
            found.append(unknown(dataset))
    else:
        # The first reason also says of which dataset of several it is.
        found += [each for each in refusals(dataset).found if not first.startswith(each)]
    if first == str(loader._runtime.layout):  # which is in nobody's way
        found.append(found.pop(0))
    text = "; also ".join(dict.fromkeys(found))
    other = native_form(dataset)
    return f"{text}; in its place {other} is native" if other else text


def obstacles_of_parts(loader: Loader, first: str) -> Obstacles:
    """Returns what keeps each part of the samples from the native path. ``first``: the first reason for
    Python's batches."""
    pictures = labels = first
    for part in filter(holds_images, parts_of(loader.dataset)):
        seen = refusals(part)
        if seen.target and first.startswith(seen.target):
            # The pictures may have a reason of their own.
            pictures = next(iter(seen.steps), first)
            break
        if any(map(first.startswith, seen.steps)):
            labels = seen.target or "its pictures are made there"
            break
    return Obstacles(_form_of(first_part(loader.dataset)), pictures, labels)


# What is native in the place of others' datasets, by their package.
_FORMS = {
    "datasets": "fastloader.datasets.HFImages(dataset, transform)",
    "webdataset": "fastloader.datasets.TarImages(shards, transform)",
    "wids": "fastloader.datasets.TarImages(shards, transform)",
}


def native_form(dataset: Any) -> str:
    """Returns what to write in the place of a data set of Hugging Face or WebDataset; empty for any
    other."""
    home = type(dataset).__module__.partition(".")[0] if type(dataset).__module__ else ""
    if home == "datasets" and not hasattr(dataset, "features"):  # a package of the user's
        return ""
    return _FORMS.get(home, "")


def holds_pictures(dataset: Any) -> bool:
    """Returns whether another transform, or another setting of the loader, could make the dataset
    native. That is so for a known kind, a subclass of one, and a selection of these."""
    kind = kind_of(dataset)
    if kind is Subset:
        return holds_pictures(dataset.dataset)
    if kind is ConcatDataset:
        return all(holds_pictures(each) for each in dataset.datasets)
    if not holds_images(dataset) or getattr(dataset, "legacy", False) is True:
        return False
    # timm's ImageDataset may read from something else than a folder.
    reader = getattr(dataset, "reader", None)
    return reader is None or READERS.known(type(reader)) is not None


def warn_if_pictures(dataset: Any, reason: str, parts: Callable[[], Sequence[SamplePart]]) -> None:
    """Warns if the dataset `holds_pictures`: at the line of the user's code that asked for the iterator,
    even through code of ours. ``parts``: gives those of its samples, of which a line names each that
    is kept from the native path."""
    if not holds_pictures(dataset):
        return
    text = f"these pictures take the Python path, which is slower than the native one: {reason}."
    if own_part(first_part(dataset)):  # its samples may be anything
        text = (
            f"Python makes these samples: {reason}. What they give as EncodedImage is decoded natively "
            "all the same."
        )
    warnings.warn(
        f"{text} Leave that out, or put a step of your own at the end of the transform, before "
        "PILToTensor(): docs/native.md has the table of what is native. If Python is wanted, say "
        "native=False, which silences this."
        + "".join(f"\n{line}" for line in lines_of(each for each in parts() if each.why)),
        PythonPathWarning,
        stacklevel=users_level(),
    )


# ---- The arguments that `FastLoader` has and DataLoader does not.


# What torch was to call our worker_backend (pytorch#161044).
_METHODS: dict[str, WorkerMethod] = {
    "process": WorkerMethod("multiprocessing"),
    "thread": WorkerMethod("thread"),
    "ray": WorkerMethod("ray"),
}
_BACKENDS: dict[str, str] = {method: backend for backend, method in _METHODS.items()}

# The constructor has used these; later values would have no effect.
_OF_DELIVERY = tuple(inspect.signature(DeliverySpec).parameters)
_NORMALIZING = ("mean", "std", "dtype")
_OF_LAYOUT = ("batch", "pad_to", "pad_value")
FIXED = frozenset([*_OF_DELIVERY, *_OF_LAYOUT, "on_error", "max_errors", "distributed"])


class LoaderOptions(OwnArguments):
    """The arguments as given; only ``worker_backend`` and ``worker_method``, two names of one thing,
    agree. Raises TypeError and ValueError for what cannot work; `delivery_spec` and the runtime check
    the rest."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """Takes all ``arguments`` that `FastLoader` was given, and the defaults of the others."""
        vars(self).update((name, arguments[name]) for name in OwnArguments.__annotations__)
        self._agree_on_workers(arguments["worker_method"])
        _check_native_argument(self.native)
        if self.decode not in ("exact", "whole", "fast"):
            raise ValueError(f"decode={self.decode!r}: use 'exact', 'whole' or 'fast'")
        if self.truncated not in ("error", "pad"):
            raise ValueError(f"truncated={self.truncated!r}: use 'error' or 'pad'")
        generator = arguments["generator"]
        # DataLoader fails at the first epoch, elsewhere, with what draws nothing.
        if generator is not None and not isinstance(generator, torch.Generator):
            raise TypeError(
                f"generator={generator!r}: use a torch.Generator, such as "
                "torch.Generator().manual_seed(42)"
            )
        workers = arguments["num_workers"]
        if workers != "auto" and not hasattr(workers, "__index__"):
            raise TypeError(f"num_workers={workers!r}: use a whole number or 'auto'")
        self._check_workers(arguments["dataset"], workers, arguments["multiprocessing_context"])
        # A batch_sampler leaves the batch_size at 1.
        self._check_layout(arguments["batch_size"], arguments["collate_fn"])

    def _agree_on_workers(self, method: str | None) -> None:
        """Raises ValueError if ``worker_backend`` and ``worker_method`` do not agree, or are unknown."""
        backend = self.worker_backend
        if backend not in _METHODS:
            raise ValueError(f"worker_backend={backend!r}: use 'process' or 'thread', or 'ray'")
        if method is not None:
            if method not in _BACKENDS:
                raise ValueError(f"worker_method={method!r}: use 'multiprocessing' or 'thread'")
            if backend != "process" and method != _METHODS[backend]:
                raise ValueError(
                    f"worker_backend={backend!r} and worker_method={method!r}: give one of the two"
                )
            backend = _BACKENDS[method]
            _warn_of_method(method, f"worker_method={method!r}", f"worker_backend={backend!r}")
        self.worker_backend, self.worker_method = backend, _METHODS[backend]

    def _check_workers(self, dataset: Any, workers: Any, multiprocessing_context: Any) -> None:
        """Raises ValueError for what worker threads or actors cannot serve."""
        if self.worker_backend == "ray":
            self._check_actors(workers)
        elif self.ray_options is not None:
            raise ValueError("ray_options are for worker_backend='ray'")
        if self.worker_backend == "process":
            return
        if multiprocessing_context is not None:
            raise ValueError("multiprocessing_context is for worker_backend='process'")
        if isinstance(dataset, IterDataPipe | MapDataPipe):
            why = "threads would share the state of a DataPipe"
            if self.worker_backend == "ray":
                why = "a DataPipe is for worker processes"
            raise ValueError(f"worker_backend={self.worker_backend!r}: {why}")

    def _check_actors(self, workers: Any) -> None:
        if workers == "auto" or isinstance(workers, AutoWorkers):
            raise ValueError(
                "worker_backend='ray' and num_workers='auto', which is the number of this machine's "
                "processors: say how many actors there are to be"
            )
        if workers == 0:
            raise ValueError(
                "worker_backend='ray' and num_workers=0: say how many actors there are to be"
            )
        check_ray_options(self.ray_options)

    def _check_layout(self, batch_size: Any, collate_fn: Any) -> None:
        """Raises TypeError and ValueError for a ``batch`` that cannot be."""
        if not isinstance(self.batch, str) or self.batch not in LAYOUTS:
            raise ValueError(
                f"batch={self.batch!r}: use {', '.join(map(repr, LAYOUTS[:-1]))} or {LAYOUTS[-1]!r}"
            )
        if isinstance(self.pad_to, bool) or not hasattr(self.pad_to, "__index__"):
            raise TypeError(f"pad_to must be a whole number of pixels, got {self.pad_to!r}")
        if self.pad_to < 1:
            raise ValueError(f"pad_to={self.pad_to}: use 1 or more pixels")
        if isinstance(self.pad_value, bool) or not isinstance(self.pad_value, numbers.Real):
            raise TypeError(f"pad_value must be a number, got {self.pad_value!r}")
        for name, usual in (("pad_to", 1), ("pad_value", 0)):
            if self.batch != "pad" and getattr(self, name) != usual:
                raise ValueError(f"{name} is for batch='pad', and batch is {self.batch!r}")
        if self.batch == "stack":
            return
        checked_keys(self.image_key)
        # Frameworks make a loader again with the collate_fn that it has.
        if collate_fn is not None and collate_fn is not default_collate:
            raise ValueError(
                f"batch={self.batch!r} and a collate_fn, which both lay out the batch: give one of them"
            )
        if batch_size is None:
            raise ValueError(f"batch={self.batch!r} and batch_size=None, which makes no batches")

    def delivery_spec(self) -> DeliverySpec:
        arguments = {name: getattr(self, name) for name in _OF_DELIVERY}
        if self.batch != "stack" and all(arguments[name] is None for name in _NORMALIZING):
            arguments["image_key"] = None  # it is the layout's alone
        return DeliverySpec(**arguments)

    def layout(self, delivery: Delivery) -> Layout | None:
        """Returns what collates in the place of a collate_fn; None with batch="stack"."""
        if self.batch == "stack":
            return None
        normalization = delivery.normalization
        # A device that is not settled yet is not asked for, which would start it.
        plain = delivery.spec.settled and delivery.is_plain
        channels: tuple[int, ...] = ()
        if normalization is not None:
            channels = tuple(
                each for each in range(1, MAX_CHANNELS + 1) if normalization.allows_channels(each)
            )
        pad_to, value = operator.index(self.pad_to), float(self.pad_value)
        value = int(value) if value.is_integer() else value
        return Layout(self.batch, pad_to, value, checked_keys(self.image_key), channels, plain)


def _check_native_argument(value: Any) -> None:
    """Raises TypeError or ValueError unless it is a bool or "require"."""
    if isinstance(value, str) and value != REQUIRE:
        raise ValueError(f"native={value!r}: use True, False or 'require'")
    if not isinstance(value, bool | str):
        raise TypeError(f"native must be True, False or 'require', got {value!r}")


def _warn_of_method(method: str, what: str, instead: str) -> None:
    """Warns of a ``worker_method`` that the user wrote, unless the installed torch has the argument."""
    if type(method) is not WorkerMethod and "worker_method" not in of_torch():
        warn_deprecated(what, instead, since="0.2", until="0.4")


def workers_to_begin_with(asked: Any) -> Any:
    """Returns the argument ``num_workers``, where "auto" has become an `AutoWorkers`."""
    auto = asked == "auto" or isinstance(asked, AutoWorkers)
    return AutoWorkers(own_threads()) if auto else asked


def assignments(loader: Loader, name: str, value: Any) -> dict[str, Any]:
    """Returns the attributes that ``setattr(loader, name, value)`` sets. Raises ValueError for one that
    is fixed when the loader is made."""
    made = "_iterator" in vars(loader)  # torch's constructor sets it last
    if made and name == "native":
        _check_native_argument(value)
    if made and name in FIXED and not _is_free(loader, name):
        raise ValueError(
            f"{name} attribute should not be set after {type(loader).__name__} is initialized"
        )
    if made and name == "collate_fn" and loader._runtime.layout and value is not default_collate:
        raise ValueError(f"collate_fn={value!r}: {loader._runtime.layout} lays out the batches")
    if made and name == "num_workers":
        value = workers_to_begin_with(value)
        if isinstance(value, str):
            raise TypeError(f"num_workers={value!r}: use a whole number or 'auto'")
    assigned = {name: value}
    if name == "worker_backend" and value in _METHODS:
        assigned["worker_method"] = _METHODS[value]
    if name == "worker_method" and value in _BACKENDS:
        backend = _BACKENDS[value]
        if made:
            _warn_of_method(value, f"worker_method = {value!r}", f"worker_backend = {backend!r}")
        assigned = {"worker_method": _METHODS[backend], "worker_backend": backend}
    return assigned


def _is_free(loader: Loader, name: str) -> bool:
    """Returns whether an attribute of this name may be the subclass's own: a loader that delivers
    nothing is a plain DataLoader. It may not where frameworks, which make the loader again of its
    attributes, would take it for the argument of FastLoader's constructor."""
    own = not true_name(type(loader).__init__).startswith("fastloader.")
    if name in _OF_LAYOUT:
        return own and loader._runtime.layout is None
    return own and loader._runtime.delivers_as_made and name in _OF_DELIVERY


# What a user may do where the native path is required and cannot be had.
_REQUIRED = (
    "docs/native.md has the table of what is native; native=True lets Python make the batches all the "
    "same"
)


def _may_give_encoded(loader: Loader) -> bool:
    """Returns whether the samples of a dataset that no source serves may hold `EncodedImage`s, as their
    batches will show: where the dataset's class, or the function with which it opens a file, is the
    user's."""
    if extension.load() is None or holds_arrays(loader.dataset):
        return False
    return any(
        not holds_images(part) or own_part(first_part(part)) or opens_otherwise(first_part(part))
        for part in parts_of(loader.dataset)
    )


def refused_options(loader: Loader, reason: str) -> str:
    """Explains which arguments that only pictures for the decode threads know were given to a loader
    that has none, for this ``reason``. Returns "" if none was. A dataset that nobody knows may give
    `EncodedImage`s, which its batches show.

    Raises:
        ValueError: for the arguments, if the dataset is known.
    """
    if requires_native(loader):
        text = f"native='require', and Python makes these batches: {obstacles(loader, reason)}"
        if not _may_give_encoded(loader):
            raise ValueError(f"{text}. {_REQUIRED}")
        return f"{text}; and no EncodedImage is in this batch. {_REQUIRED}"
    named = asked_of_pictures(loader)
    if not named:
        return ""
    text = (
        f"{' and '.join(named)}: for pictures on the native path, and this dataset takes the Python "
        f"path: {reason}"
    )
    known = holds_images(loader.dataset) or holds_arrays(loader.dataset)
    if known or reason != why_no_source(loader):  # by a source that knows the dataset
        raise ValueError(text)
    return text
