# SPDX-License-Identifier: Apache-2.0
"""The graphs of one worker: restores full graphs, or captures them live; the model runs without piecewise graphs meanwhile."""
from __future__ import annotations

import logging
from typing import Any, Callable, Collection, Dict, List, Optional, Tuple

import torch

from medusa import _api
from medusa.torch import Graphs

from . import facts, lora, prefills, switches, workspace
from .guard import spared
from .interim import Interim

log = logging.getLogger("vllm.medusa")


class Takeover:
    """What both model runners have in common. Made before the KV cache; `graphs` is set when graphs are to be made."""

    def __init__(self, worker: Any) -> None:
        self.worker, self.graphs = worker, None  # type: Any, Optional[Graphs]
        self.interim = Interim()
        self._attempted = False
        self._owes_profile = False  # the model may be compiled, but has not been
        self.recording: Any = None  # records pieces, in a capture
        self.plans: Any = None  # run restored pieces
        self.background: Any = None  # set at the end of a restored start

    @property
    def runner(self) -> Any:
        return self.worker.model_runner

    # ---- what the class of a runner defines ----

    def bindings(self) -> Dict[str, Any]:
        raise NotImplementedError

    def facts(self) -> Dict[str, str]:
        raise NotImplementedError

    def randomizer(self, by_label: Dict[Tuple[str, int], Any]) -> Callable[..., None]:
        raise NotImplementedError

    # ---- pieces, which are made when vLLM's compiled model is there ----

    pieces_between_steps = False  # whether pieces may be captured between steps, or only while the engine is idle

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
        """Layers by the names that are arguments of operations between pieces."""
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

    def publish_pieces(self, sizes: Collection[Tuple[int, int]]) -> None:
        """Batches of these sizes (tokens, adapters) run on pieces from now on."""
        raise NotImplementedError

    def withdraw_pieces(self, sizes: Collection[Tuple[int, int]]) -> None:
        """Batches of these sizes run without pieces from now on."""
        raise NotImplementedError

    def batch_descriptor(self, desc: Any) -> Any:
        """The key by which vLLM's wrappers of pieces find a batch size."""
        raise NotImplementedError

    # ---- compiling ----

    def postpone_compiling(self) -> None:
        """Prefills run eagerly until a graph has to be captured."""
        if switches.prefill() != "eager":
            self.runner.profile_run()
            return
        self.interim.begin(self.runner.get_model())
        if workspace.is_needed(self.runner):
            log.info("medusa: one eager forward sets the size of vLLM's workspace")
            self.runner.profile_run()
            torch.cuda.empty_cache()  # the KV cache, which is allocated next, takes most of the free memory

    def compile_now(self) -> None:
        """Compiles the model at the largest batch, as vLLM's profiling does. What fails, out of memory, is made up by the next call.

        Raises what vLLM's profiling raises, which is the engine's own failure, and nothing else.
        """
        if self.plans is not None:
            spared("restored pieces may stay in use", self.plans.remove)
        self._owes_profile |= spared("the model may run eagerly", self.interim.end, True)
        if self._owes_profile:
            log.info("medusa: the model is compiled now, because not all graphs come from the artifact")
            with lora.dummies_kept(self.runner):
                self.runner.profile_run()
            self._owes_profile = False

    # ---- graphs ----

    @torch.inference_mode()  # vLLM makes some buffers in this mode, and they may not be changed outside of it
    def attempt(self, descriptors: List[Any], label: Callable[[Any], Tuple[str, int]], why: str, make_all: Callable[[], None]) -> bool:
        """Binds memory, and makes all graphs. False: vLLM has to capture its graphs as it does without Medusa."""
        self._attempted = True
        try:
            by_label = {label(desc): desc for desc in descriptors}
            if len(by_label) != len(descriptors):
                why = why or f"{len(descriptors)} graphs of vLLM's have {len(by_label)} labels, so one could be taken for another"
            why = why or self._open(by_label)
            if not why:
                make_all()
                prefills.capture(self)
        except Exception as error:  # pylint: disable=broad-except  # vLLM's own capture meets the engine's own errors again
            log.exception("medusa: making the graphs failed")
            why = repr(error)
        if not why:
            return True
        log.warning("medusa: all graphs are captured live: %s", why)
        self.give_up()
        return False

    def give_up(self) -> None:
        """Brings the model into the state in which vLLM captures its graphs itself. Raises as compile_now() does."""
        self._attempted = True
        spared("memory of graphs may stay in use", self._close)
        self.compile_now()

    def _open(self, by_label: Dict[Tuple[str, int], Any]) -> str:
        """Binds all memory that graphs use. Returns why nothing can be restored, or ""."""
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
            packages=("vllm",),
            is_setting=facts.is_setting,
            remark=self.recording.remark() if self.recording is not None else None,
        )
        if self.recording is not None:
            self.graphs.add_scratch(self.recording.arena.unbound())
        return self.graphs.why_live if _api.mode() == "restore" else ""

    @torch.inference_mode()
    def ready(self) -> None:
        """Called when all graphs are captured or restored, and vLLM has warmed up."""
        if self.graphs is not None:
            spared("a capture does not end by itself", self.graphs.complete)
            return
        if not self._attempted:
            log.warning("medusa: no graph is restored or recorded: vLLM makes none in this configuration (cudagraph_mode, enforce_eager)")
        spared("the model is compiled when the first batch comes", self.compile_now)
        spared("a capture does not end by itself", nothing_to_come)

    def serve(self) -> None:
        """Called when the engine is ready: work that was left out of its start begins beside it."""
        spared("batches with prefills stay as they are after the start", self._start_background)

    def _start_background(self) -> None:
        if self.graphs is not None and _api.mode() == "restore":
            from . import background

            self.background = background.start(self)

    def end(self) -> None:
        """Called before the engine frees its memory. Each step is made, also if another one fails."""
        what = "the engine's memory may stay in use until this process ends"
        if self.background is not None:
            spared(what, self.background.stop)
        spared(what, torch.cuda.synchronize)
        if self.plans is not None:
            spared(what, self.plans.remove)
        spared(what, self._close)
        spared(what, lambda: self.interim.end(inductor=False))
        self.background = self.plans = self.recording = None

    def _close(self) -> None:
        graphs, self.graphs = self.graphs, None
        if graphs is not None:
            graphs.close()


def nothing_to_come() -> None:
    """Ends a capture: an engine that is left alone labels no graph, however long its server runs."""
    _api.mark("complete")


def tell(steps: Dict[Tuple[str, int], Any]) -> None:
    """Logs how the full graphs were made, by label, and why not all of them were restored."""
    if _api.mode() != "restore":
        log.info("medusa: %d full graphs captured live and labelled for the artifact", len(steps))
        return
    live = {label: step.reason for label, step in steps.items() if not step.restored}
    log.info("medusa: %d of %d full graphs restored", len(steps) - len(live), len(steps))
    for why in dict.fromkeys(live.values()):
        (kind, batch), *others = [label for label, reason in live.items() if reason == why]
        log.warning("medusa: graph %s/%d%s captured live: %s", kind, batch, f" and {len(others)} others are" if others else " is", why)


def label_of(queries: Optional[int], tokens: int, loras: int) -> Tuple[str, int]:
    """Kind and batch of a graph. "full": any mix of requests; "decode.N": N tokens of each request; ".loraN": N adapters."""
    kind = "full" if queries is None else f"decode.{queries}"
    return (f"{kind}.lora{loras}" if loras else kind), tokens
