"""The index batches of one pass over the sampler, from the beginning or from where a state says."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal, cast

import torch
from torch.utils.data import BatchSampler

from fastloader._core.machine import default_device
from fastloader._core.order.distributed import shards
from fastloader._core.order.progress import Progress
from fastloader._core.order.samplers import Samplers
from fastloader._core.order.states import generators as generator_states
from fastloader._core.order.states.generators import GeneratorStates
from fastloader._core.order.states.loader_state import LoaderState
from fastloader.errors import Error


class Indices(Iterator[Any]):
    """Draws what torch would draw when torch would draw it, and notes in ``progress`` what is needed to
    draw it again. When it goes on from a state, it skips in the sampler and never in the dataset, and
    leaves torch's global generator alone."""

    def __init__(
        self,
        samplers: Samplers,
        progress: Progress,
        generators: list[torch.Generator],
        draw: Callable[[Any], Iterator[Any]],
        reloaded: bool,
        on_users_generator: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._samplers = samplers
        self._progress = progress
        self._generators = generators
        self._open = functools.partial(samplers.open, progress.epoch, draw)
        self._inner: Iterator[Any] | None = None  # the sampler's iterator, once it is begun
        self._began = False
        self._reloaded = reloaded
        self._on_users_generator = on_users_generator
        if progress.saved is None:
            before = generator_states.states_of(generators)
            self._inner = self._open()
            progress.randomness = GeneratorStates(
                generator_states.changed(before, generator_states.states_of(generators))
            )

    def __next__(self) -> Any:
        if self._began:
            return self._draw()
        self._began = True
        if self._progress.saved is None:
            return self._draw_first()
        return self._draw_again(self._progress.saved)

    def quickly(self) -> Iterator[Any]:
        """Gives the same without a call for each batch, for torch's samplers, whose iterators end when
        they raise."""
        progress = self._progress
        try:
            yield next(self)
        except StopIteration:
            return
        note = progress.drawn.append
        assert self._inner is not None
        try:
            # The sampler itself is looked at, because with batch_size=None a BatchSampler may stand in
            # its place.
            if type(self._samplers.sampler) is not BatchSampler:
                for key in self._inner:
                    note((1, key))
                    yield key
            else:
                for keys in self._inner:
                    # A tensor is noted as a whole: asking it for one element costs more than a small
                    # batch.
                    if type(keys) is torch.Tensor:
                        note((keys.numel(), keys))
                    else:
                        note((len(keys), keys[-1]))
                    yield keys
            progress.exhausted = True
        except Exception:
            progress.sampler_raised()
            progress.exhausted = True
            raise

    def _draw(self) -> Any:
        progress = self._progress
        assert self._inner is not None
        try:
            keys = next(self._inner)
        except StopIteration:
            progress.exhausted = True
            raise
        except Exception:
            progress.sampler_raised()
            raise
        samples, first, last = ends(keys)
        if progress.first is None:
            progress.first = plain(first)
        progress.drawn.append((samples, last))
        if self._samplers.stateful is not None:
            progress.sampler_states.append(self._samplers.stateful.state_dict())
        return keys

    def _draw_first(self) -> Any:
        samplers, progress = self._samplers, self._progress
        assert progress.randomness is not None
        if samplers.shard is not None:
            progress.order_epoch = progress.epoch
        elif samplers.shared:
            progress.order_epoch = samplers.inner.epoch
        if samplers.stateful is not None:
            progress.sampler_state = samplers.stateful.state_dict()
            progress.first_sampler_state = progress.sampler_state
        before = generator_states.states_of(self._generators)
        try:
            return self._draw()
        except StopIteration:
            if not self._reloaded:
                raise
            return self._draw_anew()
        finally:
            (drawn,) = generator_states.changed(before[:1], [torch.get_rng_state()])
            seed = None
            if drawn is not None and samplers.stateful is None:
                seed = generator_states.seed_drawn(samplers.inner, drawn)
            # The states of the other generators are always kept, because later epochs are drawn from
            # these generators.
            progress.randomness.first_drawn(
                [None if seed is not None else drawn, *before[1:]], seed
            )

    def _draw_again(self, saved: LoaderState) -> Any:
        samplers, progress = self._samplers, self._progress
        randomness = generator_states.from_json(saved["randomness"])
        progress.randomness = randomness
        self._inner = iter(())  # in case that what follows raises
        progress.order_epoch = saved.get("order_epoch")
        if randomness.at_next is None:
            return self._begin_again(saved, randomness)
        if samplers.draws_again:
            generator_states.put_back(self._generators[1:], randomness.at_next[1:])
            with self._on_users_generator():
                samplers.stateful.load_state_dict(saved["sampler_state"])
                self._inner = default_device.drawn(samplers.inner, iter(samplers.sampler))
                return self._draw()
        source: Iterator[Any] = iter(())
        with generator_states.global_generator_kept():
            if samplers.batching is None:
                generator_states.put_back(self._generators, randomness.at_iter)
                source = self._restarted(saved, randomness)
            generator_states.put_back(self._generators, randomness.at_next)
            if samplers.batching is not None:  # which begins its sampler with the first batch
                source = self._restarted(saved, randomness)
            if not (
                samplers.stateful
                or samplers.shared
                or progress.endless
                or saved.get("read_again")  # which draws the whole pass again, too
            ):
                _skip(source, saved, "batches" if samplers.batching is None else "samples")
            self._inner = source if samplers.batching is None else samplers.batched(source)
            try:
                return self._draw()
            except StopIteration:
                if samplers.stateful is None or saved["batches"]:
                    raise
                generator_states.put_back(self._generators, randomness.at_next)
                return self._draw_anew()

    def _draw_anew(self) -> Any:
        """Draws from a new iterator, if a sampler's own state was loaded that is of the end of an epoch,
        if only because its iterator had not run yet in the next one. Samplers such as torchdata's
        distributed one skip all that they had given by then, and begin anew after that."""
        with contextlib.suppress(TypeError):
            if len(self._samplers.sampler) == 0:
                raise StopIteration
        self._progress.exhausted = False
        self._inner = self._open()
        return self._draw()

    def _begin_again(self, saved: LoaderState, randomness: GeneratorStates) -> Any:
        """Draws the first index batch after a state that was saved before any index was drawn. The draw
        is from the state that the user's generator has now."""
        samplers = self._samplers
        with generator_states.global_generator_kept():
            generator_states.put_back(self._generators, randomness.at_iter)
            if samplers.stateful is not None and saved["sampler_state"] is not None:
                samplers.stateful.load_state_dict(saved["sampler_state"])
                self._reloaded = True
            self._inner = self._open()
        generator_states.put_back(
            self._generators[1:], generator_states.decoded(saved["generators"])
        )
        # Workers get their first index batches within iter(), which has drawn their seed by now.
        with self._on_users_generator():
            return self._draw_first()

    def _restarted(self, saved: LoaderState, randomness: GeneratorStates) -> Iterator[Any]:
        """The sampler's iterator that is skipped in. It gives batches, or single indices if a
        BatchSampler groups them."""
        samplers = self._samplers
        sampler: Any = samplers.inner
        if samplers.stateful is not None:
            if saved["sampler_state"] is not None:
                samplers.stateful.load_state_dict(saved["sampler_state"])
        elif samplers.shared:
            if samplers.shard is None and sampler.epoch != saved["order_epoch"]:
                raise Error(
                    f"the state that was loaded is from the middle of an epoch that its sampler calls "
                    f"{saved['order_epoch']}, but then set_epoch({sampler.epoch}) was called on it"
                )
            start = 0 if saved.get("read_again") else saved["samples"]
            epoch = cast("int", saved["order_epoch"])  # which is saved with such samplers
            return iter(shards.share(sampler, epoch, start))
        elif randomness.seed is not None:
            sampler = generator_states.reseeded(sampler, randomness.seed)
        return default_device.drawn(sampler, iter(sampler))


def _skip(source: Iterator[Any], saved: LoaderState, unit: Literal["batches", "samples"]) -> None:
    """Advances the sampler by what was received, and checks that it is the sampler of the state."""
    count: int = saved[unit]
    if count == 0:
        return
    given = enumerate(itertools.islice(source, count), 1)
    _, head = next(given, (0, None))
    number, tail = next(
        iter(collections.deque(given, maxlen=1)), (1 if head is not None else 0, head)
    )
    found = plain(ends(head)[1]), plain(ends(tail)[2])
    for place, wanted, got in zip(("first", "last"), (saved["first"], saved["last"]), found):
        if number < count or (wanted is not None and got is not None and wanted != got):
            raise Error(
                f"the sampler does not give the order that the state is from: of the {count} {unit} "
                f"received then it gives {number}, the {place} is {got}, was {wanted}. Seed it by a "
                "torch generator of its own (attribute 'generator'), or give it state_dict() and "
                "load_state_dict()"
            )


def ends(keys: Any) -> tuple[int, Any, Any]:
    """Returns (samples, first key, last key) of an index batch, or of a single index."""
    if not isinstance(keys, list | tuple) and getattr(keys, "ndim", 0) != 1:
        return 1, keys, keys
    return (len(keys), keys[0], keys[-1]) if len(keys) else (0, None, None)


def plain(key: Any) -> Any:
    """A key that JSON can hold and that compares equal in another process; None if ``key`` is no such
    key. For a tensor of keys, its last one."""
    if type(key) is int:
        return key
    if isinstance(key, str):
        return str.__str__(key)  # an enum's text, without the enum
    if type(key) is torch.Tensor and key.dim() == 1 and len(key):
        key = key[-1]
    with contextlib.suppress(TypeError):
        return operator.index(key)
    return None
