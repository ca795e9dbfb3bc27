"""The arguments that the installed torch's DataLoader takes, older and newer than the one that
FastLoader's constructor was written for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from torch.utils.data import DataLoader

_Init = TypeVar("_Init", bound=Callable[..., None])


def of_torch() -> dict[str, inspect.Parameter]:
    """Asked for anew each time: others wrap DataLoader's constructor as well."""
    parameters = dict(inspect.signature(DataLoader.__init__).parameters)
    del parameters["self"]
    return parameters


def takes_newer(init: _Init) -> _Init:
    """Around a subclass's constructor: what it does not know and torch's does, it finds in
    ``self._for_torch``, to pass it on. To callers and type checkers the constructor stays as it is
    written, but for torch's own arguments, which come first, in torch's order."""
    written = inspect.signature(init)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **named: Any) -> None:
        newer = {}
        if not named.keys() <= written.parameters.keys():
            torchs = of_torch()
            for name in list(named):
                if name not in written.parameters and name in torchs:
                    newer[name] = named.pop(name)
        self.__dict__["_for_torch"] = newer
        init(self, *args, **named)

    shown = {"self": written.parameters["self"], **of_torch(), **written.parameters}
    for name, torchs in of_torch().items():
        shown[name] = shown[name].replace(default=torchs.default, kind=torchs.kind)
    __init__.__signature__ = written.replace(  # type: ignore[attr-defined]
        parameters=list(shown.values())
    )
    return __init__  # type: ignore[return-value]
