# SPDX-License-Identifier: Apache-2.0
"""Checks whether vLLM is as the plug-in knows it: its version, methods with their parameters, and configuration."""
from __future__ import annotations

import inspect
import os
import sys
from typing import Any, Dict, List

VERSIONS = ("0.26.",)  # versions that were tried; MEDUSA_VLLM_ANY_VERSION=1 permits others

WORKER: Dict[str, List[str]] = {"determine_available_memory": ["self"], "compile_or_warm_up_model": ["self"]}
MANAGER: Dict[str, List[str]] = {
    "capture": ["self", "create_forward_fn", "progress_bar_desc"],
    "run_fullgraph": ["self", "desc"],
    "dispatch": ["self", "num_reqs", "num_tokens", "uniform_token_count", "num_active_loras"],
}
FIRST: Dict[str, List[str]] = {
    "_capture_cudagraphs": ["self", "batch_descriptors", "cudagraph_runtime_mode", "profiler"],
    "_warmup_and_capture": ["self", "desc", "cudagraph_runtime_mode", "profile_seq_lens", "allow_microbatching", "num_warmups",
                            "profiler"],
    "_get_slot_mappings": ["self", "num_tokens_padded", "num_reqs_padded", "num_tokens_unpadded", "ubatch_slices"],
    "_build_attention_metadata": ["self", "num_tokens", "num_reqs", "max_query_len", "num_tokens_padded", "num_reqs_padded",
                                  "ubatch_slices", "logits_indices", "use_spec_decode", "for_cudagraph_capture",
                                  "num_scheduled_tokens", "cascade_attn_prefix_lens", "slot_mappings"],
    "get_model": ["self"],
}
SECOND_HAS = ("model", "kv_caches", "input_buffers", "block_tables", "attn_groups", "model_state", "kv_cache_config", "device")
FIRST_HAS = ("model", "kv_caches", "input_ids", "positions", "query_start_loc", "seq_lens", "optimistic_seq_lens_cpu", "input_batch",
             "attn_groups", "kv_cache_config", "cudagraph_dispatcher", "uniform_decode_query_len", "max_model_len", "model_config")
ATTENTION = ("FullAttentionSpec", "SlidingWindowSpec", "ChunkedLocalAttentionSpec", "MLAAttentionSpec")


def unfit_module(owner: type, needs: Dict[str, List[str]]) -> str:
    """Why a class is not built as the plug-in knows it; "" if it is."""
    for name, parameters in needs.items():
        method = getattr(owner, name, None)
        if method is None:
            return f"{owner.__name__} has no {name}"
        found = list(inspect.signature(method).parameters)
        if found != parameters:
            return f"{owner.__name__}.{name} has the parameters {found}, not {parameters}"
    return ""


def _version() -> str:
    import vllm

    return str(vllm.__version__)


def _unfit_configuration(config: Any, runner: Any, is_second: bool) -> str:
    for what, there in (
        ("speculative decoding", config.speculative_config),
        ("sleep mode, but by `medusa-swap run --artifact` (capture without --enable-sleep-mode)", getattr(config.model_config, "enable_sleep_mode", False)),
        ("multimodal input", getattr(runner, "supports_mm_inputs", False)),
        ("an encoder and a decoder", getattr(runner, "is_encoder_decoder", False)),
        ("weights on the host", _offloads()),
        ("LoRA with the first model runner", config.lora_config and not is_second),
        ("LoRA for a mixture of experts", config.lora_config and getattr(config.model_config, "is_moe", False)),
        ("LoRA on two streams (VLLM_LORA_ENABLE_DUAL_STREAM)", config.lora_config and _flag("VLLM_LORA_ENABLE_DUAL_STREAM")),
    ):
        if there:
            return f"no support yet for {what}"
    return ""


def unfit_version() -> str:
    """Why this version of vLLM is left alone; "" if it was tried."""
    version = _version()
    if version.startswith(VERSIONS) or os.environ.get("MEDUSA_VLLM_ANY_VERSION") == "1":
        return ""
    return f"vLLM {version} was never tried with Medusa (tried: {', '.join(VERSIONS)}*); set MEDUSA_VLLM_ANY_VERSION=1 to try it"


def unfit(worker: Any) -> str:
    """Why this worker's graphs are left to vLLM, in one sentence; "" if they can be taken over."""
    why = unfit_version()
    if why:
        return why
    config, runner = worker.vllm_config, worker.model_runner
    parallel = config.parallel_config
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size"):
        if getattr(parallel, name, 1) != 1:
            return f"{name} is {getattr(parallel, name)}, and only engines on one GPU are restored"
    is_second = bool(getattr(worker, "use_v2_model_runner", False))
    return (
        _unfit_configuration(config, runner, is_second)
        or (unfit_module(_manager_class(), MANAGER) if is_second else unfit_module(type(runner), FIRST))
        or ("" if is_second else _unfit_first_configuration(runner, parallel))
    )


def _manager_class() -> type:
    return sys.modules["vllm.v1.worker.gpu.cudagraph_utils"].CudaGraphManager


def _flag(name: str) -> bool:
    from vllm import envs

    return bool(getattr(envs, name, False))


def _offloads() -> bool:
    from vllm.model_executor.offloader.base import get_offloader

    return type(get_offloader()).__name__ != "NoopOffloader"


def _unfit_first_configuration(runner: Any, parallel: Any) -> str:
    for what, there in (
        ("a pooling model", getattr(runner, "is_pooling_model", False)),
        ("prompts as embeddings", getattr(runner, "enable_prompt_embeds", False)),
        ("positions in several dimensions", getattr(runner, "uses_mrope", False) or getattr(runner, "uses_xdrope_dim", 0)),
        ("microbatches", getattr(parallel, "use_ubatching", False)),
        ("balancing of experts", getattr(parallel, "enable_eplb", False)),
    ):
        if there:
            return f"no support yet for {what}"
    return ""


def unfit_first(runner: Any) -> str:
    """Why graphs of the first runner are left to vLLM; "" if they can be taken over. Called when the KV cache exists."""
    for name in FIRST_HAS:
        if not hasattr(runner, name):
            return f"the model runner has no {name}"
    if type(runner.model).__name__ != "CUDAGraphWrapper":
        return f"the model is in a {type(runner.model).__name__}, not in a CUDAGraphWrapper"
    for group in runner.kv_cache_config.kv_cache_groups:
        kind = type(group.kv_cache_spec).__name__
        if kind not in ATTENTION:
            return f"no support yet for a KV cache of {kind}"
    return ""


def unfit_second(runner: Any, manager: Any) -> str:
    """Why graphs of the second runner are left to vLLM; "" if not. Called when the KV cache and the graph manager exist."""
    for name in SECOND_HAS:
        if not hasattr(runner, name):
            return f"the model runner has no {name}"
    if manager.use_breakable_cg:
        return "no support yet for breakable graphs (VLLM_USE_BREAKABLE_CUDAGRAPH)"
    return ""
