# SPDX-License-Identifier: Apache-2.0
"""One worker's graphs: full graphs restored, else captured live; the rest of the model runs without graphs meanwhile."""
from __future__ import annotations

import logging
import os
from typing import Any, Callable, Collection, Dict, List, Optional, Tuple

import torch

from medusa import _api
from medusa.torch import Graphs

from . import facts, lora, prefills, workspace
from .interim import Interim

log = logging.getLogger("vllm.medusa")


class Takeover:
    """What both model runners have in common. Made before the KV cache is; `graphs` is there from the capture on."""

    def __init__(self, worker: Any) -> None:
        self.worker, self.graphs = worker, None  # type: Any, Optional[Graphs]
        self.interim = Interim()
        self.recording: Any = None  # of pieces, in a capture
        self.plans: Any = None  # of restored pieces
        self.background: Any = None  # from the end of a restored start on

    @property
    def runner(self) -> Any:
        return self.worker.model_runner

    # ---- what a runner's class says ----

    def bindings(self) -> Dict[str, Any]:
        raise NotImplementedError

    def facts(self) -> Dict[str, str]:
        raise NotImplementedError

    def randomizer(self, by_label: Dict[Tuple[str, int], Any]) -> Callable[..., None]:
        raise NotImplementedError

    # ---- pieces, which are made when vLLM's compiled model is there ----

    pieces_between_steps = False  # else while no request is there

    def pieces(self) -> List[Any]:
        """Descriptors of the piecewise graphs that a start has left out, the largest first."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """One forward of the model outside of graphs, on the static buffers."""
        raise NotImplementedError

    def make_piece(self, desc: Any) -> None:
        """vLLM captures the pieces of one batch size."""
        raise NotImplementedError

    def publish_piece(self, desc: Any) -> None:
        """Batches of this size run on their pieces from now on."""
        raise NotImplementedError

    # ---- pieces of an artifact ----

    def layers(self) -> Any:
        """Layers by the names that operations between pieces are given."""
        return self.worker.vllm_config.compilation_config.static_forward_context

    def warm_piece(self, desc: Any) -> None:
        """One forward of a piece's batch size, without graphs."""
        raise NotImplementedError

    def capture_piece(self, desc: Any) -> None:
        """The forward in which vLLM captures pieces."""
        raise NotImplementedError

    def run_piece(self, desc: Any, numbers: torch.Generator) -> None:
        """A forward on captured pieces, of random tokens."""
        raise NotImplementedError

    def publish_pieces(self, sizes: Collection[int]) -> None:
        """Batches of these sizes run on pieces from now on."""
        raise NotImplementedError

    def withdraw_pieces(self, sizes: Collection[int]) -> None:
        """Batches of these sizes run without pieces from now on."""
        raise NotImplementedError

    def batch_descriptor(self, desc: Any) -> Any:
        """By which vLLM's wrappers of pieces know a batch size."""
        raise NotImplementedError

    # ---- compiling ----

    def postpone_compiling(self) -> None:
        """Until graphs are asked for that have to be captured: prefills run eagerly."""
        if os.environ.get("MEDUSA_VLLM_PREFILL", "eager") != "eager":
            self.runner.profile_run()
            return
        self.interim.begin(self.runner.get_model())
        if workspace.is_needed(self.runner):
            log.info("medusa: one eager forward, which gives vLLM's workspace its size")
            self.runner.profile_run()
            torch.cuda.empty_cache()  # the KV cache comes next, and takes most of what is free

    def compile_now(self) -> None:
        """As vLLM's profiling does it: at the largest batch."""
        if self.plans is not None:
            self.plans.remove()
        if self.interim.end():
            log.info("medusa: the model is compiled after all")
            with lora.dummies_kept(self.runner):
                self.runner.profile_run()

    # ---- graphs ----

    @torch.inference_mode()  # vLLM makes some buffers in it, which nobody may change outside
    def attempt(self, descriptors: Dict[Tuple[str, int], Any], why: str, make_all: Callable[[], None]) -> bool:
        """Binds, and makes all graphs. False: nothing was done, and vLLM captures as it always does."""
        try:
            why = why or self._open(descriptors)
            if not why:
                make_all()
                prefills.capture(self)
        except Exception as error:  # pylint: disable=broad-except  # of the engine's own errors vLLM's capture tells again
            log.exception("medusa: a failure while graphs were made")
            why = repr(error)
        if not why:
            return True
        log.warning("medusa: all graphs are captured live: %s", why)
        self._close()
        self.compile_now()
        return False

    def _open(self, by_label: Dict[Tuple[str, int], Any]) -> str:
        """Binds all that graphs use; why nothing can be restored, or ""."""
        wanted: Dict[str, List[int]] = {}
        for kind, batch in sorted(by_label):
            wanted.setdefault(kind, []).append(batch)
        why = workspace.unexpected(self.runner)
        if why:
            return why
        self.recording = prefills.prepare(self)
        self.graphs = Graphs(
            bind=self.bindings(),
            warmup=1,
            want=wanted,
            randomize=self.randomizer(by_label),
            fingerprint=self.facts(),
            is_setting=facts.is_setting,
            remark=self.recording.remark() if self.recording is not None else None,
        )
        return self.graphs.why_live if _api.mode() == "restore" else ""

    @torch.inference_mode()
    def ready(self) -> None:
        """Everything is captured or restored, and vLLM has warmed up."""
        try:
            if self.graphs is not None:
                self.graphs.complete()
            else:
                self.compile_now()  # nobody has asked for graphs
                nothing_to_come()
        except Exception:  # pylint: disable=broad-except
            log.exception("medusa: the capture does not end here")

    def serve(self) -> None:
        """The engine is ready, and what was left out of its start can begin beside it."""
        try:
            if self.graphs is not None and _api.mode() == "restore":
                from . import background

                self.background = background.start(self)
        except Exception:  # pylint: disable=broad-except
            log.exception("medusa: batches with prefills stay as they are")

    def _close(self) -> None:
        if self.graphs is not None:
            self.graphs.close()
            self.graphs = None


def nothing_to_come() -> None:
    """Of an engine that is left alone a capture gets no graph with a name, however long a server runs."""
    _api.mark("complete")


def tell(restored: int, of: int) -> None:
    """What has become of the full graphs."""
    if _api.mode() == "restore":
        log.info("medusa: %d of %d full graphs restored", restored, of)
    else:
        log.info("medusa: %d full graphs captured live and labelled for the artifact", of)


def label_of(queries: Optional[int], tokens: int, loras: int) -> Tuple[str, int]:
    """Kind and batch of a graph: "full" takes any mix of requests, "decode.N" N tokens of each; ".loraN": N adapters."""
    kind = "full" if queries is None else f"decode.{queries}"
    return (f"{kind}.lora{loras}" if loras else kind), tokens
