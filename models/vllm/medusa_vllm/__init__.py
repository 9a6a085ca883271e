# SPDX-License-Identifier: Apache-2.0
"""Medusa's plug-in for vLLM: full decode graphs and KV capacity come from an artifact, and nothing is compiled before serving.

Under `medusa-swap run`, sleep mode is medusa-swap's. vLLM calls register() in every process that it starts (entry point
"vllm.general_plugins"). Without a preloaded Medusa library register() does nothing. When the plug-in fails, it logs the failure, and vLLM runs as it does without the plug-in.
"""
from __future__ import annotations

import logging
import os
from typing import Any, Callable

log = logging.getLogger("vllm.medusa")

WORKER = "vllm.v1.worker.gpu_worker"
GRAPHS = "vllm.v1.worker.gpu.cudagraph_utils"
FIRST = "vllm.v1.worker.gpu_model_runner"


def register() -> None:
    """Called by vLLM. Idempotent; never raises."""
    try:
        from . import _start

        _start.imported()
        if not _start.preloaded():
            if os.environ.get("MEDUSA_TELL"):
                tell("does nothing: no Medusa library is preloaded")
            return
        why = _start.incomplete()
        if why:
            log.error("medusa: vLLM is left as it is: %s", why)
            return
        from medusa import _api

        from . import sleeping, switches

        nothing_restored = _api.mode() == "none"
        if not switches.plugin():
            tell(f"does nothing, because MEDUSA_VLLM is {os.environ.get('MEDUSA_VLLM')}")
            return
        if nothing_restored and not sleeping.wanted():
            tell(f"does nothing: {_api.why_none() or 'the Medusa library that is loaded neither records nor restores here'}")
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
            after_import(name, _failure_told(hook), log.name)
        tell(f"is loaded, and waits for vLLM's worker ({_api.mode()})")
    except Exception as error:  # pylint: disable=broad-except  # a plug-in's failure is not the engine's
        log.exception("medusa: the plug-in could not be registered: vLLM is left as it is")
        tell(f"does nothing, because it failed: {error!r}")


def _failure_told(hook: Callable[[Any], None]) -> Callable[[Any], None]:
    def act(module: Any) -> None:
        try:
            hook(module)
        except Exception as error:
            tell(f"leaves {module.__name__} as it is, because it failed: {error!r}")
            raise

    return act


def tell(text: str) -> None:
    """Says to the command that started the engine what the plug-in does here. Never raises."""
    try:
        from medusa._tell import tell as tell_command

        tell_command("medusa-vllm", text, _version())
    except Exception:  # pylint: disable=broad-except  # an adapter that is missing or older was logged
        pass


def _version() -> str:
    with open(os.path.join(os.path.dirname(__file__), "VERSION"), encoding="ascii") as file:
        return file.read().strip()
