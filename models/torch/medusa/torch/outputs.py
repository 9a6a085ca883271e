# SPDX-License-Identifier: Apache-2.0
"""A graph's outputs: told to the C side with a note of their shapes, and tensors again over restored memory."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from .._structure import Unsupported, pack, unpack
from . import bindings as places
from .bindings import Bindings

__all__ = ["Outputs", "Unsupported", "first_difference", "rebuild", "tensors_of"]


def extent(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the end of the last one."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def _refusal(tensor: torch.Tensor, device: int) -> str:
    if type(tensor) not in places.PLAIN_TYPES:
        return f"is a {type(tensor).__qualname__}"
    if tensor.layout != torch.strided:
        return f"has layout {tensor.layout}"
    if not places.is_on(tensor, device):
        return f"is on {tensor.device}"
    if tensor.is_conj() or tensor.is_neg():
        return "is a conjugate or negative view"
    return ""


class Outputs:
    """What a forward returned, packed: .packed is JSON, .regions are (address, bytes) of outputs by index."""

    def __init__(self, value: Any, bindings: Bindings) -> None:
        self._bindings = bindings
        self._seen: Dict[int, dict] = {}
        self.regions: List[Tuple[int, int]] = []
        self.packed = pack(value, self._leaf)

    def _leaf(self, value: Any, path: str) -> Optional[dict]:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._seen:
                self._seen[id(value)] = self._pack_tensor(value, path)
            return self._seen[id(value)]
        known = self._bindings.objects.get(id(value))
        return {"object": known[0]} if known else None

    def _pack_tensor(self, tensor: torch.Tensor, path: str) -> dict:
        why = _refusal(tensor, self._bindings.device)
        if why:
            raise Unsupported(f"output{path} {why}")
        packed: dict = {
            "dtype": str(tensor.dtype).replace("torch.", ""),
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
        }
        size = extent(tensor)
        if not size:
            return {"empty": packed}
        address = tensor.data_ptr()
        bound = self._bindings.holding(address, size)
        if bound:
            return {"bound": packed, "name": bound.name, "offset": address - bound.address}
        self.regions.append((address, size))
        return {"tensor": packed, "index": len(self.regions) - 1}


class _Memory:
    """Device memory that belongs to somebody else, in the form that torch.as_tensor takes; keeps the owner alive."""

    def __init__(self, address: int, size: int, owner: Any) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "strides": None,
            "version": 2,
        }


def over(address: int, size: int, owner: Any, device: int) -> torch.Tensor:
    """Bytes of somebody else's device memory as a tensor."""
    return torch.as_tensor(_Memory(address, size, owner), device=places.device_of(device))


def _layout(packed: dict) -> Tuple[torch.dtype, List[int], List[int]]:
    dtype = getattr(torch, packed["dtype"], None)
    if not isinstance(dtype, torch.dtype):
        raise Unsupported(f"outputs have the type {packed['dtype']}, which this PyTorch does not have")
    return dtype, packed["shape"], packed["stride"]


class Rebuild:
    """Makes tensors again, over memory that is bound here or that region(index) names."""

    def __init__(self, bindings: Bindings, region: Callable[[int], Tuple[int, int]], owner: Any) -> None:
        self._bindings, self._region, self._owner = bindings, region, owner
        self._objects: Optional[Dict[str, Any]] = None  # made when an output is one of them
        self._made: Dict[int, torch.Tensor] = {}

    def leaf(self, packed: dict) -> Any:
        if "tensor" in packed:
            return self._tensor(packed)
        if "bound" in packed:
            return self._view(packed)
        if "empty" in packed:
            dtype, shape, stride = _layout(packed["empty"])
            return torch.empty_strided(shape, stride, dtype=dtype, device=places.device_of(self._bindings.device))
        if self._objects is None:
            self._objects = dict(self._bindings.objects.values())
        if packed.get("object") in self._objects:
            return self._objects[packed["object"]]
        raise Unsupported(f"outputs hold {packed.get('object', 'something unknown')}, which is not bound here")

    def _tensor(self, packed: dict) -> torch.Tensor:
        index = packed["index"]
        if index not in self._made:
            dtype, shape, stride = _layout(packed["tensor"])
            address, size = self._region(index)
            memory = over(address, size, self._owner, self._bindings.device)
            self._made[index] = memory.view(dtype).as_strided(shape, stride)
        return self._made[index]

    def _view(self, packed: dict) -> torch.Tensor:
        bound = self._bindings.names.get(packed["name"])
        if bound is None:
            raise Unsupported(f"an output lies in binding {packed['name']}, which does not exist in this process")
        dtype, shape, stride = _layout(packed["bound"])
        empty = torch.empty(0, dtype=dtype, device=bound.tensor.device)
        return empty.set_(bound.tensor.untyped_storage(), (bound.start + packed["offset"]) // dtype.itemsize, shape, stride)


def rebuild(packed: dict, bindings: Bindings, region: Callable[[int], Tuple[int, int]], owner: Any) -> Any:
    """The value that was packed, over the memory that region(index) names; Unsupported says what is missing."""
    return unpack(packed, Rebuild(bindings, region, owner).leaf)


# ---- comparing ----


def tensors_of(value: Any) -> Dict[str, torch.Tensor]:
    """Every tensor of a nested value by its place."""
    found: Dict[str, torch.Tensor] = {}

    def leaf(part: Any, path: str) -> Optional[dict]:
        if isinstance(part, torch.Tensor):
            found[path or "."] = part
            return {}
        return None if isinstance(part, (list, tuple, dict)) or hasattr(part, "__dataclass_fields__") else {}

    pack(value, leaf)
    return found


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def first_difference(expected: Dict[str, torch.Tensor], got: Dict[str, torch.Tensor]) -> str:
    """Where two sets of tensors differ by a bit (a NaN equals itself); "" if nowhere."""
    if expected.keys() != got.keys():
        return f"{len(expected)} tensors against {len(got)}"
    for name, tensor in expected.items():
        other = got[name]
        if tensor.shape != other.shape or tensor.dtype != other.dtype:
            return f"{name}: {tensor.dtype} {tuple(tensor.shape)} against {other.dtype} {tuple(other.shape)}"
        if not torch.equal(_bytes_of(tensor), _bytes_of(other)):
            return name
    return ""
