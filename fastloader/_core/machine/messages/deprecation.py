"""Names and arguments that a coming version will no longer have."""

from __future__ import annotations

import warnings

from fastloader._core.machine.messages.callers import users_level


def warn_deprecated(what: str, instead: str, since: str, until: str) -> None:
    """Warns with a DeprecationWarning at the line of the user's code that used ``what``, even through
    code of ours. Python shows it if that line is in ``__main__``, and pytest shows it always.

    Args:
        what: The name, argument or value, as the user wrote it.
        instead: What to write in its place.
        since: The version that deprecated it, such as "0.3".
        until: The first version without it, a later minor version than ``since``
            (docs/deprecation.md).
    """
    if _number(until)[:2] <= _number(since)[:2]:
        raise ValueError(
            f"until={until!r}: a deprecated name stays for the whole of version {since}"
        )
    warnings.warn(
        f"{what} is deprecated since fastloader {since} and will be gone in {until}: use {instead}",
        DeprecationWarning,
        stacklevel=users_level(),
    )


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
