# SPDX-License-Identifier: Apache-2.0
"""`transformers serve --continuous-batching`: the graphs of the server's manager are made, or restored, before it answers.

transformers makes the manager at the first request, with that request's sampling, and makes each graph when it is first
needed. Here the manager is made before the server listens, for the sampling of a request without parameters, or of
MEDUSA_SERVE_REQUEST. A first request with another sampling gets a manager of its own, as without Medusa.
"""
from __future__ import annotations

import functools
import inspect
import json
import logging
import os
from typing import Any, Callable, Dict, List

import torch

from .. import _api, _settings
from .._tell import tell
from . import continuous_batching

log = logging.getLogger("medusa.torch")

# Methods that the take-over needs, with their parameters. A transformers with other ones serves as without Medusa.
UTILS = {
    "CBGenerateManager": {"init_cb": ["self", "model", "gen_config"], "stop": ["self"]},
    "GenerationState": {"use_continuous_batching": ["self", "model", "modality"], "get_manager": ["self", "model_id", "use_cb"]},
}
BUILD_SERVER = ("model_manager", "chat_handler", "generation_state")
HANDLER = {"_resolve_model": ["body"], "_build_generation_config": ["body", "model_generation_config", "use_cb"]}
MANAGER = {"warmup": [], "start": [], "is_running": [], "_create_batch_processor": []}
ATTRIBUTE = "_medusa_served"
EACH_REQUEST = ("max_new_tokens", "stop_strings")  # settings of a generation configuration that concern no graph
SAMPLED = ("temperature", "top_k", "top_p", "top_h", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")  # if do_sample
TOKENS = 512  # batches of up to so many tokens get their graphs before the server answers
_taken: List["Served"] = []  # the one manager of this process whose graphs are Medusa's


def parameters_of(method: Any) -> List[str]:
    return list(inspect.signature(method).parameters)


def unfit(owner: Any, needs: Dict[str, List[str]]) -> str:
    """Why a class, or an object, does not have the known structure; "" if it has."""
    name = getattr(owner, "__name__", type(owner).__name__)
    for method, parameters in needs.items():
        found = getattr(owner, method, None)
        if found is None:
            return f"{name} has no {method}"
        if parameters_of(found) != parameters:
            return f"{name}.{method} takes {parameters_of(found)}, not {parameters}"
    return ""


def leave(why: str) -> None:
    """Logs why everything is left to transformers, and ends a capture: no graph gets a name, however long the server runs."""
    log.warning("medusa: transformers serve is left as it is: %s", why)
    tell("medusa-torch", f"leaves transformers serve as it is: {why}")
    _api.mark("complete")


# ---- hooks ----


def hook_utils(module: Any) -> None:
    """Hooks transformers.cli.serving.utils, where the server makes its manager."""
    for name, needs in UTILS.items():
        why = unfit(getattr(module, name), needs) if hasattr(module, name) else f"{module.__name__} has no {name}"
        if why:
            leave(why)
            return
    _wrap(module.CBGenerateManager, "init_cb", _init_cb)
    _wrap(module.CBGenerateManager, "stop", _stop)


def hook_server(module: Any) -> None:
    """Hooks transformers.cli.serving.server, which makes the last object before the server listens."""
    parameters = parameters_of(module.build_server)
    missing = [name for name in BUILD_SERVER if name not in parameters]
    if missing:
        leave(f"build_server has no parameter {missing[0]}")
    else:
        _wrap(module, "build_server", _build_server)


def _wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    method = getattr(owner, name)
    if not getattr(method, "_medusa", False):
        wrapped = functools.wraps(method)(make(method))
        wrapped._medusa = True  # type: ignore[attr-defined]
        setattr(owner, name, wrapped)


def _build_server(original: Callable[..., Any]) -> Callable[..., Any]:
    def build_server(*args: Any, **options: Any) -> Any:
        app = original(*args, **options)
        try:
            given = inspect.signature(original).bind(*args, **options).arguments
            prepare(*(given[name] for name in BUILD_SERVER))
        except Exception as error:  # pylint: disable=broad-except  # the server's own errors come with the first request
            log.exception("medusa: nothing is prepared before the first request")
            leave(repr(error))
        return app

    return build_server


def _init_cb(original: Callable[..., Any]) -> Callable[..., Any]:
    def init_cb(generator: Any, model: Any, gen_config: Any) -> Any:
        served = getattr(generator, ATTRIBUTE, None)
        if served is not None:
            served.first_request(gen_config)
        if generator._cb is not None or _taken or not hasattr(model, "init_continuous_batching"):
            return original(generator, model, gen_config)
        return _manage(original, generator, model, gen_config, asked=True)

    return init_cb


def _manage(original: Callable[..., Any], generator: Any, model: Any, gen_config: Any, asked: bool) -> Any:
    """The original init_cb, with graphs that are Medusa's."""
    served = Served(generator, gen_config, asked)
    _taken.append(served)
    setattr(generator, ATTRIBUTE, served)
    return original(generator, _Model(model, served), gen_config)


def _stop(original: Callable[..., Any]) -> Callable[..., Any]:
    def stop(generator: Any) -> Any:
        served = getattr(generator, ATTRIBUTE, None)
        if served is not None:
            served.start()  # transformers does not stop a manager that never started, so the model would stay
        result = original(generator)
        if served is not None and not (generator._cb is not None and generator._cb.is_running()):
            served.close()
        return result

    return stop


# ---- before the server listens ----


def prepare(model_manager: Any, chat_handler: Any, state: Any) -> None:
    """Makes the server's manager as the first request would."""
    if not state._continuous_batching:
        leave("without --continuous-batching it makes no CUDA graphs")
        return
    if model_manager.force_model is None:
        log.warning("medusa: transformers serve names no model: graphs are made when the first request does")
        return
    why = unfit(chat_handler, HANDLER)
    if why:
        leave(why)
        return
    model_id, model, processor = chat_handler._resolve_model({})
    if not state.use_continuous_batching(model, model_manager.get_model_modality(model, processor=processor)):
        leave(f"{type(model).__name__} has no continuous batching")
        return
    configuration = chat_handler._build_generation_config(_request(), model.generation_config, use_cb=True)
    generator = state.get_manager(model_id, use_cb=True)
    init_cb = type(generator).init_cb
    if getattr(init_cb, "_medusa", False) and not _taken:  # else the hook has said why
        _manage(init_cb.__wrapped__, generator, model, configuration, asked=False)


def _request() -> Dict[str, Any]:
    """The body of the request whose sampling the graphs are made for."""
    text = os.environ.get("MEDUSA_SERVE_REQUEST", "")
    try:
        body = json.loads(text or "{}")
    except ValueError as error:
        body = error
    if isinstance(body, dict):
        return body
    log.warning("medusa: MEDUSA_SERVE_REQUEST is %r, not a JSON object such as {\"temperature\": 0}; it is ignored", text)
    return {}


def most_tokens() -> int:
    return _settings.whole("MEDUSA_SERVE_TOKENS", TOKENS, log.name)


# ---- one manager ----


class _Model:
    """Wraps the model for init_cb, so that graphs are taken over after the manager is made and before it starts."""

    def __init__(self, model: Any, served: "Served") -> None:
        self._model, self._served = model, served

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def init_continuous_batching(self, *args: Any, **options: Any) -> Any:
        manager = self._model.init_continuous_batching(*args, **options)
        self._served.take_over(manager)
        self._served.hold(manager)
        return manager


class Served:
    """The server's manager, whose graphs are Medusa's."""

    def __init__(self, generator: Any, configuration: Any, asked: bool) -> None:
        self.generator, self.attached = generator, None  # type: Any, Any
        self._asked = asked  # whether a request has decided the sampling
        self._held: Any = None  # the manager, if its thread waits for the first request
        self._sampling = _sampling(configuration)

    def take_over(self, manager: Any) -> None:
        """Takes over before the manager starts. After a failure the manager is as transformers made it."""
        try:
            why = unfit(manager, MANAGER) or self._attach(manager)
            if why:
                manager.batch_processor = None
                leave(why)
        except Exception as error:  # pylint: disable=broad-except
            log.exception("medusa: making the graphs failed")
            self.close()
            manager.batch_processor = None
            leave(repr(error))

    def _attach(self, manager: Any) -> str:
        if not any(manager.continuous_batching_config.cuda_graph_booleans):
            attention = manager.model.config._attn_implementation
            return f"with attention {attention!r} it makes CUDA graphs only if --cb-use-cuda-graph is given"
        attached = continuous_batching.attach(manager)
        if attached.reason:
            return attached.reason
        self.attached = attached
        if _api.mode() == "restore":
            attached.ready()  # each graph is taken when its first batch needs it
            return ""
        manager.warmup()
        make_small(manager, most_tokens())
        attached.complete()
        log.info("medusa: %d graphs of the server are recorded", len(attached.steps))
        return ""

    def hold(self, manager: Any) -> None:
        """Holds the manager's thread back until the first request, as without Medusa: Python's end would wait for the thread."""
        if not self._asked:
            self._held, manager.start = manager, lambda: None

    def start(self) -> None:
        """Starts the thread of a manager that was held back."""
        manager, self._held = self._held, None
        if manager is not None:
            del manager.start
            manager.start()

    def first_request(self, configuration: Any) -> None:
        """Makes everything anew, live, if the first request has another sampling: in transformers, it decides the sampling."""
        if self._asked:
            return
        self._asked = True
        self.start()
        now = _sampling(configuration)
        differing = sorted(key for key in now.keys() | self._sampling.keys() if now.get(key) != self._sampling.get(key))
        if not differing or self.generator._cb is None:
            return
        log.warning("medusa: the first request has %s, and the server's graphs were made for %s: they are made anew, live; "
                    "MEDUSA_SERVE_REQUEST names the request to make graphs for",
                    _say(now, differing), _say(self._sampling, differing))
        self.generator._cb.stop(block=True)
        self.generator._cb = None
        self.close()

    def close(self) -> None:
        attached, self.attached = self.attached, None
        if attached is not None:
            attached.close()


def _sampling(configuration: Any) -> Dict[str, Any]:
    """The settings of a request that may end up in graphs: all except those that transformers applies to each request."""
    values = configuration.to_dict()
    values["do_sample"] = bool(values.get("do_sample"))
    unused = EACH_REQUEST if values["do_sample"] else EACH_REQUEST + SAMPLED
    return {key: value for key, value in values.items() if key not in unused}


def _say(values: Dict[str, Any], keys: List[str]) -> str:
    return ", ".join(f"{key}={values.get(key)!r}" for key in keys)


@torch.no_grad()
def make_small(manager: Any, most: int) -> None:
    """Graphs of batches of up to `most` tokens that mix prompts and decoding: transformers warms up the largest one alone."""
    runner = manager.batch_processor.model_runner
    interval, ios = manager.continuous_batching_config.q_padding_interval_size, runner.inputs_and_outputs
    if not getattr(runner, "use_cuda_graph_varlen", False) or interval <= 0:
        return
    for _ in range(2 if hasattr(ios, "swap_io_pairs") else 1):
        for tokens in range(interval, min(most, runner.cache.max_batch_tokens) + 1, interval):
            runner.run_one_warmup(model=manager.model, num_q_tokens=tokens, max_kv_read=0)
        if hasattr(ios, "swap_io_pairs"):
            ios.swap_io_pairs()
    if hasattr(runner.cache, "reset"):
        runner.cache.reset()
