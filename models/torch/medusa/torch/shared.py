# SPDX-License-Identifier: Apache-2.0
"""Weights of a model that lie once in device memory, for all processes that load the same model."""
from __future__ import annotations

import contextlib
import hashlib
from typing import Any, Dict, List, Optional, Tuple

import torch

from .. import _api, share as _share
from .bindings import device_of
from .outputs import over

_ALIGNMENT = 256  # bytes; what PyTorch's own allocator promises is not more
_ALONE = (_api.NOT_FOUND, _api.UNSUPPORTED)  # without a broker, or in a capture: memory of one's own


class _Lease:
    """What medusa-backbone gave; ends when no tensor over it is left."""

    def __init__(self, address: int, device: int) -> None:
        self._address, self._device = address, device

    def end(self) -> None:
        if self._address:
            torch.cuda.synchronize(self._device)  # kernels may still read it
            address, self._address = self._address, 0
            _share.end(address)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the end of the process, PyTorch or the driver may have gone
            self.end()


class _Place:
    """One parameter, and where it lies in the memory. Tied parameters have one place."""

    def __init__(self, name: str, parameter: torch.nn.Parameter, offset: int) -> None:
        self.name, self.parameter, self.offset = name, parameter, offset
        self.shape, self.stride, self.dtype = tuple(parameter.shape), _dense(parameter), parameter.dtype
        self.size = parameter.numel() * parameter.element_size()

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} {self.shape} {self.stride} {self.offset}"

    def view(self, memory: torch.Tensor) -> torch.Tensor:
        return memory[self.offset:self.offset + self.size].view(self.dtype).as_strided(self.shape, self.stride)


def _dense(parameter: torch.Tensor) -> Tuple[int, ...]:
    """Its own strides if it has no gaps (a transposed matrix, say), else those of a contiguous tensor."""
    expected = 1
    for stride, size in sorted(zip(parameter.stride(), parameter.shape)):
        if size != 1 and stride != expected:
            return torch.empty(parameter.shape, device="meta").stride()
        expected *= size
    return tuple(parameter.stride())


def _places(model: torch.nn.Module) -> List[_Place]:
    places, offset = [], 0
    for name, parameter in model.named_parameters():
        if type(parameter.data) is not torch.Tensor or parameter.layout != torch.strided:  # pylint: disable=unidiomatic-typecheck
            raise ValueError(f"medusa.torch.share: parameter {name} is a {type(parameter.data).__name__} of layout {parameter.layout}, which "
                             "has more than one piece of memory; take it out of the model's parameters, or don't share this model")
        place = _Place(name, parameter, offset)
        places.append(place)
        offset += (place.size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
    if not offset:
        raise ValueError("medusa.torch.share: the model has no parameters with elements")
    return places


class Shared:
    """What share() returns. fill: this process fills the parameters; private: nobody else has them, and reason says why."""

    def __init__(self, model: torch.nn.Module, name: str, revision: str, device: int, deadline: float, verify: bool) -> None:
        self._places, self._model = _places(model), model
        last = self._places[-1]
        self.bytes, self.private, self.reason = last.offset + last.size, False, ""
        self._lease: Optional[_Lease] = None
        with torch.cuda.device(device):
            address, filled = self._attach(name, self._layout(revision), deadline, verify)
            self._address, self.fill = address, not filled
            if address:
                self._lease = _Lease(address, device)
                memory = over(address, self.bytes, self._lease, device)
            else:
                memory = torch.empty(self.bytes, dtype=torch.uint8, device=device_of(device))
            self._put(memory)

    def _layout(self, revision: str) -> str:
        text = "\n".join(["medusa.torch 1", *map(str, self._places), revision])
        return f"medusa.torch:{hashlib.sha256(text.encode()).hexdigest()}"

    def _attach(self, name: str, layout: str, deadline: float, verify: bool) -> Tuple[int, bool]:
        try:
            return _share.attach(name, layout, self.bytes, deadline, verify)
        except _api.Error as error:
            if error.code not in _ALONE:
                raise
            self.private, self.reason = True, str(error)
            return 0, False

    def _put(self, memory: torch.Tensor) -> None:
        """The parameters become views of the memory. What they held is copied if this process fills it."""
        new: Dict[int, torch.nn.Parameter] = {}
        for place in self._places:
            view, old = place.view(memory), place.parameter
            if self.fill and old.device.type != "meta":
                with torch.no_grad():
                    view.copy_(old)
            new[id(old)] = _like(old, view)
        self._replace(new)

    def _replace(self, new: Dict[int, torch.nn.Parameter]) -> None:
        for module in self._model.modules():
            for key, parameter in module._parameters.items():
                if parameter is not None and id(parameter) in new:
                    module._parameters[key] = new[id(parameter)]
        for place in self._places:
            place.parameter = new[id(place.parameter)]

    def commit(self) -> None:
        """The parameters are filled. They become read-only, and the other processes get them. Leaving the context does the same."""
        if not self.fill:
            return
        self._check_places()
        self.fill = False
        if self._address:
            torch.cuda.synchronize()
            try:
                _share.commit(self._address)
            except _api.Error as error:
                if error.code != _api.NOT_FOUND:
                    raise
                self.private, self.reason = True, str(error)  # the broker has gone: read-only all the same

    def _check_places(self) -> None:
        """Loading must have filled the parameters, and not replaced them: then the others would get what nobody has filled."""
        now = {id(parameter) for parameter in self._model.parameters()}
        for place in self._places:
            view_now = place.parameter.data_ptr()
            if id(place.parameter) not in now or (self._address and view_now != self._address + place.offset):
                self._abandon()
                raise RuntimeError(f"medusa.torch.share: parameter {place.name} was replaced while the model was loaded, not filled; load with "
                                   "model.load_state_dict(state), without assign=True, or with parameter.copy_()")

    def _abandon(self) -> None:
        """Another process may fill the memory. The parameters have no elements here any more."""
        if self._lease is None:
            return
        self._replace({id(place.parameter): _like(place.parameter, torch.empty_strided(
            place.shape, place.stride, dtype=place.dtype, device="meta")) for place in self._places})
        self._lease.end()

    def __enter__(self) -> "Shared":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.commit()
        elif self.fill:
            self._abandon()


def _like(old: torch.nn.Parameter, data: torch.Tensor) -> torch.nn.Parameter:
    """With the class and the attributes of the old one (loaders of weights keep theirs there)."""
    new = torch.nn.Parameter(data, requires_grad=False)
    new.__class__ = old.__class__
    new.__dict__.update(old.__dict__)
    return new


def share(model: torch.nn.Module, name: str, *, revision: str = "", device: Optional[int] = None, deadline: float = 600.0,
          verify: bool = False) -> Shared:
    """The model's parameters become device memory that all processes have in common which share the same model under this name.

    with medusa.torch.share(model, "qwen-7b", revision="2025-04") as shared:
        if shared.fill:
            model.load_state_dict(state)

    The first process fills the parameters, and gives them to the others at the end of the block; the others wait until then, for at most
    `deadline` seconds. Parameters may be on the meta device; those that have elements already are copied if this process fills. Buffers stay
    this process's own: a forward may write them. From the end of the block on the parameters are read-only: a kernel that writes one breaks
    the CUDA context of its own process.

    name and revision say which weights these are; names, shapes and types of the parameters are compared beside them. Two models whose
    weights differ and whose name and revision do not would get each other's weights. Without medusa-backbone(1), and under medusa-capture,
    the parameters lie in memory of this process alone, and everything else is the same (private, reason). verify: the memory is hashed before it is
    taken. Raises medusa.share.Error as medusa_share(3) says.
    """
    if device is None:
        device = torch.cuda.current_device()
    return Shared(model, name, revision, device, deadline, verify)
