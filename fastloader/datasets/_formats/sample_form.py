"""Says what a sample of pictures consists of, and makes samples, batches and the ``repr()`` of a
dataset."""

from __future__ import annotations

import contextlib
import dataclasses
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import default_collate, get_worker_info

from fastloader._core.machine.process import ProcessLock

PIXELS, LABELS = "pixel_values", "labels"  # as the models of Hugging Face's transformers call them

# ---- What a sample of pictures consists of, and in which form a batch of samples comes.


# Reads the columns of these samples: a row for each.
Reader = Callable[[list[int]], list[tuple[Any, ...]]]


@dataclasses.dataclass(frozen=True)
class SampleForm:
    """The form of a dataset's samples. ``keys``: those of a sample that is a dict, for the picture, the
    label (None: it is left out) and the rest; None for samples that are (picture, label) and what
    follows these. ``reader``: reads what a sample has besides the picture and the label; None if there
    is nothing. ``order``: in which the keys stand in the dict; None: as here."""

    keys: tuple[str | None, ...] | None = None
    reader: Reader | None = None
    order: tuple[str, ...] | None = None

    @classmethod
    def of(cls, columns: Sequence[str], reader: Reader, as_dict: bool) -> SampleForm:
        """Makes the form of samples with columns of these names behind the picture and the label."""
        keys = (PIXELS, LABELS, *columns)
        if as_dict and len(set(keys)) < len(keys):
            raise ValueError(f"as_dict=True gives a sample the keys {keys}: each may be there once")
        return cls(keys if as_dict else None, reader if columns else None)

    @property
    def plain(self) -> bool:
        """Whether samples are (picture, label)."""
        return self.keys is None and self.reader is None

    def places(self) -> tuple[str, str, list[str]]:
        """Returns where the picture, the label ("": nowhere) and the rest stand in a sample, in
        words."""
        if self.keys is not None:
            picture, label, *others = ("" if key is None else f"[{key!r}]" for key in self.keys)
            return picture, label, others
        return "[0]", "[1]", [] if self.reader is None else ["[2] and what follows"]

    def sample(
        self, picture: Any, label: Any, index: int, others: tuple[Any, ...] | None = None
    ) -> Any:
        """Makes the dataset's sample of this number. ``others``: its columns, if they were read
        already."""
        if others is None:
            others = () if self.reader is None else self.reader([index])[0]
        return self._put_together((picture, label, *others), tuple)

    def others(self, indices: list[int]) -> list[Any]:
        """Reads the columns of these samples, as ``default_collate`` makes them."""
        return [] if self.reader is None else self._collated(self.reader(indices))

    def read(
        self, indices: list[int], spares: Iterable[int] = ()
    ) -> tuple[list[Any], dict[int, Exception]]:
        """Reads the columns of these samples, and returns with them what was raised for samples that
        cannot be read, by their positions. The row of another sample stands in the place of a row that
        cannot be read, so that the columns have their full size: of these samples, or else of
        ``spares``."""
        if self.reader is None:
            return [], {}
        try:
            return self._collated(self.reader(indices)), {}
        except Exception:
            # Which sample it was is found out one by one. What is wrong with all of them together, such
            # as rows of different lengths, is raised again below.
            rows, bad = self.one_by_one(self.reader, indices)
        good = (row for place, row in enumerate(rows) if place not in bad)
        stand_in = next(good, None) or self._first_of(self.reader, spares)
        if stand_in is None:
            return [], bad
        return self._collated([stand_in if at in bad else row for at, row in enumerate(rows)]), bad

    @staticmethod
    def one_by_one(
        reader: Reader, indices: Iterable[int]
    ) -> tuple[list[Any], dict[int, Exception]]:
        """Reads a row for each sample, with anything for one that cannot be read, and returns with them
        what was raised for that."""
        rows: list[Any] = []
        bad: dict[int, Exception] = {}
        for place, index in enumerate(indices):
            try:
                rows += reader([index])
            except Exception as error:
                bad[place] = error
                rows.append(())
        return rows, bad

    @staticmethod
    def _first_of(reader: Reader, indices: Iterable[int]) -> Any | None:
        """Reads the row of the first of these samples that can be read."""
        for index in indices:
            with contextlib.suppress(Exception):
                return reader([index])[0]
        return None

    def _collated(self, rows: list[Any]) -> list[Any]:
        if self.keys is None:
            return list(default_collate(rows))
        # It gives text as a tuple or a list, by what it is in.
        names = self.keys[2:]
        return list(default_collate([dict(zip(names, row, strict=True)) for row in rows]).values())

    def batch(self, images: Any, labels: Any, others: list[Any], container: type) -> Any:
        """Makes a batch, as ``default_collate`` makes it of such samples, and in such a container if
        they are tuples. ``others``: the columns."""
        return self._put_together((images, labels, *others), container)

    def _put_together(self, values: tuple[Any, ...], container: type) -> Any:
        if self.keys is None:
            return container(values)
        by_key = {key: each for key, each in zip(self.keys, values, strict=True) if key is not None}
        return by_key if self.order is None else {key: by_key[key] for key in self.order}


PLAIN = SampleForm()


def checked_columns(columns: Sequence[str]) -> list[str]:
    """Returns the names as a list. Raises TypeError for text, whose letters would be names."""
    if isinstance(columns, str):
        raise TypeError(f"columns is a list of names: [{columns!r}]")
    return list(columns)


# ---- What is counted in several processes.


_PROCESSES = 1024


class Counters:
    """Numbers by name, which worker processes add to and the main process reads. Each process has a row
    of its own in memory that they share, so none waits for another."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._rows = torch.zeros((_PROCESSES, len(names)), dtype=torch.int64).share_memory_()
        self._adding = ProcessLock()  # guards this process's row

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_adding": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._adding = ProcessLock()

    def add(self, name: str, amount: int = 1) -> None:
        worker = get_worker_info()
        row = 0 if worker is None else 1 + worker.id % (_PROCESSES - 1)
        with self._adding.lock:
            self._rows[row, self._names.index(name)] += amount

    def totals(self) -> dict[str, int]:
        return dict(zip(self._names, self._rows.sum(0).tolist(), strict=True))


# ---- A column that is not there.


class NoColumn(KeyError):
    """A KeyError whose message is shown as it is: that of Python is shown in quotes, as a key."""

    def __str__(self) -> str:
        return str(self.args[0])


# ---- How a dataset is shown.


def shown_dataset(dataset: Any, facts: Mapping[str, Any]) -> str:
    """Returns the repr of a dataset, as torchvision shows its own. ``facts``: what else there is to say,
    such as where it lies."""
    body = [f"Number of datapoints: {len(dataset)}"]
    body += [f"{head}: {fact}" for head, fact in facts.items()]
    functions = {
        "Transform: ": dataset.transform,
        "Target transform: ": dataset.target_transform,
    }
    given = {head: function for head, function in functions.items() if function is not None}
    if given:
        body.append("StandardTransform")
    for head, function in given.items():
        body[-1] += "\n" + head + textwrap.indent(repr(function), " " * len(head)).lstrip()
    return "\n".join([f"Dataset {type(dataset).__name__}", *(f"    {line}" for line in body)])


def shown_files(files: list[str]) -> str:
    """Names the first of several files, and says how many there are."""
    return f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else "".join(files)
