# SPDX-License-Identifier: Apache-2.0
"""Bytes in which a replay and an eager run differ: do eager runs, or replays, differ there among themselves?"""
from __future__ import annotations

import json
import os
from typing import Callable, Dict, List, Tuple

import torch

LEAST, MOST = 3, 16  # runs of each kind, from one state
SCATTER = 8  # from so many on: values that nearly each run has for itself
Tensors = Dict[str, torch.Tensor]


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _places(expected: Tensors, got: Tensors) -> Dict[str, torch.Tensor]:
    """Offsets of the bytes that differ, by tensor."""
    found = {}
    for name, tensor in expected.items():
        offsets = (_bytes_of(tensor) != _bytes_of(got[name])).nonzero().reshape(-1)
        if offsets.numel():
            found[name] = offsets
    return found


def _explains(runs: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """runs: one row for each. Where these differ, and one of them left `value`, or their values scatter."""
    ordered = runs.sort(dim=0).values
    distinct = (ordered[1:] != ordered[:-1]).sum(dim=0) + 1
    seen = (runs == value).any(dim=0)
    scatter = distinct * 4 >= runs.shape[0] * 3 if runs.shape[0] >= SCATTER else torch.zeros_like(seen)
    return (distinct > 1) & (seen | scatter)


class Doubt:
    """What is known of the bytes of one difference; the two runs that showed it are the first of each kind."""

    def __init__(self, eager: Tensors, replayed: Tensors) -> None:
        self._places = _places(eager, replayed)
        self._eager: Dict[str, List[torch.Tensor]] = {name: [] for name in self._places}
        self._replayed: Dict[str, List[torch.Tensor]] = {name: [] for name in self._places}
        self._add(eager, replayed)

    def _add(self, eager: Tensors, replayed: Tensors) -> None:
        for name, offsets in self._places.items():
            self._eager[name].append(_bytes_of(eager[name])[offsets])
            self._replayed[name].append(_bytes_of(replayed[name])[offsets])

    def _explained(self, name: str) -> torch.Tensor:
        eager, replayed = torch.stack(self._eager[name]), torch.stack(self._replayed[name])
        return _explains(eager, replayed[0]) | _explains(replayed, eager[0])

    def settle(self, eager: Callable[[], Tensors], replay: Callable[[], Tensors]) -> Tuple[str, str]:
        """Runs both until all is explained. (what is wrong, "") or ("", what is nondeterministic)."""
        for turn in range(2, MOST + 1):
            self._add(eager(), replay())
            if turn >= LEAST and all(bool(self._explained(name).all()) for name in self._places):
                return "", self._describe()
        wrong = next(name for name in self._places if not bool(self._explained(name).all()))
        return wrong, ""

    def _describe(self) -> str:
        name, offsets = next(iter(self._places.items()))
        more = sum(len(other) for other in self._places.values()) - len(offsets)
        return (f"{len(offsets)} bytes of {name}{f' and {more} elsewhere' if more else ''} differ between two runs on the "
                f"same random inputs, eager or replayed, the first at offset {int(offsets[0])}")


def report(label: str, batch: int, what: str) -> None:
    """One line in the report of a verify run, as the restore library writes them."""
    path = os.environ.get("MEDUSA_VERIFY_REPORT")
    if not path:
        return
    line = {"verdict": "nondeterministic", "label": label, "batch": batch, "bytes": 0, "reason": what}
    data = (json.dumps(line, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        if os.write(file, data) != len(data):
            raise OSError(f"{path}: only part of a line was written")
    finally:
        os.close(file)
