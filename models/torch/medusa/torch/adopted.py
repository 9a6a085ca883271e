# SPDX-License-Identifier: Apache-2.0
"""Graphs that an engine captures by itself, all of whose memory is bound: what is noted of them, and values of theirs as JSON."""
from __future__ import annotations

import json
from typing import Any, Callable, Dict, Optional

import torch

from .. import _api
from .._structure import Unsupported, unpack
from .bindings import Bindings
from .facts import digest
from .outputs import Outputs, Rebuild

NOTE = 1
Pack = Callable[[Any], Optional[dict]]


class _Bound(Outputs):
    """A value that holds no tensor outside of bindings; other(part) knows parts of other kinds."""

    def __init__(self, value: Any, bindings: Bindings, other: Optional[Pack]) -> None:
        self._other = other
        super().__init__(value, bindings)

    def _leaf(self, value: Any, path: str) -> Optional[dict]:
        if not isinstance(value, torch.Tensor):
            return self._other(value) if self._other else None
        packed = self._pack_tensor(value, path)
        if "tensor" in packed:
            raise Unsupported(f"{path or 'it'} lies in memory that nobody has bound")
        return packed


def pack(value: Any, bindings: Bindings, other: Optional[Pack] = None) -> dict:
    """JSON of a nested value, tensors by binding and offset; Unsupported names the part that has none."""
    return _Bound(value, bindings, other).packed


def _no_region(index: int) -> Any:
    raise Unsupported("a tensor lies in memory that nobody has bound")


def rebuild(packed: dict, bindings: Bindings, other: Optional[Callable[[dict], Any]] = None) -> Any:
    """The value that was packed, in this process; other(packed) makes parts of other kinds, or returns NotImplemented."""
    tensors = Rebuild(bindings, _no_region, None)

    def leaf(part: dict) -> Any:
        made = other(part) if other else NotImplemented
        return tensors.leaf(part) if made is NotImplemented else made

    return unpack(packed, leaf)


def note(value: Any, more: Any, bindings: Bindings, facts: Dict[str, str]) -> bytes:
    """Of one graph: what it leaves, and what the engine wants to know of it again."""
    data = json.dumps({"adopted": NOTE, "outputs": pack(value, bindings), "facts": digest(facts), "more": more},
                      separators=(",", ":")).encode()
    if len(data) > _api.NOTE_MAX:
        raise Unsupported(f"its note takes {len(data)} bytes, more than {_api.NOTE_MAX}")
    return data


def read(data: bytes, facts: Dict[str, str]) -> dict:
    """A note, if it was made by this version in an engine of the same facts."""
    found = json.loads(data or b"null")
    if not isinstance(found, dict) or found.get("adopted") != NOTE:
        raise Unsupported("the graph was not recorded by this version of the adapter")
    if found["facts"] != digest(facts):
        raise Unsupported("the engine is another one than in the capture: its facts differ")
    return found
