# SPDX-License-Identifier: Apache-2.0
"""How much memory vLLM's KV cache may have: a capture measures it by vLLM's own profiling, a restore takes it from the artifact."""
from __future__ import annotations

import logging
from typing import Any, Callable, List, Optional, Tuple

from medusa.torch import kv_capacity

from . import facts
from .guard import spared

log = logging.getLogger("vllm.medusa")

GRAIN = 64 << 20  # bytes: measurements of two starts differ by some MiB, and their KV caches must be equal


def determine(takeover: Any, profile: Callable[[], int]) -> int:
    """Replaces Worker.determine_available_memory: bytes for the KV cache. Exceptions of profile() pass through.

    If the user gives the bytes, vLLM profiles all the same, to compile: then the artifact's number only says that this is not needed.

    Less free memory than in the capture is no reason to profile while all that the capture needed fits (kvprofile/kvprofile.h): vLLM's own
    number would be the same, since it is a part of the whole device less the engine's own memory, and vLLM itself has ended by now if
    less than that part was free. With another number of blocks no graph could be restored.
    """
    worker = takeover.worker
    given, alone = spared("vLLM measures the memory for the KV cache", lambda: _given(worker), (None, True))
    if alone:
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
        log.info("medusa: %.2f GiB for the KV cache, from the artifact%s", answer.bytes / (1 << 30), f" ({answer.note})" if answer.note else "")
    if given:
        return int(given)
    worker.available_kv_cache_memory_bytes = answer.bytes  # with a KV cache of another size all graphs would be refused
    return answer.bytes


def _given(worker: Any) -> Tuple[Optional[int], bool]:
    """The bytes that the user gives, and whether they are none of ours."""
    given = worker.cache_config.kv_cache_memory_bytes
    return given, bool(given) and (given < GRAIN or worker.vllm_config.model_config.multimodal_config is not None)


def _postpone_compiling(takeover: Any, profile: Callable[[], int]) -> None:
    """If that fails, vLLM profiles, and so compiles, as it does without Medusa; what fails there is the engine's own."""
    try:
        takeover.postpone_compiling()
    except Exception:  # pylint: disable=broad-except
        log.exception("medusa: compiling is not postponed, because the plug-in failed")
        spared("the model may run eagerly", takeover.interim.end)
        profile()
