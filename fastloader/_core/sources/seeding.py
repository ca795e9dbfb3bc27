"""Recognises a worker_init_fn that only seeds."""

from __future__ import annotations

import builtins
import collections.abc
import dis
import functools
import random
import typing
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch

from fastloader._core.machine import identity
from fastloader._core.sources import worker_info

# Those that frameworks give, which do more than to seed, but nothing that anybody would miss: they log,
# and make sure of what is so in every worker.
_KNOWN = (
    ("lightning.fabric.utilities.seed", "pl_worker_init_function"),
    ("lightning_fabric.utilities.seed", "pl_worker_init_function"),
    ("timm.data.loader", "_worker_init"),
    ("transformers.trainer_utils", "seed_worker"),
)
_MODULES = (random, np, np.random, torch, torch.random, torch.utils, torch.utils.data)
# What may be named of these modules, and of torch's worker info.
_SEEDING = frozenset(
    (
        "data", "get_state", "get_worker_info", "getstate", "id", "initial_seed", "manual_seed",
        "random", "seed", "utils",
    )
)  # fmt: skip


def _undecorated(value: Any) -> Any:
    """Takes off what torch decorates for its compiler, and we for worker threads. torch decorates
    `torch.manual_seed` when the compiler is imported, which may be at any time."""
    decorated = type(value) is FunctionType and any(
        value.__globals__ is vars(home) and value.__code__.co_filename == home.__file__
        for home in (torch._compile, worker_info)
    )
    return getattr(value, "__wrapped__", value) if decorated else value


_FOUND = [
    (module, name, _undecorated(vars(module)[name]))
    for module in _MODULES
    for name in sorted(_SEEDING)
    if name in vars(module)
]
# The modules whose source has those that are written in Python, and what stands before their names.
_SOURCES = {
    random: ("random", "Random."),
    torch: ("torch.random", ""),
    torch.random: ("torch.random", ""),
    torch.utils.data: ("torch.utils.data._utils.worker", ""),
}
_KINDS = (collections.abc.Callable, typing.Callable)
_PLAIN = (abs, divmod, hash, int, isinstance, max, min, pow, round, *_KINDS)


def only_seeds(init: Any) -> bool:
    """Returns whether a worker_init_fn seeds the generators of a worker process and does nothing else.
    Where no worker makes the samples, such a function has nothing to do."""
    if identity.is_a(init, ("fastloader.compat.timm.mixup", "WorkerSeeding")):
        return bool(init.usual)
    return _seeds(init, set())


def _seeds(value: Any, seen: set[int]) -> bool:
    """Returns whether a function, or a value that it works with, can do nothing but seed."""
    value = _undecorated(value)
    if id(value) in seen or value is None or type(value) in (bool, float, int, str):
        return True
    seen.add(id(value))
    if type(value) is functools.partial:
        return all(
            _seeds(each, seen) for each in (value.func, *value.args, *value.keywords.values())
        )
    if any(value is each for each in (*_MODULES, *_PLAIN)):
        return True
    if any(identity.function_change(value, *home) == "" for home in _KNOWN):
        return True
    if any(value is found for _module, _name, found in _FOUND):
        return all(_is_own(*each) for each in _FOUND if value is each[2])
    if type(value) is not FunctionType:
        return False
    cells = [each.cell_contents for each in value.__closure__ or ()]
    given = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *cells)
    return all(_seeds(each, seen) for each in given) and _names_seeding(
        value.__code__, value.__globals__, seen
    )


def _names_seeding(code: CodeType, names: dict[str, Any], seen: set[int]) -> bool:
    """Returns whether code names nothing else."""
    for instruction in dis.get_instructions(code):
        name, what = instruction.argval, instruction.opname
        if what in ("LOAD_GLOBAL", "LOAD_NAME"):
            found = names.get(name, getattr(builtins, name, names))
            if found is names or not _seeds(found, seen):
                return False
        elif what == "IMPORT_NAME":
            if name not in [module.__name__ for module in _MODULES]:
                return False
        elif what in ("IMPORT_FROM", "LOAD_ATTR", "LOAD_METHOD"):
            if name not in _SEEDING or not all(
                _is_own(*instruction) for instruction in _FOUND if instruction[1] == name
            ):
                return False
        elif (
            instruction.opcode in dis.hasname
            or what
            in ("STORE_SUBSCR", "DELETE_SUBSCR", "RAISE_VARARGS")  # the last for assert, too
            or (what == "STORE_DEREF" and name in code.co_freevars)
            or (isinstance(name, CodeType) and not _names_seeding(name, names, seen))
        ):
            return False
    return True


def _is_own(module: Any, name: str, found: Any) -> bool:
    """Returns whether a module has under this name what belongs there: what was there when it was
    imported, with the code of its source."""
    function = getattr(found, "__func__", found)
    if _undecorated(vars(module).get(name)) is not found:
        return False
    kind = type(function)
    if kind is not FunctionType:
        # numpy's are made by Cython, whose class has no name of a module for itself up to Cython 3.1.
        return kind.__name__ == "cython_function_or_method" or kind.__module__ == "builtins"
    home, before = _SOURCES.get(module, ("", ""))
    return identity.function_change(function, home, before + name) == ""
