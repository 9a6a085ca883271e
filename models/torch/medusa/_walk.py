# SPDX-License-Identifier: Apache-2.0
"""Finds every tensor that an engine's own objects hold, under names that are the same in every process."""
from __future__ import annotations

import types
import weakref
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

MAX_DEPTH = 64

_SCALARS = (str, bytes, bytearray, int, float, complex, bool, type(None), type, range)
_PLUMBING = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, weakref.ref)
_FOREIGN = ("torch", "numpy", "logging", "threading", "asyncio", "concurrent", "multiprocessing", "ctypes", "weakref")
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")


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


@dataclass
class Found:
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
    return not isinstance(value, type) and all(part in attributes for part in _MODULE_PARTS)


def _default_role(key: str, value: Any) -> type:
    if is_module(value):
        return Constant
    if key in ("input", "inputs"):
        return Input
    return Output if key in ("output", "outputs") else State


def _is_foreign(value: Any) -> bool:
    if isinstance(value, _SCALARS + _PLUMBING):
        return True
    return type(value).__module__.split(".")[0] in _FOREIGN and not is_module(value)


def _attributes(value: Any) -> Iterator[Tuple[Any, Any, str]]:
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        for key in list(attributes):
            yield attributes, key, key


def _parts(value: Any) -> Iterator[Tuple[Any, Any, str]]:
    """Container, key and name of everything that hangs in a value."""
    if isinstance(value, dict):
        for at, key in enumerate(list(value)):
            yield value, key, str(key) if isinstance(key, (str, int)) else f"key{at}"
    elif isinstance(value, (list, tuple)):
        for at in range(len(value)):
            yield value, at, str(at)
    if is_module(value):
        for part in _MODULE_PARTS:
            for key in list(value.__dict__[part]):
                yield value.__dict__[part], key, key
        for container, key, name in _attributes(value):
            if key not in _MODULE_PARTS:
                yield container, key, name
    else:
        yield from _attributes(value)


def _visit(walk: Walk, value: Any, name: str, role: type, is_tensor: Callable[[Any], bool], depth: int) -> bool:
    """True if a tensor hangs there."""
    if is_tensor(value):
        walk.tensors.append(Found(name, value, role))
        return True
    if isinstance(value, Role):
        return _visit(walk, value.value, name, type(value), is_tensor, depth)
    if depth == MAX_DEPTH or _is_foreign(value):
        return False
    if id(value) in walk.objects:
        return True  # seen; may hold one
    walk.objects[id(value)] = (name, value)
    if is_module(value):
        walk.modules.append(value)
    holds = False
    for container, key, part in _parts(value):
        try:
            item = container[key]
        except (KeyError, IndexError):  # a dictionary that makes up its items
            continue
        if _visit(walk, item, f"{name}.{part}", role, is_tensor, depth + 1):
            walk.slots.append((container, key, item, f"{name}.{part}"))
            holds = True
    return holds


def walk_bindings(bind: Mapping[str, Any], is_tensor: Callable[[Any], bool], prefix: str = "") -> Walk:
    """Entries with roles come first, then all but modules: a cache that also hangs in a layer is state."""
    walk = Walk()

    def order(item: Tuple[str, Any]) -> int:
        return 0 if isinstance(item[1], Role) else 2 if is_module(item[1]) else 1

    for key, value in sorted(bind.items(), key=order):
        name = f"{prefix}.{key}" if prefix else str(key)
        role = type(value) if isinstance(value, Role) else _default_role(str(key), value)
        _visit(walk, value, name, role, is_tensor, 0)
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
