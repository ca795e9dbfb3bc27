"""``PutOff``: what stands in a sample for something that is made later."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils._pytree import register_pytree_node, tree_map
from torch.utils.data._utils.collate import collate

from fastloader._core.machine.process import ProcessLock
from fastloader.errors import Error


class PutOff:
    """Stands for what `decode` makes. Whoever looks into it gets that: its attributes, and what
    operators and functions of torch and numpy do with it. It is made with the first look, and kept, so
    that all looks see the same. What is kept crosses to another process, and into a copy, with it.

    It stays an object of its own class, with that one's attributes. Two of them are equal if they are
    the same one, and each is true. Names that begin with an underscore are not looked for in what it
    stands for: notebooks, progress bars and containers ask any object for such names.

    Attribute: ``kept``, in a tuple, what was seen by who has looked into it; None as long as nobody
    has, which a class that derives from this one sets.
    """

    __slots__ = ("kept",)

    any_made: ClassVar[bool] = False  # in this process; loaders of other datasets need not look

    kept: tuple[Any] | None

    def decode(self) -> Any:
        """Makes what it stands for, on this thread."""
        raise NotImplementedError

    def taken(self) -> Any:
        """Returns what comes out for it: what was seen by who has looked into it, or what `decode` makes
        now, which is not kept."""
        return self.decode() if self.kept is None else self.kept[0]

    def look(self) -> Any:
        """Returns what it stands for, to somebody who looks into it."""
        if self.kept is None:
            made = self.decode()
            with _keeping.lock:  # another thread may have looked meanwhile
                if self.kept is None:
                    self.kept = (made,)
        assert self.kept is not None
        return self.kept[0]

    def pin_memory(self) -> PutOff:
        """Returns it as it is. torch pins a batch on a thread of its own, where random steps would draw
        in any order."""
        return self

    def _state(self) -> tuple[Any, ...]:
        """Returns what ``__reduce__`` gives behind the function and its arguments."""
        return () if self.kept is None else ((None, {"kept": self.kept}),)

    def __getattr__(self, name: str) -> Any:
        kind = type(self)
        if name.startswith("_"):
            raise AttributeError(f"{kind.__qualname__!r} object has no attribute {name!r}")
        if hasattr(kind, name):  # a slot without a value, or what a property raised
            raise AttributeError(f"{kind.__qualname__} cannot give its attribute {name!r}")
        try:
            made = self.look()
        except AttributeError as error:
            # `hasattr` would take it for an answer.
            raise Error(f"{self} cannot be made: {error}") from error
        return getattr(made, name)

    def __bool__(self) -> bool:
        return True

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        # Of its own memory: where torch sends what is kept to another process, it moves the tensor's,
        # and an array over that would be left with none.
        array = np.asarray(self.look(), dtype=dtype)
        return array if copy is False else array.copy()

    def __dlpack__(self, **options: Any) -> Any:
        """Gives what ``torch.as_tensor`` asks for."""
        return torch.as_tensor(self.look()).__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return torch.as_tensor(self.look()).__dlpack_device__()

    @classmethod
    def __torch_function__(
        cls, function: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*tree_map(looked_at, args), **tree_map(looked_at, kwargs or {}))


_keeping = ProcessLock()  # guards: what is kept, of all of them


def looked_at(value: Any) -> Any:
    """Returns what stands behind a value that is put off, and any other value as it is."""
    return value.look() if isinstance(value, PutOff) else value


def collate_taken(column: list[Any], *, collate_fn_map: Any = None) -> Any:
    """Collates, for default_collate, what comes out for a column of which some are put off."""
    taken = [each.taken() if isinstance(each, PutOff) else each for each in column]
    return collate(taken, collate_fn_map=collate_fn_map)


def open_in_trees(kind: type[PutOff]) -> None:
    """Has torch's trees look into objects of a class: torchvision's v2 opens what it is given so."""
    register_pytree_node(kind, lambda each: ([each.look()], None), lambda made, _: next(iter(made)))


def _looking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the method for an operator, which Python looks for in the class alone."""

    def method(self: PutOff, *args: Any) -> Any:
        return function(self.look(), *map(looked_at, args))

    return method


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the method for an operator whose left side is something else."""

    def method(self: PutOff, other: Any) -> Any:
        return function(other, self.look())

    return method


_BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift"]
for _name, _function in {
    **{name: getattr(operator, name) for name in _BINARY},
    **{"and": operator.and_, "or": operator.or_, "xor": operator.xor},
}.items():
    setattr(PutOff, f"__{_name}__", _looking(_function))
    setattr(PutOff, f"__r{_name}__", _reflected(_function))
_OF_CONTAINERS = ["getitem", "setitem", "delitem", "contains"]
for _name in [*_OF_CONTAINERS, "lt", "le", "gt", "ge", "neg", "pos", "invert", "abs"]:
    setattr(PutOff, f"__{_name}__", _looking(getattr(operator, _name)))
for _builtin in (iter, len, float, int):
    setattr(PutOff, f"__{_builtin.__name__}__", _looking(_builtin))
