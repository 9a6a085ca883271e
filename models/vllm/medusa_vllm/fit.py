# SPDX-License-Identifier: Apache-2.0
"""Checks whether vLLM is as the plug-in knows it: its version, methods with their parameters, and configuration."""
from __future__ import annotations

import inspect
import sys
from typing import Any, Dict, List

from . import switches

VERSIONS = ("0.26.",)  # versions that were tried; MEDUSA_VLLM_ANY_VERSION=1 permits others

ALONE = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "prefill_context_parallel_size",
         "decode_context_parallel_size", "world_size", "nnodes")
WORKER_MODULE = "vllm.v1.worker.gpu_worker"
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


class _Unknown(Exception):
    """An object of vLLM's lacks a setting that the plug-in must know: this vLLM may have it under another name."""


def _of(owner: Any, name: str) -> Any:
    """A setting, which must be there: one that is missing may not count as one that is off."""
    try:
        return getattr(owner, name)
    except AttributeError:
        raise _Unknown(f"{type(owner).__name__} has no {name}") from None


def _unfit_configuration(config: Any, runner: Any, is_second: bool) -> str:
    model, cache, parallel, lora = config.model_config, config.cache_config, config.parallel_config, config.lora_config
    for what, there in (
        ("speculative decoding", config.speculative_config),
        ("sleep mode, but by `medusa-swap run --artifact` (capture without --enable-sleep-mode)", _of(model, "enable_sleep_mode")),
        ("multimodal input", _of(runner, "supports_mm_inputs")),
        ("an encoder and a decoder", _of(model, "is_encoder_decoder")),
        ("an encoder's cache of other engines (ec_transfer_config)", _of(config, "ec_transfer_config")),
        ("diffusion", _of(model, "is_diffusion")),
        ("a pooling model", _of(runner, "is_pooling_model")),
        ("prompts as embeddings (enable_prompt_embeds)", _of(model, "enable_prompt_embeds")),
        ("positions in several dimensions (mrope, xdrope)", _of(model, "uses_mrope") or _of(model, "uses_xdrope_dim")),
        ("microbatches (enable_dbo, ubatch_size)", _of(parallel, "use_ubatching")),
        ("balancing of experts (enable_eplb)", _of(parallel, "enable_eplb")),
        ("a number of GPUs that changes (enable_elastic_ep)", _of(parallel, "enable_elastic_ep")),
        ("scales of the KV cache that the first requests decide (calculate_kv_scales)", _of(cache, "calculate_kv_scales")),
        ("prefills that skip layers (kv_sharing_fast_prefill)", _of(cache, "kv_sharing_fast_prefill")),
        ("weights on the host", _offloads()),
        ("LoRA with the first model runner", lora and not is_second),
        ("LoRA for a mixture of experts", lora and _of(model, "is_moe")),
        ("LoRA on two streams (VLLM_LORA_ENABLE_DUAL_STREAM)", lora and _flag("VLLM_LORA_ENABLE_DUAL_STREAM")),
    ):
        if there:
            return f"no support yet for {what}"
    return ""


def _unfit_worker(worker: Any, parallel: Any) -> str:
    """Another class of worker may do anything between the methods that are wrapped."""
    named, known = _of(parallel, "worker_cls"), sys.modules[WORKER_MODULE].Worker
    if named not in ("auto", f"{WORKER_MODULE}.Worker"):
        return f"worker_cls is {named if isinstance(named, str) else type(named).__name__}, and only vLLM's own worker is known"
    if type(worker) is not known:
        return f"the worker is a {type(worker).__module__}.{type(worker).__qualname__}, and only vLLM's own worker is known"
    return ""


def unfit_version() -> str:
    """Why this version of vLLM is left alone; "" if it was tried."""
    version = _version()
    if version.startswith(VERSIONS) or switches.any_version():
        return ""
    return f"vLLM {version} was never tried with Medusa (tried: {', '.join(VERSIONS)}*); set MEDUSA_VLLM_ANY_VERSION=1 to try it"


def unfit(worker: Any) -> str:
    """Why this worker's graphs are left to vLLM, in one sentence; "" if they can be taken over."""
    try:
        return unfit_version() or _unfit(worker)
    except _Unknown as error:
        return f"{error}, as vLLM {', '.join(VERSIONS)}* has"


def _unfit(worker: Any) -> str:
    config, runner = worker.vllm_config, worker.model_runner
    parallel = config.parallel_config
    for name in ALONE:
        if _of(parallel, name) != 1:
            return f"{name} is {getattr(parallel, name)}, and only engines on one GPU are restored"
    is_second = bool(_of(worker, "use_v2_model_runner"))
    return (
        _unfit_worker(worker, parallel)
        or _unfit_configuration(config, runner, is_second)
        or (unfit_module(_manager_class(), MANAGER) if is_second else unfit_module(type(runner), FIRST))
    )


def _manager_class() -> type:
    return sys.modules["vllm.v1.worker.gpu.cudagraph_utils"].CudaGraphManager


def _flag(name: str) -> bool:
    from vllm import envs

    return bool(_of(envs, name))


def _offloads() -> bool:
    from vllm.model_executor.offloader.base import get_offloader

    return type(get_offloader()).__name__ != "NoopOffloader"


def _unfit_cache(runner: Any) -> str:
    for group in runner.kv_cache_config.kv_cache_groups:
        kind = type(group.kv_cache_spec).__name__
        if kind not in ATTENTION:
            return f"no support yet for a KV cache of {kind}"
    return ""


def unfit_first(runner: Any) -> str:
    """Why graphs of the first runner are left to vLLM; "" if they can be taken over. Called when the KV cache exists."""
    for name in FIRST_HAS:
        if not hasattr(runner, name):
            return f"the model runner has no {name}"
    if type(runner.model).__name__ != "CUDAGraphWrapper":
        return f"the model is in a {type(runner.model).__name__}, not in a CUDAGraphWrapper"
    return _unfit_cache(runner)


def unfit_second(runner: Any, manager: Any) -> str:
    """Why graphs of the second runner are left to vLLM; "" if not. Called when the KV cache and the graph manager exist."""
    for name in SECOND_HAS:
        if not hasattr(runner, name):
            return f"the model runner has no {name}"
    if manager.use_breakable_cg:
        return "no support yet for breakable graphs (VLLM_USE_BREAKABLE_CUDAGRAPH)"
    return _unfit_cache(runner)
