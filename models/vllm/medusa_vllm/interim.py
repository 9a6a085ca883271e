# SPDX-License-Identifier: Apache-2.0
"""A restored start until something has to be compiled: the model runs eagerly, and what only compilers need waits.

Of a start whose graphs came from an artifact, most of the time went into work for compilers that nobody used: each operation
that vLLM leaves to Inductor was compiled by itself in the first eager forward, Inductor made its patterns, and each garbage
collection looked at all that importing compilers had left.
"""
from __future__ import annotations

import gc
import importlib
import inspect
import logging
import sys
from typing import Any, Dict, List, Tuple

log = logging.getLogger("vllm.medusa")

COMPILER = "vllm.compilation.compiler_interface"
LAZY_INIT = "trigger_inductor_lazy_init"
# Operations whose own CUDA kernel computes the same; vLLM uses these, too, where it compiles nothing (--enforce-eager).
WITH_KERNEL = frozenset(("SiluAndMul", "RotaryEmbedding", "Llama3RotaryEmbedding"))


def spare_imports() -> None:
    """What was imported stays; vLLM collects garbage several times while it starts, and then need not look at it."""
    gc.freeze()


class Interim:
    """Between begin() and end() the model compiles nothing. Both may be called again, and in any order."""

    def __init__(self) -> None:
        self._modules: List[Any] = []  # that compile at their first forward, and were told not to
        self._operations: List[Tuple[Any, Any]] = []  # with the method that they had
        self._lazy_init: Any = None  # vLLM's function, while another one stands in its place
        self._skipped: List[Tuple[Tuple[Any, ...], Dict[str, Any]]] = []  # what it was called with meanwhile

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
        """Whether something was postponed, which the next forward compiles; inductor: Inductor is initialized for that."""
        modules, self._modules = self._modules, []
        operations, self._operations = self._operations, []
        for module in modules:
            module.do_not_compile = False
        for module, method in operations:
            module._forward_method = method
        self._make_up_lazy_init(inductor)
        return bool(modules)

    def _postpone_lazy_init(self) -> None:
        try:
            interface = importlib.import_module(COMPILER)
            original = getattr(interface, LAZY_INIT)
            if len(inspect.signature(original).parameters) > 1:
                return
        except (ImportError, AttributeError, ValueError) as error:
            log.debug("medusa: Inductor is initialized as ever: %s", error)
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
    """How an operation that vLLM leaves to Inductor computes without it; None for all others."""
    method, native = getattr(module, "_forward_method", None), getattr(module, "forward_native", None)
    if method is None or native is None:
        return None
    if native not in (method, getattr(method, "_torchdynamo_orig_callable", None), getattr(method, "__wrapped__", None)):
        return None
    return module.forward_cuda if type(module).__name__ in WITH_KERNEL else native
