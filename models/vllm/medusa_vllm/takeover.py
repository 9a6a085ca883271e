# SPDX-License-Identifier: Apache-2.0
"""One worker's graphs: full graphs restored, else captured live; the rest of the model runs without graphs meanwhile."""
from __future__ import annotations

import logging
import os
from typing import Any, Callable, Dict, List, Optional, Tuple

from medusa import _api
from medusa.torch import Graphs

from . import facts, fit, inputs
from .interim import Interim

log = logging.getLogger("vllm.medusa")


class Takeover:
    """Made before the KV cache is; `graphs` is there from the capture on."""

    def __init__(self, worker: Any) -> None:
        self.worker, self.graphs = worker, None  # type: Any, Optional[Graphs]
        self._interim = Interim()

    # ---- compiling ----

    def postpone_compiling(self) -> None:
        """Until graphs are asked for that have to be captured: prefills run eagerly."""
        if os.environ.get("MEDUSA_VLLM_PREFILL", "eager") != "eager":
            self.worker.model_runner.profile_run()
            return
        self._interim.begin(self.worker.model_runner.model)

    def compile_now(self) -> None:
        """As vLLM's profiling does it: at the largest batch."""
        if self._interim.end():
            log.info("medusa: the model is compiled after all")
            self.worker.model_runner.profile_run()

    # ---- graphs ----

    def capture(self, manager: Any, create_forward_fn: Callable[..., Any]) -> bool:
        """Stands in for CudaGraphManager.capture. False: nothing was done, and vLLM captures as it always does."""
        from vllm.config.compilation import CUDAGraphMode

        descriptors = manager._capture_descs.get(CUDAGraphMode.FULL, [])
        why = fit.unfit_runner(self.worker.model_runner, manager)
        if not why and not descriptors:
            why = f"cudagraph_mode {manager.cudagraph_mode.name} has no full graphs"
        try:
            why = why or self._open(manager, descriptors)
            if not why:
                self._make_all(manager, descriptors, create_forward_fn)
        except Exception as error:  # pylint: disable=broad-except  # of the engine's own errors vLLM's capture tells again
            log.exception("medusa: a failure while graphs were made")
            why = repr(error)
        if why:
            log.warning("medusa: all graphs are captured live: %s", why)
            manager.graphs.clear()
            self._close()
            self.compile_now()
            return False
        # The others are pieces, which nobody made: batches with prefills run without graphs.
        manager._candidates = {
            key: [desc for desc in candidates if desc.cg_mode == CUDAGraphMode.FULL]
            for key, candidates in manager._candidates.items()
        }
        manager._graphs_captured = True
        return True

    def _open(self, manager: Any, descriptors: List[Any]) -> str:
        """Binds all that graphs use; why nothing can be restored, or ""."""
        runner = self.worker.model_runner
        inputs.make_hidden_states(runner, manager, max(desc.num_tokens for desc in descriptors))
        by_label = {label_of(desc): desc for desc in descriptors}
        wanted: Dict[str, List[int]] = {}
        for kind, batch in sorted(by_label):
            wanted.setdefault(kind, []).append(batch)
        self.graphs = Graphs(
            bind=inputs.bindings(runner, manager),
            warmup=1,
            want=wanted,
            randomize=inputs.Randomizer(runner, by_label),
            fingerprint=facts.of(self.worker, manager),
            is_setting=facts.is_setting,
        )
        return self.graphs.why_live if _api.mode() == "restore" else ""

    def _make_all(self, manager: Any, descriptors: List[Any], create_forward_fn: Callable[..., Any]) -> None:
        from vllm.distributed.parallel_state import graph_capture

        restored = 0
        with graph_capture(device=manager.device):
            for desc in descriptors:
                manager.graphs[desc] = self._make(desc, create_forward_fn)
                restored += manager.graphs[desc].restored
        log.info("medusa: %d of %d full graphs restored", restored, len(descriptors))

    def _make(self, desc: Any, create_forward_fn: Callable[..., Any]) -> Any:
        """As vLLM does: attention state is made anew between warm-up and capture."""
        from vllm.config.compilation import CUDAGraphMode

        assert self.graphs is not None
        forward: List[Any] = []

        def prepare() -> None:
            forward[:] = [create_forward_fn(desc, warmup=False)]

        def run() -> None:
            if not forward:  # the warm-up: a live graph is made after all
                self.compile_now()
                forward.append(create_forward_fn(desc, warmup=True))
            forward[0](CUDAGraphMode.NONE)

        kind, batch = label_of(desc)
        return self.graphs.get(kind, batch, run, prepare)

    def ready(self) -> None:
        """Everything is captured or restored, and vLLM has warmed up."""
        try:
            if self.graphs is not None:
                self.graphs.complete()
            else:
                nothing_to_come()
        except Exception:  # pylint: disable=broad-except
            log.exception("medusa: the capture does not end here")

    def _close(self) -> None:
        if self.graphs is not None:
            self.graphs.close()
            self.graphs = None


def nothing_to_come() -> None:
    """Of an engine that is left alone a capture gets no graph with a name, however long a server runs."""
    _api.mark("complete")


def label_of(desc: Any) -> Tuple[str, int]:
    """Kind and batch of a graph: "full" takes any mix of requests, "decode.N" N tokens of each."""
    kind = "full" if desc.uniform_token_count is None else f"decode.{desc.uniform_token_count}"
    return kind, desc.num_tokens
