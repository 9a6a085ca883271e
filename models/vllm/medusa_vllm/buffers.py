# SPDX-License-Identifier: Apache-2.0
"""Finds vLLM's static buffers among the attributes of its objects: tensors, lists of tensors, pairs of a pinned and a device tensor."""
from __future__ import annotations

from typing import Any, Dict, List

import torch


def own_tensors(holder: Any) -> Dict[str, Any]:
    """Tensors that are attributes of an object, or elements of its lists or dictionaries."""
    found: Dict[str, Any] = {}
    for name, value in vars(holder).items():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
        parts = list(parts)
        if parts and all(isinstance(part, torch.Tensor) for part in parts):
            found[name.lstrip("_")] = value
    return found


def pairs(holder: Any) -> Dict[str, torch.Tensor]:
    """The device tensor of each of vLLM's CpuGpuBuffers in an object."""
    return {
        name.lstrip("_"): value.gpu
        for name, value in vars(holder).items()
        if isinstance(getattr(value, "gpu", None), torch.Tensor) and isinstance(getattr(value, "cpu", None), torch.Tensor)
    }


def builders(runner: Any) -> List[Any]:
    """The builders of attention metadata, each of which has buffers that graphs read."""
    return [builder for groups in runner.attn_groups for group in groups for builder in group.metadata_builders]
