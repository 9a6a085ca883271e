# SPDX-License-Identifier: Apache-2.0
"""Memory that only graphs use: blocks of their pools that belong to no tensor.

Structs that eager kernels take as parameters have members that nobody sets (ReduceOp, in every reduction), where an old
address of such a block may lie. Without the statement that only graphs use the block, a capture has to refuse the graphs.
"""
from __future__ import annotations

import logging
from typing import Any, Collection, Iterable, Iterator, List, Tuple

import torch

from .. import _api

log = logging.getLogger("medusa.torch")


def _pool_of(segment: Any) -> Any:
    """The pool's handle as torch.cuda.graph_pool_handle() gives it; None if PyTorch does not tell it."""
    pool = segment.get("segment_pool_id")
    return tuple(pool) if isinstance(pool, (list, tuple)) else pool


def free_blocks(device: int, pools: Collection[Any]) -> Iterator[Tuple[int, int]]:
    """Address and bytes of free blocks in these pools. A block that waits for a stream ("active_pending_free") is not free."""
    for segment in torch.cuda.memory_snapshot():
        if segment.get("device") != device or _pool_of(segment) not in pools:
            continue
        for block in segment.get("blocks", ()):
            if block.get("state") == "inactive" and block.get("address") and block.get("size"):
                yield block["address"], block["size"]


def state(device: int, pools: Collection[Any]) -> List[Tuple[int, int]]:
    """States to the C library which blocks are free now, and returns them; the statement holds until the next capture begins."""
    if not pools or torch.cuda.get_allocator_backend() != "native":
        return []
    blocks = list(free_blocks(device, pools))
    state_blocks(blocks)
    return blocks


def state_blocks(blocks: Iterable[Tuple[int, int]]) -> None:
    """States that these blocks are free, and that only graphs use them."""
    try:
        for address, size in blocks:
            _api.graph_scratch(address, size)
    except (_api.Error, RuntimeError) as error:
        log.warning("free blocks of the graphs' pool could not be stated to be free: %s", error)
