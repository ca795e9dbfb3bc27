"""The user's training step."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from fastloader import FastLoader
from fastloader.cli.tune.measure import Rate
from fastloader.cli.tune.target import TuneError, check_call, look_up, told


@dataclasses.dataclass(frozen=True)
class Step:
    """What the measured loops do with each batch: nothing, if the user has named no function."""

    text: str = ""
    function: Callable[[Any], Any] | None = None

    @classmethod
    def of(cls, text: str | None) -> Step:
        """
        Raises:
            TuneError: if there is no such function, or it cannot be called with a batch.
        """
        if text is None:
            return cls()
        function, _ = look_up(text)
        if not callable(function):
            raise TuneError(
                f"{text} is of type {type(function).__name__}: a function that takes a batch is needed"
            )
        check_call(
            text, function, ("batch",), "write a function that takes a batch, and trains with it"
        )
        return cls(text, function)

    def __call__(self, batch: Any) -> None:
        if self.function is not None:
            with told(self.text):
                self.function(batch)

    @property
    def words(self) -> str:
        """What the loop does, behind "whose loop"."""
        if self.function is None:
            return "does nothing but take batches"
        return f"calls {self.text} with each batch"

    def measure_alone(self, loader: FastLoader[Any], seconds: float, rate: Rate) -> None:
        """Runs the step on one batch again and again, for so many seconds at most: the loader's report
        then has it."""
        if self.function is None:
            return
        # With free data no step takes longer than in the loop of `rate`.
        batches = int(1000 * seconds / rate.batch_ms) if rate.batch_ms else 0
        begun = time.perf_counter()
        for batch in loader.headspace(min(max(batches, 4), 1000)):
            self(batch)
            if time.perf_counter() - begun > seconds:
                break
