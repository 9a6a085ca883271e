# SPDX-License-Identifier: Apache-2.0
"""vLLM's workspace: memory that layers of experts share, in graphs and outside. The first large forward sets its size."""
from __future__ import annotations

from typing import Any, List


def tensors() -> List[Any]:
    """The tensors of the workspace: one for each microbatch, of which there is one."""
    from vllm.v1.worker import workspace

    if not workspace.is_workspace_manager_initialized():
        return []
    return [tensor for tensor in workspace.current_workspace_manager()._current_workspaces if tensor is not None]


def is_needed(runner: Any) -> bool:
    """Whether a restore, which does not profile, has to set the workspace's size; vLLM forbids it to grow later."""
    config = runner.model_config
    return bool(config.is_moe or config.use_mla)


def unexpected(runner: Any) -> str:
    """Why graphs are left to vLLM: a restore would not know that this model needs a workspace."""
    if tensors() and not is_needed(runner):
        return "no support yet for a workspace without experts or latent attention"
    return ""
