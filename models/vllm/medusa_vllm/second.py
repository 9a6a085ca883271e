# SPDX-License-Identifier: Apache-2.0
"""vLLM's second model runner (dense models): its graph manager, its static buffers, and random batches in them."""
from __future__ import annotations

import contextlib
import logging
from typing import Any, Callable, Collection, Dict, Iterator, List, Tuple

import torch

from medusa.torch import Constant, Output, State

from . import facts, fit, lora, prefills, random_batch, workspace
from .buffers import builders, own_tensors
from .guard import spared
from .recording import Size, size_of
from .takeover import Takeover, label_of, tell

log = logging.getLogger("vllm.medusa")


class Second(Takeover):
    """The take-over of vLLM's second runner. `manager` is vLLM's CudaGraphManager; it is set when the capture begins."""

    manager: Any = None
    pieces_between_steps = True  # possible because each step fills all static buffers anew
    _create_forward_fn: Any = None
    _candidates: Dict[Any, List[Any]] = {}  # vLLM's own list; candidates with a graph are published

    def capture(self, manager: Any, create_forward_fn: Callable[..., Any]) -> bool:
        """Replaces CudaGraphManager.capture."""
        from vllm.config.compilation import CUDAGraphMode

        self.manager, self._create_forward_fn = manager, create_forward_fn
        descriptors = manager._capture_descs.get(CUDAGraphMode.FULL, [])
        why = fit.unfit_second(self.runner, manager)
        if not why and not descriptors:
            why = f"cudagraph_mode {manager.cudagraph_mode.name} has no full graphs"
        if not self.attempt(descriptors, _label, why, lambda: self._make_all(descriptors, create_forward_fn)):
            manager.graphs.clear()
            return False
        # The other candidates are pieces: unless they are restored, batches with prefills run without graphs.
        self._candidates, self._published = manager._candidates, set(descriptors)
        self._publish()
        self.plans = prefills.restore(self, self._remark())
        manager._graphs_captured = True
        return True

    def leave(self, manager: Any) -> bool:
        """Called when capture() has failed: vLLM's manager is as it was before."""
        spared("vLLM may keep graphs of the plug-in", manager.graphs.clear)
        if self._candidates:
            manager._candidates = self._candidates
        self.give_up()
        return False

    def _publish(self) -> None:
        self.manager._candidates = {
            key: [desc for desc in candidates if desc in self._published] for key, candidates in self._candidates.items()
        }

    def _remark(self) -> Any:
        """What a restored full graph says about pieces."""
        return next((step.remark for step in self.manager.graphs.values() if step.remark), None)

    # ---- pieces ----

    def pieces(self) -> List[Any]:
        from vllm.config.compilation import CUDAGraphMode

        return list(self.manager._capture_descs.get(CUDAGraphMode.PIECEWISE, []))

    def warm_up(self) -> None:
        from vllm.config.compilation import CUDAGraphMode

        desc = (self.pieces() or self.manager._capture_descs[CUDAGraphMode.FULL])[0]
        with self._beside_the_engine():
            self._create_forward_fn(desc, warmup=True)(CUDAGraphMode.NONE)

    def make_piece(self, desc: Any) -> None:
        from vllm.config.compilation import CUDAGraphMode

        with self._beside_the_engine():
            forward = self._create_forward_fn(desc, warmup=True)
            forward(CUDAGraphMode.NONE)
            forward(CUDAGraphMode.PIECEWISE)

    def warm_piece(self, desc: Any) -> None:
        from vllm.config.compilation import CUDAGraphMode

        with self._beside_the_engine():
            self._create_forward_fn(desc, warmup=True)(CUDAGraphMode.NONE)

    def capture_piece(self, desc: Any) -> None:
        from vllm.config.compilation import CUDAGraphMode

        with self._beside_the_engine():
            self._create_forward_fn(desc, warmup=True)(CUDAGraphMode.PIECEWISE)

    def run_piece(self, desc: Any, numbers: torch.Generator) -> None:
        from vllm.config.compilation import CUDAGraphMode

        buffers, tokens = self.runner.input_buffers, desc.num_tokens
        with self._beside_the_engine():
            forward = self._create_forward_fn(desc, warmup=True)
            buffers.input_ids[:tokens] = random_batch.token_ids(tokens, self.runner.model_config.get_vocab_size(), numbers)
            where = torch.randint(self.runner.max_model_len, (tokens,), generator=numbers, device=numbers.device)
            buffers.positions[:tokens] = where.to(buffers.positions.dtype)
            each = random_batch.counts(min(tokens, self.runner.max_num_reqs), tokens, numbers.device)
            lora.randomize(self.runner, desc.num_active_loras, each, numbers)
            forward(CUDAGraphMode.PIECEWISE)

    def publish_pieces(self, sizes: Collection[Size]) -> None:
        self._published |= {desc for desc in self.pieces() if size_of(desc) in sizes}
        self._publish()

    def withdraw_pieces(self, sizes: Collection[Size]) -> None:
        self._published -= {desc for desc in self.pieces() if size_of(desc) in sizes}
        self._publish()

    def batch_descriptor(self, desc: Any) -> Any:
        from vllm.forward_context import BatchDescriptor

        return BatchDescriptor(num_tokens=desc.num_tokens, num_active_loras=desc.num_active_loras)

    @contextlib.contextmanager
    def _beside_the_engine(self) -> Iterator[None]:
        """Takes the full graphs' output away for a while: vLLM's warm-ups would write into it, and it is too small for the largest pieces."""
        outputs, self.manager.hidden_states = self.manager.hidden_states, None
        try:
            with lora.selected_by_number(self.runner):
                yield
        finally:
            self.manager.hidden_states = outputs

    def publish_piece(self, desc: Any) -> None:
        self._published.add(desc)
        self._publish()

    # ---- what graphs use ----

    def bindings(self) -> Dict[str, Any]:
        """All memory that the engine owns and that full graphs use, by name."""
        runner, tables = self.runner, self.runner.block_tables
        self._make_hidden_states()
        return {
            "kv": State(list(runner.kv_caches)),
            "inputs": State(own_tensors(runner.input_buffers)),
            "tables": State({"block_tables": list(tables.input_block_tables), "slot_mappings": tables.slot_mappings}),
            "attention": State([own_tensors(builder) for builder in builders(runner)]),
            "state": State(own_tensors(runner.model_state)),
            "workspace": State(workspace.tensors()),
            "hidden_states": Output(self.manager.hidden_states),
            **lora.bindings(runner, bool(self.worker.vllm_config.lora_config)),
            "pieces": State(list(self.recording.arena.tensors) if self.recording is not None else []),
            "model": Constant(runner.get_model()),
        }

    def _make_hidden_states(self) -> None:
        """Makes the output buffer that vLLM makes in the warm-up of its largest graph; a restore runs no warm-up."""
        from vllm.config.compilation import CUDAGraphMode

        manager, config = self.manager, self.runner.model_config
        if manager.hidden_states is None:
            most = max(desc.num_tokens for desc in manager._capture_descs[CUDAGraphMode.FULL])
            manager.hidden_states = torch.empty(most, config.get_hidden_size(), dtype=config.dtype, device=self.runner.device)

    def facts(self) -> Dict[str, str]:
        manager = self.manager
        return facts.of(self.worker, list(self.runner.kernel_block_sizes), f"{manager.cudagraph_mode} query_len={manager.decode_query_len}")

    def randomizer(self, by_label: Dict[Tuple[str, int], Any]) -> Callable[..., None]:
        return Randomizer(self.runner, by_label)

    def _make_all(self, descriptors: List[Any], create_forward_fn: Callable[..., Any]) -> None:
        from vllm.distributed.parallel_state import graph_capture

        with graph_capture(device=self.manager.device):
            for desc in descriptors:
                self.manager.graphs[desc] = self._make(desc, create_forward_fn)
        tell({_label(desc): self.manager.graphs[desc] for desc in descriptors})

    def _make(self, desc: Any, create_forward_fn: Callable[..., Any]) -> Any:
        """Makes one graph. As in vLLM, attention state is made anew between warm-up and capture."""
        from vllm.config.compilation import CUDAGraphMode

        assert self.graphs is not None
        forward: List[Any] = []

        def prepare() -> None:
            forward[:] = [create_forward_fn(desc, warmup=False)]

        def run() -> None:
            if not forward:  # the warm-up of a graph that has to be captured live
                self.compile_now()
                forward.append(create_forward_fn(desc, warmup=True))
            forward[0](CUDAGraphMode.NONE)

        kind, batch = _label(desc)
        return self.graphs.get(kind, batch, run, prepare)


def _label(desc: Any) -> Tuple[str, int]:
    return label_of(desc.uniform_token_count, desc.num_tokens, desc.num_active_loras)


class Randomizer:
    """Fills the static buffers with a random decoding batch. The contents of the KV cache do not matter."""

    def __init__(self, runner: Any, descriptors: Dict[Any, Any]) -> None:
        self._runner, self._descriptors = runner, descriptors

    def __call__(self, kind: str, batch: int, numbers: torch.Generator) -> None:
        from vllm.config.compilation import CUDAGraphMode
        from vllm.v1.worker.gpu.input_batch import InputBatch

        runner, desc = self._runner, self._descriptors[kind, batch]
        buffers, tokens, blocks = runner.input_buffers, desc.num_tokens, runner.kv_cache_config.num_blocks
        requests = desc.num_reqs or min(tokens, runner.max_num_reqs)
        made = InputBatch.make_dummy(requests, tokens, buffers)
        each = random_batch.counts(requests, tokens, numbers.device)
        long = random_batch.lengths(each, blocks, min(runner.kernel_block_sizes), runner.max_model_len, numbers)
        where = random_batch.positions(long, each)
        buffers.seq_lens[:requests] = long
        made.seq_lens_cpu_upper_bound = long.cpu()
        buffers.input_ids[:tokens] = random_batch.token_ids(tokens, runner.model_config.get_vocab_size(), numbers)
        buffers.positions[:tokens] = where.to(buffers.positions.dtype)
        buffers.is_padding[:tokens] = False
        tables = runner.block_tables.get_dummy_block_tables(requests)
        slots = runner.block_tables.slot_mappings
        slots.fill_(-1)
        for group, table in enumerate(tables):
            random_batch.places(table, slots[group], where, each, runner.kernel_block_sizes[group], blocks, numbers)
        runner.model_state.prepare_attn(
            made, CUDAGraphMode.FULL, tables, slots[:, :tokens], runner.attn_groups, runner.kv_cache_config
        )
        lora.randomize(runner, desc.num_active_loras, each, numbers)
