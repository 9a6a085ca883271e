# SPDX-License-Identifier: Apache-2.0
"""Captures a graph as PyTorch's documentation advises, and leaves no capture open when the forward fails."""
from __future__ import annotations

import logging
import time
import warnings
from dataclasses import dataclass
from typing import Any, Callable, List, Optional

import torch

from . import rng

log = logging.getLogger("medusa.torch")


@dataclass
class Captured:
    """A live graph, what its forward returned, and what it took."""

    graph: torch.cuda.CUDAGraph
    value: Any
    warmup_ns: int = 0
    capture_ns: int = 0
    instantiate_ns: int = 0
    draws: bool = False  # the warm-up drew random numbers

    @property
    def handle(self) -> int:
        """CUgraphExec; 0 (the graph that this thread instantiated last) where PyTorch does not show it."""
        show = getattr(self.graph, "raw_cuda_graph_exec", None)
        return int(show()) if show else 0


class Recorder:
    """Warms up, captures and instantiates on a stream of its own, into one pool.

    own_workspaces  the matrix libraries' workspaces of a graph are taken from its pool and given back to it, as any of
                    its temporaries: no kernel outside of graphs is given one. What is recorded needs that.
    """

    def __init__(self, device: int, pool: Any, warmup: int, own_workspaces: bool = False) -> None:
        self._device, self._warmup = device, warmup
        self._pool = pool
        self.own_pools: List[Any] = []  # only graphs allocate from them
        self._own_workspaces = own_workspaces
        self._stream: Optional[torch.cuda.Stream] = None

    def run(self, forward: Callable[[], Any], before_capture: Callable[[bool], None]) -> Captured:
        """before_capture(draws) is called between warm-up and capture; what the forward raises passes through."""
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("medusa: a graph can't be captured while this stream is being captured")
        with torch.cuda.device(self._device):
            if self._stream is None:
                self._stream = torch.cuda.Stream(self._device)
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
                self.own_pools.append(self._pool)
            warmup_ns, draws = self._warm_up(forward)
            before_capture(draws)
            captured = self._capture(forward)
        captured.warmup_ns, captured.draws = warmup_ns, draws
        return captured

    def on_stream(self, forward: Callable[[], Any]) -> Any:
        """Runs eagerly on the capture stream, between what came before and what comes after."""
        assert self._stream is not None
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            value = forward()
        current.wait_stream(self._stream)
        return value

    def _warm_up(self, forward: Callable[[], Any]) -> "tuple[int, bool]":
        torch.cuda.synchronize(self._device)
        start, offset = time.perf_counter_ns(), rng.offset(self._device)

        def all_forwards() -> None:
            for _ in range(self._warmup):
                forward()

        self.on_stream(all_forwards)
        torch.cuda.synchronize(self._device)
        draws = self._warmup == 0 or rng.offset(self._device) != offset
        return time.perf_counter_ns() - start, draws

    # ---- capture ----

    def _drop_workspaces(self) -> None:
        """Makes PyTorch drop its workspaces, of which it keeps one for each stream, and allocate others when they are needed.

        Only with the native allocator: under cudaMallocAsync a workspace taken during a capture is an allocation node of
        the graph, and freeing it before the graph has run ends the process.
        """
        drop = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if self._own_workspaces and drop and torch.cuda.get_allocator_backend() == "native":
            drop()

    def _capture(self, forward: Callable[[], Any]) -> Captured:
        start = time.perf_counter_ns()
        self._drop_workspaces()
        try:
            graph, keeps = torch.cuda.CUDAGraph(keep_graph=True), True
        except TypeError:  # PyTorch before 2.8
            graph, keeps = torch.cuda.CUDAGraph(), False
        before = torch.cuda.current_stream(self._device)
        context = torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        )
        try:
            context.__enter__()
            value = forward()
            context.__exit__(None, None, None)
            captured_at = time.perf_counter_ns()
            if keeps:
                graph.instantiate()
        except BaseException:
            self._abandon(graph, before)
            raise
        finally:
            self._drop_workspaces()
        done = time.perf_counter_ns()
        return Captured(graph, value, capture_ns=captured_at - start, instantiate_ns=done - captured_at)

    def _abandon(self, graph: torch.cuda.CUDAGraph, before: torch.cuda.Stream) -> None:
        """Ends what is open; PyTorch's own way out may leave the stream switched and the generator capturing."""
        assert self._stream is not None
        ended = False
        try:
            torch.cuda.set_stream(self._stream)
            if torch.cuda.is_current_stream_capturing():
                graph.capture_end()
                ended = True
        except Exception as error:  # pylint: disable=broad-except  # the forward broke the capture; its own error counts
            log.debug("the broken capture ended with: %s", error)
        finally:
            torch.cuda.set_stream(before)
        try:
            if not ended:
                self._mend()
            graph.reset()
        except Exception as error:  # pylint: disable=broad-except
            log.debug("after a broken capture: %s", error)

    def _mend(self) -> None:
        """Gives up the pool of a capture that could not be ended."""
        mend(self._device, self._pool, self._stream)
        self._pool = None


def mend(device: int, pool: Any, stream: Any) -> None:
    """After a capture that could not be ended: ends its allocations, and resets the generator by an empty capture."""
    stop = getattr(torch._C, "_cuda_endAllocateToPool", None)
    try:
        if stop:
            stop(device, pool)
    except Exception as error:  # pylint: disable=broad-except  # the capture has ended already
        log.debug("the pool of a broken capture: %s", error)
    empty = torch.cuda.CUDAGraph()
    with warnings.catch_warnings(), torch.cuda.stream(stream):
        warnings.simplefilter("ignore")  # PyTorch warns that the capture is empty
        empty.capture_begin(capture_error_mode="thread_local")
        empty.capture_end()
    empty.reset()
