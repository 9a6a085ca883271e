# SPDX-License-Identifier: Apache-2.0
"""How much memory the KV cache may have: from the artifact at once, or from a profiling forward."""
from __future__ import annotations

import ctypes
import logging
import time
from dataclasses import dataclass
from typing import Callable, Optional, Tuple

import torch

from .. import _api
from . import facts

log = logging.getLogger("medusa.torch")


@dataclass
class KV:
    """Memory for the KV cache; .reason says why it was measured, and is "" if it was not.

    .note is "", or says that less memory is free than in the capture, and that the artifact's answer holds all the same.
    """

    bytes: int
    blocks: int
    from_profile: bool  # answered from the artifact, without a forward
    ns: int
    reason: str = ""
    note: str = ""


def _run(profile: Callable[[], object]) -> None:
    """What the forward needs stays in PyTorch's cache until it is measured."""
    profile()
    torch.cuda.synchronize()


def _measure(
    block_bytes: int, utilization: float, profile: Optional[Callable[[], object]], most: Optional[Callable[[], int]]
) -> Tuple[int, int]:
    """As the C side measures, for a process without any Medusa library."""
    if profile is None:
        raise RuntimeError("medusa: kv_capacity needs a profiling forward: there is no stored answer")
    before, total = torch.cuda.mem_get_info()
    _run(profile)
    after, _ = torch.cuda.mem_get_info()
    taken = total - before + max(0, before - after)
    room = int(total * utilization) - taken
    blocks = max(0, min(room, most()) if most else room) // block_bytes
    if not blocks:
        raise RuntimeError(f"medusa: no room for a KV block of {block_bytes} bytes: {taken} of {total} bytes are taken")
    return blocks * block_bytes, blocks


def kv_capacity(
    key: str,
    block_bytes: int,
    utilization: float = 0.9,
    profile: Optional[Callable[[], object]] = None,
    most: Optional[Callable[[], int]] = None,
) -> KV:
    """Call it with the weights loaded and before the KV cache is allocated; `key` names the engine's configuration.

    `most` is asked after `profile` has run, by engines that measure by themselves, too: the bytes that they would take.
    The smaller number is the answer, and an artifact stores it.
    What `profile` raises passes through unchanged. RuntimeError, with the reason, if nothing could be answered or
    measured. An answer that was measured has .reason, and where there is an artifact it is logged as a warning.
    """
    start = time.perf_counter_ns()
    if not _api.present():
        size, blocks = _measure(block_bytes, utilization, profile, most)
        return KV(size, blocks, False, time.perf_counter_ns() - start, _api.why_none())
    torch.cuda.current_stream().query()  # makes the context current in this thread
    facts.say_process()
    ran = []
    limit = ctypes.c_uint64(2**64 - 1) if most else None

    def run() -> None:
        ran.append(True)
        _run(profile)  # type: ignore[arg-type]
        if limit is not None and most is not None:
            limit.value = max(0, most())

    callback = _api.Callback(run) if profile else None
    torch.cuda.empty_cache()  # what it holds counts as free, when measured and when compared with what was measured
    try:
        answer, reason = _api.kv_capacity(key, block_bytes, utilization, callback, limit)
    except _api.Error as error:
        raised = callback.take() if callback else None
        if raised is not None:
            raise raised from None
        raise RuntimeError(f"medusa: {error}") from None
    finally:
        if ran:
            torch.cuda.empty_cache()
    took = time.perf_counter_ns() - start
    if answer.from_profile:
        return KV(answer.bytes, answer.blocks, True, took, note=reason)
    return KV(answer.bytes, answer.blocks, False, took, _why_measured(key, reason))


def _why_measured(key: str, reason: str) -> str:
    now = _api.mode()
    if now not in ("restore", "verify"):  # what the C side said last is about something else
        return f"nothing is restored in this process: its mode is {now}"
    reason = reason or "the artifact's answer was not used"
    log.warning("KV capacity for key %r is measured: %s", key, reason)
    return reason
