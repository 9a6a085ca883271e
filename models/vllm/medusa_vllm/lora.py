# SPDX-License-Identifier: Apache-2.0
"""Binds the memory of adapters: their stacked weights, the tables of pointers to them, and which token has which adapter.

Adapters are loaded and unloaded while vLLM serves, so all of this memory is state of the engine.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Tuple

import torch

from medusa.torch import State

from .buffers import own_tensors
from .guard import spared

WEIGHTS = ("lora_a_stacked", "lora_b_stacked")
SCALE = 0.02  # of random weights: large enough to change a sum, small enough not to dominate it


def _manager(runner: Any) -> Any:
    """vLLM's LoRAModelManager; None without LoRA."""
    return getattr(getattr(runner, "lora_manager", None), "_adapter_manager", None)


def _stacked(value: Any) -> List[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [part for part in value if isinstance(part, torch.Tensor)]


def _layers(runner: Any) -> Iterator[Tuple[str, Any]]:
    for name, module in runner.get_model().named_modules():
        if all(isinstance(getattr(module, weights, None), (torch.Tensor, tuple, list)) for weights in WEIGHTS):
            yield name, module


def _tables(module: Any) -> List[torch.Tensor]:
    """The tables, made once by vLLM, from which kernels read the addresses of weights if a layer has several slices."""
    from vllm.lora.ops.triton_ops import utils

    first, second = (_stacked(getattr(module, weights)) for weights in WEIGHTS)
    if not isinstance(module.lora_a_stacked, (tuple, list)) or len(first) < 2:
        return []
    device = first[0].device
    made = (*utils._get_lora_a_ptr(first, device), *utils._get_lora_b_ptr(second, 0, device))
    return [part for part in made if isinstance(part, torch.Tensor)]


def bindings(runner: Any, wanted: bool) -> Dict[str, Any]:
    """All memory of adapters that graphs read; {} without LoRA. wanted: vLLM's configuration has LoRA."""
    manager = _manager(runner)
    if manager is None:
        if wanted:
            raise LookupError("vLLM's manager of adapters has not been found (lora_manager._adapter_manager)")
        return {}
    layers = dict(_layers(runner))
    _check(manager, layers)
    return {
        "lora": State({name: [_stacked(getattr(module, weights)) for weights in WEIGHTS] for name, module in layers.items()}),
        "lora_tables": State({name: _tables(module) for name, module in layers.items()}),
        "lora_tokens": State({
            name: [own_tensors(holder) for holder in (wrapper, wrapper.token_mapping_meta, wrapper.prompt_mapping_meta)]
            for name, wrapper in manager.punica_wrapper_mapping.items()
        }),
    }


def _check(manager: Any, layers: Dict[str, Any]) -> None:
    """Weights of adapters that are not bound would count as constant, and a restored graph would compute with those of the capture."""
    found = {id(module) for module in layers.values()}
    for name, module in manager.modules.items():
        if id(module) not in found:
            raise LookupError(f"the weights of adapters in layer {name} ({type(module).__name__}) have not been found ({', '.join(WEIGHTS)})")
    if not layers or not manager.punica_wrapper_mapping:
        raise LookupError("no layer has weights of adapters, or there is no mapping of tokens to adapters")
    for name, module in layers.items():
        if not all(_stacked(getattr(module, weights)) for weights in WEIGHTS):
            raise LookupError(f"layer {name} ({type(module).__name__}) has no tensors in {', '.join(WEIGHTS)}")


@contextmanager
def dummies_kept(runner: Any) -> Iterator[None]:
    """Makes vLLM's dummy adapters again after vLLM's profiling, which removes all adapters: captures that follow need them."""
    manager = getattr(runner, "lora_manager", None)
    were_there = manager is not None and spared("dummy adapters are made again", lambda: bool(manager.list_adapters()), True)
    yield
    if were_there:
        spared("graphs of adapters are captured without dummy adapters", lambda: _make_dummies(runner))


def _make_dummies(runner: Any) -> None:
    with runner.maybe_setup_dummy_loras(runner.lora_config, remove_lora=False):
        pass


@contextmanager
def selected_by_number(runner: Any) -> Iterator[None]:
    """While vLLM captures beside a serving engine, the loaded adapters stay: a graph depends on their number in a batch alone."""
    manager = _manager(runner)
    if manager is None:
        yield
        return

    @contextmanager
    def select(_config: Any, num_scheduled_tokens: Any, *_: Any, num_active_loras: int = 0, **_more: Any) -> Iterator[None]:
        each = torch.as_tensor(num_scheduled_tokens, dtype=torch.int64)
        most = min(num_active_loras, manager.lora_slots)
        chosen = torch.arange(len(each)) % most + 1 if most else torch.zeros(len(each), dtype=torch.int64)
        _tell(manager, chosen, each)
        yield

    runner.maybe_select_dummy_loras = select
    try:
        yield
    finally:
        del runner.maybe_select_dummy_loras


def randomize(runner: Any, adapters: int, each: torch.Tensor, numbers: torch.Generator) -> None:
    """Gives each place for an adapter random weights, and each request a random adapter: at most `adapters`, counting "none"."""
    manager = _manager(runner)
    if manager is None or not adapters:
        return
    for _, module in _layers(runner):
        for weights in WEIGHTS:
            for tensor in _stacked(getattr(module, weights)):
                tensor.copy_(torch.randn(tensor.shape, generator=numbers, device=numbers.device) * SCALE)
    slots = manager.lora_slots
    lowest, highest = (0, slots) if adapters > slots else (1, adapters)
    chosen = torch.randint(lowest, highest + 1, (len(each),), generator=numbers, device=numbers.device)
    _tell(manager, chosen, each)


def _tell(manager: Any, chosen: torch.Tensor, each: torch.Tensor) -> None:
    """Tells the mapping of tokens as vLLM's manager does, for adapters that are not loaded. vLLM tells the next request's anew."""
    from vllm.lora.layers import LoRAMapping

    mapping = LoRAMapping(tuple(chosen.repeat_interleave(each).tolist()), tuple(chosen.tolist()), is_prefill=True)
    for wrapper in manager.punica_wrapper_mapping.values():
        wrapper.update_metadata(mapping, list(range(1, manager.lora_slots + 1)), manager.lora_slots + 1, manager.vocab_size)
    manager._last_mapping = None
