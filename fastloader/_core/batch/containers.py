"""The containers of a batch, of any nesting, opened and rebuilt around other values.

Mappings, namedtuples, tuples, lists, UserLists (and what derives from them) and dataclasses are
opened. This happens several times for each batch, so how a type is opened is found out once.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

Key = int | str | None


@dataclasses.dataclass(frozen=True)
class LeafPlace:
    """Stands in the place of leaf number ``index``."""

    index: int


@dataclasses.dataclass(frozen=True)
class Movable:
    """An object with its own ``to``: a tensor subclass, a sparse tensor, a PackedSequence."""

    value: Any


class _Opened(enum.Enum):
    """How a value is opened, by its type."""

    NOT = enum.auto()  # not opened but visited
    PLAIN = enum.auto()  # neither opened nor visited, because nothing is in it
    DICT = enum.auto()
    LIST = enum.auto()
    TUPLE = enum.auto()
    NAMED_TUPLE = enum.auto()
    MAPPING = enum.auto()
    CHAIN_MAP = enum.auto()
    MAPPING_WITH_TO = enum.auto()  # opened if only its items have to be moved
    SEQUENCE = enum.auto()
    DATACLASS = enum.auto()


# Names of the frequent members, because a look-up in an enum costs as much as all the rest for a tensor.
_NOT, _PLAIN, _DICT, _LIST, _TUPLE = list(_Opened)[:5]

_PLAIN_TYPES = frozenset([type(None), str, bytes, int, float, bool, complex])

_opened: dict[type, _Opened] = {
    **dict.fromkeys((torch.Tensor, LeafPlace, Movable), _NOT),
    **dict.fromkeys(_PLAIN_TYPES, _PLAIN),
    **{dict: _DICT, list: _LIST, tuple: _TUPLE},
}
# How many types are kept. In a program that makes more, the others are looked at each time.
_MOST_TYPES = 1024


def _find_out(kind: type) -> _Opened:
    if issubclass(kind, (str, bytes, int, float)):
        return _Opened.PLAIN
    moves = callable(getattr(kind, "to", None))
    if issubclass(kind, (dict, collections.UserDict)):
        # Opened even with a `to`: these take anything as an item, and BatchEncoding's own `to` moves
        # nothing but its items.
        return _Opened.MAPPING_WITH_TO if moves else _Opened.MAPPING
    # Asked before the other containers: a PackedSequence is a namedtuple, a TensorDict is a mapping of
    # tensors only, and both know better than we how to move.
    if moves:
        return _Opened.NOT
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _Opened.NAMED_TUPLE
    if issubclass(kind, collections.ChainMap):
        return _Opened.CHAIN_MAP
    if issubclass(kind, Mapping):
        return _Opened.MAPPING
    if issubclass(kind, (list, tuple, collections.UserList)):
        return _Opened.SEQUENCE
    return _Opened.DATACLASS if dataclasses.is_dataclass(kind) else _Opened.NOT


def rebuild(value: Any, visit: Callable[[Any, Key], Any], key: Key = None) -> Any:
    """Copies the containers, with ``visit(value, outermost key)`` in the place of each value that is no
    container. Strings and numbers are not visited."""
    kind = type(value)
    opened = _opened.get(kind)
    if opened is None:
        opened = _find_out(kind)
        if len(_opened) < _MOST_TYPES:
            _opened[kind] = opened
    if opened is _NOT:
        return visit(value, key)
    if opened is _PLAIN:
        return value
    if opened is _LIST or opened is _TUPLE:
        if value and type(value[0]) in _PLAIN_TYPES and _PLAIN_TYPES.issuperset(map(type, value)):
            return kind(value)
        inner = _rebuilt(enumerate(value), visit, key)
        return inner if opened is _LIST else tuple(inner)
    if opened is _DICT:
        return dict(zip(value, _rebuilt(value.items(), visit, key)))
    if opened is _Opened.NAMED_TUPLE:
        return kind(*_rebuilt(enumerate(value), visit, key))
    if opened is _Opened.SEQUENCE:
        return _rebuild_sequence(value, _rebuilt(enumerate(value), visit, key))
    if opened is _Opened.DATACLASS:
        filled = copy.copy(value)
        for field in dataclasses.fields(value):
            own = field.name if key is None else key
            # object.__setattr__ also serves frozen dataclasses, and runs no user code.
            object.__setattr__(filled, field.name, rebuild(getattr(value, field.name), visit, own))
        return filled
    if opened is _Opened.CHAIN_MAP:
        clone = copy.copy(value)
        # Each map is rebuilt apart, because what is set through the chain goes to its first map.
        maps = [rebuild(each, visit, key) for each in value.maps]
        vars(clone).update(vars(value), maps=maps)
        return clone
    if opened is _Opened.MAPPING_WITH_TO and _holds_more(value):
        return visit(value, key)
    return _rebuild_mapping(value, dict(zip(value, _rebuilt(value.items(), visit, key))))


def _rebuilt(
    items: Iterable[tuple[Any, Any]], visit: Callable[[Any, Key], Any], key: Key
) -> list[Any]:
    known = _opened.get
    rebuilt = []
    for own, each in items:
        opened = known(type(each))
        if opened is _PLAIN:
            rebuilt.append(each)
        elif opened is _NOT:
            rebuilt.append(visit(each, own if key is None else key))
        else:
            rebuilt.append(rebuild(each, visit, own if key is None else key))
    return rebuilt


def moves_itself(value: Any) -> bool:
    return callable(getattr(value, "to", None)) and not isinstance(value, type)


def _holds_more(value: Any) -> bool:
    """Whether a dict or UserDict has to move more than its items, of which only its own ``to`` knows."""
    beside = dict(getattr(value, "__dict__", {}))
    if isinstance(value, collections.UserDict):
        beside.pop("data", None)
    return any(moves_itself(each) for each in beside.values())


def _rebuild_mapping(value: Any, items: dict[Any, Any]) -> Any:
    if isinstance(value, dict) or hasattr(value, "__copy__"):
        # A copy keeps what the class holds besides its items, such as defaultdict's factory.
        clone = copy.copy(value)
        if getattr(value, "__dict__", None) is value:
            clone.__dict__ = clone  # because a copy gets attributes apart from its items
        # Not by update(): a Counter adds to what is there, and transformers' ModelOutput lacks it.
        for key, item in items.items():
            clone[key] = item
        return clone
    # Made anew, because a user's own mapping may share its items with its shallow copy. Updating the
    # copy would change the batch that the dataset may still hold.
    try:
        return type(value)(items)
    except TypeError:  # no such constructor: a dict, as torch's pin_memory makes
        return items


def _rebuild_sequence(value: Any, items: list[Any]) -> Any:
    if isinstance(value, (list, collections.UserList)):
        clone = copy.copy(value)
        clone[:] = items
        return clone
    return type(value)(items)
