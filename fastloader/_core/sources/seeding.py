"""Whether a worker_init_fn only seeds."""

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

# Those that frameworks give, which do more than to seed, but nothing that anybody would miss: they log.
_KNOWN = (
    ("lightning.fabric.utilities.seed", "pl_worker_init_function"),
    ("lightning_fabric.utilities.seed", "pl_worker_init_function"),
    ("transformers.trainer_utils", "seed_worker"),
)
_MODULES = (random, np, np.random, torch, torch.random, torch.utils, torch.utils.data)
# What may be named of these modules, and of torch's worker info.
_SEEDING = frozenset(
    ("data", "get_worker_info", "id", "initial_seed", "manual_seed", "random", "seed", "utils")
)
_KINDS = (collections.abc.Callable, typing.Callable)
_PLAIN = (abs, divmod, hash, int, isinstance, max, min, pow, round, *_KINDS)


def only_seeds(init: Any) -> bool:
    """Whether a worker_init_fn seeds the generators of a worker process and does nothing else. Where no
    worker makes the samples, such a function has nothing to do."""
    if identity.is_a(init, ("fastloader.compat.timm.collate", "WorkerSeeding")):
        return bool(init.usual)
    if any(identity.function_change(_inner(init), *home) == "" for home in _KNOWN):
        return True
    return _seeds(init, set())


def _inner(init: Any) -> Any:
    while type(init) is functools.partial:
        init = init.func
    return init


def _seeds(value: Any, seen: set[int]) -> bool:
    """Whether a function, or a value that it works with, can do nothing but seed."""
    if id(value) in seen or value is None or type(value) in (bool, float, int, str):
        return True
    seen.add(id(value))
    if type(value) is functools.partial:
        return all(
            _seeds(each, seen) for each in (value.func, *value.args, *value.keywords.values())
        )
    if type(value) is not FunctionType:
        return any(value is each for each in (*_MODULES, *_PLAIN, *_seeding_functions()))
    if any(value is each for each in _seeding_functions()):
        return True
    cells = [each.cell_contents for each in value.__closure__ or ()]
    given = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *cells)
    return all(_seeds(each, seen) for each in given) and _names_seeding(
        value.__code__, value.__globals__, seen
    )


def _names_seeding(code: CodeType, names: dict[str, Any], seen: set[int]) -> bool:
    """Whether code names nothing else."""
    for each in dis.get_instructions(code):
        name, what = each.argval, each.opname
        if what in ("LOAD_GLOBAL", "LOAD_NAME"):
            found = names.get(name, getattr(builtins, name, names))
            if found is names or not _seeds(found, seen):
                return False
        elif what == "IMPORT_NAME":
            if name not in [module.__name__ for module in _MODULES]:
                return False
        elif what in ("IMPORT_FROM", "LOAD_ATTR", "LOAD_METHOD"):
            if name not in _SEEDING:
                return False
        elif (
            each.opcode in dis.hasname
            or what in ("STORE_SUBSCR", "DELETE_SUBSCR")
            or (what == "STORE_DEREF" and name in code.co_freevars)
            or (isinstance(name, CodeType) and not _names_seeding(name, names, seen))
        ):
            return False
    return True


def _seeding_functions() -> tuple[Any, ...]:
    return (
        random.seed,
        np.random.seed,
        torch.initial_seed,
        torch.manual_seed,
        torch.random.initial_seed,
        torch.random.manual_seed,
        torch.utils.data.get_worker_info,
    )
