# SPDX-License-Identifier: Apache-2.0
"""Runs the model eagerly in a restored start, and puts off work for compilers, until something has to be compiled.

When graphs come from an artifact, most of a start went into work for compilers that were not used: each operation that vLLM
leaves to Inductor was compiled by itself in the first eager forward, Inductor made its patterns, and each garbage collection
looked at all objects that importing the compilers had left.
"""
from __future__ import annotations

import gc
import importlib
import inspect
import logging
import sys
from typing import Any, Dict, List, Tuple

from .guard import spared

log = logging.getLogger("vllm.medusa")

COMPILER = "vllm.compilation.compiler_interface"
LAZY_INIT = "trigger_inductor_lazy_init"
# Operations whose own CUDA kernel computes the same. vLLM also uses these kernels where it compiles nothing (--enforce-eager).
WITH_KERNEL = frozenset(("SiluAndMul", "RotaryEmbedding", "Llama3RotaryEmbedding"))


def spare_imports() -> None:
    """Hides imported objects, which stay, from the garbage collections that vLLM makes while it starts."""
    gc.freeze()


class Interim:
    """Between begin() and end() the model compiles nothing. Both may be called again, and in any order."""

    def __init__(self) -> None:
        self._modules: List[Any] = []  # modules that would compile at their first forward, and were told not to
        self._operations: List[Tuple[Any, Any]] = []  # operations, each with its own method
        self._lazy_init: Any = None  # vLLM's function, while another one takes its place
        self._skipped: List[Tuple[Tuple[Any, ...], Dict[str, Any]]] = []  # arguments of the calls meanwhile

    def begin(self, model: Any) -> None:
        for module in model.modules():
            if getattr(module, "do_not_compile", None) is False:
                module.do_not_compile = True
                self._modules.append(module)
            eager = _eager_method(module)
            if eager is not None:
                self._operations.append((module, module._forward_method))
                module._forward_method = eager
        if self._modules and self._lazy_init is None:
            self._postpone_lazy_init()

    @property
    def waiting(self) -> List[Any]:
        """Modules whose compiling was postponed."""
        return list(self._modules)

    def end(self, inductor: bool = True) -> bool:
        """Whether compiling was postponed, so that the next forward compiles; inductor: initialize Inductor for that."""
        modules, self._modules = self._modules, []
        operations, self._operations = self._operations, []
        for module in modules:
            module.do_not_compile = False
        for module, method in operations:
            module._forward_method = method
        spared("Inductor is initialized when it is first used", lambda: self._make_up_lazy_init(inductor))
        return bool(modules)

    def _postpone_lazy_init(self) -> None:
        try:
            interface = importlib.import_module(COMPILER)
            original = getattr(interface, LAZY_INIT)
            if len(inspect.signature(original).parameters) > 1:
                return
        except (ImportError, AttributeError, ValueError) as error:
            log.debug("medusa: Inductor is initialized at once, as without Medusa: %s", error)
            return

        def later(*arguments: Any, **options: Any) -> None:
            self._skipped.append((arguments, options))

        self._lazy_init = original
        setattr(interface, LAZY_INIT, later)

    def _make_up_lazy_init(self, call: bool) -> None:
        original, self._lazy_init = self._lazy_init, None
        skipped, self._skipped = self._skipped, []
        if original is not None:
            setattr(sys.modules[COMPILER], LAZY_INIT, original)
        for arguments, options in skipped if call else ():
            original(*arguments, **options)


def _eager_method(module: Any) -> Any:
    """The method by which an operation that vLLM leaves to Inductor computes without Inductor; None for other operations."""
    method, native = getattr(module, "_forward_method", None), getattr(module, "forward_native", None)
    if method is None or native is None:
        return None
    if native not in (method, getattr(method, "_torchdynamo_orig_callable", None), getattr(method, "__wrapped__", None)):
        return None
    return module.forward_cuda if type(module).__name__ in WITH_KERNEL else native
