"""Calls that torch.compile leaves alone."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def eager(function: _Function) -> _Function:
    """Keeps torch.compile out of ``function`` and all that it calls, as torch keeps it out of its own
    iterators: in a compiled loop it would trace our code, numpy's and the dataset's. As long as nobody
    has imported the compiler, which takes a second, it cannot be at work."""
    disabled: Any = None

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        nonlocal disabled
        if "torch._dynamo" not in sys.modules:
            return function(*args, **named)
        if disabled is None:
            import torch

            disabled = torch.compiler.disable(function)
        return disabled(*args, **named)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]  # when it is called by compiled code
    return call  # type: ignore[return-value]
