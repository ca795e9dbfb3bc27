"""Repairs samples that the native decoder could not finish: by Pillow, or as the policy says."""

from __future__ import annotations

import collections
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from fastloader._core.machine import extension
from fastloader._core.pictures.batch import Files, Other, PictureBatch
from fastloader._core.pictures.decoder import Decoder, ImageDecoder, PendingBatch
from fastloader.errors import Error, StoppedError
from fastloader.transforms._pillow import name_picture, refusal, warn_of_size
from fastloader.transforms._recipe.draws import REPLACEMENT, Draws

_log = logging.getLogger("fastloader")

_TURN = 0.1  # seconds between two looks for Ctrl-C, which may come when a wait has just begun


class Pending(Protocol):
    """A batch as its repair sees it. ``keys``: what messages call its samples. ``files``: of which its
    pictures are made. ``seeds``: one for each, or one for all. ``bad``: what was raised by the samples
    that nothing can repair, by their positions."""

    batch: PictureBatch
    keys: list[int]
    files: list[int]
    seeds: list[int]
    bad: dict[int, Exception]


class Repair(ABC):
    """Repairs the batches of one epoch, one at a time, on as many own threads as decode. The thread
    that wants the batch waits in `done`. Ctrl-C ends the waiting but not the work, and the next call
    waits on.

    Pillow cannot be stopped, so a thread that is in Pillow is left behind when the epoch ends (`stop`).
    It holds no batch, because the next epoch needs the batch's slot in the ring. It is a daemon, and
    does not hold up the end of the process.
    """

    def __init__(self, decoder: Decoder, store: Files) -> None:
        self._decoder = decoder
        self._store = store
        # Guards everything below. Reentrant, because a finalizer may call `stop` during any allocation.
        self._changed = threading.Condition()
        self._stopped = False
        # The batch under repair; None once that was stopped.
        self._pending: Pending | None = None
        # The batch's failures, until a thread has taken them. Two threads may be started for them, if
        # Ctrl-C comes while a thread is started.
        self._failures: Sequence[tuple[int, str, Any]] | None = None
        # (positions to keep or None for all, what was raised instead), once it is known.
        self._outcome: tuple[list[int] | None, BaseException | None] | None = None

    def stop(self) -> None:
        """Makes `done` raise StoppedError at once, now or when it is called. Any thread may call it."""
        with self._changed:
            self._stopped = True
            pending, self._pending = self._pending, None
            self._changed.notify_all()
        if pending is not None:
            pending.batch.stop()  # stops decoding in the place of a bad sample

    def done(self, pending: Pending, failures: Sequence[tuple[int, str, Any]]) -> list[int] | None:
        """Repairs a batch, and returns the positions to keep, None for all. Pillow tries what the
        native decoder cannot do. If it fails too, its exception says why, and the policy says what to
        do, as for samples whose columns cannot be read. Another call for the same batch does the same,
        until `forget` is called.

        Raises:
            StoppedError: if the epoch was ended meanwhile.
        """
        with self._changed:
            if self._pending is not pending and not self._stopped:
                self._failures, self._outcome = failures, None
                self._pending = pending
        if self._failures is not None and not self._stopped:
            threading.Thread(target=self._work, name="fastloader-repair", daemon=True).start()
        with self._changed:
            while self._outcome is None:
                if self._stopped:
                    raise StoppedError("the epoch was ended while a batch was being repaired")
                self._changed.wait(_TURN)
            kept, error = self._outcome
        if error is not None:
            try:
                raise error
            finally:
                del error  # breaks the cycle of this frame and the error
        return kept

    def forget(self) -> None:
        """Drops the batch, and its error, whose traceback leads back here. To be called once the outcome
        was taken."""
        with self._changed:
            self._pending = self._failures = self._outcome = None

    # --- on the threads ---------------------------------------------------------------------------

    def _current(self) -> Pending:
        """Returns the batch under repair. Ask for it anew after everything that may take long, and do
        not keep it.

        Raises:
            StoppedError: if the batch is not wanted any more.
        """
        pending = self._pending
        if pending is None:
            raise StoppedError("the batch is not wanted any more")
        return pending

    def _work(self) -> None:
        with self._changed:
            failures, self._failures = self._failures, None
        if failures is None:
            return
        outcome: tuple[list[int] | None, BaseException | None]
        try:
            outcome = self._repair(failures), None
        except StoppedError:
            return
        except BaseException as error:
            outcome = None, error
        with self._changed:
            if self._pending is not None:
                self._outcome = outcome
            self._changed.notify_all()
        del outcome

    def _repair(self, failures: Sequence[tuple[int, str, Any]]) -> list[int] | None:
        bad: dict[int, BaseException] = dict(self._current().bad)
        positions = []
        for position, reason, kind in failures:
            if kind is not None and kind is extension.native.FailureKind.REFUSED:
                bad[position] = refusal(reason, self._picture(position))
            elif kind is not None and kind is extension.native.FailureKind.LARGE:
                try:
                    warn_of_size(reason)
                except Warning as made_an_error:  # by the user's filter of warnings
                    bad[position] = made_an_error
            else:
                positions.append(position)
        bad.update(self._together(positions, self._redo))
        bad = dict(sorted(bad.items()))
        if not bad:
            return None
        policy = self._decoder.policy
        if policy.on_error == "raise" and self._take_next(bad):
            return None
        # All bad samples are counted before an error is raised.
        for position, error in self._counted(bad).items():
            policy.count(self._named(position), error)
        for position, error in bad.items():
            if policy.on_error == "raise" or not isinstance(error, Exception):
                self._name(error, position)
                raise error
        policy.check(self._named(position), error)
        if policy.on_error == "skip":
            return [each for each in range(len(self._current().keys)) if each not in bad]
        for position, error in bad.items():
            self._replace(position, error)
        return None

    def _together(
        self, positions: Iterable[int], task: Callable[[int], None]
    ) -> dict[int, BaseException]:
        """Does the task for each position, on this thread and others, and returns what it raised for
        each. No thread is at a task any more then.

        Raises:
            StoppedError: if the batch is not wanted any more.
        """
        raised: dict[int, BaseException] = {}
        waiting = collections.deque(positions)
        left = len(waiting)

        def work() -> None:
            nonlocal left
            while self._pending is not None:
                try:
                    position = waiting.popleft()
                except IndexError:
                    return
                try:
                    task(position)
                except StoppedError:
                    return
                except BaseException as error:
                    raised[position] = error
                with self._changed:
                    left -= 1
                    self._changed.notify_all()

        for _ in range(min(self._decoder.threads, left) - 1):
            try:
                threading.Thread(target=work, name="fastloader-repair", daemon=True).start()
            except (RuntimeError, MemoryError):  # the system gives no thread: this one does it all
                break
        work()
        with self._changed:
            self._changed.wait_for(lambda: left == 0 or self._pending is None)
        self._current()
        return raised

    def _picture(self, position: int) -> str:
        return str(self._store.name(self._current().files[position]))

    def _named(self, position: int) -> str:
        return f"sample {self._current().keys[position]}, {self._picture(position)}"

    def _name(self, error: BaseException, position: int) -> None:
        """Makes an error say of which picture and sample it is."""
        name_picture(error, self._picture(position))
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(self._named(position))

    def _redo(self, position: int, other: Other | None = None) -> None:
        """Makes a sample by Pillow. ``other``: another file for it, with what is drawn for that."""
        file = self._current().files[position] if other is None else other.file
        picture = self._store.open_rgb(file)
        self._current().batch.redo(position, picture, other)

    # --- what a dataset does in its own way -------------------------------------------------------

    def _take_next(self, bad: dict[int, BaseException]) -> bool:
        """Takes other files in the place of those that cannot be read, as the dataset itself does.
        Returns False if it does not."""
        return False

    def _counted(self, bad: dict[int, BaseException]) -> dict[int, BaseException]:
        """Returns those of the bad positions that are counted, each as a bad sample."""
        return bad

    @abstractmethod
    def _replace(self, position: int, error: BaseException) -> None:
        """Puts another sample in a bad one's place."""


class ImageRepair(Repair):
    """Repairs batches of a dataset whose files are known."""

    def __init__(self, decoder: ImageDecoder) -> None:
        super().__init__(decoder, decoder.store)
        self._images = decoder.images
        self._prepare = decoder.store.prepare

    def _current(self) -> PendingBatch:
        pending = super()._current()
        assert type(pending) is PendingBatch
        return pending

    def _take_next(self, bad: dict[int, BaseException]) -> bool:
        if self._images.attempts == 1:
            return False
        for position, error in bad.items():
            self._try_next(position, error)
        return True

    def _try_next(self, position: int, error: BaseException) -> None:
        """Does as timm's ImageDataset: skips a file that cannot be read, with a warning, and takes the
        next file of its dataset in its place."""
        images, policy = self._images, self._decoder.policy
        for attempt in range(images.attempts):
            what = self._named(position)
            if attempt:
                try:
                    self._redo(position)
                    return
                except StoppedError:
                    raise
                except Exception as again:
                    error = again
            policy.count(what, error)
            if not isinstance(error, OSError):
                self._name(error, position)
                raise error
            _log.warning("fastloader: skipped %s: %s", what, error)
            files = self._current().files
            files[position] = images.next_file(files[position])
        raise RuntimeError(f"Failed to load {images.attempts} consecutive samples") from error

    def _replace(self, position: int, error: BaseException) -> None:
        images = self._images
        seeds, key = self._current().seeds, self._current().keys[position]
        seed = seeds[0] if len(seeds) == 1 else seeds[position]
        larger = ""
        for other in draw_others(seed, key, len(images)):
            file = other if images.indices is None else int(images.indices[other])
            self._prepare([file])
            try:
                if not self._current().has_room(images.form.others([file])):
                    larger = (
                        ", or have larger columns than those that the batch's slot has room for"
                    )
                    continue
                self._put(position, file, seed)
            except StoppedError:
                raise
            except Exception:
                continue
            self._current().files[position] = file
            return
        raise no_replacement(key, larger) from error

    def _put(self, position: int, file: int, seed: int) -> None:
        other = Other(file, next(iter(self._images.kinds([file])), 0))
        try:
            self._current().batch.decode_other(position, other, seed)
        except Error:  # also for a picture that was refused, unless Pillow has an error for that
            self._current()  # the epoch may have ended meanwhile, and Pillow is slow
            self._redo(position, other)


def draw_others(seed: int, number: int, samples: int) -> Iterator[int]:
    """Draws ten samples of so many, to be tried in the place of a bad one: a function of the seed and
    the bad one's number."""
    draws = Draws(seed, number, REPLACEMENT)
    for _ in range(10):
        yield draws.below(samples)


def no_replacement(number: int, more: str = "") -> Error:
    """Makes the error for a bad sample in whose place none of them can be put. ``more``: what else was
    wrong with them."""
    return Error(
        f"no replacement for sample {number}: ten others, drawn at random, could not be decoded "
        f"either{more}"
    )
