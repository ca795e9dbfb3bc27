"""What one loader keeps for the pictures that its samples leave encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fastloader._core.handoff import LentMemory
from fastloader._core.machine import extension
from fastloader._core.machine.limits import counted
from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation.statistics import Stage
from fastloader._core.order.loader import Loader
from fastloader._core.pictures.bad_samples import ErrorPolicy
from fastloader._core.pictures.decoder import jpeg_counts
from fastloader._core.sources.arguments import NO_LIBJPEG
from fastloader._core.sources.encoded.decoding.decoder import EncodedDecoder
from fastloader._core.sources.encoded.decoding.keys import EpochKeys
from fastloader._core.sources.encoded.epoch import EncodedEpoch
from fastloader.transforms._normalization import Normalization

_ABSENT = "the native module is not in use"


class EncodedPictures:
    """Begins the epochs of one loader. Attributes: ``last``, the last of them, if no other source has
    made an epoch since; ``refused``, why a batch without encoded pictures is refused, if it is;
    ``memory``, where the delivery of epochs that begin now lets pictures be decoded."""

    refused = ""
    memory: LentMemory | None = None

    def __init__(self, policy: ErrorPolicy) -> None:
        self._policy = policy
        self._home = HomeProcess()
        self._decoder: EncodedDecoder | None = None
        self.last: EncodedEpoch | None = None

    def epoch(
        self,
        loader: Loader,
        keys: Callable[[], Callable[[], EpochKeys] | None],
        dataset: Any,
        make: Callable[[Any, bool], Any],
    ) -> EncodedEpoch:
        normalization = loader._runtime.delivery.normalization
        wanted = (loader.native, loader.decode, loader.truncated, normalization)
        self.last = EncodedEpoch(
            lambda: self._made(*wanted),
            self._policy,
            keys,
            dataset,
            make,
            self.refused,
            self.memory,
            normalization,
        )
        return self.last

    def _made(
        self, native: bool, decode: str, truncated: str, wanted: Normalization | None
    ) -> EncodedDecoder:
        """The decoder, which is made with the first picture. A forked child makes its own."""
        native = native and extension.load() is not None
        if not native and (decode, truncated) != ("exact", "error"):
            raise ValueError(
                f"decode={decode!r} and truncated={truncated!r} are for the native decoder, which is "
                "not in use"
            )
        if native and truncated != "error" and extension.lacks_libjpeg():
            raise ValueError(f"truncated={truncated!r}: {NO_LIBJPEG}")
        before = self._decoder
        if before is not None and self._home.here:
            if before.native == native and before.options == (decode, truncated, wanted):
                return before
        made = EncodedDecoder(native, self._policy, decode, truncated, wanted)
        if before is not None:
            made.go_on_counting(before)
        self._decoder, self._home = made, HomeProcess()
        return made

    def said(self, workers: int) -> str:
        """For ``plan()``: who makes the pictures, once one was made. The workers were named before."""
        decoder = self._decoder
        if decoder is None:
            return ""
        said = ""
        if decoder.decodes:
            said = f", {counted(decoder.threads, 'decode thread')} for encoded pictures"
        if not decoder.workers:
            return said
        why = decoder.why_made
        if not why:
            why = "native=False" if extension.load() is not None else _ABSENT
        if said:
            return f"{said}, others made with their samples ({why})"
        makes = "which makes" if workers == 1 else "which make"
        who = makes if workers else "the loop's thread makes"
        return f", {who} the encoded pictures ({why})"

    def begin(self, refused: str) -> None:
        """Forgets the last epoch. ``refused``: of the one that begins."""
        self.last, self.refused = None, refused

    def replay(self, index: int) -> Any | None:
        """What became of a sample of the epoch begun last; None if it had no encoded pictures."""
        return None if self.last is None or not self.last.seen else self.last.replay(index)

    def stats(self) -> dict[str, Any]:
        decoder = self._decoder
        if decoder is None:
            return {}
        return {
            "pictures": {
                "pool": decoder.pool,
                "workers": decoder.workers,
                "pillow": decoder.pillow,
                "jpegs": jpeg_counts(self._times()),
                "threads": decoder.threads,
                "seen": self._policy.seen,
                "bad": self._policy.bad,
                "last_bad": list(self._policy.last),
            }
        }

    def _times(self) -> dict[str, float]:
        """What the decode threads have done for this loader, as ``DecodeQuota.times`` has it."""
        decoder = self._decoder
        if decoder is None or decoder.quota is None or not self._home.here:
            return {}
        found: dict[str, float] = decoder.quota.times()
        return found

    def stages(self) -> Iterator[Stage]:
        decoder, times = self._decoder, self._times()
        if decoder is None or not times:
            return
        count = int(times["pictures"])
        for name in ("read", "decode", "recipe", "finish"):
            if count and times[name]:
                who = "decode threads"
                yield Stage(name, times[name], count, "file", who, decoder.threads, bound="decode")
