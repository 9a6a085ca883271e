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
    """Replaces Worker.determine_available_memory: bytes for the KV cache. Exceptions of profile() pass through."""
    worker = takeover.worker
    measured: List[int] = []
    raised: List[BaseException] = []

    def run() -> None:
        try:
            measured.append(profile())
        except BaseException as error:
            raised.append(error)
            raise

    utilization = worker.cache_config.gpu_memory_utilization
    try:
        answer = kv_capacity(f"vllm {facts.configuration_hash(worker.vllm_config)}", GRAIN, utilization, run, lambda: measured[0])
    except Exception:  # pylint: disable=broad-except
        if raised:
            raise
        log.exception("medusa: the KV capacity of the artifact is not used, and vLLM measures it")
        return measured[0] if measured else profile()
    if answer.from_profile:
        takeover.postpone_compiling()
        log.info("medusa: %.2f GiB for the KV cache, from the artifact: no profiling", answer.bytes / (1 << 30))
    worker.available_kv_cache_memory_bytes = answer.bytes  # with a KV cache of another size all graphs would be refused
    return answer.bytes
