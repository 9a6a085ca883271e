# SPDX-License-Identifier: Apache-2.0
"""Random numbers in graphs: PyTorch's Philox seed and offset, found at capture and filled before restored replays."""
from __future__ import annotations

from typing import Callable, Dict, List, Tuple

import torch

from .. import _api, _driver
from . import bindings as places

SEED, OFFSET = "torch.philox.seed", "torch.philox.offset"
_MAGIC = ((0x5EED0F0DD17A0001, 0x0FF5E7A0), (0x2ADDBA11CA5CADE5, 0x1BADC0DE0))  # seed, offset (a multiple of 4)

_words: Dict[int, Tuple[torch.Tensor, torch.Tensor]] = {}  # by device, of restored graphs; never freed


_found: Dict[int, Tuple[int, int]] = {}  # by device: addresses of PyTorch's own two words
_kept: List[torch.cuda.CUDAGraph] = []  # a graph that lives on keeps these two in their place


class NotFound(Exception):
    """The seed and offset of a graph could not be singled out; str() says why."""


def generator(device: int) -> torch.Generator:
    """The one that graphs use, unless an engine registers others."""
    return torch.cuda.default_generators[device]


def offset(device: int) -> int:
    return generator(device).get_offset()


# ---- at a capture: where PyTorch keeps the two words ----


def _small_blocks(device: int) -> List[int]:
    """Addresses of live blocks of 8 bytes: PyTorch makes one for the seed and one for the offset."""
    found = []
    for segment in torch.cuda.memory_snapshot():
        if segment.get("device", device) != device:
            continue
        address = segment["address"]
        for block in segment["blocks"]:
            start = block.get("address", address)
            if block["state"] == "active_allocated" and block.get("requested_size", 8) == 8 and block["size"] <= 4096:
                found.append(start)
            address = start + block["size"]
    return found


def _holding(blocks: List[int], word: int) -> List[int]:
    return [address for address in blocks if _driver.read_u64(address) == word]


def _tiny_graph(device: int) -> torch.cuda.CUDAGraph:
    """Draws one number. All graphs of a generator read the same two words, so any one can tell where these are."""
    graph = torch.cuda.CUDAGraph()
    number = torch.empty(1, device=places.device_of(device))
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        number.uniform_()
    _kept.append(graph)
    return graph


def find_words(device: int) -> Tuple[int, int]:
    """Addresses of seed and offset, told by two replays with numbers that nothing else holds; NotFound otherwise."""
    source = generator(device)
    before = source.get_state()
    graph = _tiny_graph(device)
    try:
        blocks = _small_blocks(device)
        seeds, offsets = blocks, blocks
        for seed, at in _MAGIC:
            source.manual_seed(seed)
            source.set_offset(at)
            graph.replay()
            torch.cuda.synchronize(device)
            seeds, offsets = _holding(seeds, seed), _holding(offsets, at)
    finally:
        source.set_state(before)
    if len(seeds) != 1 or len(offsets) != 1:
        raise NotFound(f"{len(seeds)} seeds and {len(offsets)} offsets among {len(blocks)} words")
    return seeds[0], offsets[0]


def increment_of(device: int, replay: Callable[[], None]) -> int:
    """How far one replay moves the generator; its state is put back."""
    source = generator(device)
    before, at = source.get_state(), source.get_offset()
    try:
        replay()
        return source.get_offset() - at
    finally:
        source.set_state(before)


def bind_found(device: int) -> str:
    """Binds PyTorch's own two words, before the graph that uses them is captured; why not, or ""."""
    try:
        if device not in _found:
            _found[device] = find_words(device)
        seed, at = _found[device]
        _api.bind(SEED, seed, 8, _api.INPUT)
        _api.bind(OFFSET, at, 8, _api.INPUT)
    except (NotFound, RuntimeError, _api.Error) as error:
        return f"its random state (RNG seed and offset) was not found: {error}"
    return ""


# ---- at a restore: words of our own ----


def bind_own(device: int) -> None:
    """Binds two words that restored graphs read instead; graphs without random numbers have no use for them."""
    if device not in _words:
        # Not filled: advance() does that before each replay, and a fill here would load a kernel.
        words = tuple(torch.empty(1, dtype=torch.int64, device=places.device_of(device)) for _ in range(2))
        _words[device] = words  # type: ignore[assignment]
    seed, at = _words[device]
    _api.bind(SEED, seed.data_ptr(), 8, _api.INPUT)
    _api.bind(OFFSET, at.data_ptr(), 8, _api.INPUT)


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def advance(device: int, increment: int) -> None:
    """What PyTorch does before it launches a graph with random numbers: fills both words, then moves the generator."""
    source = generator(device)
    seed, at = _words[device]
    now = source.get_offset()
    seed.fill_(_signed(source.initial_seed()))
    at.fill_(_signed(now))
    source.set_offset(now + increment)
