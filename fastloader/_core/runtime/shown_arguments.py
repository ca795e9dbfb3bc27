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
        parameters = [*own.parameters.values()]
        if parameters[-1].kind is not inspect.Parameter.VAR_KEYWORD:
            return
        below: Any = super(cls, cls).__init__
        passed = [
            each
            for each in inspect.signature(below).parameters.values()
            if each.name not in own.parameters and each.kind not in _VARIADIC
        ]
        # `*args` stands for those that may be given by their positions, unless it is behind arguments
        # that may be left out.
        if inspect.Parameter.VAR_POSITIONAL in [each.kind for each in parameters] and not any(
            _may_be_left_out(each) for each in parameters
        ):
            parameters = [each for each in parameters if each.kind is not each.VAR_POSITIONAL]
        else:
            passed = [_by_name(each) for each in passed]
        init.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=sorted([*parameters, *passed], key=lambda each: each.kind)
        )


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _may_be_left_out(each: inspect.Parameter) -> bool:
    positional = each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    return positional and each.default is not each.empty


def _by_name(each: inspect.Parameter) -> inspect.Parameter:
    """Without need: the subclass may give it itself."""
    default = None if each.default is each.empty else each.default
    return each.replace(kind=each.KEYWORD_ONLY, default=default)
