# SPDX-License-Identifier: Apache-2.0
"""How far two sets of tensors differ: the largest absolute difference, the largest one in units in the last place, and where."""
from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from typing import Dict, Optional, Union

import torch

log = logging.getLogger("medusa.torch")

Tensors = Dict[str, torch.Tensor]
_CHUNK = 1 << 24  # elements that are looked at together
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class Difference:
    """Of the tensor that differs most."""

    where: str
    elements: int  # in all tensors
    absolute: float  # infinite where one side is no number, or an infinite one
    ulps: Optional[int]  # None: not floating point

    def __str__(self) -> str:
        size = f"{self.absolute:.6g}" + (f" ({self.ulps} ULP)" if self.ulps is not None else "")
        return f"{self.where} by at most {size}, in {self.elements} elements in all"


def _ordered(tensor: torch.Tensor) -> torch.Tensor:
    """Neighbouring values of a floating-point type differ by 1."""
    bits = tensor.view(_INTEGERS[tensor.element_size()]).to(torch.int64)
    size = bits & ((1 << (8 * tensor.element_size() - 1)) - 1)
    return torch.where(bits < 0, -size, size).to(torch.float64)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8).reshape(tensor.numel(), -1)


def _chunk(name: str, one: torch.Tensor, other: torch.Tensor) -> Optional[Difference]:
    differs = (_bytes(one) != _bytes(other)).any(dim=1)
    count = int(differs.sum())
    if not count:
        return None
    one, other = one[differs], other[differs]
    if one.is_complex():
        one, other = torch.view_as_real(one).reshape(-1), torch.view_as_real(other).reshape(-1)
    far = (one.to(torch.float64) - other.to(torch.float64)).abs()
    absolute = float(torch.nan_to_num(far, nan=float("inf"), posinf=float("inf")).max())
    ulps = int((_ordered(one) - _ordered(other)).abs().max()) if one.is_floating_point() else None
    return Difference(name, count, absolute, ulps)


def _worse(one: Optional[Difference], other: Optional[Difference]) -> Optional[Difference]:
    if one is None or other is None:
        return one or other
    elements = one.elements + other.elements
    worst = max(one, other, key=lambda difference: difference.absolute)
    ulps = [difference.ulps for difference in (one, other) if difference.ulps is not None]
    return Difference(worst.where, elements, worst.absolute, max(ulps) if ulps else None)


def measure(expected: Tensors, got: Tensors) -> Optional[Difference]:
    """Of the same tensors, but for their values; None: they are equal to the last bit."""
    found: Optional[Difference] = None
    for name, tensor in expected.items():
        one, other = tensor.detach().reshape(-1), got[name].detach().reshape(-1)
        for start in range(0, one.numel(), _CHUNK):
            part = slice(start, start + _CHUNK)
            found = _worse(found, _chunk(name, one[part].contiguous(), other[part].contiguous()))
    return found


class Tolerance:
    """What a user accepts of a difference: 0.1, "0.1" (absolute) or "64ulp". None: any difference."""

    def __init__(self, said: Union[float, str, None] = None) -> None:
        self.text = "" if said is None else str(said).strip().lower()
        matched = re.fullmatch(r"(\d+)\s*ulp|((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)", self.text)
        if self.text and not matched:
            raise ValueError(f"eager_tolerance {said!r} is neither a number nor a number of ULP, as in '64ulp'")
        self._ulps = int(matched[1]) if matched and matched[1] else None
        self._absolute = float(matched[2]) if matched and matched[2] else None

    def holds(self, difference: Difference) -> bool:
        if self._ulps is not None:
            return difference.ulps is not None and difference.ulps <= self._ulps and difference.absolute != float("inf")
        return self._absolute is None or difference.absolute <= self._absolute


def tolerance_of(said: Union[float, str, None]) -> Tolerance:
    """What the engine says, else MEDUSA_EAGER_TOLERANCE; a setting that says nothing accepts nothing."""
    if said is not None:
        return Tolerance(said)
    try:
        return Tolerance(os.environ.get("MEDUSA_EAGER_TOLERANCE") or None)
    except ValueError as error:
        log.warning("MEDUSA_EAGER_TOLERANCE: %s; no difference is accepted", error)
        return Tolerance(0)
