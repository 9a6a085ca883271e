# SPDX-License-Identifier: Apache-2.0
"""vLLM's pieces in an artifact: decides whether they are recorded or restored, and goes on without them when they fail."""
from __future__ import annotations

import logging
from typing import Any, Callable, List, Optional

from medusa import _api

from . import compiled, switches
from .plan import Plans
from .recording import Recording, size_of

log = logging.getLogger("vllm.medusa")

def _tell(text: str, *values: Any) -> None:
    log.log(logging.WARNING if switches.pieces() else logging.INFO, text, *values)


def _unfit(takeover: Any, modules: List[Any]) -> str:
    """Why pieces are neither captured for an artifact nor restored; "" if they can be."""
    config = takeover.worker.vllm_config
    compilation = config.compilation_config
    for what, there in (
        # vLLM's kernel for adapters adds in an order that differs each time, so verification refuses most of these pieces.
        (f"adapters (LoRA), unless {switches.PIECES}=1", config.lora_config and not switches.pieces()),
        ("Inductor's own partitions of the graph", compilation.use_inductor_graph_partition),
        ("cudagraph_copy_inputs", compilation.cudagraph_copy_inputs),
    ):
        if there:
            return f"no support yet for {what}"
    pieces = takeover.pieces()
    if not pieces:
        return "this cudagraph_mode has no piecewise graphs"
    if len({size_of(desc) for desc in pieces}) != len(pieces):
        return "two batch sizes of pieces have as many tokens and adapters, so one could be taken for another"
    return "" if len(modules) == 1 else f"the model has {len(modules)} compiled modules, and only models with one are supported"


def _try(what: str, call: Callable[[], Any]) -> Any:
    """What call() returns. If it fails: None, and the reason in the log."""
    try:
        return call()
    except Exception as error:  # pylint: disable=broad-except  # an engine can do without pieces
        log.warning("medusa: %s: %s", what, str(error) or repr(error))
        log.debug("medusa: %s", what, exc_info=True)
        return None


def _compiled_modules(takeover: Any) -> List[Any]:
    modules = takeover.runner.get_model().modules()
    return compiled.outermost([module for module in modules if getattr(module, "do_not_compile", None) is False])


def prepare(takeover: Any) -> Optional[Recording]:
    """Called in a capture or a verification before full graphs are bound; allocates the memory of pieces."""
    if switches.pieces() is False or _api.mode() not in ("capture", "verify"):
        return None
    takeover.compile_now()  # a verification has answered profiling from the artifact, and the model is not compiled yet
    modules = _compiled_modules(takeover)
    why = _unfit(takeover, modules)
    if why:
        _tell("medusa: pieces are not recorded: %s", why)
        return None

    def make() -> Recording:
        recording = Recording(takeover, modules[0])
        recording.prepare()
        return recording

    return _try("pieces are not recorded", make)


def capture(takeover: Any) -> None:
    """Called when full graphs are made. A piece that is not launched in the test does not get into the artifact."""
    recording = takeover.recording
    if recording is not None:
        _try("the remaining pieces are not recorded", recording.capture)
        takeover.graphs.on_ready(lambda: _try("the remaining pieces are not tested", recording.test))


def restore(takeover: Any, remark: Any) -> Optional[Plans]:
    """Called when full graphs are restored; remark: what the first of them says about pieces."""
    modules = compiled.outermost(takeover.interim.waiting)
    if switches.pieces() is False or _api.mode() != "restore" or not modules:
        return None
    why = _unfit(takeover, modules)
    if not why and not remark:
        why = "the artifact has no pieces; the log of its capture says why"
    if why:
        _tell("medusa: batches with prefills run eagerly, without pieces: %s", why)
        return None

    def make() -> Plans:
        plans = Plans(takeover, remark)
        plans.install(modules[0])
        return plans

    plans = _try("batches with prefills run eagerly, without pieces", make)
    if plans is not None:
        log.info("medusa: batches with prefills of up to %d tokens run on restored pieces", max(tokens for tokens, _ in remark["sizes"]))
    return plans
