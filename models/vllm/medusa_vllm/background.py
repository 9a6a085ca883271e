# SPDX-License-Identifier: Apache-2.0
"""After a restored start, vLLM's own compiled model and piecewise graphs take over from eager layers, while the engine serves."""
from __future__ import annotations

import atexit
import functools
import logging
import threading
import time
from typing import Any, Callable, List, Optional, Tuple

import torch

from medusa.torch import rng

from . import compiled, interim, switches
from .guard import spared
from .pieces import Capturing
from .recording import size_of, told, wrappers_of
from .turns import LIMIT_S, Stopped, Turns

log = logging.getLogger("vllm.medusa")

GUARDED = ("execute_model", "sample_tokens", "execute_dummy_batch", "add_lora", "remove_lora", "pin_lora", "list_loras",
           "reload_weights", "start_weight_update", "start_draft_weight_update", "update_weights", "finish_weight_update", "update_config",
           "update_max_model_len", "save_sharded_state", "save_tensorized_model", "apply_model", "reset_encoder_cache")
STATE = "execute_model_state"  # of a model runner: what a step keeps between execute_model and sample_tokens
SLEEP, WAKE, SHUTDOWN = "sleep", "wake_up", "shutdown"
LEAST_FREE = 256 << 20  # bytes of device memory, below which no further graph is captured
JOIN_S = 5.0


def unfit(takeover: Any) -> str:
    """Why vLLM's compiled model is not put in place of eager layers; "" if it can be."""
    config = takeover.worker.vllm_config
    if config.kv_transfer_config:
        return "a KV connector"
    if config.model_config.enable_sleep_mode:
        return "sleep mode"
    if config.parallel_config.worker_extension_cls:
        return "methods of the user's own in the worker (worker_extension_cls)"
    return "" if hasattr(takeover.runner, STATE) else f"a model runner without {STATE}"


def start(takeover: Any) -> Optional["Background"]:
    """Called when a restored engine is ready. None if there is nothing to take over, or if it can't be taken over."""
    if switches.takeover() == "0" or not (takeover.interim.waiting or takeover.pieces()):
        return None
    why = unfit(takeover)
    if why:
        log.warning("medusa: batches with prefills stay eager and without graphs: with %s the compiled model does not take over yet", why)
        return None
    background = Background(takeover)
    background.start()
    return background


class Background:
    """The take-over's thread, which takes turns with the engine's steps."""

    def __init__(self, takeover: Any) -> None:
        self._takeover, self._worker = takeover, takeover.worker
        self.turns = Turns(None if switches.takeover() == "compile" else LIMIT_S)
        self._wrappers: List[Any] = []  # of the compiled model's pieces
        self._thread = threading.Thread(target=self._run, name="medusa-takeover", daemon=True)

    def start(self) -> None:
        self._guard()
        atexit.register(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """Called when the engine ends: ends the work first."""
        self.turns.stop()
        self.join(JOIN_S)

    def join(self, seconds: float) -> bool:
        """Whether the work has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # ---- steps of the engine ----

    def _guard(self) -> None:
        for name in GUARDED:
            method = getattr(self._worker, name, None)
            if callable(method):
                setattr(self._worker, name, self._in_turn(method))
        for name, wrap in ((SLEEP, self._sleep), (WAKE, self._wake), (SHUTDOWN, self._stop_before)):
            method = getattr(self._worker, name, None)
            if callable(method):
                setattr(self._worker, name, wrap(method))

    def _unguard(self) -> None:
        for name in (*GUARDED, SLEEP, WAKE, SHUTDOWN):
            vars(self._worker).pop(name, None)

    def _enter(self) -> None:
        """Begins a step, for which the work waits; if that fails, the work ends first."""
        try:
            self.turns.enter()
        except Exception:  # pylint: disable=broad-except  # a plug-in's failure is not the engine's
            log.exception("medusa: the take-over is given up, because the plug-in failed")
            self.turns.abandon()
            self._thread.join()  # it ends at its next point

    def _in_turn(self, method: Callable[..., Any]) -> Callable[..., Any]:
        turns, worker = self.turns, self._worker

        @functools.wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            self._enter()
            try:
                return method(*arguments, **options)
            finally:
                # Between execute_model and sample_tokens the model runner keeps the step's state.
                if getattr(worker.model_runner, STATE) is None:
                    spared("the compiled model does not take over", turns.leave)

        return call

    def _sleep(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A thread that waits for the memory keeps Python's lock, without which the engine cannot wake: the work rests until then."""

        @functools.wraps(method)
        def sleep(*arguments: Any, **options: Any) -> Any:
            self.turns.enter()
            try:
                if self.turns.abandoned and not self.join(0):
                    raise RuntimeError("medusa: the engine cannot sleep yet: the take-over by the compiled model does not pause")
                answer = method(*arguments, **options)
            except BaseException:
                self.turns.leave()
                raise
            self.turns.sleep()
            return answer

        return sleep

    def _wake(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def wake_up(*arguments: Any, **options: Any) -> Any:
            answer = method(*arguments, **options)
            spared("the compiled model does not take over", self._woken)
            return answer

        return wake_up

    def _woken(self) -> None:
        if self._worker._get_sleep_mode_backend().state() == "RUNNING":  # with all tags
            self.turns.wake()

    def _stop_before(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            spared("the take-over ends with the process", self.stop)
            return method(*arguments, **options)

        return call

    # ---- the work ----

    def _run(self) -> None:
        began = time.monotonic()
        try:
            with torch.cuda.device(self._takeover.runner.device), torch.inference_mode():
                graphs = self._work()
            log.info("medusa: the compiled model has taken over after %.1f s, %d piecewise graphs; %s",
                     time.monotonic() - began, graphs, self.turns.told())
        except Stopped:
            log.info("medusa: the take-over by the compiled model was stopped; %s", self.turns.told())
        except compiled.Missing as error:
            log.warning("medusa: batches with prefills stay eager and without graphs: %s; %s=compile compiles it in the first idle "
                        "moment, and requests wait for that", error, switches.TAKEOVER)
        except BaseException:  # pylint: disable=broad-except  # nobody else would log an exception of this thread
            log.exception("medusa: the take-over failed, so batches with prefills stay as they are; %s", self.turns.told())
        finally:
            self.turns.give()
            self._unguard()
            atexit.unregister(self.stop)

    def _work(self) -> int:
        self._compiled()
        made = self._graphs()
        interim.spare_imports()  # what was made with the graphs stays, too; a live start freezes it after its own
        return made

    def _compiled(self) -> None:
        takeover, turns = self._takeover, self.turns
        turns.take(idle_s=switches.takeover_after())
        try:
            loaded = [(module, compiled.load(module, self._point)) for module in compiled.outermost(takeover.interim.waiting)]
        except compiled.Missing:
            if switches.takeover() != "compile" or self._worker.vllm_config.lora_config:  # vLLM's profiling removes all adapters
                raise
            loaded = None
        turns.give("the compiled model is loaded")
        turns.take(may_interrupt=loaded is not None, idle_s=switches.takeover_after())
        if loaded is None:
            self._compile()
        else:
            with turns.whole():
                self._use(loaded)
        interim.spare_imports()  # loaded objects stay, too
        turns.give("the first forward")

    def _point(self, frame: Any) -> None:
        def pauses() -> bool:
            if not compiled.may_pause(frame):
                return False
            compiled.pause()
            return True

        self.turns.point(frame.f_code, pauses)

    def _use(self, loaded: List[Tuple[Any, Any]]) -> None:
        """Puts the compiled model in place from the next step on, if one forward of it succeeds."""
        takeover = self._takeover
        torch.cuda.synchronize()
        planned = takeover.plans.remove() if takeover.plans is not None else None
        compiled.use(loaded)
        was_waiting = takeover.interim.end(inductor=False)
        try:
            if takeover.plans is None:
                takeover.warm_up()
            else:
                self._wrappers = wrappers_of(takeover.warm_up)
            torch.cuda.synchronize()
        except BaseException:
            compiled.drop(loaded)
            if was_waiting:
                takeover.interim.begin(takeover.runner.get_model())
            if planned is not None:
                takeover.plans.install(planned)
            raise

    def _compile(self) -> None:
        generator = rng.generator(torch.cuda.current_device())
        torch.cuda.synchronize()
        state, host_state = generator.get_state(), torch.get_rng_state()
        try:
            self._takeover.compile_now()  # vLLM's profile draws samples
            torch.cuda.synchronize()
        finally:
            generator.set_state(state)
            torch.set_rng_state(host_state)

    def _graphs(self) -> int:
        """Captures vLLM's piecewise graphs, one batch size in each turn. Returns their number."""
        takeover, turns, made = self._takeover, self.turns, 0
        pieces = takeover.pieces()
        capturing = Capturing(takeover.runner.device) if pieces else None
        for desc in pieces:
            turns.take(takeover.pieces_between_steps)
            if self._hand_over(desc):
                continue
            torch.cuda.synchronize()
            free, _ = torch.cuda.mem_get_info()
            if free < LEAST_FREE:
                log.warning("medusa: only %d MiB of device memory are free, so no further piecewise graphs are captured", free >> 20)
                break
            with turns.whole():
                made += capturing.count(functools.partial(takeover.make_piece, desc))
                torch.cuda.synchronize()
                takeover.publish_piece(desc)
            turns.give(f"the pieces of {told(size_of(desc))}")
        return made

    def _hand_over(self, desc: Any) -> bool:
        """Hands restored pieces of a batch size to vLLM's wrappers. False: the pieces have to be captured."""
        takeover = self._takeover
        if takeover.plans is None or not takeover.plans.hand_over(self._wrappers, size_of(desc), takeover.batch_descriptor(desc)):
            return False
        takeover.publish_piece(desc)
        self.turns.give(f"the restored pieces of {told(size_of(desc))}")
        return True

