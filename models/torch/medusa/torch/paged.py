# SPDX-License-Identifier: Apache-2.0
"""The paged KV cache of transformers' continuous batching: binds it, and gives it the same size in every start."""
from __future__ import annotations

import contextlib
import hashlib
import inspect
import logging
import sys
from typing import Any, Callable, Dict, Iterator, List, Tuple

from .. import _api
from .bindings import Role, Scratch, State
from .kv import kv_capacity

log = logging.getLogger("medusa.torch")

GRAIN = 64 << 20  # bytes: measurements of two starts differ by some MiB, and their caches must be equal


def unfit(cache: Any) -> str:
    """Why this cache does not have a known structure; "" if it has."""
    if hasattr(cache, "key_cache") and hasattr(cache, "value_cache"):
        return ""  # a tensor for keys and one for values of each layer: transformers 5.17
    if hasattr(cache, "cache_tensor") and hasattr(cache, "bytes_per_sector") and hasattr(cache, "cache_allocators"):
        return ""  # one tensor of sectors: transformers 5.23
    return "this transformers' paged cache has neither key_cache and value_cache nor cache_tensor and bytes_per_sector"


def bindings(cache: Any) -> Dict[str, Role]:
    """The cache's tensors. Rows of padding race for the write trash, which is never read."""
    if hasattr(cache, "key_cache"):
        layers = {"keys": list(cache.key_cache), "values": list(cache.value_cache)}
        found: Dict[str, Role] = {name: State(tensors) for name, tensors in layers.items()}
        trash = getattr(cache, "write_trash_index", None)
        if trash is not None:
            found["trash"] = Scratch([layer[trash:] for tensors in layers.values() for layer in tensors])
        return found
    sector = cache.bytes_per_sector  # padding reads the first sector, and writes the second one
    return {"cache": State(cache.cache_tensor), "trash": Scratch(cache.cache_tensor[sector:2 * sector])}


# ---- size ----


def _handler_of(manager: Any) -> Tuple[Any, str]:
    """The class that measures memory for this manager's cache, and why it can't be asked."""
    cache = getattr(sys.modules.get(type(manager).__module__), "PagedAttentionCache", None)
    handler = getattr(sys.modules.get(getattr(cache, "__module__", "")), "PagedAttentionMemoryHandler", None)
    method = getattr(handler, "get_available_memory", None)
    if method is None:
        return None, "transformers has no PagedAttentionMemoryHandler.get_available_memory"
    parameters = list(inspect.signature(method).parameters)
    return handler, "" if parameters == ["self"] else f"get_available_memory takes {parameters}, not ['self']"


def _key(manager: Any) -> str:
    """A key made of everything that decides how transformers divides the memory."""
    text = f"{manager.model.config.to_dict()} {manager.model.dtype} {manager.continuous_batching_config}"
    return f"continuous batching {hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _available(manager: Any, measure: Callable[[], int]) -> int:
    """Bytes that transformers may divide: from the artifact, else measured by transformers and kept for the artifact."""
    measured: List[int] = []

    def profile() -> None:
        measured.append(measure())

    try:
        answer = kv_capacity(_key(manager), GRAIN, 1.0, profile, lambda: measured[-1])
    except Exception as error:  # pylint: disable=broad-except  # an exception of measure() is raised again
        log.warning("continuous batching: the memory for the KV cache is transformers' own: %s", error)
        return measured[-1] if measured else measure()
    if answer.from_profile:
        log.info("continuous batching: %.2f GiB for the KV cache, from the artifact", answer.bytes / (1 << 30))
    return answer.bytes


@contextlib.contextmanager
def same_size(manager: Any) -> Iterator[None]:
    """A context in which transformers finds the same memory in every start; make the cache inside of it."""
    if _api.mode() == "none" or manager.continuous_batching_config.num_blocks is not None:
        yield
        return
    handler, why = _handler_of(manager)
    if why:
        log.warning("continuous batching: KV caches may differ in size from start to start: %s; set num_blocks", why)
        yield
        return
    original = handler.get_available_memory
    handler.get_available_memory = lambda self: _available(manager, lambda: original(self))
    try:
        yield
    finally:
        handler.get_available_memory = original
