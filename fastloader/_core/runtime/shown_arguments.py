"""What the signatures of a loader's subclasses say."""

from __future__ import annotations

import inspect
from typing import Any


class ShownArguments:
    """A base class. The signature of a subclass's ``__init__`` that passes ``**kwargs`` on names the
    arguments that it passes.

    Frameworks make a loader again from those attributes that are arguments by the signature. Where it
    has ``**kwargs``, Lightning adds the arguments of DataLoader, and so would lose all others."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        init = cls.__dict__.get("__init__")
        if not inspect.isfunction(init) or hasattr(init, "__signature__"):
            return
        own = inspect.signature(init)
        *others, last = own.parameters.values()  # the first is self
        if last.kind is not last.VAR_KEYWORD:
            return
        below: Any = super(cls, cls).__init__
        passed = [
            each.replace(kind=each.KEYWORD_ONLY)
            for each in inspect.signature(below).parameters.values()
            if each.name not in own.parameters
            and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
        init.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*others, *passed, last]
        )
