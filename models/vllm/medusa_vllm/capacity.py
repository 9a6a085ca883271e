# SPDX-License-Identifier: Apache-2.0
"""How much memory vLLM's KV cache may have: a capture measures it by vLLM's own profiling, a restore takes it from the artifact."""
from __future__ import annotations

import logging
from typing import Any, Callable, List

from medusa.torch import kv_capacity

from . import facts

log = logging.getLogger("vllm.medusa")

GRAIN = 64 << 20  # bytes: measurements of two starts differ by some MiB, and their KV caches must be equal


def determine(takeover: Any, profile: Callable[[], int]) -> int:
    """Replaces Worker.determine_available_memory: bytes for the KV cache. Exceptions of profile() pass through.

    If the user gives the bytes, vLLM profiles all the same, to compile: then the artifact's number only says that this is not needed.
    """
    worker = takeover.worker
    given = worker.cache_config.kv_cache_memory_bytes
    if given and (given < GRAIN or getattr(worker.vllm_config.model_config, "multimodal_config", None) is not None):
        return profile()
    measured: List[int] = []
    raised: List[BaseException] = []

    def run() -> None:
        try:
            measured.append(profile())
        except BaseException as error:
            raised.append(error)
            raise

    try:
        # vLLM applies gpu_memory_utilization to its own memory alone. The C side would count the memory of other processes, too.
        answer = kv_capacity(f"vllm {facts.memory(worker)}", GRAIN, 1.0, run, lambda: measured[0])
    except Exception:  # pylint: disable=broad-except
        if raised:
            raise
        log.exception("medusa: the KV capacity of the artifact is not used, and vLLM measures it")
        return measured[0] if measured else profile()
    if answer.from_profile:
        _postpone_compiling(takeover, profile)
        log.info("medusa: %.2f GiB for the KV cache, from the artifact", answer.bytes / (1 << 30))
    if given:
        return int(given)
    worker.available_kv_cache_memory_bytes = answer.bytes  # with a KV cache of another size all graphs would be refused
    return answer.bytes


def _postpone_compiling(takeover: Any, profile: Callable[[], int]) -> None:
    """If that fails, vLLM profiles, and so compiles, as it does without Medusa; what fails there is the engine's own."""
    try:
        takeover.postpone_compiling()
    except Exception:  # pylint: disable=broad-except
        log.exception("medusa: compiling is not postponed, because the plug-in failed")
        takeover.interim.end()
        profile()
