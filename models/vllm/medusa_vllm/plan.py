# SPDX-License-Identifier: Apache-2.0
"""Prefills of a restored engine: runs pieces, and the operations between them, in the order that the notes of the pieces give."""
from __future__ import annotations

import functools
import logging
import time
from typing import Any, Dict, List, Optional, Tuple

import torch

from medusa import _api
from medusa.torch import State
from medusa.torch.graphs import Unsupported

from . import arena
from .operations import Finding
from .recording import Size, kind_of, size_of, told

log = logging.getLogger("vllm.medusa")

PATIENCE_S = 2.0  # how long a batch waits for pieces that are being restored before it runs eagerly
BROKEN = (ValueError, KeyError, TypeError, IndexError, AttributeError)


def _alike(expected: Any, given: Any) -> bool:
    """Whether an argument of the model equals that of the capture. Tensors are compared by address and layout."""
    if isinstance(expected, torch.Tensor):
        return (isinstance(given, torch.Tensor) and given.data_ptr() == expected.data_ptr() and given.shape == expected.shape
                and given.dtype == expected.dtype and given.stride() == expected.stride())
    if isinstance(expected, (list, tuple)):
        return isinstance(given, (list, tuple)) and len(given) == len(expected) and all(map(_alike, expected, given))
    if isinstance(expected, dict):
        return isinstance(given, dict) and given.keys() == expected.keys() and all(_alike(expected[key], given[key]) for key in expected)
    return type(given) is type(expected) and given == expected


class Plan:
    """The pieces of one batch size; run() gives what the compiled model would, in the same memory each time."""

    def __init__(self, taken: List[Tuple[Any, Any]], graphs: Any, layers: Any) -> None:
        finding = Finding(graphs, layers)
        self.pieces = [step for step, _ in taken]
        for number, (_, more) in enumerate(taken):
            if more["of"] != len(taken):
                raise Unsupported(f"the note of piece {number} says that there are {more['of']} pieces, not {len(taken)}")
        self._steps = [(step.replay, [finding.call(described) for described in more["then"]]) for step, more in taken]
        self._arguments = graphs.unpack(taken[0][1]["arguments"])
        self._result = graphs.unpack(taken[-1][1]["result"])

    def fits(self, arguments: Tuple[Any, ...], options: Dict[str, Any]) -> bool:
        return _alike(self._arguments, [arguments, options])

    def run(self) -> Any:
        for replay, calls in self._steps:
            replay()
            for operation, arguments, options in calls:
                operation(*arguments, **options)
        return self._result


class Plans:
    """The plans of a restored engine, each made when the first batch of its size comes. Batches without a plan run eagerly."""

    def __init__(self, takeover: Any, remark: dict) -> None:
        self._takeover, self._graphs = takeover, takeover.graphs
        self._pieces = int(remark["pieces"])
        self._sizes: List[Size] = [(tokens, adapters) for tokens, adapters in remark["sizes"]]
        self._made: Dict[Size, Optional[Plan]] = {}  # None: this size runs eagerly
        self._said: set = set()
        self._graphs.bind("pieces", State(arena.again(remark["arena"])))
        self._module: Any = None

    # ---- instead of the module's forward ----

    def install(self, module: Any) -> None:
        """Makes the module run batches by their plans, where there is one."""
        original = module.forward

        @functools.wraps(original)
        def forward(*arguments: Any, **options: Any) -> Any:
            plan = self._plan_now(arguments, options)
            done, result = (False, None) if plan is None else self._run(plan)
            return result if done else original(*arguments, **options)

        module.forward, self._module = forward, module
        self._takeover.publish_pieces([size for size in self._sizes if self._made.get(size, self) is not None])

    def remove(self) -> Any:
        """Ends install(), and returns its module, or None. These sizes are withdrawn, since vLLM's own wrappers have no graphs of them yet."""
        module, self._module = self._module, None
        if module is not None:
            vars(module).pop("forward", None)
            self._takeover.withdraw_pieces(self._sizes)
        return module

    def _plan_now(self, arguments: Tuple[Any, ...], options: Dict[str, Any]) -> Optional[Plan]:
        try:
            size = self._size_now()
            plan = self.of(size) if size else None
            if plan is None or plan.fits(arguments, options):
                return plan
            self._say(size, "the model was called with other arguments than in the capture")
        except Exception as error:  # pylint: disable=broad-except  # the batch runs eagerly
            self._say(None, repr(error))
        return None

    def _run(self, plan: Plan) -> Tuple[bool, Any]:
        """Whether the plan ran, and its result. If it fails half-way, the batch can run eagerly: it writes the same into the KV cache again."""
        try:
            return True, plan.run()
        except Exception as error:  # pylint: disable=broad-except  # a failure of the device fails the eager batch, too
            log.exception("medusa: a plan of pieces failed")
            for size in [size for size, made in self._made.items() if made is plan]:
                self._give_up(size, f"its plan failed: {error!r}")
            return False, None

    @staticmethod
    def _size_now() -> Optional[Size]:
        """The size of the current batch if vLLM runs it on pieces, else None."""
        from vllm.config.compilation import CUDAGraphMode
        from vllm.forward_context import get_forward_context, is_forward_context_available

        if not is_forward_context_available():
            return None
        now = get_forward_context()
        if now.cudagraph_runtime_mode != CUDAGraphMode.PIECEWISE or now.batch_descriptor is None:
            return None
        return size_of(now.batch_descriptor)

    # ---- plans ----

    def of(self, size: Size) -> Optional[Plan]:
        """The plan of a size; None if there is none, or none yet."""
        if size not in self._made:
            try:
                self._made[size] = self._make(size)
            except _api.Error as error:
                if error.code == _api.TIMEOUT:
                    return None
                self._give_up(size, str(error))
            except Unsupported as error:
                self._give_up(size, str(error))
            except BROKEN as error:
                self._give_up(size, f"the notes of pieces can't be read: {error!r}")
        return self._made[size]

    def _make(self, size: Size) -> Plan:
        until = time.monotonic() + PATIENCE_S
        tokens, adapters = size
        kinds = [kind_of(number, adapters) for number in range(self._pieces)]
        taken = self._graphs.take(kinds, tokens, lambda: max(0, int((until - time.monotonic()) * 1e9)))
        return Plan(taken, self._graphs, self._takeover.layers())

    def _give_up(self, size: Size, why: str) -> None:
        self._made[size] = None
        self._takeover.withdraw_pieces([size])
        self._say(size, why)

    def _say(self, size: Optional[Size], why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            log.warning("medusa: batches of %s run eagerly: %s", told(size) if size else "some tokens", why)

    # ---- the compiled model takes over ----

    def hand_over(self, wrappers: List[Any], size: Size, descriptor: Any) -> int:
        """Makes vLLM's own wrappers replay the restored pieces. Returns their number; 0: the wrappers must capture pieces."""
        from vllm.compilation.cuda_graph import CUDAGraphEntry

        plan = self.of(size)
        if plan is None or len(wrappers) != len(plan.pieces) or any(getattr(wrapper, "is_debugging_mode", False) for wrapper in wrappers):
            return 0
        for wrapper, piece in zip(wrappers, plan.pieces):
            wrapper.concrete_cudagraph_entries[descriptor] = CUDAGraphEntry(
                batch_descriptor=descriptor, cudagraph=piece, output=piece.outputs, input_addresses=None)
        return len(wrappers)

