# SPDX-License-Identifier: Apache-2.0
"""In a verify run: live graphs on random inputs, each replay compared with the restored graph by the C side, and with eager."""
from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from .. import _api
from . import bindings as places
from . import rng
from .bindings import Bindings, Bound
from .difference import Tolerance, measure
from .outputs import first_difference, tensors_of
from .steps import Step

ROUNDS = 3
Randomize = Callable[[str, int, torch.Generator], None]


COPIES = 8  # copies of memory that graphs may write: at most five exist at once, and eager runs need memory, too


def _storages(bindings: Bindings, device: int) -> List[Tuple[str, torch.Tensor]]:
    """Memory that graphs may write, the smallest first. Memory that is too large is left out, and must be written idempotently."""
    left = torch.cuda.mem_get_info(device)[0] // COPIES
    found: List[Tuple[str, torch.Tensor]] = []
    for bound in sorted((b for b in bindings if b.role != _api.CONSTANT), key=lambda b: b.size):
        if bound.size > left:
            break
        left -= bound.size
        found.append((bound.name, _bytes(bound)))
    return found


class Snapshot:
    """Copies of storages. All snapshots of a comparison hold the same ones, however much memory is left by then."""

    def __init__(self, storages: List[Tuple[str, torch.Tensor]], device: int) -> None:
        self._storages, self._device = storages, device
        self.tensors: Dict[str, torch.Tensor] = {}
        self._random: Optional[torch.Tensor] = None

    def take(self) -> "Snapshot":
        self.tensors = {name: storage.clone() for name, storage in self._storages}
        self._random = rng.generator(self._device).get_state()
        return self

    def put_back(self) -> None:
        for name, storage in self._storages:
            storage.copy_(self.tensors[name])
        if self._random is not None:
            rng.generator(self._device).set_state(self._random)


def _bytes(bound: Bound) -> torch.Tensor:
    """All that is bound of a tensor's storage."""
    storage = bound.tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=bound.tensor.device).set_(storage, bound.start, (bound.size,), (1,))


def _after(run: Callable[[], Any], storages: List[Tuple[str, torch.Tensor]], device: int) -> Dict[str, torch.Tensor]:
    """Copies of everything that a run has returned and written."""
    left = {f"output{place}": tensor.clone() for place, tensor in tensors_of(run()).items()}
    left.update(Snapshot(storages, device).take().tensors)
    torch.cuda.synchronize(device)
    return left


@dataclass
class Verdict:
    """What was found; "" where nothing was."""

    wrong: str = ""  # the graph must not be restored
    different: str = ""  # live replays leave something else than eager runs do
    nondeterministic: str = ""  # live replays leave something else each time


def _alike(one: Dict[str, torch.Tensor], other: Dict[str, torch.Tensor]) -> bool:
    """Of the same tensors, but for their values."""
    return one.keys() == other.keys() and all(
        tensor.shape == other[name].shape and tensor.dtype == other[name].dtype for name, tensor in one.items()
    )


def _judge(eager: Dict[str, torch.Tensor], replayed: Dict[str, torch.Tensor], accepted: Tolerance) -> Verdict:
    if not _alike(eager, replayed):
        return Verdict(wrong=first_difference(eager, replayed))
    difference = measure(eager, replayed)
    if difference is None:
        return Verdict()
    if not accepted.holds(difference):
        return Verdict(wrong=f"{difference}, beyond eager_tolerance {accepted.text}")
    return Verdict(different=str(difference))


def _numbers(device: int, seed: str) -> torch.Generator:
    numbers = torch.Generator(places.device_of(device))
    numbers.manual_seed(zlib.crc32(seed.encode()))
    return numbers


def replay(
    step: Step, randomize: Callable[[torch.Generator], None], bindings: Bindings, device: int, seed: str
) -> None:
    """Replays once on random inputs, and puts everything back."""
    before = Snapshot(_storages(bindings, device), device).take()
    try:
        randomize(_numbers(device, seed))
        step.replay()
    finally:
        before.put_back()
        torch.cuda.synchronize(device)


def compare(
    step: Step,
    forward: Callable[[], Any],
    randomize: Callable[[torch.Generator], None],
    bindings: Bindings,
    device: int,
    seed: str,
    accepted: Tolerance,
) -> Verdict:
    """Live replays on random inputs, each of which the C side compares with the restored graph, bit by bit.

    That is the proof. An eager run may choose other kernels than a capture does; how far it lies from a replay is said,
    and counts as wrong beyond what the user accepts. Everything is put back.
    """
    verdict = Verdict()
    storages = _storages(bindings, device)
    before = Snapshot(storages, device).take()
    try:
        for turn in range(ROUNDS):
            randomize(_numbers(device, f"{seed}/{turn}"))
            start = Snapshot(storages, device).take()

            def again(run: Callable[[], Any], start: Snapshot = start) -> Dict[str, torch.Tensor]:
                start.put_back()
                return _after(run, storages, device)

            eager, replayed = again(forward), again(step.replay)
            found = _judge(eager, replayed, accepted)
            if found.wrong:
                return found
            verdict.different = verdict.different or found.different
        difference = measure(replayed, again(step.replay))  # of the last round: the others are for the C side
        verdict.nondeterministic = f"two live replays on the same random inputs differ: {difference}" if difference else ""
    finally:
        before.put_back()
        torch.cuda.synchronize(device)
    return verdict
