# SPDX-License-Identifier: Apache-2.0
"""Tensors whose contents medusa-swap need not save."""
from __future__ import annotations

from typing import Any

import torch

from .. import _api


class Discarded:
    """Holds the tensor, so that PyTorch does not reuse its memory while it is not saved. close() ends that."""

    def __init__(self, tensor: torch.Tensor) -> None:
        if not tensor.is_cuda or not tensor.is_contiguous() or not tensor.numel():
            raise ValueError(f"medusa.torch.discardable: the tensor is on {tensor.device}, has shape {tuple(tensor.shape)} and strides "
                             f"{tensor.stride()}; give one on a GPU that is contiguous and has elements")
        self._tensor: Any = tensor
        self._place = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        _api.swap_discardable(*self._place)

    def close(self) -> None:
        """The contents are saved from now on. Call it before the tensor is written."""
        if self._tensor is not None:
            _api.swap_needed(*self._place)
            self._tensor = None

    def __enter__(self) -> "Discarded":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_tensor", None) is not None:
            self.close()


def discardable(tensor: torch.Tensor) -> Discarded:
    """The contents of the tensor may be zero after a swap, until the returned object is closed, left as a context, or deleted."""
    return Discarded(tensor)
