# SPDX-License-Identifier: Apache-2.0
"""The memory of vLLM's pieces: their graph pool is filled before they are captured, so that all of it can be bound by name.

A graph pool takes memory from the device when a graph needs it, which is too late: bindings are made before graphs are captured. Therefore
the pool gets, once and in advance, as much memory as all sizes need. Tensors may lie elsewhere in the pool in each capture; the note of
each graph says where. A guard at the beginning of each segment keeps addresses of tensors off the border between two bindings.
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

import torch

from medusa.torch import outputs

SMALL = 1 << 20  # bytes: PyTorch takes smaller requests from segments of twice this size
GUARD = 512  # bytes: the least that PyTorch hands out
GRAIN = 2 << 20
ROOM = 1.5  # factor on the bytes that were live at once, because a pool does not pack its blocks
SPARE = 40 << 20  # bytes for a matrix library's workspace, which may come from the arena


class Unfit(Exception):
    """Pieces cannot be recorded or restored; str() says why."""


def most_at_once(forwards: Iterable[Callable[[], Any]]) -> Tuple[int, int]:
    """The most bytes that any of these forwards had at the same time, in large and in small requests."""
    most = {"large_pool": 0, "small_pool": 0}
    for forward in forwards:
        before = torch.cuda.memory_stats()
        torch.cuda.reset_peak_memory_stats()
        forward()
        torch.cuda.synchronize()
        after = torch.cuda.memory_stats()
        for pool, value in most.items():
            taken = after[f"requested_bytes.{pool}.peak"] - before[f"requested_bytes.{pool}.current"]
            most[pool] = max(value, taken)
    return most["large_pool"], most["small_pool"]


def _bytes(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def _rounded(size: float) -> int:
    return -int(-size // GRAIN) * GRAIN


def _segments(pool: Any) -> Dict[int, Dict[str, Any]]:
    found = (segment for segment in torch.cuda.memory_snapshot() if tuple(segment.get("segment_pool_id", ())) == tuple(pool))
    return {segment["address"]: segment for segment in found}


def _free_blocks(address: int, pool: Any) -> List[Any]:
    return [block for block in _segments(pool)[address]["blocks"] if block["state"] == "inactive"]


class Arena:
    """The memory of a graph pool, from which pieces are captured on one stream. The pool lives as long as the process."""

    def __init__(self, pool: Any, stream: torch.cuda.Stream) -> None:
        self._pool, self._stream = pool, stream
        self._factor, self._product = (torch.ones(GUARD, GUARD, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        self._kept: List[torch.Tensor] = []
        self._place: List[torch.Tensor] = []  # keep the workspace's memory free until take_workspace()
        self._apart: Dict[int, Any] = {}  # segments that are not bound
        self.tensors: List[torch.Tensor] = []

    def fill(self, large: int, small: int) -> None:
        """Afterwards `tensors` are the pool's segments, each of which is free except for its guard."""
        if torch.cuda.get_allocator_backend() != "native":
            raise Unfit(f"PyTorch's allocator is {torch.cuda.get_allocator_backend()}, and pieces need the native one (PYTORCH_CUDA_ALLOC_CONF)")
        if _segments(self._pool):
            raise Unfit("vLLM's graph pool is in use already, and pieces need an empty one")
        with self._allocating():
            self._keep_a_place()
            fillers = [tensor for _ in range(-int(-small * ROOM // (2 * SMALL)) + 1) for tensor in self._small_segment()]
            whole = _bytes(_rounded(large * ROOM + SPARE))
            del whole
            self._kept.append(_bytes(SMALL + GUARD))
            del fillers
        segments = {address: segment for address, segment in _segments(self._pool).items() if address not in self._apart}
        if any(segment.get("is_expandable") for segment in segments.values()):
            raise Unfit("PyTorch uses expandable segments, and pieces need fixed ones (PYTORCH_CUDA_ALLOC_CONF)")
        # PyTorch takes the lowest of equal free blocks. In this order, a name means the same memory in each capture.
        order = sorted(segments, key=lambda address: (-segments[address]["total_size"], address))
        self.tensors = [outputs.over(address, segments[address]["total_size"], None, torch.cuda.current_device()) for address in order]

    @contextlib.contextmanager
    def _allocating(self) -> Iterator[None]:
        """Allocations come from the pool, which is never released, so that it keeps its segments."""
        device = torch.cuda.current_device()
        with torch.cuda.stream(self._stream):
            torch._C._cuda_beginAllocateCurrentThreadToPool(device, self._pool)
            try:
                yield
            finally:
                torch._C._cuda_endAllocateToPool(device, self._pool)

    def _small_segment(self) -> List[torch.Tensor]:
        """Fills one segment; its guard stays."""
        self._kept.append(_bytes(GUARD))
        return [_bytes(SMALL), _bytes(SMALL - GUARD)]

    # ---- the matrix libraries' workspace: only graphs use it, and it is not bound ----

    def _keep_a_place(self) -> None:
        """Keeps memory free for the workspace: capturing a full graph drops it, and no tensor of a piece may take its memory."""
        self._multiply()
        sizes = [block["size"] for block in self._blocks("active_allocated")]
        torch._C._cuda_clearCublasWorkspaces()
        self._apart = _segments(self._pool)
        self._place = [_bytes(size) for size in sizes]
        for segment in self._apart.values():
            most = SMALL if segment["segment_type"] == "small" else segment["total_size"]
            self._fill_up([block["size"] for block in _free_blocks(segment["address"], self._pool)], most)

    def _fill_up(self, sizes: List[int], most: int) -> None:
        """Takes the parts of free blocks that a tensor could take."""
        for size in sizes:
            while size > 0 and (size > SMALL or most == SMALL):
                self._kept.append(_bytes(min(size, most)))
                size -= most

    def _multiply(self) -> None:
        """Makes PyTorch allocate a workspace for the current stream, and nothing else."""
        torch.mm(self._factor, self._factor, out=self._product)

    def _blocks(self, state: str) -> List[Any]:
        return [block for segment in _segments(self._pool).values() for block in segment["blocks"] if block["state"] == state]

    def take_workspace(self) -> None:
        """Allocates the workspace of the captures that follow. Their stream multiplies nothing else."""
        torch._C._cuda_clearCublasWorkspaces()
        with self._allocating():
            self._place.clear()
            self._multiply()

    def unbound(self) -> List[Tuple[int, int]]:
        """Address and bytes of the memory that is kept for the workspace, which only graphs use."""
        return [(address, segment["total_size"]) for address, segment in self._apart.items()]

    def outgrown(self) -> int:
        """Bytes that the pool has taken from the device since fill(); no binding covers them."""
        known = {*self._apart, *(tensor.data_ptr() for tensor in self.tensors)}
        return sum(segment["total_size"] for address, segment in _segments(self._pool).items() if address not in known)


def again(sizes: Iterable[int]) -> List[torch.Tensor]:
    """Memory of the same sizes in a restored engine."""
    return [_bytes(size) for size in sizes]
