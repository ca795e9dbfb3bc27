"""The error of a ``next()`` during which the loader is closed."""

from __future__ import annotations

from fastloader.errors import Error

_CLOSED = (
    "the loader was closed while next() was waiting for a batch, by another thread or by a call from "
    "inside the data set: the epoch is over, call iter() on the loader to begin a new one"
)


def closed_meanwhile() -> Error:
    """The error of a ``next()`` that was under way. A later call raises StopIteration."""
    return Error(_CLOSED)


def is_closed_meanwhile(error: BaseException | None) -> bool:
    return type(error) is Error and error.args == (_CLOSED,)
