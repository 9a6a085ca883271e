# SPDX-License-Identifier: Apache-2.0
"""Captures vLLM's piecewise graphs, by vLLM's own wrappers, beside an engine that serves."""
from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator
from unittest import mock

import torch

from medusa.torch import live


class Capturing:
    """Makes all captures of a take-over on one stream, so that they share the allocator's memory."""

    def __init__(self, device: torch.device) -> None:
        from vllm.distributed.parallel_state import GraphCaptureContext

        self._device = device
        self._context = GraphCaptureContext(torch.cuda.Stream(device))

    @property
    def stream(self) -> Any:
        return self._context.stream

    def count(self, capture: Callable[[], None]) -> int:
        """How many graphs vLLM's wrappers have captured in capture()."""
        from vllm.compilation.counter import compilation_counter

        before = compilation_counter.num_cudagraph_captured
        with self._allowed():
            capture()
        return compilation_counter.num_cudagraph_captured - before

    @contextlib.contextmanager
    def _allowed(self) -> Iterator[None]:
        """Prepares a capture as vLLM does, but calls of other threads do not break it, and the allocator keeps its cached memory."""
        from vllm.compilation import monitor
        from vllm.distributed.parallel_state import graph_capture
        from vllm.platforms import current_platform

        graph = functools.partial(torch.cuda.graph, capture_error_mode="thread_local")
        allowed = monitor.cudagraph_capturing_enabled
        monitor.set_cudagraph_capturing_enabled(True)
        try:
            with graph_capture(self._device, self._context), _replaced("graph", graph), _replaced("empty_cache", lambda: None):
                yield
        except BaseException:
            live.mend(torch.cuda.current_device(), current_platform.get_global_graph_pool(), self._context.stream)
            raise
        finally:
            monitor.set_cudagraph_capturing_enabled(allowed)


def _replaced(name: str, value: Any) -> Any:
    return mock.patch.object(torch.cuda, name, value)
