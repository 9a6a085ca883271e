# SPDX-License-Identifier: Apache-2.0
"""Binds an engine's tensors by storage and name, and notices when one has moved since."""
from __future__ import annotations

import bisect
import functools
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from .. import _api
from .._walk import Constant, Input, Output, Role, Scratch, State, Walk, moved_slot, walk_bindings

__all__ = ["Bindings", "Constant", "State", "Input", "Output", "Scratch", "Role"]

PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
ROLES = {Constant: _api.CONSTANT, State: _api.STATE, Input: _api.INPUT, Output: _api.OUTPUT}


def device_of(index: int) -> torch.device:
    return torch.device("cuda", index)


def is_on(tensor: torch.Tensor, index: int) -> bool:
    return tensor.is_cuda and tensor.get_device() == index


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _plain(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """The tensors with memory of their own that a tensor consists of: wrapper subclasses hold several."""
    if type(tensor) in PLAIN_TYPES:
        return (tensor,)
    names = getattr(tensor, "__tensor_flatten__", None)
    if names is None:
        return (tensor,)
    return [part for name in names()[0] for part in _plain(getattr(tensor, name))]


@functools.lru_cache(maxsize=4096)
def _layout(dtype: torch.dtype, shape: Tuple[int, ...], stride: Tuple[int, ...], offset: int) -> str:
    return f"{str(dtype).replace('torch.', '')}{list(shape)}{list(stride)}+{offset}".replace(" ", "")


def describe(tensor: torch.Tensor) -> str:
    """Type and layout in a few characters, equal where a graph would compute the same. Layers are alike: cached."""
    return _layout(tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset())


def _outside(address: int, size: int, hole: Optional[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """Address and bytes of the parts of a storage before and behind its scratch."""
    if hole is None:
        return [(address, size)]
    pieces = [(address, hole[0] - address), (hole[1], address + size - hole[1])]
    return [piece for piece in pieces if piece[1] > 0]


def _hole(scratch: torch.Tensor) -> Tuple[int, int]:
    """The range of scratch in its storage. A view with gaps counts to the end of its storage."""
    storage = scratch.untyped_storage()
    end = storage.data_ptr() + storage.nbytes()
    begin = scratch.data_ptr()
    return begin, min(end, begin + scratch.numel() * scratch.element_size()) if scratch.is_contiguous() else end


class Bound:
    """One storage of the engine, or a piece of it before or behind scratch; the tensor keeps it alive."""

    __slots__ = ("name", "role", "tensor", "address", "size", "layout")

    def __init__(self, name: str, role: int, tensor: torch.Tensor, address: int, size: int) -> None:
        self.name, self.role, self.tensor, self.address, self.size = name, role, tensor, address, size
        self.layout = describe(tensor)

    @property
    def start(self) -> int:
        """The offset of the piece in its storage, in bytes."""
        return self.address - self.tensor.untyped_storage().data_ptr()


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
        self._walk = walk_bindings(self._bind, _is_tensor, self._prefix)
        self._pointers = []
        return self._take_all(self._walk)

    def _take_all(self, walk: Walk) -> List[Bound]:
        new: List[Bound] = []
        scratch = [tensor for _, tensor, role in walk.tensors if role is Scratch]
        holes = {tensor.untyped_storage().data_ptr(): _hole(tensor) for tensor in scratch}
        for name, tensor, role in walk.tensors:
            if role is Scratch:
                continue
            parts = _plain(tensor)
            for at, part in enumerate(parts):
                self._take(name if len(parts) == 1 else f"{name}.{at}", ROLES[role], part, holes, new)
        return new

    def _take(
        self, name: str, role: int, tensor: torch.Tensor, holes: Dict[int, Tuple[int, int]], new: List[Bound]
    ) -> None:
        if tensor.layout is not torch.strided or not is_on(tensor, self.device):
            return
        self._pointers.append((tensor, tensor.data_ptr(), name))
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if not address or not size:
            return
        for number, (begin, bytes_) in enumerate(_outside(address, size, holes.get(address))):
            self._add(name if number == 0 else f"{name}.rest", role, tensor, begin, bytes_, new)

    def _add(self, name: str, role: int, tensor: torch.Tensor, address: int, size: int, new: List[Bound]) -> None:
        at = bisect.bisect_right(self._addresses, address)
        if self._overlaps(at, address, size):
            return
        bound = Bound(self._unique(name) if name in self.names else name, role, tensor, address, size)
        self._addresses.insert(at, address)
        self._bound.insert(at, bound)
        self.names[bound.name] = bound
        new.append(bound)

    def _unique(self, name: str) -> str:
        """Two storages of one name, as when a cache has been allocated again: both stay known."""
        count = 2
        unique = name
        while unique in self.names:
            unique = f"{name}#{count}"
            count += 1
        return unique

    def _overlaps(self, at: int, address: int, size: int) -> bool:
        """Storages that share memory (made from foreign pointers) count once: the first one's name is kept."""
        if at and address < self._addresses[at - 1] + self._bound[at - 1].size:
            return True
        return at < len(self._addresses) and self._addresses[at] < address + size

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

    def add(self, name: str, value: Any) -> None:
        """Binds one more entry, for graphs that have not been asked for yet. Raises _api.Error, which says why it was refused."""
        entry = {name: value}
        self._bind = {**self._bind, **entry}
        walk = walk_bindings(entry, _is_tensor, self._prefix)
        self._walk.slots.extend(walk.slots)
        for bound in self._take_all(walk):
            _api.bind(bound.name, bound.address, bound.size, bound.role)

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
