# SPDX-License-Identifier: Apache-2.0
"""vLLM's static buffers, wherever they hang: tensors, their lists, and pairs of a pinned and a device tensor."""
from __future__ import annotations

from typing import Any, Dict, List

import torch


def own_tensors(holder: Any) -> Dict[str, Any]:
    """Tensors that hang right in an object, in its lists or in its dictionaries."""
    found: Dict[str, Any] = {}
    for name, value in vars(holder).items():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
        parts = list(parts)
        if parts and all(isinstance(part, torch.Tensor) for part in parts):
            found[name.lstrip("_")] = value
    return found


def pairs(holder: Any) -> Dict[str, torch.Tensor]:
    """The device's side of each of vLLM's CpuGpuBuffers in an object."""
    return {
        name.lstrip("_"): value.gpu
        for name, value in vars(holder).items()
        if isinstance(getattr(value, "gpu", None), torch.Tensor) and isinstance(getattr(value, "cpu", None), torch.Tensor)
    }


def builders(runner: Any) -> List[Any]:
    """Of attention metadata: each has buffers that graphs read."""
    return [builder for groups in runner.attn_groups for group in groups for builder in group.metadata_builders]
