# SPDX-License-Identifier: Apache-2.0
"""Random batches that are valid for a graph: lengths of requests, and places of their tokens in the KV cache."""
from __future__ import annotations

import torch

MOST_TOKENS = 4096  # length of a request: enough for every way in which attention splits its work


def counts(requests: int, tokens: int, device: torch.device) -> torch.Tensor:
    """Tokens of each request in this step, divided as in vLLM's dummy batches: the last request takes the rest."""
    each = torch.full((requests,), tokens // requests, dtype=torch.int64, device=device)
    each[-1] += tokens % requests
    return each


def lengths(each: torch.Tensor, blocks: int, block_size: int, most: int, numbers: torch.Generator) -> torch.Tensor:
    """Random lengths of requests in tokens, including those of this step, for which there are enough distinct blocks."""
    room = (blocks - 1) // max(1, len(each)) * block_size
    least = int(each[0])
    drawn = torch.randint(least, max(least, min(most, room, MOST_TOKENS)) + 1, (len(each),), generator=numbers,
                          device=numbers.device, dtype=torch.int64)
    return torch.maximum(drawn, each.to(drawn.device)).to(torch.int32)


def positions(long: torch.Tensor, each: torch.Tensor) -> torch.Tensor:
    """The position of each token in its request; the tokens of this step are the last ones."""
    first = (long - each).repeat_interleave(each)
    starts = (torch.cumsum(each, 0) - each).repeat_interleave(each)
    return first + torch.arange(int(each.sum()), device=long.device) - starts


def token_ids(count: int, vocabulary: int, numbers: torch.Generator) -> torch.Tensor:
    return torch.randint(vocabulary, (count,), generator=numbers, device=numbers.device, dtype=torch.int32)


def places(
    table: torch.Tensor, slots: torch.Tensor, where: torch.Tensor, each: torch.Tensor, size: int, blocks: int, numbers: torch.Generator
) -> None:
    """Fills a block table and the slots of this step's tokens. Block 0 is vLLM's null block. No two requests share a block.

    If there are fewer blocks than requests, nothing is written (slot -1), and all requests read the null block.
    """
    requests, most = table.shape[0], blocks - 1
    columns = min(table.shape[1], most // requests)
    order = torch.randperm(most, generator=numbers, device=numbers.device)[: requests * columns] + 1
    table.zero_()
    table[:, :columns] = order.view(requests, columns).to(table.dtype)
    rows = torch.arange(requests, device=table.device).repeat_interleave(each)
    slots.fill_(-1)
    if columns == 0:
        return
    slots[: len(where)] = table[rows, where // size].to(slots.dtype) * size + (where % size).to(slots.dtype)
