# SPDX-License-Identifier: Apache-2.0
"""Medusa's plug-in for vLLM: full decode graphs and KV capacity come from an artifact, and nothing is compiled before serving.

vLLM calls register() in every process that it starts (entry point "vllm.general_plugins"). Without a preloaded Medusa
library register() does nothing. A failure of the plug-in leaves vLLM as it is, and is logged.
"""
from __future__ import annotations

import importlib.abc
import importlib.util
import logging
import os
import sys
from typing import Any, Callable, Optional, Sequence

log = logging.getLogger("vllm.medusa")

WORKER = "vllm.v1.worker.gpu_worker"
GRAPHS = "vllm.v1.worker.gpu.cudagraph_utils"
FIRST = "vllm.v1.worker.gpu_model_runner"


def register() -> None:
    """Called by vLLM. Idempotent; never raises."""
    try:
        from medusa import _api

        if _api.mode() == "none" or os.environ.get("MEDUSA_VLLM") == "0":
            return
        from . import hooks

        after_import(WORKER, hooks.hook_worker)
        after_import(GRAPHS, hooks.hook_graphs)
        after_import(FIRST, hooks.hook_first)
    except Exception:  # pylint: disable=broad-except  # a plug-in's failure is not the engine's
        log.exception("medusa: vLLM is left as it is")


def after_import(name: str, act: Callable[[Any], None]) -> None:
    """act(module) now if the module is there, else right after its import: the API server never imports a worker."""
    module = sys.modules.get(name)
    if module is not None:
        act(module)
    elif not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, act))


class _Finder(importlib.abc.MetaPathFinder):
    """Stands before the other finders until its module is asked for, once."""

    def __init__(self, name: str, act: Callable[[Any], None]) -> None:
        self.name, self._act = name, act

    def find_spec(self, name: str, path: Optional[Sequence[str]], target: Any = None) -> Any:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        load, act = spec.loader.exec_module, self._act

        def exec_module(module: Any) -> None:
            load(module)
            try:
                act(module)
            except Exception:  # pylint: disable=broad-except
                log.exception("medusa: %s is left as it is", name)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
