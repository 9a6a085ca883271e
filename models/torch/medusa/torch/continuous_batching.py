# SPDX-License-Identifier: Apache-2.0
"""Restored graphs for transformers' continuous batching: takes over where one model runner makes its graphs."""
from __future__ import annotations

import hashlib
import inspect
import json
import logging
import os
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch

from .._api import mode
from .bindings import Constant, Scratch, State
from .graphs import Graphs
from .steps import Step

log = logging.getLogger("medusa.torch")

# What the take-over stands on; a transformers that lacks one of these keeps making its graphs itself.
RUNNER_NEEDS = ("_capture_graph", "inputs_and_outputs", "cache", "logit_processor")
IO_NEEDS = ("_get_graph_key", "set_graph", "get_graph", "use_block_table", "input_ids")
CAPTURE_PARAMETERS = ["forward_fn", "compute_stream", "args"]


def attach(
    manager: Any, path: Union[str, "os.PathLike[str]", None] = None, name: str = "", **options: Any
) -> "ContinuousBatching":
    """Lets one manager's graphs be restored. Call it before manager.warmup() or manager.start(), in every mode.

    path, name and options are those of medusa.torch.Graphs, `bind` excepted: model, paged cache and the static tensors
    of all IO pairs are bound here. Nothing of transformers is changed but an attribute of this manager's runner. The
    sizes of the cache must be the same in every start: set num_blocks and max_batch_tokens in ContinuousBatchingConfig.
    """
    if manager.batch_processor is None:
        manager.batch_processor = manager._create_batch_processor()
    runner = manager.batch_processor.model_runner
    reason = _unfit(runner)
    if reason:
        log.warning("continuous batching is left unchanged: %s", reason)
        return ContinuousBatching(runner, None, reason)
    ios = _pairs(runner)
    caches = {"keys": runner.cache.key_cache, "values": runner.cache.value_cache}
    bind = {"model": manager.model, **{name: State(cache) for name, cache in caches.items()}}
    trash = getattr(runner.cache, "write_trash_index", None)
    if trash is not None:  # rows of padding race for it, and what they leave there is never read
        bind["trash"] = Scratch([layer[trash:] for cache in caches.values() for layer in cache])
    for index, io in enumerate(ios):
        bind[f"io{index}"] = State(_tensors(io))
    processors = list(runner.logit_processor.logits_processor)
    if processors:
        bind["processors"] = Constant(processors)
    options.setdefault("warmup", 1)  # as often as transformers: sampling draws the same numbers
    options.setdefault("randomize", _randomizer(ios, manager.model.config.get_text_config().vocab_size))
    options["fingerprint"] = {**_facts(manager, runner, processors), **(options.get("fingerprint") or {})}
    attached = ContinuousBatching(runner, Graphs(path, bind=bind, name=name, **options), "")
    runner._capture_graph = attached.capture
    return attached


class ContinuousBatching:
    """What attach() returns. `steps` lists the graphs made so far; `reason` says why nothing was taken over, or ""."""

    def __init__(self, runner: Any, graphs: Optional[Graphs], reason: str) -> None:
        self.runner, self.graphs, self.reason = runner, graphs, reason
        self.steps: List[Step] = []

    def capture(self, forward_fn: Callable[..., None], compute_stream: Any, *args: Any) -> None:
        """Stands in for ModelRunner._capture_graph: a graph for the batch at hand, and that batch computed."""
        assert self.graphs is not None
        ios = self.runner.inputs_and_outputs
        kind, batch = _label(ios)
        with torch.cuda.stream(compute_stream):
            step = self.graphs.get(kind, batch, lambda: forward_fn(*args))
            # A live graph's warm-up has computed this batch, as transformers' own does.
            if step.restored or mode() == "verify":
                step.replay()
        self.steps.append(step)
        ios.set_graph(_Graph(step))

    def ready(self) -> None:
        """Everything is captured or restored; see Graphs.ready()."""
        if self.graphs is not None:
            self.graphs.ready()

    def close(self) -> None:
        """Hands the runner back and drops the graphs. Call it when the manager has stopped."""
        if self.graphs is None:
            return
        self.runner.__dict__.pop("_capture_graph", None)
        for io in _pairs(self.runner):
            io.graphs = type(io.graphs)()
        self.steps.clear()
        self.graphs.close()
        self.runner = self.graphs = None


class _Graph:
    """A step as transformers' graph buffer holds it."""

    def __init__(self, step: Step) -> None:
        self.step: Any = step

    def replay(self) -> None:
        self.step.replay()

    def reset(self) -> None:
        self.step = None


def _pairs(runner: Any) -> List[Any]:
    """The device's inputs and outputs: one, or two that take turns in asynchronous batching."""
    ios = runner.inputs_and_outputs
    return [pair.device_io for pair in ios.io_pairs] if hasattr(ios, "io_pairs") else [ios]


def _unfit(runner: Any) -> str:
    for need in RUNNER_NEEDS:
        if not hasattr(runner, need):
            return f"this transformers' model runner has no {need}"
    for io in _pairs(runner):
        for need in IO_NEEDS:
            if not hasattr(io, need):
                return f"this transformers' inputs and outputs have no {need}"
    parameters = list(inspect.signature(runner._capture_graph).parameters)
    return "" if parameters == CAPTURE_PARAMETERS else f"_capture_graph takes {parameters}, not {CAPTURE_PARAMETERS}"


def _tensors(io: Any) -> Dict[str, Any]:
    """All tensors that one set of inputs and outputs holds itself, by their attributes' names."""
    found: Dict[str, Any] = {}
    for key, value in vars(io).items():
        if isinstance(value, torch.Tensor):
            found[key.lstrip("_")] = value
        elif isinstance(value, dict) and value and all(isinstance(part, torch.Tensor) for part in value.values()):
            found[key.lstrip("_")] = value
    return found


def _label(ios: Any) -> Tuple[str, int]:
    """A graph's kind and batch: which path, whose static tensors, and the sizes that transformers tells graphs by."""
    pair = getattr(ios, "current_pair", 0)
    io = ios.io_pairs[pair].device_io if hasattr(ios, "io_pairs") else ios
    batch, *sizes = io._get_graph_key()
    path = "decode" if io.use_block_table else "varlen"
    return ".".join([path, str(pair), *(str(size) for size in sizes)]), batch


def _randomizer(ios: List[Any], vocabulary: int) -> Callable[[str, int, torch.Generator], None]:
    """Other tokens for a verification; places and lengths stay, since only some of them are valid."""

    def randomize(kind: str, batch: int, generator: torch.Generator) -> None:
        ids = ios[int(kind.split(".")[1])].input_ids[:batch]
        ids.copy_(torch.randint(vocabulary, ids.shape, generator=generator, device=generator.device))

    return randomize


def _facts(manager: Any, runner: Any, processors: List[Any]) -> Dict[str, str]:
    """What ends up in kernels' scalar arguments or in their choice, and is seen in no tensor."""
    settings = manager.continuous_batching_config
    return {
        "continuous_batching.code": _code(type(runner), type(_pairs(runner)[0]), type(runner.cache)),
        "continuous_batching.config": _configuration(manager.model.config),
        "continuous_batching.attention": str(manager.model.config._attn_implementation),
        "continuous_batching.sampling": f"sample={runner.do_sample} logprobs={runner.return_logprobs} "
                                        + " ".join(_description(processor) for processor in processors),
        "continuous_batching.compile": f"{settings.varlen_compile_config} {settings.decode_compile_config}",
    }


def _code(*classes: type) -> str:
    digest = hashlib.sha256()
    for path in sorted({inspect.getsourcefile(made) or "" for made in classes} - {""}):
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:32]


def _configuration(config: Any) -> str:
    """All but where the model came from: epsilons, rope and the like are constants in the graphs."""
    values = {key: value for key, value in config.to_dict().items()
              if key not in ("_name_or_path", "transformers_version", "architectures")}
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _description(processor: Any) -> str:
    plain = {key: value for key, value in sorted(vars(processor).items())
             if isinstance(value, (bool, int, float, str))}
    return f"{type(processor).__name__}{plain}"
