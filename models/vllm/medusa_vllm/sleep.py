# SPDX-License-Identifier: Apache-2.0
"""A sleep-mode backend of vLLM: the memory of the worker's process goes out by medusa-swap, and comes in at the same addresses."""
from __future__ import annotations

import logging
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from vllm.device_allocator.sleep_mode_backend import SleepModeBackend

from medusa import _api, swap

log = logging.getLogger("vllm.medusa")

WEIGHTS, KV_CACHE = TAGS = ("weights", "kv_cache")
DEADLINE = 60.0  # seconds; vLLM has waited for the device before it calls suspend()
Range = Tuple[int, int]  # address, bytes


def _storages(tensors: Any) -> List[Range]:
    """The memory behind tensors in lists of lists, each once."""
    found: Dict[int, int] = {}
    pending = list(tensors)
    while pending:
        tensor = pending.pop()
        if isinstance(tensor, (list, tuple)):
            pending.extend(tensor)
        elif tensor is not None and tensor.numel():
            storage = tensor.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sorted(found.items())


def kv_cache_of(worker: Any) -> List[Range]:
    return _storages(worker.model_runner.kv_caches)


def weights_of(worker: Any) -> List[Range]:
    """The model's parameters. Memory that they share with buffers is needed: vLLM loads parameters again, and no buffers."""
    model = worker.model_runner.model
    buffers = dict(_storages(model.buffers()))
    return [(address, size) for address, size in _storages(model.parameters()) if address not in buffers]


class Backend(SleepModeBackend):
    """Everything goes out and comes back, graphs and NCCL included, since addresses stay; what vLLM discards is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self._worker: Callable[[], Any] = lambda: None
        self._discarded: Dict[str, List[Range]] = {}  # by tag
        self._asleep: set = set()

    def serve(self, worker: Callable[[], Any]) -> None:
        """worker: a weak reference; its tensors say which memory vLLM does not need while it sleeps."""
        self._worker = worker

    # ---- of vLLM ----

    def suspend(self, level: int = 1) -> None:
        """Level 1: the KV cache is discarded. Level 2: the weights are, too; both are zeros when the memory is back."""
        torch.cuda.empty_cache()  # as vLLM's own backend does: what is free need not go out
        try:
            self._discard(level)
            report = swap.out(deadline=DEADLINE)
        except Exception:
            self._need(TAGS)
            raise
        self._state, self._asleep = "SUSPENDED", set(TAGS)
        log.info("medusa: level %d: %.2f GB went out in %.1f ms: %.2f GB copied, %.2f GB discarded; %.2f GB stay", level, report["bytes"] / 1e9,
                 report["total_ns"] / 1e6, report["copied"] / 1e9, report["discarded"] / 1e9, report["stays"] / 1e9)

    def resume(self, tags: Optional[List[str]] = None) -> None:
        """The first tag brings all memory back; the KV cache stays discardable until it is woken."""
        self._state = "RESUMING"
        try:
            report = swap.in_()
            if report["bytes"]:
                log.info("medusa: %.2f GB came in in %.1f ms, %.2f GB copied", report["bytes"] / 1e9, report["total_ns"] / 1e6, report["copied"] / 1e9)
        except swap.Error as error:
            if error.code != _api.NOT_FOUND:
                self._state = "SUSPENDED"
                raise
            log.warning("medusa: the memory comes back by itself: %s", error)  # medusa-swap run has ended
        woken = tuple(TAGS if tags is None else tags)
        self._need(woken)
        self._asleep -= set(woken)
        if not self._asleep:
            self._state = "RUNNING"

    @classmethod
    def is_supported(cls) -> bool:
        return swap.managed()

    @classmethod
    def preserves_communicators(cls) -> bool:
        return True

    @classmethod
    def preserves_compiled_artifacts(cls) -> bool:
        return True

    @classmethod
    def preserves_graphs_with_communicators(cls) -> bool:
        return True

    # ---- what need not be saved ----

    def _discard(self, level: int) -> None:
        worker = self._worker()
        if worker is None:
            return  # everything is saved
        try:
            found = {KV_CACHE: kv_cache_of(worker), WEIGHTS: weights_of(worker) if level >= 2 else []}
        except Exception:  # pylint: disable=broad-except  # a worker that is built otherwise
            log.exception("medusa: nothing is discarded, because the KV cache and the weights were not found: all memory is saved")
            return
        for tag, ranges in found.items():
            self._discarded[tag] = ranges
            for address, size in ranges:
                _api.swap_discardable(address, size)

    def _need(self, tags: Tuple[str, ...]) -> None:
        """From now on this memory is saved again: vLLM writes it."""
        for tag in tags:
            for address, size in self._discarded.pop(tag, []):
                _api.swap_needed(address, size)
