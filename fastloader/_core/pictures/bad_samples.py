"""What a loader does about samples that cannot be read, and how many it allows."""

from __future__ import annotations

import collections
import dataclasses

from fastloader.errors import Error


@dataclasses.dataclass
class ErrorPolicy:
    """What becomes of samples that neither the native decoder nor Pillow can decode.

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
        said = f"{type(error).__name__}: {error}"
        sample, _, picture = what.partition(", ")
        if picture and (picture in said or repr(picture)[1:-1] in said):
            what = sample  # the error names the picture
        self.last.append(said if f"({what})" in said else f"{what}: {said}")

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
