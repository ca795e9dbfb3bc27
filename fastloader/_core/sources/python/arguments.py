"""Speaks to the installed torch by its own names: the arguments of its DataLoader, of its iterators
and of its worker loop, which may be older or newer than the one FastLoader was written for."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader

from fastloader._core.order.loader import Loader
from fastloader.errors import Error

# ---- The arguments that the installed torch's DataLoader takes. That torch may be older or
# newer than the one for which FastLoader's constructor was written.


_Init = TypeVar("_Init", bound=Callable[..., None])

_ANYTHING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def of_torch() -> set[str]:
    """Returns the names of the arguments. They are read anew each time, because other libraries wrap
    DataLoader's constructor as well."""
    shown = _shown()
    names = {each.name for each in shown if each.kind not in _ANYTHING}
    return names if _tells_all(shown) else names | _written()


def for_torch(loader: Loader, in_order: bool) -> dict[str, Any]:
    """Returns the arguments for torch's constructor besides those that every version takes. They are
    those of ``loader`` that FastLoader's own constructor does not know, and ``worker_backend`` where
    torch has an argument ``worker_method`` for it."""
    newer: dict[str, Any] = loader.__dict__.pop("_for_torch")
    torchs = of_torch()
    if "worker_method" in torchs:
        # Of actors, torch knows nothing.
        method = loader.worker_method
        newer["worker_method"] = "multiprocessing" if method == "ray" else method
    if "in_order" in torchs:
        newer["in_order"] = in_order
    elif not in_order:
        raise ValueError(f"in_order=False needs torch 2.6 or later; this is {torch.__version__}")
    else:
        # Frameworks that rebuild a loader expect each argument as an attribute.
        loader.in_order = in_order
    return newer


def _shown() -> list[inspect.Parameter]:
    parameters = list(inspect.signature(DataLoader.__init__).parameters.values())
    itself = parameters and parameters[0].kind not in _ANYTHING
    return parameters[1:] if itself else parameters


def _tells_all(shown: list[inspect.Parameter]) -> bool:
    """Returns whether the signature names all arguments. It does not if the constructor was wrapped to
    take anything, without functools.wraps."""
    return not any(each.kind in _ANYTHING for each in shown)


@functools.cache
def _written() -> set[str]:
    """Returns the names of the arguments in torch's own file, where no wrapper hides them."""
    spec = importlib.util.find_spec(DataLoader.__module__)
    read: Any = getattr(spec and spec.loader, "get_code", None)
    module = read(DataLoader.__module__) if read is not None else None
    for loader in _codes(module, "DataLoader"):
        for init in _codes(loader, "__init__"):
            return {*init.co_varnames[1 : init.co_argcount + init.co_kwonlyargcount]}
    raise Error(
        f"which arguments torch's DataLoader takes cannot be told: its constructor was replaced by "
        f"{DataLoader.__init__!r}, which takes anything, and the code of {DataLoader.__module__} "
        "cannot be read; let whoever wraps the constructor use functools.wraps"
    )


def _codes(within: types.CodeType | None, name: str) -> Iterator[types.CodeType]:
    for each in () if within is None else within.co_consts:
        if isinstance(each, types.CodeType) and each.co_name == name:
            yield each


def takes_newer(init: _Init) -> _Init:
    """Wraps a subclass's constructor. Arguments that it does not know and torch's does are put into
    ``self._for_torch``, from where the constructor passes them on. To callers and type checkers the
    constructor stays as it is written, but torch's own arguments come first, in torch's order, if
    torch's constructor tells them."""
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

    torchs = _shown()
    if _tells_all(torchs):
        shown = {"self": written.parameters["self"]}
        shown.update((each.name, each) for each in torchs)
        for name, each in written.parameters.items():
            default, kind = shown.get(name, each).default, shown.get(name, each).kind
            shown[name] = each.replace(default=default, kind=kind)
        __init__.__signature__ = written.replace(  # type: ignore[attr-defined]
            parameters=list(shown.values())
        )
    return __init__  # type: ignore[return-value]


# ---- A loader as it is shown to torch's iterators.


class LoaderView:
    """Shows a loader to torch's iterator with ``other`` attributes. They cannot be set on the loader,
    because a subclass may not allow it."""

    def __init__(self, loader: Loader, **other: Any) -> None:
        self._seen = loader
        self.__dict__.update(other)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._seen, name)


# ---- The arguments of torch's worker loop, by the names that the installed torch gives them.
# torch 2.14 hands the dataset over in a list that the worker empties; earlier ones hand over
# the dataset itself.


# What workers that are no processes are made of.
_NEEDED = (
    "dataset_kind",
    "dataset",
    "index_queue",
    "data_queue",
    "done_event",
    "auto_collation",
    "collate_fn",
    "drop_last",
    "base_seed",
    "init_fn",
    "worker_id",
    "num_workers",
)


def named_arguments(loop: Callable[..., None], arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Returns the arguments with which torch would call ``loop``, its worker loop: each of `_NEEDED` by
    its name."""
    try:
        given = inspect.signature(loop).bind(*arguments).arguments
    except TypeError:
        given = {}
    # By the parameter's name: a dataset may be a list.
    if "dataset_holder" in given:
        given["dataset"] = given.pop("dataset_holder").pop()
    if lacking := [name for name in _NEEDED if name not in given]:
        raise Error(
            f"what torch {torch.__version__} gives its workers cannot be told: {loop!r} takes no "
            f'{", ".join(lacking)}. Use worker_backend="process", and tell fastloader\'s authors'
        )
    return {name: given[name] for name in _NEEDED}
