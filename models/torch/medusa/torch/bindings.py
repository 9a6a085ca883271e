# SPDX-License-Identifier: Apache-2.0
"""Binds an engine's tensors by storage and name, and notices when one has moved since."""
from __future__ import annotations

import bisect
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import torch

from .. import _api
from .._walk import Constant, Found, Input, Output, Role, State, Walk, moved_slot, walk_bindings

__all__ = ["Bindings", "Constant", "State", "Input", "Output", "Role"]

ROLES = {Constant: _api.CONSTANT, State: _api.STATE, Input: _api.INPUT, Output: _api.OUTPUT}


def device_of(index: int) -> torch.device:
    return torch.device("cuda", index)


def is_on(tensor: torch.Tensor, index: int) -> bool:
    return tensor.device.type == "cuda" and tensor.device.index == index


def _plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors with memory of their own that a tensor consists of: wrapper subclasses hold several."""
    names = getattr(tensor, "__tensor_flatten__", None)
    if names is None:
        yield tensor
        return
    for name in names()[0]:
        yield from _plain(getattr(tensor, name))


def describe(tensor: torch.Tensor) -> str:
    """Type and layout in a few characters, equal where a graph would compute the same."""
    dtype = str(tensor.dtype).replace("torch.", "")
    return f"{dtype}{list(tensor.shape)}{list(tensor.stride())}+{tensor.storage_offset()}".replace(" ", "")


class Bound:
    """One storage of the engine; the tensor keeps it alive."""

    __slots__ = ("name", "role", "tensor", "address", "size", "layout")

    def __init__(self, name: str, role: int, tensor: torch.Tensor, address: int, size: int) -> None:
        self.name, self.role, self.tensor, self.address, self.size = name, role, tensor, address, size
        self.layout = describe(tensor)


class Bindings:
    """Everything that bind= holds on one device; told to the C side as it is found."""

    def __init__(self, bind: Mapping[str, Any], prefix: str, device: int) -> None:
        self._bind, self._prefix, self.device = bind, prefix, device
        self._walk = Walk()
        self._bound: List[Bound] = []  # ascending by address
        self._addresses: List[int] = []
        self._pointers: List[Tuple[torch.Tensor, int, str]] = []  # of every tensor seen, also views
        self.names: Dict[str, Bound] = {}
        self._find_new()

    # ---- finding ----

    def _find_new(self) -> List[Bound]:
        self._walk = walk_bindings(self._bind, lambda value: isinstance(value, torch.Tensor), self._prefix)
        self._pointers = []
        return [new for found in self._walk.tensors for new in self._take(found)]

    def _take(self, found: Found) -> Iterator[Bound]:
        parts = list(_plain(found.tensor))
        for at, tensor in enumerate(parts):
            name = found.name if len(parts) == 1 else f"{found.name}.{at}"
            if tensor.layout != torch.strided or not is_on(tensor, self.device):
                continue
            self._pointers.append((tensor, tensor.data_ptr(), name))
            storage = tensor.untyped_storage()
            address, size = storage.data_ptr(), storage.nbytes()
            if address and size and not self._overlaps(address, size):
                yield self._add(Bound(self._unique(name), ROLES[found.role], tensor, address, size))

    def _unique(self, name: str) -> str:
        """Two storages of one name, as when a cache has been allocated again: both stay known."""
        count = 2
        unique = name
        while unique in self.names:
            unique = f"{name}#{count}"
            count += 1
        return unique

    def _overlaps(self, address: int, size: int) -> bool:
        """Storages that share memory (made from foreign pointers) count once: the first one's name is kept."""
        at = bisect.bisect_right(self._addresses, address)
        before = self._bound[at - 1] if at else None
        return bool(
            (before and address < before.address + before.size)
            or (at < len(self._bound) and self._addresses[at] < address + size)
        )

    def _add(self, bound: Bound) -> Bound:
        at = bisect.bisect_left(self._addresses, bound.address)
        self._addresses.insert(at, bound.address)
        self._bound.insert(at, bound)
        self.names[bound.name] = bound
        return bound

    # ---- telling ----

    def tell(self) -> None:
        """Binds all of it; _api.Error names the first one that was refused."""
        for bound in self.names.values():
            _api.bind(bound.name, bound.address, bound.size, bound.role)

    def tell_new(self) -> List[str]:
        """Binds what has appeared since (a cache that is made at the first forward); its names."""
        new = self._find_new()
        for bound in new:
            _api.bind(bound.name, bound.address, bound.size, bound.role)
        return [bound.name for bound in new]

    def look_again(self) -> None:
        """Takes what is there now as it is, without binding it: asked again, moved() is about now."""
        self._find_new()

    # ---- asking ----

    @property
    def modules(self) -> List[Any]:
        return self._walk.modules

    @property
    def objects(self) -> Dict[int, Tuple[str, Any]]:
        return self._walk.objects

    def __iter__(self) -> Iterator[Bound]:
        return iter(self.names.values())

    def holding(self, address: int, size: int) -> Optional[Bound]:
        """The binding that [address, address + size) lies in."""
        at = bisect.bisect_right(self._addresses, address)
        bound = self._bound[at - 1] if at else None
        return bound if bound and address + size <= bound.address + bound.size else None

    def moved(self) -> str:
        """The name of the first tensor that is not where it was bound, or has been replaced; "" if all are there."""
        for tensor, address, name in self._pointers:
            if tensor.data_ptr() != address:
                return name
        return moved_slot(self._walk)
