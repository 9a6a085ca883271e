# SPDX-License-Identifier: Apache-2.0
"""vLLM's sleep mode under `medusa-swap run`: the worker runs as without sleep mode, and a backend of ours puts it to sleep."""
from __future__ import annotations

import functools
import logging
import os
import weakref
from typing import Any, Callable, Dict, List

from . import fit, switches
from .guard import spared

log = logging.getLogger("vllm.medusa")

NAME = "medusa"
OTHERS = "cumem"  # the backend that vLLM takes by default; a user who names another one keeps it
WORKER: Dict[str, List[str]] = {"init_device": ["self"], "_get_sleep_mode_backend": ["self"], "sleep": ["self", "level"],
                                "wake_up": ["self", "tags"], "_maybe_get_memory_pool_context": ["self", "tag"]}


def wanted() -> bool:
    """Whether this process belongs to an engine of `medusa-swap run`, and the user has not switched the backend off."""
    return bool(os.environ.get("MEDUSA_SWAP_CONTROL")) and switches.sleep()


def hook_worker(module: Any) -> None:
    """Wraps vllm.v1.worker.gpu_worker: the choice of the backend, before the worker uses its memory."""
    why = fit.unfit_version() or fit.unfit_module(module.Worker, WORKER)
    if why:
        log.warning("medusa: sleep mode is left to vLLM: %s", why)
        return
    if not hasattr(module.Worker.init_device, "_medusa_sleep"):
        module.Worker.init_device = _init_device(module.Worker.init_device)
        module.Worker._get_sleep_mode_backend = _get_backend(module.Worker._get_sleep_mode_backend)


def _init_device(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init_device(worker: Any) -> Any:
        try:
            choose(worker.vllm_config.model_config)
        except Exception:  # pylint: disable=broad-except  # a plug-in's failure is not the engine's
            log.exception("medusa: sleep mode is left to vLLM, because the plug-in failed")
        return original(worker)

    init_device._medusa_sleep = True  # type: ignore[attr-defined]
    return init_device


def _get_backend(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_backend(worker: Any) -> Any:
        backend = original(worker)
        if hasattr(backend, "serve"):
            spared("nothing is discarded when the engine sleeps", lambda: backend.serve(weakref.ref(worker)))
        return backend

    return get_backend


def choose(config: Any) -> None:
    """Makes our backend the one of a worker that is to sleep.

    Without sleep mode in its configuration the worker uses PyTorch's own allocator, and has the hash that an artifact has which
    was captured without sleep mode. Nothing else of a worker asks for that setting.
    """
    if not config.enable_sleep_mode:
        return
    if config.sleep_mode_backend not in (OTHERS, NAME):
        log.info("medusa: sleep mode is left to the backend %s, which was asked for", config.sleep_mode_backend)
        return
    from medusa import swap

    if not swap.managed():
        log.warning("medusa: sleep mode is left to vLLM: medusa-swap run does not answer, or has released the engine")
        return
    _register()
    config.sleep_mode_backend, config.enable_sleep_mode, config.enable_cumem_allocator = NAME, False, False
    log.info("medusa: medusa-swap puts this engine to sleep, and not vLLM's own allocator (MEDUSA_VLLM_SLEEP=0 leaves it to vLLM)")


def _register() -> None:
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

    if NAME not in SleepModeBackendFactory._registry:
        SleepModeBackendFactory.register_backend(NAME, "medusa_vllm.sleep", "Backend")
