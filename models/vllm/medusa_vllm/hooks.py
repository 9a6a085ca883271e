# SPDX-License-Identifier: Apache-2.0
"""Wraps the methods of vLLM at which the plug-in takes over: two of the worker, and one of each model runner."""
from __future__ import annotations

import functools
import logging
import multiprocessing
import sys
from typing import Any, Callable, Dict, List

from medusa import _api

from . import capacity, fit, interim, sleeping, tell
from .first import First
from .guard import spared
from .second import Second
from .takeover import nothing_to_come

log = logging.getLogger("vllm.medusa")

GRAPHS = "vllm.v1.worker.gpu.cudagraph_utils"
ATTRIBUTE = "_medusa_takeover"  # set on a worker, and on its graph manager or model runner


def _wrap(owner: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    method = getattr(owner, name)
    if not getattr(method, "_medusa", False):
        wrapped = functools.wraps(method)(make(method))
        wrapped._medusa = True  # type: ignore[attr-defined]
        setattr(owner, name, wrapped)


def _fits(owner: type, needs: Dict[str, List[str]]) -> bool:
    why = fit.unfit_module(owner, needs)
    if why:
        log.warning("medusa: vLLM is left as it is: %s", why)
        tell(f"leaves vLLM as it is: {why}")
    return not why


def hook_worker(module: Any) -> None:
    """Wraps vllm.v1.worker.gpu_worker: KV capacity, the take-over before graphs are captured, and sleep mode."""
    if _fits(module.Worker, fit.WORKER):
        _wrap(module.Worker, "determine_available_memory", _determine_available_memory)
        _wrap(module.Worker, "compile_or_warm_up_model", _compile_or_warm_up_model)
        if hasattr(module.Worker, "shutdown"):
            _wrap(module.Worker, "shutdown", _shutdown)
        if _api.mode() == "restore":
            interim.spare_imports()
        tell("is at work in vLLM's worker")
    elif hasattr(module.Worker, "compile_or_warm_up_model"):
        _wrap(module.Worker, "compile_or_warm_up_model", _warmed_up)
    if sleeping.wanted():
        sleeping.hook_worker(module)


def hook_graphs(module: Any) -> None:
    """Wraps vllm.v1.worker.gpu.cudagraph_utils, of the second runner: the loop over graphs to capture."""
    if _fits(module.CudaGraphManager, fit.MANAGER):
        _wrap(module.CudaGraphManager, "capture", _capture)


def hook_first(module: Any) -> None:
    """Wraps vllm.v1.worker.gpu_model_runner, the first runner: the loop over graphs to capture."""
    if _fits(module.GPUModelRunner, fit.FIRST):
        _wrap(module.GPUModelRunner, "_capture_cudagraphs", _capture_cudagraphs)


def takeover_of(worker: Any) -> Any:
    """The worker's take-over; None if vLLM is left as it is, for a reason that is logged once."""
    if not hasattr(worker, ATTRIBUTE):
        takeover = None
        try:
            why = fit.unfit(worker) or _unhooked(worker)
            if why:
                log.warning("medusa: all graphs are captured live: %s", why)
                tell(f"leaves all graphs to vLLM: {why}")
            else:
                takeover = (Second if worker.use_v2_model_runner else First)(worker)
        except Exception as error:  # pylint: disable=broad-except
            log.exception("medusa: all graphs are captured live, because the plug-in failed")
            tell(f"leaves all graphs to vLLM, because it failed: {error!r}")
        setattr(worker, ATTRIBUTE, takeover)
    return getattr(worker, ATTRIBUTE)


def _unhooked(worker: Any) -> str:
    """Without the hook at its loop over graphs, vLLM would capture them from a model that was told not to compile."""
    if worker.use_v2_model_runner:
        return _without(sys.modules[GRAPHS].CudaGraphManager, "capture")
    return _without(type(worker.model_runner), "_capture_cudagraphs")


def _without(owner: type, name: str) -> str:
    return "" if hasattr(getattr(owner, name), "_medusa") else f"{owner.__name__}.{name} is not wrapped"


def _determine_available_memory(original: Callable[..., int]) -> Callable[..., int]:
    def determine_available_memory(worker: Any) -> int:
        takeover = takeover_of(worker)
        if takeover is None:
            return original(worker)
        return capacity.determine(takeover, lambda: original(worker))

    return determine_available_memory


def _hand_over(worker: Any, takeover: Any) -> bool:
    """Gives the take-over to the object whose method makes graphs; there is none in an engine without graphs."""
    manager = getattr(worker.model_runner, "cudagraph_manager", worker.model_runner)
    if manager is not None:
        setattr(manager, ATTRIBUTE, takeover)
    return True


def _warmed_up(original: Callable[..., Any]) -> Callable[..., Any]:
    """For a worker that the plug-in does not know: nothing is taken over, and a capture ends as soon as the engine is ready."""

    def warmed_up(*args: Any, **options: Any) -> Any:
        times = original(*args, **options)
        spared("a capture does not end by itself", nothing_to_come)
        return times

    return warmed_up


def _compile_or_warm_up_model(original: Callable[..., Any]) -> Callable[..., Any]:
    def compile_or_warm_up_model(worker: Any) -> Any:
        takeover = takeover_of(worker)
        if takeover is not None and not spared("all graphs are captured live", lambda: _hand_over(worker, takeover), False):
            takeover.give_up()
        times = original(worker)
        if takeover is not None:
            takeover.ready()
            takeover.serve()
        else:
            spared("a capture does not end by itself", nothing_to_come)
        return times

    return compile_or_warm_up_model


def _shutdown(original: Callable[..., Any]) -> Callable[..., Any]:
    """vLLM's shutdown frees the engine's memory, for another engine in the same process, so nothing may hold it any longer."""

    def shutdown(worker: Any, *args: Any, **options: Any) -> Any:
        takeover = getattr(worker, ATTRIBUTE, None)
        if takeover is not None and multiprocessing.parent_process() is None:  # an engine core's own process ends now
            what = "the engine's memory may stay in use until this process ends"
            spared(what, lambda: _forget(worker))
            spared(what, takeover.end)
        takeover = None
        return original(worker, *args, **options)

    return shutdown


def _forget(worker: Any) -> None:
    runner = getattr(worker, "model_runner", None)
    for holder in (worker, runner, getattr(runner, "cudagraph_manager", None)):
        if getattr(holder, ATTRIBUTE, None) is not None:
            setattr(holder, ATTRIBUTE, None)


def _capture(original: Callable[..., None]) -> Callable[..., None]:
    def capture(manager: Any, create_forward_fn: Callable[..., Any], *args: Any, **options: Any) -> None:
        takeover = getattr(manager, ATTRIBUTE, None)
        if takeover is None or not _tried(lambda: takeover.capture(manager, create_forward_fn), lambda: takeover.leave(manager)):
            original(manager, create_forward_fn, *args, **options)

    return capture


def _capture_cudagraphs(original: Callable[..., None]) -> Callable[..., None]:
    def capture_cudagraphs(runner: Any, batch_descriptors: List[Any], cudagraph_runtime_mode: Any, *args: Any, **options: Any) -> None:
        takeover = getattr(runner, ATTRIBUTE, None)
        this = (batch_descriptors, {"cudagraph_runtime_mode": cudagraph_runtime_mode, **options})
        if takeover is None or args:
            original(runner, batch_descriptors, cudagraph_runtime_mode, *args, **options)
            return
        for descriptors, given in _tried(lambda: takeover.capture(*this), lambda: [*takeover.leave(), this]):
            original(runner, descriptors, **given)

    return capture_cudagraphs


def _tried(call: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """What call() returns; if the plug-in fails in it, what otherwise() returns."""
    try:
        return call()
    except Exception:  # pylint: disable=broad-except  # vLLM's own capture meets the engine's own errors again
        log.exception("medusa: all graphs are captured live, because the plug-in failed")
        return otherwise()
