"""Errors about a picture's bytes say which picture it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_NAMED = "_fastloader_named"  # an attribute of errors


def is_named(error: BaseException) -> bool:
    """Whether `name_picture` was called for this error: it says which picture it is about."""
    return _NAMED in error.__dict__


@contextlib.contextmanager
def naming(name: str, shown: str = "") -> Iterator[None]:
    """Does as `name_picture` to what is raised inside. In the place of ``shown`` the name stands as
    Pillow shows a path."""
    try:
        yield
    except Exception as error:
        if name and shown and shown in str(error):
            name_picture(error, repr(name), shown)
        else:
            name_picture(error, name)
        raise


def name_picture(error: BaseException, name: str, shown: str = "") -> None:
    """Puts ``name`` into the message of an error, whose type stays, unless it is there. It takes the
    place of ``shown``, if that is there: how Pillow shows the object that held the bytes."""
    if not name:
        return
    error.__dict__[_NAMED] = True
    first = error.args[0] if error.args and isinstance(error.args[0], str) else None
    text = str(error) if first is None or isinstance(error, OSError | UnicodeError) else first
    said = text.replace(shown, name) if shown else text
    if said == text and (name in text or repr(name)[1:-1] in text):
        return
    if isinstance(error, OSError) and error.errno is not None:
        if error.filename is None:
            error.filename = name
    elif isinstance(error, UnicodeError) and hasattr(error, "reason"):
        error.reason = f"{error.reason}: {name}"
    else:
        if said == text:
            said = f"{name}: {text}" if text else name
        error.args = (said, *error.args[1:])
        if isinstance(error, SyntaxError):
            error.msg = said
