# SPDX-License-Identifier: Apache-2.0
"""vLLM's first model runner (mixtures of experts and others): the wrapper of its full graphs, its static buffers, random batches."""
from __future__ import annotations

import contextlib
import logging
from typing import Any, Callable, Collection, Dict, Iterator, List, Optional, Tuple

import torch

from medusa import _api
from medusa.torch import Constant, State

from . import facts, fit, prefills, random_batch, workspace
from .buffers import builders, own_tensors, pairs
from .guard import spared
from .recording import Size, size_of
from .takeover import Takeover, label_of, tell

log = logging.getLogger("vllm.medusa")


class _NotHere(Exception):
    """The graph cannot be restored, and has to be made live by a dummy run of vLLM's."""


class First(Takeover):
    """The first runner captures pieces first. They are put off until it is known whether the full graphs can be restored."""

    def __init__(self, worker: Any) -> None:
        super().__init__(worker)
        self._forward: Optional[Callable[[], Any]] = None  # while vLLM's dummy run calls the model
        self._left_out: List[Tuple[List[Any], Dict[str, Any]]] = []
        self._remark: Any = None  # what a restored full graph says about pieces

    def capture(self, descriptors: List[Any], options: Dict[str, Any]) -> List[Tuple[List[Any], Dict[str, Any]]]:
        """Replaces GPUModelRunner._capture_cudagraphs, which is called once for pieces and once for full graphs.

        Returns the calls that vLLM has to make itself.
        """
        from vllm.config.compilation import CUDAGraphMode

        full = self.runner.cudagraph_dispatcher.cudagraph_keys[CUDAGraphMode.FULL]
        if options["cudagraph_runtime_mode"] != CUDAGraphMode.FULL and full:
            self._left_out.append((descriptors, options))
            return []
        why = fit.unfit_first(self.runner)
        if not why and not full:
            why = f"cudagraph_mode {self.runner.compilation_config.cudagraph_mode.name} has no full graphs"
        if self.attempt(descriptors, self._label, why, lambda: self._make_all(descriptors)):
            self._published().clear()  # vLLM has not made its pieces
            self.plans = prefills.restore(self, self._remark)
            return []
        self._clear()
        return [*self._left_out, (descriptors, options)]

    def leave(self) -> List[Tuple[List[Any], Dict[str, Any]]]:
        """Called when capture() has failed. Returns vLLM's calls that were put off."""
        spared("vLLM may keep graphs of the plug-in", self._clear)
        spared("vLLM does not dispatch pieces", lambda: self._published().update(self.pieces()))
        self.give_up()
        return list(self._left_out)

    def _clear(self) -> None:
        getattr(self.runner.model, "concrete_cudagraph_entries", {}).clear()

    # ---- pieces ----

    def pieces(self) -> List[Any]:
        return [desc for descriptors, _ in self._left_out for desc in descriptors]

    def warm_up(self) -> None:
        from vllm.config.compilation import CUDAGraphMode

        most = max((desc.num_tokens for desc in self.pieces()), default=1)
        self.runner._dummy_run(most, cudagraph_runtime_mode=CUDAGraphMode.NONE, skip_eplb=True, remove_lora=False)

    def make_piece(self, desc: Any) -> None:
        """Publishes the batch size first, because vLLM's dummy run looks for it among the published ones."""
        from vllm.config.compilation import CUDAGraphMode

        self.publish_piece(desc)
        try:
            self.runner._warmup_and_capture(desc, cudagraph_runtime_mode=CUDAGraphMode.PIECEWISE)
        except BaseException:
            self._published().discard(desc)
            raise

    def warm_piece(self, desc: Any) -> None:
        self._run_dummy(desc, "NONE")

    def capture_piece(self, desc: Any) -> None:
        with self._dispatched(desc):
            self._run_dummy(desc, "PIECEWISE", is_graph_capturing=True)

    def run_piece(self, desc: Any, numbers: torch.Generator) -> None:
        runner, tokens = self.runner, desc.num_tokens
        with self._dispatched(desc):
            runner.input_ids.gpu[:tokens] = random_batch.token_ids(tokens, runner.model_config.get_vocab_size(), numbers)
            where = torch.randint(runner.max_model_len, (tokens,), generator=numbers, device=numbers.device)
            runner.positions[:tokens] = where.to(runner.positions.dtype)
            self._run_dummy(desc, "PIECEWISE")

    def _run_dummy(self, desc: Any, mode: str, **options: Any) -> None:
        from vllm.config.compilation import CUDAGraphMode

        self.runner._dummy_run(desc.num_tokens, cudagraph_runtime_mode=CUDAGraphMode[mode], uniform_decode=desc.uniform, skip_eplb=True,
                               remove_lora=False, num_active_loras=desc.num_active_loras, **options)

    @contextlib.contextmanager
    def _dispatched(self, desc: Any) -> Iterator[None]:
        """vLLM's dummy run looks for a batch size among the published ones."""
        published = self._published()
        new = desc not in published
        published.add(desc)
        try:
            yield
        finally:
            if new:
                published.discard(desc)

    def publish_pieces(self, sizes: Collection[Size]) -> None:
        self._published().update(desc for desc in self.pieces() if size_of(desc) in sizes)

    def withdraw_pieces(self, sizes: Collection[Size]) -> None:
        self._published().difference_update([desc for desc in self.pieces() if size_of(desc) in sizes])

    def batch_descriptor(self, desc: Any) -> Any:
        return desc

    def publish_piece(self, desc: Any) -> None:
        self._published().add(desc)

    def _published(self) -> Any:
        from vllm.config.compilation import CUDAGraphMode

        return self.runner.cudagraph_dispatcher.cudagraph_keys[CUDAGraphMode.PIECEWISE]

    # ---- what graphs use ----

    def _label(self, desc: Any) -> Tuple[str, int]:
        queries = self.runner.uniform_decode_query_len if desc.uniform else None
        return label_of(queries, desc.num_tokens, desc.num_active_loras)

    def bindings(self) -> Dict[str, Any]:
        runner = self.runner
        tables = runner.input_batch.block_table.block_tables
        return {
            "kv": State(list(runner.kv_caches)),
            "inputs": State({**own_tensors(runner), **pairs(runner), "kv_caches": None}),
            "tables": State([pairs(table) for table in tables]),
            "attention": State([{**own_tensors(builder), **pairs(builder)} for builder in builders(runner)]),
            "workspace": State(workspace.tensors()),
            "pieces": State(list(self.recording.arena.tensors) if self.recording is not None else []),
            "model": Constant(runner.get_model()),
        }

    def facts(self) -> Dict[str, str]:
        runner = self.runner
        return facts.of(self.worker, [table.block_size for table in runner.input_batch.block_table.block_tables],
                        f"{runner.cudagraph_dispatcher.cudagraph_mode} query_len={runner.uniform_decode_query_len}")

    def randomizer(self, by_label: Dict[Tuple[str, int], Any]) -> Callable[..., None]:
        return Randomizer(self.runner, by_label)

    # ---- graphs ----

    def _make_all(self, descriptors: List[Any]) -> None:
        from vllm.compilation.cuda_graph import CUDAGraphEntry

        entries, steps = self.runner.model.concrete_cudagraph_entries, {}
        for desc in descriptors:
            step = steps[self._label(desc)] = self._make(desc)
            entries[desc] = CUDAGraphEntry(batch_descriptor=desc, cudagraph=step, output=step.outputs, input_addresses=[])
        self._remark = next((step.remark for step in steps.values() if step.remark), None)
        tell(steps)

    def _make(self, desc: Any) -> Any:
        assert self.graphs is not None
        graphs, (kind, batch) = self.graphs, self._label(desc)

        def run() -> Any:
            if self._forward is None:
                raise _NotHere
            return self._forward()

        if _api.mode() == "restore":
            try:
                return graphs.get(kind, batch, run)
            except _NotHere:
                self.compile_now()
        made: List[Any] = []

        def call(forward: Callable[[], Any]) -> Any:
            self._forward = forward
            made.append(graphs.get(kind, batch, run))
            return made[0].outputs

        self._dummy_run(desc, call)
        return made[0]

    def _dummy_run(self, desc: Any, call: Callable[[Callable[[], Any]], Any]) -> None:
        """Warms up and captures as vLLM does, but calls call(forward) where vLLM would capture forward()."""
        from vllm.config.compilation import CUDAGraphMode

        runner, model = self.runner, self.runner.model
        runner.model = _Caller(model, call)
        try:
            runner._warmup_and_capture(desc, cudagraph_runtime_mode=CUDAGraphMode.FULL)
        finally:
            runner.model, self._forward = model, None


class _Caller:
    """Takes the place of vLLM's CUDAGraphWrapper while a graph is captured, and forwards everything else to the wrapper."""

    def __init__(self, wrapper: Any, call: Callable[[Callable[[], Any]], Any]) -> None:
        self._wrapper, self._call = wrapper, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapper, name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from vllm.config.compilation import CUDAGraphMode
        from vllm.forward_context import get_forward_context

        if get_forward_context().cudagraph_runtime_mode != CUDAGraphMode.FULL:  # vLLM's own warm-up
            return self._wrapper(*arguments, **options)
        return self._call(lambda: self._wrapper.runnable(*arguments, **options))


class Randomizer:
    """Fills the static buffers with a random decoding batch. The contents of the KV cache do not matter."""

    def __init__(self, runner: Any, descriptors: Dict[Any, Any]) -> None:
        self._runner, self._descriptors = runner, descriptors

    def __call__(self, kind: str, batch: int, numbers: torch.Generator) -> None:
        runner, desc = self._runner, self._descriptors[kind, batch]
        tokens, requests = desc.num_tokens, desc.num_reqs or desc.num_tokens
        each = random_batch.counts(requests, tokens, numbers.device)
        tables = runner.input_batch.block_table.block_tables
        blocks = runner.kv_cache_config.num_blocks
        long = random_batch.lengths(each, blocks, min(table.block_size for table in tables), runner.max_model_len, numbers)
        where = random_batch.positions(long, each)
        runner.input_ids.gpu[:tokens] = random_batch.token_ids(tokens, runner.model_config.get_vocab_size(), numbers)
        runner.positions[:tokens] = where.to(runner.positions.dtype)
        for table in tables:
            random_batch.places(table.block_table.gpu[:requests], table.slot_mapping.gpu, where, each, table.block_size, blocks, numbers)
        self._lengths(long, each)
        self._attention(desc, requests, tokens, int(each.max()))

    def _lengths(self, long: torch.Tensor, each: torch.Tensor) -> None:
        """Sets lengths on the device and on the host, because vLLM's builders of attention metadata read those of the host."""
        runner, requests = self._runner, len(long)
        runner.optimistic_seq_lens_cpu[:requests] = long.cpu()
        runner.optimistic_seq_lens_cpu[requests:].fill_(0)
        runner.seq_lens.copy_(runner.optimistic_seq_lens_cpu)
        ends = torch.cumsum(each, 0).to(torch.int32).cpu()
        runner.query_start_loc.cpu[0] = 0
        runner.query_start_loc.cpu[1 : requests + 1] = ends
        runner.query_start_loc.cpu[requests + 1 :].fill_(int(ends[-1]))
        runner.query_start_loc.gpu.copy_(runner.query_start_loc.cpu)

    def _attention(self, desc: Any, requests: int, tokens: int, queries: int) -> None:
        runner = self._runner
        slots, _ = runner._get_slot_mappings(num_tokens_padded=tokens, num_reqs_padded=requests, num_tokens_unpadded=tokens,
                                             ubatch_slices=None)
        longest = runner.uniform_decode_query_len if desc.uniform else queries
        runner._build_attention_metadata(num_tokens=tokens, num_reqs=requests, max_query_len=longest, num_tokens_padded=tokens,
                                         slot_mappings=slots)
