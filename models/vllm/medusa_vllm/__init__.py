# SPDX-License-Identifier: Apache-2.0
"""Medusa's plug-in for vLLM: full decode graphs and KV capacity come from an artifact, and nothing is compiled before serving.

Under `medusa-swap run`, sleep mode is medusa-swap's. vLLM calls register() in every process that it starts (entry point
"vllm.general_plugins"). Without a preloaded Medusa library register() does nothing. When the plug-in fails, it logs the failure, and vLLM runs as it does without the plug-in.
"""
from __future__ import annotations

import logging
import os

log = logging.getLogger("vllm.medusa")

WORKER = "vllm.v1.worker.gpu_worker"
GRAPHS = "vllm.v1.worker.gpu.cudagraph_utils"
FIRST = "vllm.v1.worker.gpu_model_runner"


def register() -> None:
    """Called by vLLM. Idempotent; never raises."""
    try:
        from . import _start

        _start.imported()
        why = _start.incomplete()
        if why:
            if "libmedusa" in os.environ.get("LD_PRELOAD", ""):
                log.error("medusa: vLLM is left as it is: %s", why)
            return
        from medusa import _api

        from . import sleeping, switches

        nothing_restored = _api.mode() == "none"
        if nothing_restored and not sleeping.wanted() or not switches.plugin():
            return
        from medusa._imports import after_import

        if nothing_restored:
            after_import(WORKER, sleeping.hook_worker, log.name)
            return
        from . import hooks, tuning

        if _start.unread():
            log.warning("medusa: %s", _start.unread())
        # The API server never imports a worker, so it is not changed.
        for name, hook in ((WORKER, hooks.hook_worker), (GRAPHS, hooks.hook_graphs), (FIRST, hooks.hook_first),
                           (tuning.TUNERS, tuning.hook_tuners)):
            after_import(name, hook, log.name)
    except Exception:  # pylint: disable=broad-except  # a plug-in's failure is not the engine's
        log.exception("medusa: the plug-in could not be registered: vLLM is left as it is")
