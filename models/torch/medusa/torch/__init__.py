# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs of a PyTorch engine, restored at a cold start: `import medusa.torch as medusa`."""
from __future__ import annotations

import contextlib
import time
from typing import Dict, Iterator

try:
    import torch as _torch
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise  # one that is there, and lacks something itself
    raise ImportError("medusa.torch needs PyTorch, and this Python has no module torch: install PyTorch (pip install torch)") from missing

from .. import _api
from .._api import mode
from .._tell import tell as _tell
from .adapter_slots import AdapterSlots
from .bindings import Constant, Input, Output, Scratch, State
from .discard import discardable
from .graphs import Graphs
from .kv import KV, kv_capacity
from .shared import Shared, share
from . import plain as _plain  # makes what is logged plain
from .steps import Step

__all__ = [
    "AdapterSlots",
    "Constant",
    "Graphs",
    "Input",
    "KV",
    "Output",
    "Scratch",
    "Shared",
    "State",
    "Step",
    "discardable",
    "kv_capacity",
    "memory_stats",
    "mode",
    "share",
    "stage",
]

_tell("medusa-torch", f"is loaded ({mode()}{f': {_api.why_none()}' if _api.why_none() else ''})")


def memory_stats() -> Dict[str, int]:
    """Device memory that Medusa holds beside PyTorch's allocator: for graphs, and the bytes of kernel images."""
    stats = _api.stats()
    return {name: stats.get(name, 0) for name in ("private_bytes", "image_bytes")}


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Times one stage of the start ("weights", "kv") for the reports of medusa-capture and medusa-inspect."""
    start = time.perf_counter_ns()
    yield
    try:
        _api.stage(name, time.perf_counter_ns() - start)
    except _api.Error:  # a report without this line
        pass
