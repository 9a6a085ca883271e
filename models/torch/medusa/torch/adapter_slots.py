# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters in slots of device memory whose addresses never change: one captured or restored graph serves them all."""
from __future__ import annotations

import json
import math
import os
import re
from collections import OrderedDict
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

_NOTHING = 0  # the slot of rows without an adapter: zeros

Pair = Tuple[torch.Tensor, torch.Tensor, float]  # a [rank, inputs], b [outputs, rank], scale
# Keys of adapter_config.json that change nothing here, or that are obeyed. Others, if they are set, may change what is computed.
_KNOWN = {
    "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "target_modules", "exclude_modules", "layers_to_transform",
    "layers_pattern", "bias", "init_lora_weights", "auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode",
    "peft_version", "lora_dropout", "megatron_core", "megatron_config", "loftq_config", "eva_config", "corda_config", "lora_ga_config",
    "runtime_config", "qalora_group_size"
}
_INITIAL = (None, True, False, "gaussian", "eva", "orthogonal")  # others have changed the base model's weights, too


class SlottedLinear(torch.nn.Module):
    """A linear layer, and beside it what each row's adapter adds: scale * b (a x), of the slot that `index` has for the row."""

    def __init__(self, base: torch.nn.Module, slots: int, rank: int, index: torch.Tensor) -> None:
        super().__init__()
        weight = base.weight
        outputs, inputs = weight.shape
        place = {"dtype": weight.dtype, "device": weight.device}
        self.base, self.index = base, index
        self.a = torch.zeros(slots + 1, rank, inputs, **place)
        self.b = torch.zeros(slots + 1, outputs, rank, **place)  # times scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.index[:x.shape[0]]
        each = x.reshape(x.shape[0], -1, x.shape[-1])
        low = torch.bmm(each, self.a.index_select(0, rows).transpose(1, 2))
        added = torch.bmm(low, self.b.index_select(0, rows).transpose(1, 2))
        y = self.base(x)
        return y + added.reshape(y.shape)


class AdapterSlots:
    """What AdapterSlots(...) of medusa-torch(7) says. Not for several threads at once."""

    def __init__(self, model: torch.nn.Module, slots: int, max_rank: int = 16, rows: int = 64,
                 targets: Optional[Sequence[str]] = None) -> None:
        if slots < 1 or max_rank < 1 or rows < 1:
            raise ValueError(f"AdapterSlots: slots is {slots}, max_rank {max_rank} and rows {rows}; each must be at least 1")
        self._max_rank = max_rank
        found = list(_linears(model, targets))
        if not found:
            raise ValueError("AdapterSlots: the model has no linear layer" + (f" called {', '.join(targets)}" if targets else ""))
        self.index = torch.zeros(rows, dtype=torch.int64, device=found[0][3].weight.device)
        self._layers: Dict[str, SlottedLinear] = {}
        self._before: List[Tuple[torch.nn.Module, str, torch.nn.Module]] = []
        for name, parent, key, base in found:
            self._before.append((parent, key, getattr(parent, key)))
            self._layers[name] = SlottedLinear(base, slots, max_rank, self.index)
            setattr(parent, key, self._layers[name])
        self._adapters: Dict[str, Dict[str, Tuple[torch.Tensor, torch.Tensor]]] = {}
        self._slots: "OrderedDict[int, Optional[str]]" = OrderedDict((slot, None) for slot in range(1, slots + 1))  # longest unused first
        self._selected: List[str] = []

    # ---- adapters ----

    def load(self, name: str, folder: Optional[str] = None) -> None:
        """Keeps an adapter in host memory: of a folder as PEFT writes it; None: the one of this name that the PEFT model had."""
        if not name or name in self._adapters:
            raise ValueError(f"AdapterSlots.load: {name!r} is " + ("loaded already: unload it first" if name else "no name"))
        originals = {layer: module for layer, (_, _, module) in zip(self._layers, self._before)}
        pairs = _from_modules(originals, name) if folder is None else _from_folder(os.fspath(folder))
        self._adapters[name] = {layer: self._checked(name, layer, *pair) for layer, pair in self._matched(name, pairs).items()}

    def _matched(self, name: str, pairs: Dict[str, Pair]) -> Dict[str, Pair]:
        """PEFT's names of layers may lack what stands before them in this model, or have more there."""
        matched: Dict[str, Pair] = {}
        if not pairs:
            raise ValueError(f"AdapterSlots.load: adapter {name} changes nothing: it has no lora_A and lora_B")
        for layer, pair in pairs.items():
            mine = [own for own in self._layers if own == layer or own.endswith("." + layer) or layer.endswith("." + own)]
            if len(mine) != 1:
                raise ValueError(f"AdapterSlots.load: adapter {name} changes {layer}, which is " + (
                    f"{len(mine)} layers of this model" if mine else "no layer of this model, or none of `targets`"))
            if mine[0] in matched:
                raise ValueError(f"AdapterSlots.load: adapter {name} changes layer {mine[0]} twice")
            matched[mine[0]] = pair
        return matched

    def _checked(self, name: str, layer: str, a: torch.Tensor, b: torch.Tensor, scale: float) -> Tuple[torch.Tensor, torch.Tensor]:
        """As the slots have it: b with the scale in it."""
        outputs, inputs = self._layers[layer].base.weight.shape
        what, rank = f"AdapterSlots.load: adapter {name}, layer {layer}", a.shape[0] if a.dim() == 2 else 0
        if tuple(a.shape) != (rank, inputs) or tuple(b.shape) != (outputs, rank):
            raise ValueError(f"{what}: lora_A has shape {tuple(a.shape)} and lora_B {tuple(b.shape)}; the layer has {inputs} inputs and {outputs} outputs")
        if not 1 <= rank <= self._max_rank:
            raise ValueError(f"{what}: the rank is {rank}, and max_rank {self._max_rank}")
        if not (math.isfinite(scale) and a.isfinite().all() and b.isfinite().all()):
            raise ValueError(f"{what}: a value is no finite number")
        dtype = self._layers[layer].a.dtype
        return a.detach().to("cpu", dtype, copy=True), (b.detach().to("cpu", torch.float32) * scale).to(dtype)

    def unload(self, name: str) -> None:
        """Forgets an adapter. Rows that are selected for it must have been computed."""
        if name not in self._adapters:
            raise KeyError(f"AdapterSlots.unload: {name!r} is not loaded; loaded are {', '.join(self._adapters) or 'none'}")
        if name in self._selected:
            raise ValueError(f"AdapterSlots.unload: {name!r} is selected: select other rows first")
        del self._adapters[name]
        for slot, held in self._slots.items():
            if held == name:
                self._slots[slot] = None
                self._slots.move_to_end(slot, last=False)
                break

    def names(self) -> List[str]:
        """Of the adapters that are loaded."""
        return list(self._adapters)

    # ---- rows ----

    def select(self, names: Sequence[Optional[str]]) -> None:
        """Which adapter each row of the next steps has, None: none. Copies adapters into slots, on the current stream; not during a capture."""
        if len(names) > len(self.index):
            raise ValueError(f"AdapterSlots.select: {len(names)} rows were given, and there are {len(self.index)} (rows)")
        wanted = list(dict.fromkeys(name for name in names if name is not None))
        for name in wanted:
            if name not in self._adapters:
                raise KeyError(f"AdapterSlots.select: {name!r} is not loaded; loaded are {', '.join(self._adapters) or 'none'}")
        if len(wanted) > len(self._slots):
            raise ValueError(f"AdapterSlots.select: {len(wanted)} adapters were given for {len(self._slots)} slots")
        slots = {name: self._slot_of(name, wanted) for name in wanted}
        rows = [_NOTHING if name is None else slots[name] for name in names]
        self.index.copy_(torch.tensor(rows + [_NOTHING] * (len(self.index) - len(rows)), dtype=torch.int64))
        self._selected = wanted

    def _slot_of(self, name: str, wanted: List[str]) -> int:
        slot = next((slot for slot, held in self._slots.items() if held == name), None)
        if slot is None:
            slot = next(slot for slot, held in self._slots.items() if held not in wanted)
            self._slots[slot] = None  # if a copy fails, nobody takes what is there for an adapter
            self._fill(slot, self._adapters[name])
            self._slots[slot] = name
        self._slots.move_to_end(slot)
        return slot

    @torch.no_grad()
    def _fill(self, slot: int, pairs: Dict[str, Tuple[torch.Tensor, torch.Tensor]]) -> None:
        for layer, slotted in self._layers.items():
            a, b = slotted.a[slot], slotted.b[slot]
            if layer not in pairs:
                b.zero_()
                continue
            new_a, new_b = pairs[layer]
            rank = new_a.shape[0]
            a[:rank].copy_(new_a)
            a[rank:].zero_()
            b[:, :rank].copy_(new_b)
            b[:, rank:].zero_()

    # ---- memory ----

    def tensors(self) -> Dict[str, torch.Tensor]:
        """All tensors that graphs read and select() writes, by name: for State(...) of the bindings."""
        tables = {f"{name}.{kind}": getattr(layer, kind) for name, layer in self._layers.items() for kind in ("a", "b")}
        return {"adapters.index": self.index, **{f"adapters.{name}": table for name, table in tables.items()}}

    def close(self) -> None:
        """The model has its own layers again."""
        for parent, key, module in self._before:
            setattr(parent, key, module)
        self._before = []


# ---- models ----


def _is_linear(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(module, torch.nn.Linear) and isinstance(weight, torch.Tensor) and weight.is_floating_point()


def _is_lora(module: torch.nn.Module) -> bool:
    """PEFT's layer: it has the base layer, and adapters by name."""
    return hasattr(module, "base_layer") and hasattr(module, "lora_A") and hasattr(module, "lora_B")


def _linears(model: torch.nn.Module, targets: Optional[Sequence[str]]) -> Iterator[Tuple[str, torch.nn.Module, str, torch.nn.Module]]:
    """Name, parent, key and the layer itself. Of a PEFT model: the layers that PEFT has wrapped; else those of `targets`, or all but the head."""
    modules = dict(model.named_modules())
    wrapped = [name for name, module in modules.items() if _is_lora(module)]
    heads = {id(head) for head in (getattr(each, "lm_head", None) for each in modules.values()) if head is not None}
    for name, module in modules.items():
        if name in wrapped or (not wrapped and _is_linear(module) and id(module) not in heads):
            base = module.base_layer if name in wrapped else module
            key = name.rpartition(".")[2]
            if _is_linear(base) and (targets is None or key in targets):
                yield name, modules[name.rpartition(".")[0]], key, base


def _from_modules(modules: Dict[str, torch.nn.Module], name: str) -> Dict[str, Pair]:
    pairs: Dict[str, Pair] = {}
    for layer, module in modules.items():
        if not _is_lora(module) or name not in module.lora_A:
            continue
        if name in getattr(module, "lora_variant", {}) or getattr(module.lora_B[name], "bias", None) is not None:
            raise ValueError(f"AdapterSlots.load: adapter {name}, layer {layer}: a variant of LoRA (DoRA, bias), which slots do not have")
        pairs[layer] = module.lora_A[name].weight, module.lora_B[name].weight, float(module.scaling[name])
    return pairs


# ---- folders ----


def _read_config(folder: str) -> Dict[str, Any]:
    path = os.path.join(folder, "adapter_config.json")
    with open(path, encoding="utf-8") as file:
        try:
            config = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ValueError(f"{path}: peft_type is {config.get('peft_type') if isinstance(config, dict) else None!r}; only LORA is served")
    for key, value in config.items():
        if key not in _KNOWN and value not in (None, False, [], {}, ""):
            raise ValueError(f"{path}: {key} is {value!r}, which slots do not have: it may change what is computed")
    if config.get("bias", "none") not in (None, "none"):
        raise ValueError(f"{path}: bias is {config['bias']!r}; slots have none")
    if config.get("init_lora_weights") not in _INITIAL:
        raise ValueError(f"{path}: init_lora_weights is {config['init_lora_weights']!r}, which may change the base model's weights, too: let PEFT "
                         "convert the adapter to a plain one (path_initial_model_for_weight_conversion)")
    return config


def _scale(config: Dict[str, Any], layer: str, rank: int) -> float:
    """As PEFT finds alpha and rank of a layer: by the first pattern that matches the end of its name."""
    def of(patterns: Any, default: Any) -> Any:
        for pattern, value in (patterns or {}).items():
            if re.match(rf"(.*\.)?({pattern})$", layer):
                return value
        return default

    alpha, stated = of(config.get("alpha_pattern"), config.get("lora_alpha", 8)), of(config.get("rank_pattern"), config.get("r", 8))
    if stated != rank:
        raise ValueError(f"adapter_config.json states rank {stated} for layer {layer}, and lora_A has {rank}")
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _from_folder(folder: str) -> Dict[str, Pair]:
    from safetensors.torch import load_file

    config = _read_config(folder)
    halves: Dict[str, Dict[str, torch.Tensor]] = {}
    for key, tensor in load_file(os.path.join(folder, "adapter_model.safetensors")).items():
        layer, _, kind = key.removesuffix(".weight").rpartition(".")
        if kind not in ("lora_A", "lora_B"):
            raise ValueError(f"{folder}: tensor {key} is neither lora_A nor lora_B of a linear layer, which is all that slots have")
        halves.setdefault(layer.removeprefix("base_model.model."), {})[kind] = tensor
    pairs: Dict[str, Pair] = {}
    for layer, half in halves.items():
        if len(half) != 2:
            raise ValueError(f"{folder}: layer {layer} has {next(iter(half))} alone")
        pairs[layer] = half["lora_A"], half["lora_B"], _scale(config, layer, half["lora_A"].shape[0])
    return pairs
