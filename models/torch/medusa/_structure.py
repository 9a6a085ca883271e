# SPDX-License-Identifier: Apache-2.0
"""Nested results of a forward as JSON and back: what is in a note beside the outputs' addresses."""
from __future__ import annotations

import dataclasses
import sys
from typing import Any, Callable, List, Mapping, Optional

# A leaf function answers with the JSON of what it knows (a tensor, an object of the engine's own), else None.
Leaf = Callable[[Any, str], Optional[dict]]


class Unsupported(Exception):
    """Something that no restore could give back; str() says where and what it is."""


def _class_named(module: str, name: str) -> Optional[type]:
    """A class that the program itself has imported: an artifact must not make it import anything."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def _name_of(value: Any, path: str) -> List[str]:
    kind = type(value)
    if _class_named(kind.__module__, kind.__qualname__) is not kind:
        raise Unsupported(f"output{path}: class {kind.__qualname__} can't be found by its name")
    return [kind.__module__, kind.__qualname__]


def _pack_fields(value: Any, leaf: Leaf, path: str) -> dict:
    fields = [
        [field.name, pack(getattr(value, field.name), leaf, f"{path}.{field.name}")]
        for field in dataclasses.fields(value)
        if hasattr(value, field.name)
    ]
    return {"class": _name_of(value, path), "fields": fields}


def _pack_items(value: Mapping, leaf: Leaf, path: str) -> dict:
    items = []
    for key, item in value.items():
        if type(key) not in (str, int, bool):
            raise Unsupported(f"output{path}: a key is of type {type(key).__name__}")
        items.append([key, pack(item, leaf, f"{path}[{key!r}]")])
    return {"dict": items}


def pack(value: Any, leaf: Leaf, path: str = "") -> dict:
    """JSON of a nested value; Unsupported names the first part that has none."""
    known = leaf(value, path)
    if known is not None:
        return known
    if value is None or type(value) in (bool, int, float, str):
        return {"value": value}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _pack_fields(value, leaf, path)
    if type(value) in (list, tuple):
        kind = type(value).__name__
        return {kind: [pack(item, leaf, f"{path}[{at}]") for at, item in enumerate(value)]}
    if isinstance(value, tuple) and hasattr(type(value), "_fields"):
        items = [pack(item, leaf, f"{path}.{name}") for name, item in zip(type(value)._fields, value)]
        return {"namedtuple": items, "class": _name_of(value, path)}
    if type(value) is dict:
        return _pack_items(value, leaf, path)
    raise Unsupported(f"output{path} is a {type(value).__module__}.{type(value).__qualname__}")


def _class_of(packed: dict) -> type:
    found = _class_named(*packed["class"])
    usable = hasattr(found, "_fields") if "namedtuple" in packed else dataclasses.is_dataclass(found)
    if found is None or not usable:
        raise Unsupported(f"class {'.'.join(packed['class'])} of the outputs does not exist in this process")
    return found


def _unpack_fields(packed: dict, leaf: Callable[[dict], Any]) -> Any:
    kind = _class_of(packed)
    values = {name: unpack(item, leaf) for name, item in packed["fields"]}
    at_init = {field.name for field in dataclasses.fields(kind) if field.init}
    made = kind(**{name: value for name, value in values.items() if name in at_init})
    for name, value in values.items():
        if name not in at_init:
            object.__setattr__(made, name, value)
    return made


def unpack(packed: dict, leaf: Callable[[dict], Any]) -> Any:
    """The value again; leaf() turns what pack's leaf() made into objects."""
    if "value" in packed:
        return packed["value"]
    if "list" in packed:
        return [unpack(item, leaf) for item in packed["list"]]
    if "tuple" in packed:
        return tuple(unpack(item, leaf) for item in packed["tuple"])
    if "dict" in packed:
        return {key: unpack(item, leaf) for key, item in packed["dict"]}
    if "namedtuple" in packed:
        return _class_of(packed)(*(unpack(item, leaf) for item in packed["namedtuple"]))
    if "fields" in packed:
        return _unpack_fields(packed, leaf)
    return leaf(packed)
