"""Describes the pictures of a dataset: their store, labels and transform, how they are decoded, what to
do about bad ones, and the numbers that an epoch draws from."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset

from fastloader._core.batch.augmentation import Mixing
from fastloader._core.machine.torch_datasets import kind_of
from fastloader._core.observation.tuning import ThreadTuner
from fastloader._core.order.generators import splitmix64
from fastloader._core.order.position import holds_twice
from fastloader._core.pictures.store import ImageStore
from fastloader.datasets._formats.sample_form import PLAIN, SampleForm
from fastloader.errors import Error
from fastloader.transforms._chain import Chain
from fastloader.transforms._job import Decode
from fastloader.transforms._normalization import Normalization
from fastloader.transforms.tensors import Rolled

# ---- What the samples of an epoch are drawn by.


@dataclasses.dataclass(frozen=True)
class DrawnBy:
    """The samples of a batch, and the keys of their draws. ``numbers``: their indices in the user's
    dataset, by which `replay` and messages know them. ``keys``: what each is drawn by. ``seeds``: one
    for each, or one for all."""

    numbers: list[int]
    keys: list[int]
    seeds: list[int]

    def only(self, positions: Sequence[int]) -> DrawnBy:
        """Returns those of the samples in these positions."""
        seeds = self.seeds if len(self.seeds) == 1 else [self.seeds[each] for each in positions]
        numbers = [self.numbers[each] for each in positions]
        return DrawnBy(numbers, [self.keys[each] for each in positions], seeds)


@dataclasses.dataclass
class EpochKeys:
    """Gives the keys that the samples of an epoch are drawn by.

    ``seed``: the epoch's. ``repeats``: whether a sample may be visited twice, so that the position in
    the epoch joins the key. ``first``: the position of the first sample. ``iterable``: whether the
    dataset has no indices; a sample's key is its position then, or that of `WorkerSamples` which has
    begun with ``before``.
    """

    seed: int
    repeats: bool
    first: int
    iterable: bool
    before: Mapping[int, int]

    def of(self, dataset: Any, samples: int | None, index: Any, position: int) -> DrawnBy:
        """Returns the keys of a batch of ``samples`` samples; None for a sample that is not batched.
        ``index``: what the batch was asked for by. ``position``: that of its first sample.

        Raises:
            Error: if there are more samples than indices, or fewer.
        """
        # As torch takes them, of a tuple or a tensor, too.
        indices = [index] if samples is None else list(index)
        count = 1 if samples is None else samples
        # An iterable dataset may end within a batch.
        if self.iterable:
            indices = indices[:count]
        if len(indices) != count:
            raise Error(
                f"the dataset made {count} samples of {len(indices)} indices; EncodedImages are drawn "
                "by their samples' indices"
            )
        positions = range(self.first + position, self.first + position + len(indices))
        if self.iterable:
            return DrawnBy(list(positions), list(positions), [self.seed])
        numbers = [_number(dataset, index, at) for index, at in zip(indices, positions)]
        keys = [sample_key(dataset, index, at) for index, at in zip(indices, positions)]
        seeds = [splitmix64(self.seed, at) for at in positions] if self.repeats else [self.seed]
        return DrawnBy(numbers, keys, seeds)


def repeats_below(dataset: Any) -> bool:
    """Returns whether two of the dataset's indices are of one sample of the datasets below it."""
    try:
        keys = _keys_below(dataset)
    except (TypeError, ValueError, IndexError):  # which the dataset's own code raises, too
        return True
    return keys is not None and holds_twice(keys)


def _keys_below(dataset: Any) -> Any | None:
    """Returns the `sample_key` of each of the dataset's indices; None if these are the same."""
    if kind_of(dataset) is Subset:
        below: Any = dataset.dataset
        numbers = np.asarray(dataset.indices)
        numbers = np.where(numbers < 0, numbers + len(below), numbers)
        keys = _keys_below(below)
        return numbers if keys is None else keys[numbers]
    if kind_of(dataset) is not ConcatDataset:
        return None
    parts = [_keys_below(each) for each in dataset.datasets]
    if all(each is None for each in parts):
        return None
    whole = zip(parts, dataset.datasets)
    parts = [np.arange(len(numbers)) if keys is None else keys for keys, numbers in whole]
    before = np.cumsum([0, *map(_count_below, dataset.datasets)])
    return np.concatenate([keys + start for keys, start in zip(parts, before)])


def _count_below(dataset: Any) -> int:
    """Counts the samples of the datasets of which the dataset is a selection."""
    if kind_of(dataset) is Subset:
        return _count_below(dataset.dataset)
    if kind_of(dataset) is ConcatDataset:
        return sum(map(_count_below, dataset.datasets))
    return len(dataset)


def sample_key(dataset: Any, index: Any, position: int) -> int:
    """Returns the number of a sample below any Subset, which a folder of its files gives it, too. Those
    of the parts of a ConcatDataset are numbered through. The position stands for an index that is no
    number."""
    try:
        return _key_below(dataset, operator.index(index))
    except (TypeError, IndexError, KeyError):
        return position


def _key_below(dataset: Any, number: int) -> int:
    number = number + len(dataset) if number < 0 else number
    if kind_of(dataset) is Subset:
        return _key_below(dataset.dataset, operator.index(dataset.indices[number]))
    if kind_of(dataset) is not ConcatDataset:
        return number
    part = bisect.bisect_right(dataset.cumulative_sizes, number)
    start = dataset.cumulative_sizes[part - 1] if part else 0
    before = sum(map(_count_below, dataset.datasets[:part]))
    return before + _key_below(dataset.datasets[part], number - start)


def _number(dataset: Any, index: Any, position: int) -> int:
    """Returns an index of the sampler's as a number from 0 on; the position for one that is no
    number."""
    try:
        number = operator.index(index)
        return number if number >= 0 else number + len(dataset)
    except TypeError:
        return position


_WORKER = 32  # the lowest bit of the number that is its worker's


class WorkerSamples:
    """Counts what each worker has made of an iterable dataset in an epoch. A sample's number is its
    worker's and how many that worker has made before. Batches of one worker come in their order, so that
    the number does not depend on which worker is faster, or ends sooner. The position among all samples
    would depend on it.

    ``before``: how many each worker had made when the state was saved from which the epoch goes on.
    """

    def __init__(self, before: Mapping[int, int]) -> None:
        self._made = dict(before)

    def take(self, worker: int, samples: int) -> int:
        """Reserves ``samples`` numbers for the worker's next batch, and returns the first."""
        made = self._made.get(worker, 0)
        self._made[worker] = made + samples
        return (worker << _WORKER) + made


# ---- The pictures of a dataset: their store, their labels, and their transform.


@dataclasses.dataclass
class NativeImages:
    """A dataset of pictures in flat arrays.

    ``indices`` maps the dataset's indices to files; None is one to one. ``chain``: what is done to the
    pictures, of the first dataset that was concatenated; ``chains``: of each, empty if all have that
    one. Their pictures have one form, and they end in the same way. ``attempts``: how many files
    are tried for one sample, the bad one and those after it, which is timm's rule. ``starts``: the
    first file of each dataset that was concatenated; "after it" stays within a dataset. ``name``: what
    ``plan()`` calls it; empty: as its class. ``repeats``:
    whether two indices are of one file. ``container``: the type that holds images and labels in a batch,
    list or tuple. ``form``: what else is in a sample. ``mixing``: what is mixed in the batches.
    ``watched``: of each dataset that was concatenated, the attributes that say what its samples are.
    """

    store: ImageStore
    targets: Any  # one for each file
    indices: Any | None
    chain: Chain
    name: str = ""
    attempts: int = 1
    starts: tuple[int, ...] = (0,)
    repeats: bool = False
    container: type = list
    form: SampleForm = PLAIN
    mixing: Mixing | Rolled | None = None
    chains: tuple[Chain, ...] = ()
    watched: tuple[tuple[str, ...], ...] = ((),)

    @property
    def distinct_chains(self) -> list[Chain]:
        """Each of the chains once."""
        found = [self.chain]
        for each in self.chains:
            if each not in found:
                found.append(each)
        return found

    def kinds(self, files: Sequence[int]) -> list[int]:
        """Returns which of `distinct_chains` the file of each sample has; empty: the first."""
        if not self.chains:
            return []
        distinct = self.distinct_chains
        of_parts = np.array([distinct.index(each) for each in self.chains])
        return of_parts[np.searchsorted(self.starts, files, side="right") - 1].tolist()

    def chain_of(self, file: int) -> Chain:
        return (
            self.chains[bisect.bisect_right(self.starts, file) - 1] if self.chains else self.chain
        )

    @property
    def words(self) -> str:
        """Says what is done to the pictures."""
        distinct = self.distinct_chains
        if len(distinct) == 1:
            return str(distinct[0])
        return f"{len(distinct)} transforms: " + "; ".join(map(str, distinct))

    def next_file(self, file: int) -> int:
        """Returns the file after ``file`` in its dataset; after the last, the first."""
        part = bisect.bisect_right(self.starts, file)
        end = self.starts[part] if part < len(self.starts) else len(self.store)
        return file + 1 if file + 1 < end else self.starts[part - 1]

    def label(self, file: int, target_transform: Callable[[int], Any] | None) -> Any:
        """Returns the label of a file's sample, as its dataset gives it."""
        target = int(self.targets[file])
        return target if target_transform is None else target_transform(target)

    def __len__(self) -> int:
        return len(self.store) if self.indices is None else len(self.indices)

    def same_files(self, other: NativeImages) -> bool:
        """Returns whether the arrays are the same objects, which `recognize_images` gives again while
        nothing changes."""
        return (
            self.store.same(other.store)
            and self.targets is other.targets
            and self.indices is other.indices
        )


# ---- The options with which a loader's pictures are decoded.


@dataclasses.dataclass(frozen=True)
class DecodeOptions:
    """The loader's options for its pictures, besides what the dataset itself asks."""

    threads: int
    normalization: Normalization | None
    planar: bool
    decode: Decode
    tuner: ThreadTuner | None = None  # with num_workers="auto"
    # What each byte of each channel becomes, in the place of ``normalization``: empty without that.
    table: tuple[float, ...] = ()


def read_ahead() -> bool | None:
    """Returns whether files are read before the decode threads need them, as FASTLOADER_READ_AHEAD says.
    None: while reading has to wait.

    Raises:
        ValueError: for another value than 0 and 1.
    """
    value = os.environ.get("FASTLOADER_READ_AHEAD", "")
    if value not in ("", "0", "1"):
        raise ValueError(
            f"FASTLOADER_READ_AHEAD={value!r}: use 0 (never) or 1 (always); without it, files are read "
            "ahead while reading has to wait"
        )
    return bool(int(value)) if value else None


# ---- What a loader does about samples that cannot be read, and how many it allows.


@dataclasses.dataclass
class ErrorPolicy:
    """Decides about samples that neither the native decoder nor Pillow can decode.

    ``on_error``: "raise", "skip" or "replace". ``max_errors``: how many samples may be skipped or
    replaced in the loader's life, as a count (int) or as a share of the samples seen (float); None for
    no limit.
    """

    on_error: str
    max_errors: int | float | None
    bad: int = 0
    seen: int = 0
    last: collections.deque[str] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=20)
    )

    def count(self, what: str, error: BaseException) -> None:
        """Counts one more bad sample."""
        self.bad += 1
        text = f"{type(error).__name__}: {error}"
        sample, _, picture = what.partition(", ")
        if picture and (picture in text or repr(picture)[1:-1] in text):
            what = sample  # the error names the picture
        self.last.append(text if f"({what})" in text else f"{what}: {text}")

    def check(self, what: str, error: BaseException) -> None:
        """Raises Error if too many samples are bad by now, of which this is the last."""
        if self.max_errors is None or self.on_error == "raise":
            return
        allowed: float = self.max_errors
        if isinstance(self.max_errors, float):
            # The first thousand samples count as a whole, because a rate says nothing about a few.
            allowed = self.max_errors * max(self.seen, 1000)
        if self.bad > allowed:
            raise Error(
                f"{self.bad} of {self.seen} samples could not be read, more than "
                f"max_errors={self.max_errors} allows; the last: {what}"
            ) from error


def make_policy(on_error: str, max_errors: int | float | None) -> ErrorPolicy:
    """Checks the arguments and makes the policy."""
    if on_error not in ("raise", "skip", "replace"):
        raise ValueError(f"on_error={on_error!r}: use 'raise', 'skip' or 'replace'")
    if max_errors is not None:
        if isinstance(max_errors, bool) or not isinstance(max_errors, int | float):
            raise TypeError(f"max_errors must be a count, a rate or None, got {max_errors!r}")
        if not (max_errors >= 0 and (isinstance(max_errors, int) or max_errors <= 1)):
            raise ValueError(f"max_errors={max_errors}: a count from 0, or a rate from 0.0 to 1.0")
        if on_error == "raise":
            raise ValueError("max_errors is for on_error='skip' or 'replace'; 'raise' allows none")
    return ErrorPolicy(on_error, max_errors)


# ---- The numbers from which an epoch's crops and flips are drawn.


@dataclasses.dataclass(frozen=True)
class SeededKeys:
    """An index batch, or a single index, on its way to where Python makes the samples: ``keys`` as the
    sampler gave them, the ``numbers`` of the samples, and the seed of each, or one for all."""

    keys: Any
    numbers: list[int]
    seeds: list[int]

    def __iter__(self) -> Iterator[tuple[Any, int, int]]:
        """Gives key, number and seed of each sample."""
        seeds = self.seeds * len(self.numbers) if len(self.seeds) == 1 else self.seeds
        return zip(self.keys, self.numbers, seeds, strict=True)


_MOST_REMEMBERED = 100_000

_Of = TypeVar("_Of")


class LastSamples(Generic[_Of]):
    """Remembers one value for each of the last 100,000 samples of an epoch, for ``replay()``."""

    def __init__(self) -> None:
        self._by_number: collections.OrderedDict[int, _Of] = collections.OrderedDict()

    def remember(self, number: int, value: _Of) -> None:
        self._by_number[number] = value
        self._by_number.move_to_end(number)
        if len(self._by_number) > _MOST_REMEMBERED:
            self._by_number.popitem(last=False)

    def of(self, number: int) -> _Of:
        """Returns what was remembered of a sample. Raises ValueError if nothing is."""
        try:
            return self._by_number[number]
        except KeyError:
            raise ValueError(
                f"sample {number} was not among the last {len(self._by_number)} of the epoch"
            ) from None


class CropSeeds:
    """Gives the seeds of an epoch's crops. A crop is drawn from (base seed of the epoch, number of
    the file). If the sampler may visit an index twice (``repeats``), the position in the epoch joins
    the key. It is ``position`` for the first sample."""

    def __init__(self, base_seed: int, repeats: bool, position: int) -> None:
        self.base_seed = base_seed
        self._repeats = repeats
        self._position = position
        self._last: LastSamples[int] = LastSamples()  # the seeds

    def of_next(self, count: int) -> list[int]:
        """Returns the seeds of the next ``count`` samples: one for each, or one for all."""
        if self._repeats:
            start = self._position
            return [splitmix64(self.base_seed, start + i) for i in range(count)]
        return [self.base_seed]

    def with_seeds(self, keys: Any, length: int, batched: bool) -> Any:
        """Returns ``keys`` of the sampler's with their seeds, and counts them as submitted. ``length``:
        how many samples there are. ``batched``: whether they are an index batch. Keys of which one is no
        index of a sample are returned as they are."""
        if batched and not isinstance(keys, list | tuple | torch.Tensor | np.ndarray):
            try:
                keys = list(keys)  # it may give them only once
            except TypeError:
                return keys
        try:
            numbers = [operator.index(key) for key in (keys if batched else (keys,))]
        except TypeError:
            return keys
        if not all(-length <= number < length for number in numbers):
            return keys
        numbers = [number + length if number < 0 else number for number in numbers]
        seeds = self.of_next(len(numbers))
        self.submitted(numbers, seeds)
        return SeededKeys(keys, numbers, seeds)

    def submitted(self, keys: Sequence[int], seeds: Sequence[int]) -> None:
        """Notes that a batch of these samples was submitted with these seeds."""
        self._position += len(keys)
        for i, key in enumerate(keys):
            self._last.remember(key, seeds[0] if len(seeds) == 1 else seeds[i])

    def of(self, index: int) -> int:
        """Returns the seed of a sample that was submitted in this epoch."""
        return self._last.of(index)
