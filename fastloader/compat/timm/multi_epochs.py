"""``MultiEpochsDataLoader``, which has one iterator for life."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from fastloader._core.order.states import generators as generator_states
from fastloader.loader import FastLoader


class MultiEpochsDataLoader(FastLoader[Any]):
    """timm's loader whose workers, and the batches under way, live on from one epoch to the next, so
    that an epoch begins with batches that are ready. The next epoch's order is drawn before this epoch
    has ended. A sampler with ``set_epoch`` is advanced by one for each epoch, from the number that was
    set last before the first epoch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.iterator: Iterator[Any] | None = None  # made late, so that set_epoch() counts
        self._received = 0  # batches of this epoch
        self._loaded = 0  # those of the epoch that goes on from a state, before the next iter()
        # Cleared for a moment, because torch forbids another sampler once it is initialised.
        self._DataLoader__initialized = False
        if self.batch_sampler is None:
            self.sampler = _Forever(self.sampler)
        else:
            self.batch_sampler = _Forever(self.batch_sampler)
        self._DataLoader__initialized = True

    @property
    def _forever(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __len__(self) -> int:
        return len(self._forever)

    def __iter__(self) -> Any:
        length = len(self)
        if length and self.iterator is None:  # without batches there is no endless sequence
            self.iterator = super().__iter__()
        self._received, self._loaded = self._loaded, 0
        while self._received < length:
            assert self.iterator is not None
            batch = next(self.iterator)
            self._received += 1
            yield batch
        self._received = 0
        progress = self._runtime.position.current
        if progress is not None and progress.sampler_state is not None:
            self._forever.begun_since(progress.sampler_state["epoch"])

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        drawn = state["sampler_state"]
        if "received" not in drawn:  # in one that was loaded
            received = self._received if state["begun"] else 0
            state["sampler_state"] = {
                **drawn,
                "received": received,
                "begun": self._forever.begun_since(drawn["epoch"]),
            }
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state and state.get("begun") and "received" not in (state.get("sampler_state") or {}):
            raise ValueError(
                "the state was saved in the middle of an epoch, by a version of fastloader whose "
                "MultiEpochsDataLoader could not go on there: load a state from between two epochs"
            )
        super().load_state_dict(state)
        if state:
            if (
                self.iterator is not None
            ):  # which may be drawing orders ahead, from the user's generator
                self.close()
            self._received = self._loaded = state["sampler_state"]["received"]

    def close(self) -> None:
        """Does as `FastLoader.close`. The next epoch starts anew."""
        super().close()
        self.iterator = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "iterator": None, "_received": self._loaded}


class _Forever:
    """Gives the epochs of a sampler one behind the other. Its state says which batch of which epoch was
    given last. How an epoch drew its order is kept as soon as it is drawn, which may be before the loop
    has come there: `begun_since` gives it, for the state."""

    draws_again = True  # see `order.samplers.Samplers`

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self._given = (0, 0)  # the epoch, and how many of its batches
        self._number = self._numbered()  # of that epoch, as the sampler counts
        self._begun: dict[int, list[str | None]] = {}  # the generators before each epoch's draw
        self._loaded: dict[str, Any] = {}
        self._texts = generator_states.Texts()

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        loaded, self._loaded = self._loaded, {}
        first, given = loaded.get("epoch", 0), loaded.get("given", 0)
        self._begun = {int(epoch): drawn for epoch, drawn in loaded.get("begun", {}).items()}
        number = loaded.get("number", self._numbered())
        for epoch in itertools.count(first):
            self._given, self._number = (epoch, given), number
            if number is not None:
                self._sampler.set_epoch(number)
            for batch in itertools.islice(self._drawn(epoch), given, None):
                self._given = epoch, self._given[1] + 1
                yield batch
            given, number = 0, None if number is None else number + 1

    @property
    def _sampler(self) -> Any:
        """A batch sampler's own."""
        return getattr(self.sampler, "sampler", self.sampler)

    def _numbered(self) -> Any:
        """The number of the sampler's next epoch, if it can be told one."""
        sampler = self._sampler
        return getattr(sampler, "epoch", None) if hasattr(sampler, "set_epoch") else None

    def _drawn(self, epoch: int) -> Iterator[Any]:
        """The batches of an epoch, and notes how they are drawn, or draws them again as was noted. The
        global generator is the user's and stays as it is then."""
        owners = (self._sampler, self.sampler)
        its = generator_states.distinct(*[getattr(each, "generator", None) for each in owners])
        before = generator_states.states_of(its)
        known = self._begun.get(epoch)
        if known is not None:
            generator_states.put_back(its, generator_states.decoded(known))
        batches = iter(self.sampler)
        first = [*itertools.islice(batches, 1)]  # with which torch's samplers draw
        if known is None:
            states = generator_states.changed(before, generator_states.states_of(its))
            self._begun[epoch] = self._texts.of_states(states)
        else:
            generator_states.put_back(its[:1], before[:1])
        return itertools.chain(first, batches)

    def begun_since(self, epoch: int) -> dict[str, Any]:
        """How each epoch from that one on drew its order, of those that have begun. The loop is past the
        others, which are forgotten."""
        # In place: another thread may be drawing the next one.
        for past in [each for each in list(self._begun) if each < epoch]:
            del self._begun[past]
        return {str(each): drawn for each, drawn in list(self._begun.items())}

    def state_dict(self) -> dict[str, Any]:
        (epoch, given), begun = self._given, bool(self._begun)
        number = self._number if begun else self._numbered()
        return {"epoch": epoch, "given": given, "number": number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loaded = state
