# SPDX-License-Identifier: Apache-2.0
"""What a full graph reads: vLLM's static buffers by name, and valid random values for them."""
from __future__ import annotations

from typing import Any, Callable, Dict

import torch

from medusa.torch import Constant, Output, State


def _own_tensors(holder: Any) -> Dict[str, Any]:
    """Tensors that hang right in an object, in its lists or in its dictionaries."""
    found: Dict[str, Any] = {}
    for name, value in vars(holder).items():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
        parts = list(parts)
        if parts and all(isinstance(part, torch.Tensor) for part in parts):
            found[name.lstrip("_")] = value
    return found


def bindings(runner: Any, manager: Any) -> Dict[str, Any]:
    """All that the engine owns and that full graphs use."""
    builders = [builder for groups in runner.attn_groups for group in groups for builder in group.metadata_builders]
    tables = runner.block_tables
    return {
        "kv": State(list(runner.kv_caches)),
        "inputs": State(_own_tensors(runner.input_buffers)),
        "tables": State({"block_tables": list(tables.input_block_tables), "slot_mappings": tables.slot_mappings}),
        "attention": State([_own_tensors(builder) for builder in builders]),
        "state": State(_own_tensors(runner.model_state)),
        "hidden_states": Output(manager.hidden_states),
        "model": Constant(runner.model),
    }


def make_hidden_states(runner: Any, manager: Any, most_tokens: int) -> None:
    """vLLM makes this buffer in the warm-up of its largest graph, which a restore does not run."""
    config = runner.model_config
    if manager.hidden_states is None:
        manager.hidden_states = torch.empty(most_tokens, config.get_hidden_size(), dtype=config.dtype, device=runner.device)


class Randomizer:
    """Fills the static buffers as a decoding batch would, with random requests; the KV cache may hold anything."""

    def __init__(self, runner: Any, descriptors: Dict[Any, Any]) -> None:
        self._runner, self._descriptors = runner, descriptors

    def __call__(self, kind: str, batch: int, numbers: torch.Generator) -> None:
        from vllm.config.compilation import CUDAGraphMode
        from vllm.v1.worker.gpu.input_batch import InputBatch

        runner, desc = self._runner, self._descriptors[kind, batch]
        buffers, tokens = runner.input_buffers, desc.num_tokens
        requests = desc.num_reqs or min(tokens, runner.max_num_reqs)
        made = InputBatch.make_dummy(requests, tokens, buffers)
        lengths = self._lengths(requests, tokens // requests, numbers)
        buffers.seq_lens[:requests] = lengths
        made.seq_lens_cpu_upper_bound = lengths.cpu()
        self._tokens(desc, lengths, numbers)
        tables = runner.block_tables.get_dummy_block_tables(requests)
        slots = runner.block_tables.slot_mappings
        slots.fill_(-1)
        for group, table in enumerate(tables):
            self._places(group, table, slots[group], buffers.positions[:tokens], tokens // requests, numbers)
        runner.model_state.prepare_attn(
            made, CUDAGraphMode.FULL, tables, slots[:, :tokens], runner.attn_groups, runner.kv_cache_config
        )

    def _lengths(self, requests: int, queries: int, numbers: torch.Generator) -> torch.Tensor:
        """Tokens of each request, those of this step included; all of them together have distinct blocks."""
        sizes = self._runner.kernel_block_sizes
        blocks = (self._runner.kv_cache_config.num_blocks - 1) // max(1, requests)
        most = max(queries, min(self._runner.max_model_len, blocks * min(sizes), 4096))
        return torch.randint(queries, most + 1, (requests,), generator=numbers, device=numbers.device, dtype=torch.int32)

    def _tokens(self, desc: Any, lengths: torch.Tensor, numbers: torch.Generator) -> None:
        buffers, tokens = self._runner.input_buffers, desc.num_tokens
        vocabulary = self._runner.model_config.get_vocab_size()
        queries = tokens // len(lengths)
        ids = torch.randint(vocabulary, (tokens,), generator=numbers, device=numbers.device, dtype=torch.int32)
        buffers.input_ids[:tokens] = ids
        steps = torch.arange(queries, device=lengths.device).repeat(len(lengths))
        first = (lengths - queries).repeat_interleave(queries)
        buffers.positions[:tokens] = (first + steps).to(buffers.positions.dtype)
        buffers.is_padding[:tokens] = False

    def _places(
        self, group: int, table: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, queries: int, numbers: torch.Generator
    ) -> None:
        """Block 0 is vLLM's null block; no two requests share a block."""
        size = self._runner.kernel_block_sizes[group]
        requests, most = table.shape[0], self._runner.kv_cache_config.num_blocks - 1
        columns = min(table.shape[1], most // requests)
        order = torch.randperm(most, generator=numbers, device=numbers.device)[: requests * columns] + 1
        table.zero_()
        table[:, :columns] = order.view(requests, columns).to(table.dtype)
        rows = torch.arange(requests, device=table.device).repeat_interleave(queries)
        blocks = table[rows, positions // size].to(slots.dtype)
        slots[: len(positions)] = blocks * size + positions % size
