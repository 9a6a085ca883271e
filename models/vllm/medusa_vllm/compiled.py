# SPDX-License-Identifier: Apache-2.0
"""Loads vLLM's compiled model from vLLM's own cache without running it; vLLM itself does both in the model's first forward."""
from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import sys
import threading
from typing import Any, Callable, Iterator, List, Tuple
from unittest import mock

DECORATORS = "vllm.compilation.decorators"
LOAD, PARAMETERS = "_try_load_aot_compiled_fn", ["model", "aot_compilation_path"]
COMPILE = ("torch._inductor.compile_fx", "fx_codegen_and_compile")  # called for code that is in no cache, not even in Inductor's own
LOCKING = ("<frozen importlib", "/logging/__init__.py")  # functions of these files hold locks that a step may wait for


class Missing(Exception):
    """There is nothing to load; str() says why."""


class _Loaded(BaseException):
    """Ends vLLM's call between loading and running. A BaseException, so that no handler of Exception catches it."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function


class _Incomplete(BaseException):
    """A piece is in no cache, so vLLM would compile it now."""


def load(module: Any, point: Callable[[Any], None]) -> Any:
    """Returns the function that vLLM would call instead of module.forward(). The module is not changed.

    point(frame) is called at every call of a Python function; the work can be interrupted there.
    """
    from vllm import envs

    if not envs.VLLM_USE_AOT_COMPILE or envs.VLLM_DISABLE_COMPILE_CACHE:
        raise Missing("vLLM keeps no compiled model: VLLM_USE_AOT_COMPILE is off, or VLLM_DISABLE_COMPILE_CACHE is on")
    decorators = importlib.import_module(DECORATORS)
    original = getattr(decorators, LOAD, None)
    if original is None or list(inspect.signature(original).parameters) != PARAMETERS:
        raise Missing(f"{DECORATORS} has no {LOAD}({', '.join(PARAMETERS)})")

    def load_alone(model: Any, path: str) -> Any:
        function = original(model, path)
        if threading.get_ident() != thread:  # a step runs in between
            return function
        raise _Loaded(function)

    thread = threading.get_ident()
    twin = copy.copy(module)  # shares everything, and is compiled
    twin.do_not_compile = False
    vars(twin).pop("forward", None)  # set for restored pieces; vLLM makes its key of the compiled model from the class's forward
    try:
        with mock.patch.object(decorators, LOAD, load_alone), _nothing_compiled(), _interrupted(point):
            twin()
    except _Loaded as loaded:
        if loaded.function is None:
            raise Missing("vLLM's cache (VLLM_CACHE_ROOT) has no compiled model for this configuration") from None
        return loaded.function
    except _Incomplete:
        raise Missing("a piece of the compiled model is in none of vLLM's caches") from None
    raise Missing("vLLM did not look for a compiled model")


def outermost(modules: List[Any]) -> List[Any]:
    """The modules that are in no other module of the list: inner modules are compiled as parts of outer ones."""
    parts = {id(part) for module in modules for part in module.modules() if part is not module}
    return [module for module in modules if id(module) not in parts]


@contextlib.contextmanager
def _interrupted(point: Callable[[Any], None]) -> Iterator[None]:
    """point(frame) is called at every call of a Python function in this thread.

    point() may call pause() before it waits: while any thread has a profile function, Python 3.12 makes calls in all threads slower.
    """

    def at_event(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            point(frame)
            if sys.getprofile() is None:
                sys.setprofile(at_event)

    before = sys.getprofile()
    sys.setprofile(at_event)
    try:
        yield
    finally:
        sys.setprofile(before)


def pause() -> None:
    sys.setprofile(None)


def may_pause(frame: Any) -> bool:
    """Whether neither the function nor its callers hold a lock that a step is likely to wait for."""
    while frame is not None:
        if any(name in frame.f_code.co_filename for name in LOCKING):
            return False
        frame = frame.f_back
    return True


@contextlib.contextmanager
def _nothing_compiled() -> Iterator[None]:
    """In this thread: steps, which run in between, compile what they need."""
    owner, last = _find(*COMPILE)
    if owner is None:
        yield
        return
    original, thread = getattr(owner, last), threading.get_ident()

    def refuse(*arguments: Any, **options: Any) -> Any:
        if threading.get_ident() != thread:
            return original(*arguments, **options)
        raise _Incomplete

    with mock.patch.object(owner, last, refuse):
        yield


def _find(module: str, path: str) -> Tuple[Any, str]:
    """The object that holds a function, and the function's name there; (None, "") if this vLLM has none."""
    *owners, last = path.split(".")
    try:
        owner = importlib.import_module(module)
        for name in owners:
            owner = getattr(owner, name)
        return (owner, last) if callable(getattr(owner, last)) else (None, "")
    except (ImportError, AttributeError):
        return None, ""


def use(loaded: List[Tuple[Any, Any]]) -> None:
    """The modules run the loaded functions from the next forward on. Sets what vLLM's own loading sets."""
    for module, function in loaded:
        module.aot_compiled_fn, module.was_aot_compile_fn_loaded_from_disk = function, True


def drop(loaded: List[Tuple[Any, Any]]) -> None:
    for module, _ in loaded:
        module.aot_compiled_fn, module.was_aot_compile_fn_loaded_from_disk = None, False
