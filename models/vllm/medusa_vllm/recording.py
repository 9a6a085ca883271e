# SPDX-License-Identifier: Apache-2.0
"""Records pieces in a capture: vLLM captures them; each gets a label, and a note from which a restored engine makes its plan."""
from __future__ import annotations

import contextlib
import functools
import logging
import zlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple
from unittest import mock

import torch

from medusa import _api
from medusa.torch import rng, scratch
from medusa.torch.graphs import Unsupported

from . import operations
from .arena import Arena, Unfit, most_at_once
from .pieces import Capturing

log = logging.getLogger("vllm.medusa")

ROUNDS = 3  # a verification compares each piece on so many random inputs, as it does with full graphs
SPREAD = 1.0  # standard deviation of random results of operations between pieces


Size = Tuple[int, int]  # of a batch: tokens, and adapters (LoRA) in it


def kind_of(number: int, adapters: int) -> str:
    return f"piece.{number}.lora{adapters}" if adapters else f"piece.{number}"


def size_of(desc: Any) -> Size:
    return int(desc.num_tokens), int(desc.num_active_loras)


def told(size: Size) -> str:
    """For the log."""
    return f"{size[0]} tokens with {size[1]} adapters" if size[1] else f"{size[0]} tokens"


@contextlib.contextmanager
def wrappers_called(called: Callable[[Any, Callable[[], Any], Tuple[Any, ...]], Any]) -> Iterator[None]:
    """Replaces each call of a piece by called(wrapper, original, arguments)."""
    from vllm.compilation.cuda_graph import CUDAGraphWrapper
    from vllm.config.compilation import CUDAGraphMode

    original = CUDAGraphWrapper.__call__

    def call(wrapper: Any, *arguments: Any, **options: Any) -> Any:
        run = functools.partial(original, wrapper, *arguments, **options)
        if getattr(wrapper, "runtime_mode", CUDAGraphMode.PIECEWISE) != CUDAGraphMode.PIECEWISE:
            return run()
        return called(wrapper, run, arguments)

    with mock.patch.object(CUDAGraphWrapper, "__call__", call):
        yield


def wrappers_of(forward: Callable[[], Any]) -> List[Any]:
    """vLLM's wrappers of pieces in the order in which a forward calls them."""
    found: List[Any] = []

    def called(wrapper: Any, run: Callable[[], Any], _: Any) -> Any:
        found.append(wrapper)
        return run()

    with wrappers_called(called):
        forward()
    return found


class _Between:
    """Calls seen(operation, arguments, options) after each operation between two of `count` pieces."""

    def __init__(self, count: int, seen: Callable[..., None]) -> None:
        self._count, self._seen, self.at = count, seen, 0
        self._mode: Any = None

    def called(self, wrapper: Any, run: Callable[[], Any], arguments: Tuple[Any, ...]) -> Any:
        self.leave()
        result = self.piece(wrapper, run, arguments)
        self.at += 1
        if self.at < self._count:
            self._mode = operations.Seeing(self._seen)
            self._mode.__enter__()
        return result

    def piece(self, _wrapper: Any, run: Callable[[], Any], _arguments: Tuple[Any, ...]) -> Any:
        return run()

    def leave(self) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        try:
            with wrappers_called(self.called):
                yield
        finally:
            self.leave()


class _Forward(_Between):
    """One forward in which vLLM captures the pieces of one batch size."""

    def __init__(self, graphs: Any, module: Any, count: int) -> None:
        super().__init__(count, self._operation)
        self._graphs, self._module = graphs, module
        self.pieces: List[Tuple[Any, Any]] = []  # each graph with its outputs
        self.between: List[List[dict]] = []
        self.arguments: Optional[dict] = None
        self.result: Optional[dict] = None
        self.why = ""

    def piece(self, wrapper: Any, run: Callable[[], Any], _arguments: Tuple[Any, ...]) -> Any:
        before = set(wrapper.concrete_cudagraph_entries)
        result = run()
        self._graphs.restate_scratch()
        made = [entry for key, entry in wrapper.concrete_cudagraph_entries.items() if key not in before]
        if len(made) != 1 or made[0].cudagraph is None:
            raise Unfit(f"piece {self.at} was not captured: vLLM's wrapper made {len(made)} entries instead of one with a graph")
        self.pieces.append((made[0].cudagraph, made[0].output))
        self.between.append([])
        return result

    def _operation(self, operation: Any, arguments: Tuple[Any, ...], options: Dict[str, Any]) -> None:
        if operations.is_view(operation):
            return
        try:
            self.between[-1].append(operations.describe(self._graphs, operation, arguments, options))
        except Unsupported as error:
            self.why = self.why or f"after piece {self.at}: {error}"

    def run(self, forward: Callable[[], Any]) -> None:
        original = type(self._module).__call__

        def call(module: Any, *arguments: Any, **options: Any) -> Any:
            result = original(module, *arguments, **options)
            if module is self._module:
                self._describe(arguments, options, result)
            return result

        with self.watching(), mock.patch.object(type(self._module), "__call__", call):
            forward()
        if len(self.pieces) != self._count:
            self.why = self.why or f"{len(self.pieces)} pieces were captured instead of {self._count}"

    def _describe(self, arguments: Tuple[Any, ...], options: Dict[str, Any], result: Any) -> None:
        for name, value in (("arguments", [list(arguments), options]), ("result", result)):
            try:
                setattr(self, name, self._graphs.pack(value))
            except Unsupported as error:
                self.why = self.why or f"the model's {name}: {error}"

    def more(self, number: int) -> dict:
        """The part of a piece's note from which the plan is made."""
        more: Dict[str, Any] = {"of": self._count, "then": self.between[number]}
        if number == 0:
            more["arguments"] = self.arguments
        if number == self._count - 1:
            more["result"] = self.result
        return more


class Recording:
    """The pieces of one worker. Call prepare() before full graphs are bound, capture() after they are made, and test() at the end."""

    def __init__(self, takeover: Any, module: Any) -> None:
        self._takeover, self._module = takeover, module
        self._sizes: List[Any] = takeover.pieces()
        self._graphs: Dict[Any, List[Any]] = {}
        self._wrappers: List[Any] = []
        self._capturing = Capturing(takeover.runner.device)
        self.arena = self._make_arena()

    def _make_arena(self) -> Arena:
        from vllm.platforms import current_platform

        return Arena(current_platform.get_global_graph_pool(), self._capturing.stream)

    def prepare(self) -> None:
        takeover = self._takeover
        self._wrappers = wrappers_of(functools.partial(takeover.warm_piece, self._sizes[0]))
        if not self._wrappers:
            raise Unfit("the compiled model has no pieces")
        forwards = [functools.partial(takeover.warm_piece, desc) for desc in self._sizes]
        self.arena.fill(*most_at_once(forwards))
        if _api.mode() == "capture":
            scratch.state_blocks(self.arena.unbound())  # a kernel that runs before there are graphs may find an old address, too

    def remark(self) -> dict:
        """What the note of each full graph tells a restored engine about pieces."""
        return {"pieces": len(self._wrappers), "sizes": [size_of(desc) for desc in self._sizes],
                "arena": [tensor.numel() for tensor in self.arena.tensors]}

    def capture(self) -> None:
        takeover, refused = self._takeover, 0
        self.arena.take_workspace()
        for desc in self._sizes:
            made = _Forward(takeover.graphs, self._module, len(self._wrappers))
            self._capturing.count(functools.partial(made.run, functools.partial(takeover.capture_piece, desc)))
            torch.cuda.synchronize()
            why = made.why or self._outgrown()
            self._graphs[desc] = [graph for graph, _ in made.pieces]
            tokens, adapters = size_of(desc)
            for number, (graph, output) in enumerate(made.pieces):
                why = takeover.graphs.adopt(kind_of(number, adapters), tokens, graph, output, made.more(number), why) or why
            if why:
                refused += 1
                log.warning("medusa: the pieces of %s will not be restored: %s", told(size_of(desc)), why)
        log.info("medusa: %d pieces of %d batch sizes captured live and labelled for the artifact; %d sizes refused",
                 sum(map(len, self._graphs.values())), len(self._sizes), refused)

    def _outgrown(self) -> str:
        grown = self.arena.outgrown()
        return f"their graph pool has grown by {grown} bytes that no binding covers" if grown else ""

    # ---- tests ----

    def test(self) -> None:
        """Launches all pieces in order on random inputs. A verification compares each piece with the restored one."""
        rounds = ROUNDS if _api.mode() == "verify" else 1
        device = torch.cuda.current_device()
        for desc in self._sizes:
            before = rng.offset(device)
            for turn in range(rounds):
                self._run_random(desc, turn)
            torch.cuda.synchronize()
            if rng.offset(device) != before:
                for graph in self._graphs[desc]:
                    self._takeover.graphs.refuse(graph, "a piece of its batch size draws random numbers (RNG)")

    def _run_random(self, desc: Any, turn: int) -> None:
        numbers = torch.Generator(self._takeover.runner.device)
        numbers.manual_seed(zlib.crc32(f"pieces/{size_of(desc)}/{turn}".encode()))

        def fill(operation: Any, arguments: Tuple[Any, ...], options: Dict[str, Any]) -> None:
            for tensor in operations.written(operation, arguments, options):
                if tensor.is_floating_point() and tensor.numel():
                    tensor.copy_(torch.randn(tensor.shape, generator=numbers, device=tensor.device) * SPREAD)

        with _Between(len(self._wrappers), fill).watching():
            self._takeover.run_piece(desc, numbers)
