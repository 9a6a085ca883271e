# SPDX-License-Identifier: Apache-2.0
"""Finds every tensor that an engine's own objects hold, under names that are the same in every process."""
from __future__ import annotations

import types
import weakref
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Tuple

MAX_DEPTH = 64

_SCALARS = (str, bytes, bytearray, int, float, complex, bool, type(None), type, range)
_PLUMBING = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, weakref.ref)
_FOREIGN = ("torch", "numpy", "logging", "threading", "asyncio", "concurrent", "multiprocessing", "ctypes", "weakref")
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")

# What a type is to a walk. A model of 40 layers has 15000 attributes, nearly all of them flags and unused hooks.
_LEAF, _TENSOR, _ROLE, _PLAIN, _OTHER, _STRANGER = range(1, 7)
_PLAIN_TYPES = (dict, OrderedDict, list, tuple, set)


@dataclass
class Role:
    """What graphs do with the memory that an entry of bind= holds; wraps the entry."""

    value: Any


class Constant(Role):
    """Weights: no graph writes them."""


class State(Role):
    """Read and written by graphs: a KV cache, counters."""


class Input(Role):
    """The engine writes it before a replay."""


class Output(Role):
    """Graphs write it, the engine reads it."""


class Scratch(Role):
    """Written and never read, as a place that padding is written to; a part of a storage of which the rest is state."""


class Found(NamedTuple):
    """One tensor, by the first name it was found under."""

    name: str
    tensor: Any
    role: type


@dataclass
class Walk:
    """What a walk has seen: tensors, the places they hang in, other objects by name, and modules."""

    tensors: List[Found] = field(default_factory=list)
    slots: List[Tuple[Any, Any, Any, str]] = field(default_factory=list)  # container, key, value, name
    objects: Dict[int, Tuple[str, Any]] = field(default_factory=dict)  # id -> name and the object, kept alive
    modules: List[Any] = field(default_factory=list)


def is_module(value: Any) -> bool:
    """Whether it is built like a torch.nn.Module."""
    attributes = getattr(value, "__dict__", ())
    # Written out: it is asked of every object.
    parts = "_modules" in attributes and "_buffers" in attributes and "_parameters" in attributes
    return parts and not isinstance(value, type)


def _default_role(key: str, value: Any) -> type:
    if is_module(value):
        return Constant
    if key in ("input", "inputs"):
        return Input
    return Output if key in ("output", "outputs") else State


def _kind_of(value: Any, is_tensor: Callable[[Any], bool]) -> int:
    if is_tensor(value):
        return _TENSOR
    if isinstance(value, Role):
        return _ROLE
    if isinstance(value, _SCALARS + _PLUMBING):
        return _LEAF
    if type(value) in _PLAIN_TYPES:
        return _PLAIN
    return _STRANGER if type(value).__module__.split(".")[0] in _FOREIGN else _OTHER


def _items(value: Any) -> Iterable[Tuple[Any, Any]]:
    """Key and item of all that a dictionary, list or tuple holds."""
    if type(value) in (dict, OrderedDict):
        return list(value.items())
    return _made_up(value) if isinstance(value, dict) else enumerate(value)


def _containers(value: Any, modules: List[Any]) -> Iterable[Tuple[Any, Iterable[Tuple[Any, Any]]]]:
    """What a value's parts hang in: itself, a module's three dictionaries, its attributes."""
    if isinstance(value, (dict, list, tuple)):
        yield value, _items(value)
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict):
        return
    if not is_module(value):
        yield attributes, list(attributes.items())
        return
    modules.append(value)
    rest = attributes.copy()
    for part in _MODULE_PARTS:
        yield attributes[part], list(rest.pop(part).items())
    yield attributes, rest.items()


def _made_up(value: Mapping[Any, Any]) -> Iterable[Tuple[Any, Any]]:
    """Of a dictionary with a way of its own to answer; what it does not answer counts as None."""
    for key in list(value):
        try:
            yield key, value[key]
        except (KeyError, IndexError):
            yield key, None


class _Walker:
    """One walk: recursion is by container only, and a type is judged once."""

    def __init__(self, is_tensor: Callable[[Any], bool]) -> None:
        self.walk = Walk()
        self._is_tensor = is_tensor
        self._kinds: Dict[type, int] = {}

    def _judge(self, value: Any) -> int:
        kind = self._kinds[type(value)] = _kind_of(value, self._is_tensor)
        return kind

    def enter(self, value: Any, name: str, role: type, depth: int = 0) -> bool:
        """True if a tensor hangs there."""
        kind = self._kinds.get(type(value)) or self._judge(value)
        if kind == _TENSOR:
            self.walk.tensors.append(Found(name, value, role))
            return True
        return kind != _LEAF and self._inside(value, kind, name, role, depth)

    def _inside(self, value: Any, kind: int, name: str, role: type, depth: int) -> bool:
        if kind == _ROLE:
            return self.enter(value.value, name, type(value), depth)
        if depth == MAX_DEPTH or (kind == _STRANGER and not is_module(value) and not self._holds_tensors(value)):
            return False
        seen = self.walk.objects
        if id(value) in seen:
            return True  # may hold one
        seen[id(value)] = (name, value)
        # A list: all of them are walked, whatever the first one holds.
        return any([self._each(held, items, name, role, depth + 1) for held, items in _containers(value, self.walk.modules)])

    def _holds_tensors(self, value: Any) -> bool:
        """Whether tensors hang right in an object of torch.nn, as in a BlockMask of FlexAttention or a PackedSequence."""
        if not type(value).__module__.startswith("torch.nn."):
            return False
        if isinstance(value, tuple):
            return any(map(self._is_tensor, value))
        attributes = getattr(value, "__dict__", None)
        return isinstance(attributes, dict) and any(map(self._is_tensor, attributes.values()))

    def _each(self, container: Any, items: Iterable[Tuple[Any, Any]], name: str, role: type, depth: int) -> bool:
        """The inner loop: most items are left by their type alone, or because they are empty."""
        walk, kinds, holds = self.walk, self._kinds, False
        for at, (key, item) in enumerate(items):
            kind = kinds.get(type(item)) or self._judge(item)
            if kind == _LEAF or (kind == _PLAIN and not item):
                continue
            part = f"{name}.{key!s}" if isinstance(key, (str, int)) else f"{name}.key{at}"
            if kind == _TENSOR:
                walk.tensors.append(Found(part, item, role))
            elif not self._inside(item, kind, part, role, depth):
                continue
            walk.slots.append((container, key, item, part))
            holds = True
        return holds


def walk_bindings(bind: Mapping[str, Any], is_tensor: Callable[[Any], bool], prefix: str = "") -> Walk:
    """Entries with roles come first, then all but modules: a cache that also hangs in a layer is state."""
    walker = _Walker(is_tensor)
    walk = walker.walk

    def order(item: Tuple[str, Any]) -> int:
        return 0 if isinstance(item[1], Role) else 2 if is_module(item[1]) else 1

    for key, value in sorted(bind.items(), key=order):
        name = f"{prefix}.{key}" if prefix else str(key)
        role = type(value) if isinstance(value, Role) else _default_role(str(key), value)
        walker.enter(value, name, role)
        walk.slots.append((bind, key, value, name))
    return walk


def moved_slot(walk: Walk) -> str:
    """The name of the first place that no longer holds what it held; "" if all do."""
    for container, key, value, name in walk.slots:
        try:
            if container[key] is not value:
                return name
        except (KeyError, IndexError):
            return name
    return ""
