"""Where an epoch's order came from: the states of the generators right before the sampler drew, kept so
that the same order can be drawn again."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import dataclasses
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import RandomSampler

States = list[torch.Tensor | None]


def distinct(*generators: Any) -> list[torch.Generator]:
    """torch's global generator, then every other generator among the arguments, each once."""
    found = [torch.default_generator]
    for generator in generators:
        # Most have none, and torch's class is slow to tell what its instances are.
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
    """What is drawn inside leaves torch's global generator, which is the user's, as it was."""
    before = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(before)


@dataclasses.dataclass
class GeneratorStates:
    """States before the sampler's ``__iter__`` and before its first index, in the order of
    `distinct`. None stands for a generator that was not drawn from. The state of the global one,
    5 kB, is left out where torch's RandomSampler drew nothing from it but its ``seed``."""

    at_iter: States
    at_next: States | None = None  # None as a whole: no index was drawn yet
    seed: int | None = None
    # The two as texts, and the `at_next` that the second is of: another thread may draw the first index
    # while a state is made.
    _texts: tuple[list[str | None], list[str | None] | None, States | None] | None = None

    def first_drawn(self, at_next: States, seed: int | None) -> None:
        self.seed = seed
        self.at_next = at_next  # at last, since it says that there is something to say

    def to_json(self, texts: Texts) -> dict[str, Any]:
        """A generator's state takes about 4 kB."""
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
    """``before`` of those generators that were drawn from since."""
    return [None if torch.equal(one, other) else one for one, other in zip(before, after)]


def seed_drawn(sampler: Any, state: torch.Tensor) -> int | None:
    """The one number that torch's RandomSampler draws from the global generator in that state; None
    for any other sampler."""
    if type(sampler) is not RandomSampler or sampler.generator is not None:
        return None
    generator = torch.Generator()
    generator.set_state(state)
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator).item())


def reseeded(sampler: RandomSampler, seed: int) -> RandomSampler:
    """A sampler that gives what ``sampler`` gives after it has drawn ``seed``."""
    return RandomSampler(
        sampler.data_source,
        sampler.replacement,
        sampler._num_samples,
        torch.Generator().manual_seed(seed),
    )


class Texts:
    """States as texts, each made once: frameworks save a state at every batch, and the states in it are
    those of a generator before an epoch, and behind the one draw that torch's samplers make for it."""

    def __init__(self) -> None:
        # The last one found comes first. Not a dict, since to hash 5 kB takes longer than to compare
        # them with a few others, most of which differ in the first bytes.
        self._known: list[tuple[bytes, str]] = []

    def of_states(self, states: Sequence[torch.Tensor | None]) -> list[str | None]:
        return [None if state is None else self._of(_bytes(state)) for state in states]

    def _of(self, state: bytes) -> str:
        for known, text in self._known:
            if known == state:
                return text
        text = _encode(state)
        # A list of its own, which nobody changes while another thread is in the loop above.
        self._known = [(state, text), *self._known[: _FEW - 1]]
        return text


_FEW = 16  # more than are in one state, and 80 kB


def _bytes(state: torch.Tensor) -> bytes:
    # Cheaper than numpy(), and than torch.equal, for a tensor that is new, as this one always is.
    return ctypes.string_at(state.data_ptr(), state.nbytes)


def decoded(texts: Sequence[str | None]) -> States:
    return [_decode(text) for text in texts]


def _encode(state: bytes) -> str:
    # Half of a Mersenne Twister's state is zeros. More effort takes 15 times as long for 15 bytes.
    return base64.b64encode(zlib.compress(state, 1)).decode("ascii")


def _decode(text: str | None) -> torch.Tensor | None:
    if text is None:
        return None
    return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text))), dtype=torch.uint8)


def splitmix64(seed: int, position: int) -> int:
    """Another seed for each position."""
    mask = (1 << 64) - 1
    z = (seed + 0x9E3779B97F4A7C15 * (position + 1)) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)
