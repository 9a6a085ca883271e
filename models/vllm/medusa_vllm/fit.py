# SPDX-License-Identifier: Apache-2.0
"""What the take-over stands on: versions of vLLM, methods with their parameters, and configurations."""
from __future__ import annotations

import inspect
import os
from typing import Any, Dict, List

VERSIONS = ("0.26.",)  # those that were tried; MEDUSA_VLLM_ANY_VERSION=1 tries others

WORKER: Dict[str, List[str]] = {"determine_available_memory": ["self"], "compile_or_warm_up_model": ["self"]}
MANAGER: Dict[str, List[str]] = {
    "capture": ["self", "create_forward_fn", "progress_bar_desc"],
    "run_fullgraph": ["self", "desc"],
    "dispatch": ["self", "num_reqs", "num_tokens", "uniform_token_count", "num_active_loras"],
}
RUNNER = ("model", "kv_caches", "input_buffers", "block_tables", "attn_groups", "model_state", "kv_cache_config", "device")


def unfit_module(owner: type, needs: Dict[str, List[str]]) -> str:
    """Why a class is not built as the plug-in knows it; "" if it is."""
    for name, parameters in needs.items():
        method = getattr(owner, name, None)
        if method is None:
            return f"{owner.__name__} has no {name}"
        found = list(inspect.signature(method).parameters)
        if found != parameters:
            return f"{owner.__name__}.{name} takes {found}, not {parameters}"
    return ""


def _version() -> str:
    import vllm

    return str(vllm.__version__)


def unfit(worker: Any) -> str:
    """Why this worker's graphs are left to vLLM, in one sentence; "" if they can be taken over."""
    version = _version()
    if not version.startswith(VERSIONS) and os.environ.get("MEDUSA_VLLM_ANY_VERSION") != "1":
        return f"vLLM {version} was never tried with Medusa (tried: {', '.join(VERSIONS)}*); MEDUSA_VLLM_ANY_VERSION=1 tries it"
    config, runner = worker.vllm_config, worker.model_runner
    parallel = config.parallel_config
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size"):
        if getattr(parallel, name, 1) != 1:
            return f"{name} is {getattr(parallel, name)}, and one GPU is restored"
    if not getattr(worker, "use_v2_model_runner", False):
        return "this model has vLLM's first model runner (VLLM_USE_V2_MODEL_RUNNER=1 chooses the second)"
    for what, there in (
        ("LoRA", config.lora_config),
        ("speculative decoding", config.speculative_config),
        ("sleep mode", getattr(config.model_config, "enable_sleep_mode", False)),
        ("multimodal input", getattr(runner, "supports_mm_inputs", False)),
        ("an encoder and a decoder", getattr(runner, "is_encoder_decoder", False)),
        ("weights on the host", _offloads()),
    ):
        if there:
            return f"{what}: not restored yet"
    return ""


def _offloads() -> bool:
    from vllm.model_executor.offloader.base import get_offloader

    return type(get_offloader()).__name__ != "NoopOffloader"


def unfit_runner(runner: Any, manager: Any) -> str:
    """The same, once the KV cache and the graph manager are there."""
    for name in RUNNER:
        if not hasattr(runner, name):
            return f"the model runner has no {name}"
    if manager.use_breakable_cg:
        return "breakable graphs (VLLM_USE_BREAKABLE_CUDAGRAPH): not restored yet"
    return ""
