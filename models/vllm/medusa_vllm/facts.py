# SPDX-License-Identifier: Apache-2.0
"""Facts of the fingerprint: vLLM's version, configuration, environment and attention backends, on which graphs depend beside tensors."""
from __future__ import annotations

import copy
import hashlib
import json
import os
import sys
from typing import Any, Dict, Iterator, List

from medusa.torch.facts import bounded, hash_file, shown

# Attributes of vLLM's modules that say how far compiling has come, or where a cache lies, and not what is computed.
PROGRESS = frozenset((
    "compiled", "do_not_compile", "first_compile", "evaluate_guards", "was_aot_compile_fn_loaded_from_disk", "aot_compiled_fn",
    "_aot_compilation_path", "_aot_cache_dir", "_compile_prefix",
))


def is_setting(name: str, value: Any) -> bool:
    """Whether an attribute of a module decides what the module computes. vLLM itself hashes its configuration objects."""
    return name not in PROGRESS and not type(value).__module__.startswith("vllm.config")


# Variables that vLLM puts into its key for compiled code although no kernel depends on them: they differ between users, nodes and deployments.
ELSEWHERE = frozenset((
    "MOONCAKE_PREFERRED_SEGMENT", "MOONCAKE_REQUESTER_LOCAL_HOSTNAME", "VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_API_KEY",
    "VLLM_BUILD_COMMIT", "VLLM_BUILD_PIPELINE", "VLLM_BUILD_URL", "VLLM_CONFIGURE_LOGGING", "VLLM_CONFIG_ROOT", "VLLM_DISABLE_LOG_LOGO",
    "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION", "VLLM_DOCKER_BUILD_CONTEXT", "VLLM_EC_SIDE_CHANNEL_HOST", "VLLM_EC_SIDE_CHANNEL_PORT",
    "VLLM_ENABLE_RESPONSES_API_STORE", "VLLM_ENFORCE_STRICT_TOOL_CALLING", "VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS",
    "VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS", "VLLM_GPU_NIC_PCIE_MAPPING", "VLLM_IMAGE_TAG", "VLLM_LOG_BATCHSIZE_INTERVAL", "VLLM_LOG_MODEL_INSPECTION",
    "VLLM_LOOPBACK_IP", "VLLM_LORA_RESOLVER_CACHE_DIR", "VLLM_LORA_RESOLVER_HF_REPO_LIST", "VLLM_MAX_COMPLETION_PROMPTS", "VLLM_MAX_N_SEQUENCES",
    "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT", "VLLM_MOONCAKE_BOOTSTRAP_PORT", "VLLM_MOONCAKE_LOAD_RECV_THREADS", "VLLM_MOONCAKE_STORE_TIER_LOG",
    "VLLM_MQ_MAX_CHUNK_BYTES_MB", "VLLM_MSGPACK_ZERO_COPY_THRESHOLD", "VLLM_NIC_SELECTION_VARS", "VLLM_NIXL_SIDE_CHANNEL_PORT", "VLLM_P2P_SIDE_CHANNEL_HOST",
    "VLLM_P2P_SIDE_CHANNEL_PORT", "VLLM_PROCESS_NAME_PREFIX", "VLLM_REGEX_COMPILATION_TIMEOUT_S", "VLLM_RUST_FRONTEND_PATH", "VLLM_SYSTEM_START_DATE",
    "VLLM_TOOL_JSON_ERROR_AUTOMATIC_RETRY", "VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS", "VLLM_USAGE_SOURCE", "VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT",
    "VLLM_USE_RUST_FRONTEND", "VLLM_V1_USE_OUTLINES_CACHE", "VLLM_XGRAMMAR_CACHE_MB", "VLLM_XLA_CACHE_PATH",
))
SAMPLING = {"generation_config": "auto", "override_generation_config": {}, "max_logprobs": 20, "renderer_num_workers": 1}  # set to vLLM's defaults
PARTS = ("model", "cache", "parallel", "scheduler", "attention", "lora", "kernel", "compilation", "offload")
# Folders of vLLM's own with the shapes of kernels, into which users put files for their device.
TUNED = ("model_executor/layers/fused_moe/configs", "model_executor/layers/quantization/utils/configs")


def _comparable(config: Any) -> Any:
    """The configuration without some more settings of which no kernel knows, but vLLM's hash does: how tokens are chosen behind the graphs."""
    model, same = copy.copy(config.model_config), copy.copy(config)
    vars(model).update({name: value for name, value in SAMPLING.items() if name in vars(model)})
    vars(same)["model_config"] = model
    return same


def configuration_hash(config: Any) -> str:
    """vLLM's own hash of the settings that decide the computation. It leaves out values that the start itself writes."""
    return str(_comparable(config).compute_hash())


def configurations(config: Any) -> Dict[str, str]:
    """The hashes from which vLLM makes that hash, by the name of the part, so that a difference says which settings to look at."""
    parts = {name: getattr(_comparable(config), f"{name}_config") for name in PARTS}
    return {f"vllm.config.{name}": str(part.compute_hash())[:16] for name, part in parts.items() if part is not None}


def environment() -> str:
    """Those environment variables that vLLM puts into its own key for compiled code: all in a hash, and by name those that are set."""
    from vllm import envs

    factors = {name: value for name, value in envs.compile_factors().items() if name not in ELSEWHERE}
    digest = hashlib.sha256(json.dumps(factors, sort_keys=True, default=str).encode()).hexdigest()
    return bounded(" ".join([digest[:16], *(f"{name}={shown(os.environ[name])}" for name in sorted(factors) if name in os.environ)]))


def _files(folder: str) -> Iterator[str]:
    for file in sorted(os.scandir(folder), key=lambda file: file.name):
        if file.is_file():
            yield f"{file.name} {hash_file(file.path)}\n"


def _hash_of_files(folder: str) -> str:
    try:
        return hashlib.sha256("".join(_files(folder)).encode(errors="replace")).hexdigest()[:16]
    except OSError as error:
        return str(error.strerror)


def _tuned(config: Any) -> str:
    """Hashes of the files that give vLLM the shapes of kernels (of experts, of adapters, of quantized layers); vLLM's own hashes leave them out."""
    import vllm
    from vllm import envs

    folder, model, package = envs.VLLM_TUNED_CONFIG_FOLDER, config.model_config, getattr(vllm, "__file__", None)
    found = [_hash_of_files(folder)] if folder else []
    if package and (model.is_moe or model.quantization):
        found += [_hash_of_files(os.path.join(os.path.dirname(package), *own.split("/"))) for own in TUNED]
    return " ".join(found) or "none"


def _backend(kind: Any) -> str:
    """The class of an attention backend; one that is not vLLM's own, with a hash of its source."""
    if kind.__module__.split(".")[0] == "vllm":
        return str(kind.__qualname__)
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return f"{kind.__module__}.{kind.__qualname__}:{hash_file(path)[:16] if path else 'without a file'}"


def _extension(name: str) -> str:
    """A class that vLLM adds to its worker: its name, and a hash of its source."""
    path = getattr(sys.modules.get(name.rpartition(".")[0]), "__file__", None)
    return f"{name}:{hash_file(path)[:16] if path else 'without a file'}" if name else "none"


def settings(config: Any) -> str:
    """Settings that vLLM's own hash leaves out although a start, its kernels or its graphs may differ by them.

    What fit.py refuses is not here. Left out by vLLM's hash (or SAMPLING) and by this one: names, addresses and ports, tokenizers, sampling,
    prefix caching, scheduling, multimodal input, logs and metrics, where weights come from, and where a process runs.
    """
    from vllm import envs

    parallel, kernel, lora, connector = config.parallel_config, config.kernel_config, config.lora_config, config.kv_transfer_config
    found = {
        "custom_all_reduce": not parallel.disable_custom_all_reduce,
        "worker_extension_cls": _extension(parallel.worker_extension_cls),
        "flashinfer_autotune": kernel.enable_flashinfer_autotune,
        "flashinfer_autotune_skip": ",".join(sorted(envs.VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS or ())) or "none",
        "adapters": f"{lora.max_loras}{' each' if lora.specialize_active_lora else ''}" if lora else "none",
        "kv_connector": f"{connector.kv_connector} {connector.kv_role}" if connector else "none",
    }
    return "; ".join(f"{name}={value}" for name, value in found.items())


def _limits(config: Any) -> str:
    scheduler = config.scheduler_config
    return (f"max_num_seqs={scheduler.max_num_seqs} max_num_batched_tokens={scheduler.max_num_batched_tokens} "
            f"max_model_len={config.model_config.max_model_len}")


def memory(worker: Any) -> str:
    """Everything beside the device on which the memory depends that is left for the KV cache."""
    config = worker.vllm_config
    cache = worker.cache_config
    given = f"kv_cache_memory_bytes={cache.kv_cache_memory_bytes} " if cache.kv_cache_memory_bytes else ""
    digests = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in (environment(), settings(config))]
    return (f"{_limits(config)} gpu_memory_utilization={cache.gpu_memory_utilization} {given}"
            f"{configuration_hash(config)} {' '.join(digests)}")


def of(worker: Any, block_sizes: List[int], graphs: str) -> Dict[str, str]:
    import vllm

    config, runner = worker.vllm_config, worker.model_runner
    cache = config.cache_config
    backends = [_backend(group.backend) for groups in runner.attn_groups for group in groups]
    return {
        "vllm": str(vllm.__version__),
        **configurations(config),
        "vllm.configuration": configuration_hash(config),  # behind its parts: the first fact that differs is the one that is named
        "vllm.environment": environment(),
        "vllm.settings": settings(config),
        "vllm.limits": _limits(config),
        "vllm.tuned": _tuned(config),
        "vllm.kv": f"dtype={cache.cache_dtype} blocks={runner.kv_cache_config.num_blocks} "
                   f"block_sizes={block_sizes}",
        "vllm.graphs": graphs,
        "vllm.attention": " ".join(backends),
        "vllm.runner": "second" if worker.use_v2_model_runner else "first",
    }
