"""The user's loader: where it is, and how it is made."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import fastloader

_PACKAGE = fastloader.__path__[0]


class TuneError(Exception):
    """Ends the command with a message and no traceback."""


@dataclasses.dataclass(frozen=True)
class Target:
    """``make``: gives the loader; the same object each time if the user has named a loader. ``file`` and
    ``lines``: where it is written; None and (1, 0) if that is not known. ``function``: what the user has
    named, unless that is a loader."""

    text: str
    make: Callable[[], Any]
    file: str | None
    lines: tuple[int, int]
    function: Any = None

    @classmethod
    def of(cls, text: str) -> Target:
        """
        Raises:
            TuneError: if there is no such thing, or it cannot be a loader.
        """
        found, file = look_up(text)
        if _is_loader(found):
            return cls(text, lambda: found, file, (1, 0))
        if not callable(found):
            raise TuneError(
                f"{text} is of type {type(found).__name__}: a DataLoader or a FastLoader is needed, or "
                "a function that returns one"
            )
        advice = "write a function that calls it with the arguments of your training"
        check_call(text, found, (), advice)

        def make() -> Any:
            with told(text):
                made = found()
            if not _is_loader(made):
                raise TuneError(
                    f"{text} returned an object of type {type(made).__name__}: a DataLoader or a "
                    "FastLoader is needed"
                )
            return made

        return cls(text, make, *_place(found, file), found)


def look_up(text: str) -> tuple[Any, str | None]:
    """What MODULE:NAME names, and the module's file.

    Raises:
        TuneError: if there is no such thing.
    """
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name:
        raise TuneError(
            f"{text} is not MODULE:NAME (such as my_module:make_loader or train.py:make_loader)"
        )
    module = _module(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            there = [each for each in vars(found) if not each.startswith("_")][:20]
            raise TuneError(f"{where} has no {part}; it has {', '.join(there) or 'nothing'}")
        found = getattr(found, part)
    return found, getattr(module, "__file__", None)


def _is_loader(thing: Any) -> bool:
    from torch.utils.data import DataLoader

    return isinstance(thing, DataLoader)


def _module(where: str) -> ModuleType:
    if not where.endswith(".py"):
        sys.path.insert(0, os.getcwd())  # as `python -m` does
        missing = f"there is no module {where}, seen from {os.getcwd()}"
        with told(where, missing):
            return importlib.import_module(where)
    path = os.path.abspath(where)
    if not os.path.isfile(path):
        raise TuneError(f"there is no file {where}")
    # As `python FILE` does, and under a name that worker processes can import, too.
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.basename(path).removesuffix(".py")
    there = getattr(sys.modules.get(name), "__file__", None)
    if there is not None and os.path.samefile(there, path):  # the step's is the loader's
        return sys.modules[name]
    with told(where):
        found = importlib.util.find_spec(name) if name.isidentifier() else None
        if found is not None and found.origin and os.path.samefile(found.origin, path):
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module


def check_call(
    text: str, function: Callable[..., Any], arguments: tuple[str, ...], advice: str
) -> None:
    """
    Raises:
        TuneError: if the function cannot be called with so many arguments.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a C function, which Python cannot look into
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        given = " and ".join(f"a {each}" for each in arguments) or "nothing"
        raise TuneError(
            f"{text}{signature} cannot be called with {given} ({error}): {advice}"
        ) from None


def _place(function: Callable[..., Any], file: str | None) -> tuple[str | None, tuple[int, int]]:
    try:
        lines, first = inspect.getsourcelines(function)
        return inspect.getsourcefile(function) or file, (first, first + len(lines) - 1)
    except (OSError, TypeError):
        return file, (1, 0)


@contextlib.contextmanager
def own_arguments(text: str) -> Iterator[None]:
    """Hides this command's arguments from the user's module, which may read its own from sys.argv."""
    before, sys.argv = sys.argv, [text.rpartition(":")[0]]
    try:
        yield
    finally:
        sys.argv = before


@contextlib.contextmanager
def told(what: str, missing: str | None = None) -> Iterator[None]:
    """Makes a TuneError of what the user's code raises. It names the line of that code.

    ``missing``: what to say if the module of that name is not there."""
    try:
        yield
    except TuneError:
        raise
    except ModuleNotFoundError as error:
        names = {".".join(what.split(".")[:n]) for n in range(1, what.count(".") + 2)}
        if missing is not None and error.name in names:
            raise TuneError(missing) from None
        raise TuneError(_said(what, error)) from None
    except (Exception, SystemExit) as error:
        raise TuneError(_said(what, error)) from None


def _said(what: str, error: BaseException) -> str:
    """What was raised and in which line: the last one that is of no package."""
    message = str(error)
    frames = [(each.filename, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    # Of a worker's exception, torch has the traceback in the message.
    inner = re.findall(r'^  File "(.+)", line (\d+)', message, re.MULTILINE)
    if inner:
        message = message.strip().splitlines()[-1].removeprefix(f"{type(error).__name__}: ")
        frames += [(file, int(line)) for file, line in inner]
    text = f"{what} raised {type(error).__name__}: {message}"
    if isinstance(error, SystemExit):
        text += " (put what runs a training behind `if __name__ == '__main__':`)"
    theirs = [
        f"\n  {file}, line {line}"
        for file, line in frames
        if not file.startswith((_PACKAGE, "<frozen", os.path.dirname(importlib.__path__[0])))
    ]
    own = [each for each in theirs if "site-packages" not in each]
    return text + "".join((own or theirs)[-1:])
