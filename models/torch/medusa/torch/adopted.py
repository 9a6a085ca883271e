# SPDX-License-Identifier: Apache-2.0
"""Graphs that an engine captures by itself and whose memory is all bound: their notes, and their values as JSON."""
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
    """Packs a value that has no tensor outside of bindings; other(part) packs parts of other kinds."""

    def __init__(self, value: Any, bindings: Bindings, other: Optional[Pack]) -> None:
        self._other = other
        super().__init__(value, bindings)

    def _leaf(self, value: Any, path: str) -> Optional[dict]:
        if not isinstance(value, torch.Tensor):
            return self._other(value) if self._other else None
        packed = self._pack_tensor(value, path)
        if "tensor" in packed:
            raise Unsupported(f"{path or 'the tensor'} lies in memory that is not bound")
        return packed


def pack(value: Any, bindings: Bindings, other: Optional[Pack] = None) -> dict:
    """A nested value as JSON, with tensors by binding and offset. Raises Unsupported, which names a part that is not bound."""
    return _Bound(value, bindings, other).packed


def _no_region(index: int) -> Any:
    raise Unsupported("a tensor lies in memory that is not bound")


def rebuild(packed: dict, bindings: Bindings, other: Optional[Callable[[dict], Any]] = None) -> Any:
    """The value that was packed, in this process; other(packed) makes parts of other kinds, or returns NotImplemented."""
    tensors = Rebuild(bindings, _no_region, None)

    def leaf(part: dict) -> Any:
        made = other(part) if other else NotImplemented
        return tensors.leaf(part) if made is NotImplemented else made

    return unpack(packed, leaf)


def note(value: Any, more: Any, bindings: Bindings, facts: Dict[str, str]) -> bytes:
    """The note of one graph: its outputs, and JSON of the engine's own."""
    data = json.dumps({"adopted": NOTE, "outputs": pack(value, bindings), "facts": digest(facts), "more": more},
                      separators=(",", ":")).encode()
    if len(data) > _api.NOTE_MAX:
        raise Unsupported(f"the graph's note takes {len(data)} bytes, more than {_api.NOTE_MAX}")
    return data


def read(data: bytes, facts: Dict[str, str]) -> dict:
    """A note, if it was made by this version in an engine of the same facts."""
    found = json.loads(data or b"null")
    if not isinstance(found, dict) or found.get("adopted") != NOTE:
        raise Unsupported("the graph was not recorded by this version of the adapter")
    if found["facts"] != digest(facts):
        raise Unsupported("the engine is another one than in the capture: its facts differ")
    return found
