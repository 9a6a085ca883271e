# SPDX-License-Identifier: Apache-2.0
"""Facts of the fingerprint: vLLM's version, configuration, environment and attention backends, on which graphs depend beside tensors."""
from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any, Dict, List

from medusa.torch.facts import hash_file

# Attributes of vLLM's modules that say how far compiling has come, or where a cache lies, and not what is computed.
PROGRESS = frozenset((
    "compiled", "do_not_compile", "first_compile", "evaluate_guards", "was_aot_compile_fn_loaded_from_disk", "aot_compiled_fn",
    "_aot_compilation_path", "_aot_cache_dir", "_compile_prefix",
))


def is_setting(name: str, value: Any) -> bool:
    """Whether an attribute of a module decides what the module computes. vLLM itself hashes its configuration objects."""
    return name not in PROGRESS and not type(value).__module__.startswith("vllm.config")


def configuration_hash(config: Any) -> str:
    """vLLM's own hash of the settings that decide the computation. It leaves out values that the start itself writes."""
    return str(config.compute_hash())


def _environment() -> str:
    """Hash of those environment variables that vLLM puts into its own key for compiled code."""
    from vllm import envs

    factors = json.dumps(envs.compile_factors(), sort_keys=True, default=str)
    return hashlib.sha256(factors.encode()).hexdigest()[:32]


def _tuned() -> str:
    """Hash of the files in which a user gives vLLM the shapes of kernels (of experts, of adapters); vLLM's own hashes leave them out."""
    from vllm import envs

    folder = envs.VLLM_TUNED_CONFIG_FOLDER
    if not folder:
        return "none"
    digest = hashlib.sha256()
    try:
        for file in sorted(os.scandir(folder), key=lambda file: file.name):
            if file.is_file():
                digest.update(f"{file.name} {hash_file(file.path)}\n".encode(errors="replace"))
    except OSError as error:
        return str(error.strerror)
    return digest.hexdigest()[:32]


def _extension(name: str) -> str:
    """A class that vLLM adds to its worker: its name, and a hash of its source."""
    path = getattr(sys.modules.get(name.rpartition(".")[0]), "__file__", None)
    return f"{name}:{hash_file(path)[:16] if path else 'without a file'}" if name else "none"


def settings(config: Any) -> str:
    """Settings that vLLM's own hash leaves out although a start, its kernels or its graphs may differ by them.

    What fit.py refuses is not here. Left out by vLLM's hash and by this one: names, addresses and ports, tokenizers, sampling, prefix
    caching, scheduling, multimodal input, logs and metrics, where weights come from, and where a process runs.
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
    return (f"{_limits(config)} gpu_memory_utilization={cache.gpu_memory_utilization} {given}"
            f"{configuration_hash(config)} {_environment()} {hashlib.sha256(settings(config).encode()).hexdigest()[:16]}")


def of(worker: Any, block_sizes: List[int], graphs: str) -> Dict[str, str]:
    import vllm

    config, runner = worker.vllm_config, worker.model_runner
    cache = config.cache_config
    backends = [group.backend.__qualname__ for groups in runner.attn_groups for group in groups]
    return {
        "vllm": str(vllm.__version__),
        "vllm.config": configuration_hash(config),
        "vllm.environment": _environment(),
        "vllm.settings": settings(config),
        "vllm.limits": _limits(config),
        "vllm.tuned": _tuned(),
        "vllm.kv": f"dtype={cache.cache_dtype} blocks={runner.kv_cache_config.num_blocks} "
                   f"block_sizes={block_sizes}",
        "vllm.graphs": graphs,
        "vllm.attention": " ".join(backends),
        "vllm.runner": "second" if worker.use_v2_model_runner else "first",
    }
