"""Saves and restores the state from which an order is drawn: that of generators, samplers and
datasets."""

from __future__ import annotations

import base64
import contextlib
import copy
import ctypes
import dataclasses
import inspect
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import RandomSampler

from fastloader._core.machine.identity import found

# ---- The states of generators right before the sampler drew, from which an order can be drawn
# again.


States = list[torch.Tensor | None]


def distinct(*generators: Any) -> list[torch.Generator]:
    """Lists torch's global generator, then every other generator among the arguments, each once."""
    found = [torch.default_generator]
    for generator in generators:
        # None is looked for first: most owners have no generator, and isinstance is slow with torch's
        # class.
        if generator is None or not isinstance(generator, torch.Generator):
            continue
        if generator not in found:
            found.append(generator)
    return found


def states_of(generators: Sequence[torch.Generator]) -> list[torch.Tensor]:
    return [generator.get_state() for generator in generators]


def put_back(generators: Sequence[torch.Generator], states: Sequence[torch.Tensor | None]) -> None:
    for generator, state in zip(generators, states):
        if state is not None:
            generator.set_state(state)


@contextlib.contextmanager
def global_generator_kept() -> Iterator[None]:
    """Leaves torch's global generator, which is the user's, as it was, whatever is drawn inside."""
    before = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(before)


@dataclasses.dataclass
class GeneratorStates:
    """The generators' states before the sampler's ``__iter__`` and before its first index, in the order
    of `distinct`. None stands for a generator from which nothing was drawn. The state of the global
    generator, 5 kB, is left out if torch's RandomSampler drew nothing from it but its ``seed``."""

    at_iter: States
    at_next: States | None = None  # None as a whole if no index was drawn yet
    seed: int | None = None
    # Both as texts, and the `at_next` to which the second belongs, because another thread may draw the
    # first index while a state is made.
    _texts: tuple[list[str | None], list[str | None] | None, States | None] | None = None

    def first_drawn(self, at_next: States, seed: int | None) -> None:
        self.seed = seed
        self.at_next = at_next  # set last, because it says that the index was drawn

    def to_json(self, texts: Texts) -> dict[str, Any]:
        """Returns the states as JSON. One generator's state takes about 4 kB."""
        at_next, known = self.at_next, self._texts
        if known is None or known[2] is not at_next:
            of_next = None if at_next is None else texts.of_states(at_next)
            known = self._texts = texts.of_states(self.at_iter), of_next, at_next
        return {
            "at_iter": [*known[0]],
            "at_next": None if known[1] is None else [*known[1]],
            "seed": None if at_next is None else self.seed,
        }


def from_json(saved: dict[str, Any]) -> GeneratorStates:
    at_next = saved["at_next"]
    return GeneratorStates(
        decoded(saved["at_iter"]), None if at_next is None else decoded(at_next), saved["seed"]
    )


def changed(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> States:
    """Returns the states ``before`` of those generators that were drawn from since; None for the
    others."""
    return [None if torch.equal(one, other) else one for one, other in zip(before, after)]


def seed_drawn(sampler: Any, state: torch.Tensor) -> int | None:
    """Returns the one number that torch's RandomSampler draws from the global generator in ``state``;
    None for any other sampler."""
    if type(sampler) is not RandomSampler or sampler.generator is not None:
        return None
    generator = torch.Generator()
    generator.set_state(state)
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator).item())


def reseeded(sampler: RandomSampler, seed: int) -> RandomSampler:
    """Makes a sampler that gives what ``sampler`` gives after it has drawn ``seed``."""
    return RandomSampler(
        sampler.data_source,
        sampler.replacement,
        sampler._num_samples,
        torch.Generator().manual_seed(seed),
    )


class Texts:
    """Generators' states as texts, each made once. Frameworks save a loader's state at every batch, and
    it always holds the same few: a generator before an epoch, and after the one draw that torch's
    samplers make for the epoch."""

    def __init__(self) -> None:
        # The newest one comes first. A list and not a dict, because hashing 5 kB takes longer than
        # comparing them with a few others, most of which differ in the first bytes.
        self._known: list[tuple[bytes, str]] = []

    def of_states(self, states: Sequence[torch.Tensor | None]) -> list[str | None]:
        return [None if state is None else self._of(_bytes(state)) for state in states]

    def _of(self, state: bytes) -> str:
        for known, text in self._known:
            if known == state:
                return text
        text = _encode(state)
        # A new list, because another thread may be in the loop above.
        self._known = [(state, text), *self._known[: _FEW - 1]]
        return text


_FEW = 16  # more than one loader's state holds; they take 80 kB


def _bytes(state: torch.Tensor) -> bytes:
    # For a new tensor, which this one always is, it is cheaper than numpy() and than torch.equal.
    return ctypes.string_at(state.data_ptr(), state.nbytes)


def decoded(texts: Sequence[str | None]) -> States:
    return [_decode(text) for text in texts]


def _encode(state: bytes) -> str:
    # Level 1 is enough: half of a Mersenne Twister's state is zeros, and more effort takes 15 times as
    # long to save 15 bytes.
    return base64.b64encode(zlib.compress(state, 1)).decode("ascii")


def _decode(text: str | None) -> torch.Tensor | None:
    if text is None:
        return None
    return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text))), dtype=torch.uint8)


def splitmix64(seed: int, position: int) -> int:
    """Derives another seed for each position from ``seed``."""
    mask = (1 << 64) - 1
    z = (seed + 0x9E3779B97F4A7C15 * (position + 1)) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


# ---- Samplers, datasets and their iterators that save and restore themselves, by torchdata's
# protocol.


def is_stateful(thing: Any) -> bool:
    """Returns whether ``thing`` has ``state_dict()`` and ``load_state_dict(state)``, by which it goes on
    exactly. Methods of these names that need other arguments are something else."""
    save, load = getattr(thing, "state_dict", None), getattr(thing, "load_state_dict", None)
    able = callable(save) and callable(load) and _takes(save) and _takes(load, {})
    return able and not _forgets(thing)


# Parts of Hugging Face's iterable datasets whose state lacks something: what lies in a shuffle buffer,
# or which of their sources a worker process has.
_FORGETFUL = (
    "BufferShuffledExamplesIterable",
    "CyclingMultiSourcesExamplesIterable",
    "InterleavedShardsExamplesIterable",
    "RandomlyCyclingMultiSourcesExamplesIterable",
)


def _forgets(thing: Any) -> bool:
    """Returns whether it is an iterable dataset of Hugging Face whose state leaves out a part of its
    place."""
    home = "datasets.iterable_dataset"
    kind = found(home, "IterableDataset")
    if kind is None or not isinstance(thing, kind):
        return False
    forgetful = tuple(filter(None, (found(home, name) for name in _FORGETFUL)))
    parts = [getattr(thing, "_ex_iterable", None)]
    for part in parts:  # which grows
        if isinstance(part, forgetful):
            return True
        inner = [getattr(part, "ex_iterable", None), *(getattr(part, "ex_iterables", None) or ())]
        parts += [each for each in inner if each is not None]
    return False


def _takes(method: Callable[..., Any], *arguments: Any) -> bool:
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # native code may not tell its signature
        return True
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def state_of(thing: Any, was_read: bool) -> Any:
    """Copies the state that ``thing`` has now; None stands for its beginning. Many things make their
    fields when they are first read, and raise AttributeError before that. Such an error means the
    beginning only if it is of a field of ``thing``, or of something stateful of which it consists."""
    try:
        state = thing.state_dict()
    except AttributeError as error:
        if was_read or not is_stateful(error.obj):
            raise
        return None
    return copy.deepcopy(state)


def restore(dataset: Any, state: Any, mid_epoch: bool) -> None:
    """Loads a dataset's own state. ``mid_epoch``: whether the state is of the middle of the epoch that
    begins. Hugging Face's would begin at the end of its data with any other one."""
    if mid_epoch or not _keeps_its_beginning(dataset):
        dataset.load_state_dict(state)


def begin_anew(dataset: Any) -> None:
    """Makes the next ``iter()`` of a dataset that was restored begin at the beginning."""
    if _keeps_its_beginning(dataset):
        # It passes over a state of another epoch than its own.
        dataset.load_state_dict({"examples_iterable": None, "epoch": None})


def _keeps_its_beginning(dataset: Any) -> bool:
    """Returns whether every ``iter()`` of a dataset begins at the state that was loaded, and not only
    the next one: Hugging Face's."""
    module: Any = sys.modules.get("datasets.iterable_dataset")
    load = getattr(getattr(module, "IterableDataset", None), "load_state_dict", None)
    return load is not None and getattr(type(dataset), "load_state_dict", None) is load
