# SPDX-License-Identifier: Apache-2.0
"""One graph in the engine's hands: restored or live, launched the same way."""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional

import torch

from .. import _driver
from . import rng
from .live import Captured

_stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
    lambda device: torch.cuda.current_stream(device).cuda_stream
)
_device_now = getattr(torch._C, "_cuda_getDevice", None) or torch.cuda.current_device


class Step:
    """A graph that can be replayed; .outputs holds the same tensors all along."""

    restored = False
    reason = ""  # why it is live
    outputs: Any = None
    remark: Any = None  # of a restored graph: the remark of the engine that was captured
    increment = 0  # random numbers: how far a replay moves the generator
    warmup_ns = capture_ns = instantiate_ns = 0

    def replay(self) -> Any:
        """Launches on the current stream; returns .outputs, which the graph fills."""
        raise NotImplementedError

    def close(self) -> None:
        """Drops the graph; the outputs stay valid for those who hold them."""
        raise NotImplementedError


class LiveStep(Step):
    """Captured here, as without Medusa."""

    def __init__(self, captured: Captured, reason: str) -> None:
        self._graph: Optional[torch.cuda.CUDAGraph] = captured.graph
        self.outputs, self.reason = captured.value, reason
        self.warmup_ns, self.capture_ns = captured.warmup_ns, captured.capture_ns
        self.instantiate_ns = captured.instantiate_ns
        self._watch: Optional[Callable[[Callable[[], None]], None]] = None
        self.replayed = False

    def watch_first(self, watch: Callable[[Callable[[], None]], None]) -> None:
        """The first replay goes through `watch`, which must launch it."""
        self._watch = watch

    def replay(self) -> Any:
        if self._graph is None:
            raise RuntimeError("medusa: this graph has been closed")
        self.replayed = True
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch(self._graph.replay)
        else:
            self._graph.replay()
        return self.outputs

    def close(self) -> None:
        self._graph = self.outputs = self._watch = None


class RestoredStep(Step):
    """Made by Medusa; belongs to it, and `owner` keeps it there."""

    restored = True

    def __init__(self, graph: int, outputs: Any, device: int, increment: int, owner: Any) -> None:
        self._graph: Optional[ctypes.c_void_p] = ctypes.c_void_p(graph)
        self._launch = _driver.launcher()
        self._device, self._owner = device, owner
        self.outputs, self.increment = outputs, increment

    def replay(self) -> Any:
        if _device_now() != self._device:
            with torch.cuda.device(self._device):
                return self.replay()
        if self._graph is None:
            raise RuntimeError("medusa: this graph has been closed")
        if self.increment:
            rng.advance(self._device, self.increment)
        code = self._launch(self._graph, _stream_of(self._device))
        if code:
            raise RuntimeError(f"medusa: launching a restored graph failed: {_driver.error_name(code)}")
        return self.outputs

    def close(self) -> None:
        self._graph = self.outputs = self._owner = None
