# SPDX-License-Identifier: Apache-2.0
"""vLLM's workspace: memory that layers of experts share, in graphs and outside. The first large forward gives it its size."""
from __future__ import annotations

from typing import Any, List


def tensors() -> List[Any]:
    """What there is of it; one for each microbatch, of which there is one."""
    from vllm.v1.worker import workspace

    if not workspace.is_workspace_manager_initialized():
        return []
    return [tensor for tensor in workspace.current_workspace_manager()._current_workspaces if tensor is not None]


def is_needed(runner: Any) -> bool:
    """A restore runs no profile, and vLLM forbids the workspace to grow later."""
    config = runner.model_config
    return bool(getattr(config, "is_moe", False) or getattr(config, "use_mla", False))


def unexpected(runner: Any) -> str:
    """Why graphs are left to vLLM: a restore would not know that this model needs a workspace."""
    if tensors() and not is_needed(runner):
        return "this model has a workspace without experts or latent attention: not restored yet"
    return ""
