"""Opens a batch of any nesting into its leaves, and builds it again. A *leaf* is a plain dense CPU
tensor. Everything else travels as it is."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from fastloader.datasets.put_off import PutOff

# ---- The containers of a batch, of any nesting, opened and rebuilt around other values.
#
# Mappings, namedtuples, tuples, lists, UserLists (and what derives from them) and dataclasses
# are opened. This happens several times for each batch, so how a type is opened is found out
# once.


Key = int | str | None


@dataclasses.dataclass(frozen=True)
class LeafPlace:
    """Stands in a template for leaf number ``index``."""

    index: int


@dataclasses.dataclass(frozen=True)
class Movable:
    """An object with its own ``to``: a tensor subclass, a sparse tensor, a PackedSequence."""

    value: Any


class _Opened(enum.Enum):
    """The way to open a value, by its type."""

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


def open_dataclass(kind: type) -> None:
    """Has a dataclass opened although it has a ``to``."""
    _opened[kind] = _Opened.DATACLASS


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
    for own_key, item in items:
        opened = known(type(item))
        if opened is _PLAIN:
            rebuilt.append(item)
        elif opened is _NOT:
            rebuilt.append(visit(item, own_key if key is None else key))
        else:
            rebuilt.append(rebuild(item, visit, own_key if key is None else key))
    return rebuilt


def moves_itself(value: Any) -> bool:
    if isinstance(value, type | PutOff):  # which must not be looked into
        return False
    return callable(getattr(value, "to", None))


def _holds_more(value: Any) -> bool:
    """Returns whether a dict or UserDict has to move more than its items, of which only its own ``to``
    knows."""
    attributes = dict(getattr(value, "__dict__", {}))
    if isinstance(value, collections.UserDict):
        attributes.pop("data", None)
    return any(moves_itself(each) for each in attributes.values())


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


# ---- A batch of any nesting, flattened into leaves and unflattened again. A *leaf* is a plain
# dense CPU tensor. Everything else travels as it is.


class MaskLeaf(torch.Tensor):
    """Masks that were collated for a delivery that normalises: they are never an image leaf. The class
    lasts until the delivery opens the batch, and the loop gets a plain tensor."""


class StoredMask:
    """Masks on their way to a device, where the delivery makes tensors of ``dtype`` of them. ``bits``:
    the indices as they were decoded, of which fewer bytes cross: uint8, or uint16 as int16, because
    torch can do more with that, and some devices have no uint16. It is no dataclass, because those are
    opened like other containers."""

    __slots__ = ("bits", "dtype")

    def __init__(self, bits: torch.Tensor, dtype: torch.dtype) -> None:
        self.bits = bits
        self.dtype = dtype

    @classmethod
    def of(cls, indices: torch.Tensor, dtype: torch.dtype | None) -> StoredMask | torch.Tensor:
        """Returns the indices alone, uint8 or uint16, if they are of that type already."""
        if dtype is None or dtype is indices.dtype:
            return indices
        wide = indices.dtype is torch.uint16
        return cls(indices.view(torch.int16) if wide else indices, dtype)

    @property
    def shape(self) -> torch.Size:
        return self.bits.shape

    def finished(self) -> torch.Tensor:
        """Makes the tensor where the indices are."""
        return fill_mask(torch.empty_like(self.bits, dtype=self.dtype), self.bits)

    def pin_memory(self) -> StoredMask:
        return StoredMask(self.bits.pin_memory(), self.dtype)


def fill_mask(made: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """Fills ``made`` with the indices of a `StoredMask`, and returns it. This is queued on the current
    stream."""
    return made.copy_(bits if bits.dtype is torch.uint8 else bits.to(torch.int32) & 0xFFFF)


@dataclasses.dataclass
class BatchTree:
    """A flattened batch. ``template`` is the batch with LeafPlaces and Movables in it."""

    template: Any
    leaves: list[torch.Tensor]
    keys: list[Key]  # the outermost index or key that leads to each leaf
    masks: list[int]  # the numbers of the leaves that were a MaskLeaf
    # The dtype that each leaf which was a StoredMask gets on the device, by its number.
    stored: dict[int, torch.dtype]


# The first ones are made once. A batch rarely has more leaves.
_LEAF_PLACES = tuple(LeafPlace(index) for index in range(64))


def flatten(batch: Any) -> BatchTree:
    leaves: list[torch.Tensor] = []
    keys: list[Key] = []
    masks: list[int] = []
    stored: dict[int, torch.dtype] = {}

    def leave(value: Any, key: Key) -> Any:
        if type(value) is MaskLeaf:
            value = value.as_subclass(torch.Tensor)
            if is_leaf(value):
                masks.append(len(leaves))
        elif type(value) is StoredMask:
            stored[len(leaves)] = value.dtype
            value = value.bits
        if is_leaf(value):
            number = len(leaves)
            leaves.append(value)
            keys.append(key)
            return _LEAF_PLACES[number] if number < len(_LEAF_PLACES) else LeafPlace(number)
        if moves_itself(value):
            return Movable(value)
        return value

    return BatchTree(rebuild(batch, leave, None), leaves, keys, masks, stored)


def unflatten(template: Any, outputs: Sequence[torch.Tensor], move: Callable[[Any], Any]) -> Any:
    """Makes the batch again, with ``outputs`` for its leaves and ``move(value)`` for a Movable."""

    def fill(value: Any, _key: Key) -> Any:
        kind = type(value)
        if kind is LeafPlace:
            return outputs[value.index]
        if kind is Movable:
            return move(value.value)
        return value

    return rebuild(template, fill, None)


def is_leaf(value: Any) -> bool:
    """Returns whether the bytes of ``value`` are all there is to it."""
    return (
        type(value) is torch.Tensor
        and value.is_cpu
        and value.layout is torch.strided
        and not value.requires_grad
        and not value.is_quantized
        and not value.is_conj()
        and not value.is_neg()
        and not value.is_nested
    )


def is_dense(leaf: torch.Tensor) -> bool:
    """Returns whether the elements fill their memory without gaps or overlap, in any order. So a
    channels_last or transposed tensor can arrive with the strides with which it left, as with
    ``.to()``."""
    if leaf.is_contiguous():
        return True
    strides = leaf.stride()
    order = sorted(range(leaf.dim()), key=lambda d: (-strides[d], d))
    return leaf.permute(order).is_contiguous()


def outermost_keys(batch: Any) -> list[Key]:
    """Lists the outermost keys of a batch: None, if it is no container."""
    if isinstance(batch, Mapping):
        return list(batch)
    return list(range(len(batch))) if isinstance(batch, list | tuple) else [None]


def cloned(batch: Any) -> Any:
    """Returns the batch with copies of its tensors. Everything else in it is shared."""

    def visit(value: Any, _key: Key) -> Any:
        return value.clone() if isinstance(value, torch.Tensor) else value

    return rebuild(batch, visit, None)


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    """Gives every tensor of a batch, for ``record_stream``."""
    found: list[torch.Tensor] = []

    def visit(value: Any, _key: Key) -> Any:
        if isinstance(value, torch.Tensor):
            found.append(value)
        return value

    rebuild(batch, visit, None)
    return iter(found)
