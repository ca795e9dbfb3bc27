"""Samples that the native decoder could not finish: Pillow's turn, and what becomes of those that nobody
can read."""

from __future__ import annotations

import collections
import functools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastloader import _geometry
from fastloader.datasets._pillow import refusal, warn_of_size
from fastloader.errors import Error

if TYPE_CHECKING:
    from fastloader._images import ImageSource, Submitted

_log = logging.getLogger("fastloader")


class StoppedError(Exception):
    """The epoch was ended while a batch was being repaired."""


class Repair:
    """Of the batches of one epoch, on the thread that calls `done`.

    Pillow works on threads of its own, as many as decode. Nobody can stop it, so whoever waits leaves it
    behind instead: when the epoch is ended (`stop`) and on Ctrl-C. They are daemon threads, which do not
    hold up the end of the process either.
    """

    def __init__(self, source: ImageSource) -> None:
        self._source = source
        self._changed = threading.Condition()  # guards everything below
        self._stopped = False
        self._batch: Any | None = None  # the native batch whose samples are worked on

    def stop(self) -> None:
        """From any thread: `done` raises StoppedError at once, now or when it is called."""
        with self._changed:
            self._stopped = True
            if self._batch is not None:
                self._batch.stop()  # what is being decoded in the place of a bad sample
            self._changed.notify_all()

    def done(
        self, submitted: Submitted, failures: Sequence[tuple[int, str, str]]
    ) -> list[int] | None:
        """What the native decoder cannot do, Pillow may; if it cannot either, its exception says why,
        and the policy what to do. Returns the positions to keep, None for all."""
        bad: dict[int, BaseException] = {}
        tasks: dict[int, Callable[[], None]] = {}
        for position, reason, kind in failures:
            if kind == "refused":
                bad[position] = refusal(reason)
            elif kind == "large":
                try:
                    warn_of_size(reason)
                except Warning as made_an_error:  # by a filter of the user's
                    bad[position] = made_an_error
            else:
                tasks[position] = functools.partial(self._redo, submitted, position)
        bad.update(self._run(submitted, tasks))
        bad = dict(sorted(bad.items()))
        if not bad:
            return None
        policy = self._source.policy
        if policy.on_error == "raise" and self._source.lowered.attempts > 1:
            for position, error in bad.items():
                self._try_next(submitted, position, error)
            return None
        # All of them are counted before one is raised.
        for position, error in bad.items():
            policy.count(self._named(submitted, position), error)
        for position, error in bad.items():
            if policy.on_error == "raise" or not isinstance(error, Exception):
                if hasattr(error, "add_note"):  # Python 3.11
                    error.add_note(self._named(submitted, position))
                raise error
        policy.check(self._named(submitted, position), error)
        if policy.on_error == "skip":
            return [position for position in range(len(submitted.keys)) if position not in bad]
        for position, error in bad.items():
            self._replace(submitted, position, error)
        return None

    def _run(
        self, submitted: Submitted, tasks: dict[int, Callable[[], None]]
    ) -> dict[int, BaseException]:
        """What each of them raised, by its position."""
        raised: dict[int, BaseException] = {}
        waiting = collections.deque(tasks.items())
        left = len(tasks)

        def work() -> None:
            nonlocal left
            while True:
                try:
                    position, task = waiting.popleft()
                except IndexError:
                    return
                try:
                    task()
                except BaseException as error:
                    raised[position] = error
                with self._changed:
                    left -= 1
                    self._changed.notify_all()

        with self._changed:
            self._batch = submitted.batch
        try:
            for _ in range(min(self._source.threads, len(tasks))):
                threading.Thread(target=work, name="fastloader-repair", daemon=True).start()
            with self._changed:
                self._changed.wait_for(lambda: left == 0 or self._stopped)
                if left:
                    raise StoppedError
                self._batch = None
        except BaseException:
            waiting.clear()
            submitted.batch.stop()
            raise
        return raised

    def _one(self, submitted: Submitted, position: int, task: Callable[[], None]) -> None:
        for error in self._run(submitted, {position: task}).values():
            raise error

    def _named(self, submitted: Submitted, position: int) -> str:
        path = self._source.files.name(submitted.files[position])
        return f"sample {submitted.keys[position]}, {path}"

    def _redo(self, submitted: Submitted, position: int, other: int | None = None) -> None:
        """By Pillow; ``other``: that file in the place of its own, with the geometry drawn for it."""
        file = submitted.files[position] if other is None else other
        picture = self._source.files.open_rgb(file)
        pixels = np.ascontiguousarray(np.asarray(picture))
        height, width, _ = pixels.shape
        submitted.batch.transform_pixels(
            position, pixels=pixels.ctypes.data, height=height, width=width, index=other
        )

    def _try_next(self, submitted: Submitted, position: int, error: BaseException) -> None:
        """What timm's ImageDataset does: a file that cannot be read is skipped with a warning, and
        the next one of its dataset takes its place."""
        lowered, policy = self._source.lowered, self._source.policy
        for attempt in range(lowered.attempts):
            file = submitted.files[position]
            what = self._named(submitted, position)
            if attempt:
                try:
                    self._one(
                        submitted, position, functools.partial(self._redo, submitted, position)
                    )
                    return
                except StoppedError:
                    raise
                except Exception as again:
                    error = again
            policy.count(what, error)
            if not isinstance(error, OSError):
                if hasattr(error, "add_note"):  # Python 3.11
                    error.add_note(what)
                raise error
            _log.warning("fastloader: skipped %s: %s", what, error)
            submitted.files[position] = lowered.next_file(file)
        raise RuntimeError(f"Failed to load {lowered.attempts} consecutive samples") from error

    def _replace(self, submitted: Submitted, position: int, error: BaseException) -> None:
        """Puts another sample, a function of the seed and the bad one's index, in its place."""
        lowered = self._source.lowered
        seed = submitted.seeds[0] if len(submitted.seeds) == 1 else submitted.seeds[position]
        draws = _geometry.Draws(seed, submitted.keys[position], _geometry.REPLACEMENT)
        for _ in range(10):
            key = draws.below(len(lowered))
            file = key if lowered.indices is None else int(lowered.indices[key])
            self._source.files.prepare([file])
            task = functools.partial(self._put, submitted, position, file, seed)
            try:
                self._one(submitted, position, task)
            except StoppedError:
                raise
            except Exception:
                continue
            submitted.files[position] = file
            return
        raise Error(
            f"no replacement for sample {submitted.keys[position]}: ten others, drawn at random, could "
            "not be decoded either"
        ) from error

    def _put(self, submitted: Submitted, position: int, file: int, seed: int) -> None:
        try:
            submitted.batch.decode_other(position, index=file, seed=seed)
        except Error:  # also of a picture that was refused, unless Pillow has a name for that
            self._redo(submitted, position, file)
