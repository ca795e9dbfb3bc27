"""Checks whether classes and functions still do what their own source files say.

What native code stands in for is known by the objects themselves, as `sys.modules` has them: nothing is
imported to recognise them. A method is its class's own if its code comes from the file of the class's
module, and has the method's name there. The same is asked of what it calls in torchvision, timm and
Pillow. So a patch is seen, whether it was made before fastloader was imported or after.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import enum
import functools
import operator
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Generic, TypeVar

from fastloader._core.machine.process import ProcessLock

Row = TypeVar("Row")

# The packages whose functions are followed to what they call. Of other code, methods alone are.
_FOLLOWED = ("PIL", "timm", "torchvision")
_OUR_STEPS = "fastloader.transforms."
# Those that they take functions and classes from, beside Python's own.
_LIBRARIES = ("fastloader", "numpy", "torch", "typing_extensions", *_FOLLOWED)
# Where Pillow's pictures have their methods: code that is given a picture names these, and no module.
_PILLOW = ("PIL.Image", "PIL.ImageEnhance", "PIL.ImageFilter", "PIL.ImageOps")
# What Python, torch and we ask of an object's class, whatever its own methods call.
_ASKED = (
    "__call__", "__class__", "__eq__", "__getattr__", "__getattribute__", "__getitem__", "__getitems__",
    "__hash__", "__iter__", "__len__", "_call_impl", "_wrapped_call_impl", "apply", "erasing", "forward",
    "rolled", "size_after", "step",
)  # fmt: skip
# What Python calls without naming it.
_UNNAMED = (
    "__array_interface__", "__contains__", "__enter__", "__exit__", "__getitem__", "__init__",
    "__iter__", "__len__", "__new__", "__post_init__",
)  # fmt: skip
_BUILTINS = frozenset(vars(builtins))
# The names that functions have in the source, of those that have another one, too.
_ALIASES = {
    ("torch.nn.modules.module.Module", "__call__"): "_wrapped_call_impl",
    ("torchvision.transforms.v2.functional._color", "to_grayscale"): "rgb_to_grayscale",
    ("torchvision.transforms.v2.functional._geometry", "hflip"): "horizontal_flip",
    ("torchvision.transforms.v2.functional._geometry", "vflip"): "vertical_flip",
}


class Rows(Generic[Row]):
    """A table that is looked up by class. Its keys are (module, name), because other libraries, whose
    classes it has, may never be imported."""

    def __init__(self, rows: Mapping[Any, Row]) -> None:
        self.rows: dict[tuple[str, str], Row] = {
            (each.__module__, each.__qualname__) if isinstance(each, type) else each: row
            for each, row in rows.items()
        }

    def known(self, kind: type) -> type | None:
        """Returns the class in the table that ``kind`` is, or derives from."""
        for each in kind.__mro__:
            if self.get(each) is not None:
                return each
        return None

    def get(self, kind: type) -> Row | None:
        """Returns the row of this very class."""
        home = kind.__module__, kind.__qualname__
        row = self.rows.get(home)
        return row if row is not None and kind is found(*home) else None


def found(module: str, name: str) -> Any | None:
    """Returns the object of this name; None if there is none, or its module was not imported."""
    home = sys.modules.get(module)  # None, too, of one that may not be imported
    return None if home is None else vars(home).get(name)


def is_a(value: Any, *homes: tuple[str, str]) -> bool:
    """Returns whether a value is of one of the classes (module, name), and of no subclass."""
    return any(type(value) is found(*home) for home in homes)


def change(kind: type, known: type, reads: Iterable[str] = ()) -> str:
    """Describes what objects of ``kind`` do otherwise than the source of ``known`` says, a class that
    ``kind`` is or derives from; empty if that is nothing. ``reads``: attributes that matter, besides
    those that the methods of ``known`` look at."""
    reach = _reach(known)
    changed = reach.change()
    if kind is known:
        return changed
    matter = reach.names.union(reads)
    for own in kind.__mro__:
        if own not in known.__mro__:
            for name in vars(own):
                if name in matter:
                    return f"{own.__qualname__} has a {name} of its own"
    return changed


def own_part(value: Any, known: type, reads: Iterable[str] = ()) -> str:
    """Describes what a dataset does otherwise than the source of ``known`` says, by its class or by
    itself; empty if that is nothing. ``reads``: as for `change`."""
    if changed := change(type(value), known, reads):
        return changed
    names = _reach(known).names
    for name in getattr(value, "__dict__", ()):
        if name not in names:
            continue
        # torch asks the object for the second, whether its class has one or not.
        if hasattr(_looked_up(type(value), name)[1], "__get__") or name == "__getitems__":
            return f"the dataset has a {name} of its own"
    return ""


def function_change(function: Any, module: str, name: str) -> str | None:
    """Describes what a function does otherwise than its source says; empty if that is nothing. None if
    it is not the one of this ``name`` in the source of ``module``."""
    home = sys.modules.get(module)
    if home is None or type(function) is not FunctionType:
        return None
    return _reach(function).change() if _is_of(function, home, name) else None


def methods_change(module: str, kind: str, *names: str) -> str:
    """Describes what methods of the class of this name do otherwise than the source of the module says,
    whether they are its own or those of a class that it derives from; empty if that is nothing."""
    known = found(module, kind)
    if (getattr(known, "__module__", ""), getattr(known, "__qualname__", "")) != (module, kind):
        return f"{module}.{kind} was replaced by {true_name(known)}"
    changes = (
        _replaced(owner, name, value)
        for name in names
        for owner, value in [_looked_up(known, name)]
    )
    return next(filter(None, changes), "")


def modules_change(*names: str) -> str:
    """Describes what the functions and classes of these modules do otherwise than their sources say, as
    far as they were imported; empty if that is nothing."""
    changes = (_reach(sys.modules[name]).change() for name in names if name in sys.modules)
    return next(filter(None, changes), "")


def true_name(value: Any) -> str:
    """Returns a function's true name, whatever its ``__name__`` claims."""
    if isinstance(value, type | ModuleType):
        return repr(value)
    if type(value) is not FunctionType:
        return f"a {type(value).__module__}.{type(value).__qualname__}"
    code = value.__code__
    name = getattr(code, "co_qualname", code.co_name)  # the first, from Python 3.11
    return f"{value.__globals__.get('__name__')}.{name}"


class _Watch:
    """Remembers what was found where it was looked at. It compares lists without a line of Python for
    each element; elements are compared by identity first."""

    def __init__(self) -> None:
        self._known: set[tuple[int, Any]] = set()
        # Attributes that were there: of which space, the name, the value; and those that were not.
        self._there: tuple[list[Any], ...] = [], [], []
        self._not_there: tuple[list[Any], ...] = [], []
        self._functions: list[FunctionType] = []
        self._insides: tuple[list[Any], ...] = [], [], []  # of these

    def attribute(self, space: Any, name: Any) -> None:
        """Remembers an attribute of a class, a module or a dict, or that it is not there."""
        if (id(space), name) not in self._known:
            self._known.add((id(space), name))
            members = space if isinstance(space, dict) else vars(space)
            found = (members, name, members[name]) if name in members else (members, name)
            for kept, each in zip(
                self._there if name in members else self._not_there, found, strict=True
            ):
                kept.append(each)

    def function(self, function: FunctionType) -> None:
        if (id(function), None) not in self._known:
            self._known.add((id(function), None))
            self._functions.append(function)
            for kept, inside in zip(self._insides, _insides([function]), strict=True):
                kept += inside

    def same(self) -> bool:
        """Returns whether all that is remembered is still there, and classes have nothing more."""
        spaces, names, values = self._there
        try:
            return (
                [*map(operator.getitem, spaces, names)] == values
                and not any(map(operator.contains, *self._not_there))
                and _insides(self._functions) == self._insides
                and [len(vars(kind)) for kind in _spaces] == [*_spaces.values()]
            )
        except Exception:  # what is gone, and values that do not compare: not those that were there
            return False


def _insides(functions: Iterable[FunctionType]) -> tuple[list[Any], ...]:
    return (
        [each.__code__ for each in functions],
        [each.__defaults__ for each in functions],
        [each.__kwdefaults__ for each in functions],
    )


class _Reach:
    """All that the methods of a class, a function, or those of a module come to call. Attributes:
    ``names``, of the attributes of the object that the methods look at; ``stale``, whether to follow
    them again."""

    names: frozenset[str]

    def __init__(self, root: type | FunctionType | ModuleType) -> None:
        self._root = root
        self.stale = True
        self.change()

    def change(self) -> str:
        with _looking.lock:
            if not getattr(_of_thread, "looks", 0):
                _look()
            if self.stale:
                self._follow()
            return self._change

    def _follow(self) -> None:
        change = ""
        seen: set[_Place] = set()
        names = set(_ASKED)
        root = self._root
        todo: list[_Place] = []
        if isinstance(root, type):
            todo += [(root, name, root) for name in _ASKED]
            _spaces.update((each, len(vars(each))) for each in root.__mro__)
        elif isinstance(root, ModuleType):
            todo += _in_module(root)
        else:
            _all.function(root)
            todo += _called(root, None)
        while todo:
            place = todo.pop()
            # What another one came to call was followed then, and nothing was changed there.
            if place in seen or place in _followed:
                continue
            seen.add(place)
            holder, name, self_class = place
            owner, value = _looked_up(holder, name)
            if owner is None:
                continue
            _all.attribute(owner, name)
            change = change or _replaced(owner, name, value)
            function = _function_of(value)
            if type(function) is not FunctionType:
                continue
            _all.function(function)
            change = change or _with_other_defaults(function)
            if self_class is root:
                inner = _names_in(function.__code__)
                names |= inner
                todo += [(root, each, root) for each in inner]
            todo += _called(function, self_class)
            if self_class is not None and "super" in function.__code__.co_names:
                todo += [(each, name, self_class) for each in owner.__bases__]
            for kernels, kind in _kernels_of(function):
                _all.attribute(kernels, kind)
                for kernel in _with_wrapped(kernels[kind]) if kind in kernels else ():
                    if is_librarys(kernel):
                        _all.function(kernel)
                        todo += _called(kernel, None)
                    else:
                        what = f"the kernel of {true_name(function)} was replaced by {true_name(kernel)}"
                        change = change or what
        if not change:
            _followed.update(place for place in seen if place[2] is not root)
        self.names, self._change, self.stale = frozenset(names), change, False


# (class or module, name there, class of ``self`` if it is a method)
_Place = tuple[Any, str, "type | None"]

_reaches: dict[Any, _Reach] = {}
_all = _Watch()  # of all of them
_spaces: dict[type, int] = {}  # the classes that were searched, and how many attributes they had
_followed: set[_Place] = set()
_of_thread = threading.local()
# What the source does not say in its code: the defaults of functions, and the values of attributes of
# classes, as they were when they were first looked at.
_first: dict[Any, Any] = {}
_looking = ProcessLock()  # guards the above, but for _of_thread


@contextlib.contextmanager
def one_look() -> Iterator[None]:
    """Makes this thread look at everything only once while it is entered: it then does not see what is
    replaced."""
    looks = getattr(_of_thread, "looks", 0)
    if not looks:
        with _looking.lock:
            _look()
    _of_thread.looks = looks + 1
    try:
        yield
    finally:
        _of_thread.looks = looks


def generation() -> object:
    """Returns another object than before, once anything was replaced that was looked at."""
    with _looking.lock:
        if not getattr(_of_thread, "looks", 0):
            _look()
        return _all


def _look() -> None:
    """Marks everything to be followed again, if something was replaced."""
    global _all
    if _all.same():
        return
    _all = _Watch()
    _spaces.clear()
    _followed.clear()
    _called.cache_clear()
    for reach in list(_reaches.values()):
        reach.stale = True


def _reach(root: Any) -> _Reach:
    reach = _reaches.get(root)
    if reach is None:
        reach = _reaches[root] = _Reach(root)
    return reach


def _in_module(module: ModuleType) -> list[_Place]:
    """Lists a module's own functions, and the methods of its own classes."""
    places: list[_Place] = []
    for name, value in vars(module).items():
        if type(value) is FunctionType:
            places.append((module, name, None))
        elif isinstance(value, type) and value.__module__ == module.__name__:
            items = vars(value).items()
            methods = [inner for inner, each in items if type(_function_of(each)) is FunctionType]
            places += [(value, inner, value) for inner in methods]
    return places


def _with_other_defaults(function: FunctionType) -> str:
    defaults = function.__defaults__, function.__kwdefaults__
    if _first.setdefault(function, defaults) == defaults:
        return ""
    return f"{true_name(function)} was given other defaults"


@functools.cache
def _called(function: FunctionType, self_class: type | None) -> list[_Place]:
    """Lists what a function may call: whatever has one of the names in its code, in its class, in the
    modules and classes that it names, and in Pillow."""
    names = _names_in(function.__code__)
    places: list[_Place] = []
    spaces: list[Any] = [] if self_class is None else [self_class]
    home = str(function.__globals__.get("__name__"))
    if _is_followed(home):
        module = sys.modules[home]
        # A global of the module stands before what is Python's own.
        places += [(module, each, None) for each in names & _BUILTINS if each not in vars(module)]
        # Behind it, those that are imported in the function.
        imported = [each for each in names if _is_followed(each)]
        spaces += [module, *(sys.modules[each] for each in imported if each in sys.modules)]
    if _package(home) in ("fastloader", *_FOLLOWED) and "PIL.Image" in sys.modules:
        spaces += [sys.modules[each] for each in _PILLOW if each in sys.modules]
        spaces.append(sys.modules["PIL.Image"].Image)
    for space in spaces:  # which grows
        if isinstance(space, type):
            looked_at = names if space is self_class else names.union(_UNNAMED)
            for each in space.__mro__[:-1]:
                _spaces[each] = len(vars(each))
                here = [name for name in looked_at & vars(each).keys() if _runs(vars(each)[name])]
                places += [(space, name, space) for name in here]
            continue
        for name in names & vars(space).keys():
            value = vars(space)[name]
            if isinstance(value, ModuleType | type):
                home = value.__name__ if isinstance(value, ModuleType) else value.__module__
                if _is_followed(home) and not any(value is each for each in spaces):
                    spaces.append(value)
            if isinstance(value, ModuleType) or callable(value):
                places.append((space, name, None))
    return places


def _runs(value: Any) -> bool:
    return callable(value) or hasattr(value, "__get__")


def _kernels_of(function: FunctionType) -> list[tuple[Any, Any]]:
    """Lists where torchvision.transforms.v2 has what a function does to pictures and to tensors, or
    would have it: a kernel of a class stands before that of a class which it derives from."""
    registry = found("torchvision.transforms.v2.functional._utils", "_KERNEL_REGISTRY")
    kernels = None if registry is None else registry.get(function)
    if kernels is None:
        return []
    homes = ("PIL.Image", "Image"), ("torch", "Tensor"), ("torchvision.tv_tensors._image", "Image")
    kinds = {each for home in homes for each in getattr(found(*home), "__mro__", ())}
    return [(kernels, kind) for kind in kinds if kind is not object]


def _with_wrapped(kernel: Any) -> list[Any]:
    """Lists a kernel, and those that torchvision has wrapped into it, to give back the class of a
    picture."""
    kernels = [kernel]
    for each in kernels:  # which grows
        cells = getattr(each, "__closure__", None) or ()
        held = [cell.cell_contents for cell in cells]
        kernels += [inner for inner in held if callable(inner) and not isinstance(inner, type)]
    return kernels


def _names_in(code: CodeType) -> frozenset[str]:
    inner = (_names_in(each) for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(code.co_names).union(*inner)


def _looked_up(holder: Any, name: str) -> tuple[Any, Any]:
    """Looks up which class or object has the attribute, and its value, without the descriptor's work;
    (None, None) for what only `object` has."""
    if not isinstance(holder, type):
        return holder, vars(holder).get(name)
    for each in holder.__mro__[:-1]:
        if name in vars(each):
            return each, vars(each)[name]
    return None, None


def _function_of(value: Any) -> Any:
    """Returns the function that a descriptor calls."""
    if type(value) is FunctionType:  # most are
        return vars(value)["__wrapped__"] if value.__code__ is _CONTEXT_MANAGER else value
    if isinstance(value, property):
        return value.fget
    if isinstance(value, functools.cached_property):
        return value.func
    if isinstance(value, classmethod | staticmethod | functools._lru_cache_wrapper):
        return _function_of(value.__wrapped__)
    return value


_CONTEXT_MANAGER = contextlib.contextmanager(lambda: iter(())).__code__  # of all that it decorates


_OF_C = (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)


def _replaced(holder: Any, name: str, value: Any) -> str:
    """Says that what stands in a class or module under this name is not what the source has there."""
    function = _function_of(value)
    if isinstance(getattr(value, "__func__", value), functools._lru_cache_wrapper):
        # Of Pillow's functions and of ours, some are. A method that was is another one.
        same = isinstance(holder, ModuleType) and (
            _package(holder.__name__) in ("PIL", "fastloader")
            and type(function) is FunctionType
            and _has_function(holder, name, function)
        )
    elif type(function) is FunctionType:
        same = (
            _has_method(holder, name, function)
            if isinstance(holder, type)
            else _has_function(holder, name, function)
        )
    elif isinstance(function, _OF_C):
        # One that is bound is such as the match() of a pattern.
        bound = not isinstance(getattr(function, "__self__", function), ModuleType | type(function))
        same = bound or function.__name__ == name
    elif isinstance(function, type | ModuleType):
        same = isinstance(holder, type) or _is_known_object(function)
    elif callable(function):
        same = type(function).__module__ == "typing"
    elif isinstance(holder, type) and hasattr(function, "__get__"):
        made_by = _package(type(function).__module__)  # not functools: partialmethod() and the like
        same = made_by in sys.stdlib_module_names and made_by != "functools"
    elif isinstance(holder, type):
        if _first.setdefault((holder, name), function) is function:
            return ""
        return f"{holder.__qualname__}.{name} was set to another value"
    else:
        same = True
    if same:
        return ""
    place = holder.__qualname__ if isinstance(holder, type) else holder.__name__
    return f"{place}.{name} was replaced by {true_name(function)}"


def _has_method(kind: type, name: str, function: FunctionType) -> bool:
    if _package(kind.__module__) in sys.stdlib_module_names:
        return True
    wanted = _ALIASES.get((f"{kind.__module__}.{kind.__qualname__}", name), name)
    private = f"_{kind.__qualname__.lstrip('_')}"
    if wanted.startswith(f"{private}__"):
        wanted = wanted.removeprefix(private)
    if issubclass(kind, tuple | enum.Enum):  # most of whose methods namedtuple() or Enum makes
        return True
    # Some classes, as torch.Tensor, say that they are of another module of their package.
    home = str(function.__globals__.get("__name__"))
    if _package(home) != _package(kind.__module__):
        return False
    if function.__code__.co_filename == "<string>" and dataclasses.is_dataclass(kind):
        return True  # made by dataclass()
    return _is_of(function, sys.modules.get(home), f"{kind.__qualname__}.{wanted}")


def _has_function(module: ModuleType, name: str, function: FunctionType) -> bool:
    if _is_of(function, module, _ALIASES.get((module.__name__, name), name)):
        return True
    if function.__globals__ is vars(module) or not is_librarys(function):
        return False
    # Imported. These libraries import their own functions under the names that they have, or such as
    # _crop_image_pil of crop, and o16 of o16le. A function of any other name stands in another's place.
    home = str(function.__globals__.get("__name__"))
    here, there = _ALIASES.get((home, name), name).strip("_"), _qualname(function).strip("_")
    return not _is_followed(home) or here.startswith(there) or there.startswith(here)


def _is_known_object(value: type | ModuleType) -> bool:
    """Returns whether it is a class or a module of a library; of one that is followed, under its own
    name."""
    home = value.__name__ if isinstance(value, ModuleType) else value.__module__
    if not _is_followed(home):
        return _package(home) in _LIBRARIES or _package(home) in sys.stdlib_module_names
    if isinstance(value, ModuleType):
        return sys.modules.get(home) is value
    return "." in value.__qualname__ or found(home, value.__qualname__) is value


def is_librarys(function: Any) -> bool:
    """Returns whether it is a function or class of a library that torchvision may use, as its source has
    it."""
    if isinstance(function, type):
        return _is_known_object(function)
    if type(function) is not FunctionType:
        return False
    home = str(function.__globals__.get("__name__"))
    if _package(home) in sys.stdlib_module_names:  # which may be frozen, without a file
        return "<locals>" not in _qualname(function)
    known = _package(home) in _LIBRARIES
    return known and _is_of(function, sys.modules.get(home), _qualname(function))


def _is_of(function: FunctionType, module: ModuleType | None, qualname: str) -> bool:
    """Returns whether it is the function of this name in the source of the module."""
    file = function.__code__.co_filename
    return (
        module is not None
        and function.__globals__ is vars(module)
        and getattr(module, "__file__", file) == file  # a notebook has none
        and _qualname(function) == qualname
    )


def _qualname(function: FunctionType) -> str:
    # Python 3.10 has the name that the code was given in the function alone, where wraps() changes it.
    return str(getattr(function.__code__, "co_qualname", function.__qualname__))


@functools.cache
def _is_followed(module: str) -> bool:
    return _package(module) in _FOLLOWED or module.startswith(_OUR_STEPS)


def _package(module: Any) -> str:
    return str(module).partition(".")[0]
