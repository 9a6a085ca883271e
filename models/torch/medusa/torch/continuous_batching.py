# SPDX-License-Identifier: Apache-2.0
"""Restored graphs for transformers' continuous batching: takes over where one model runner makes its graphs."""
from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import logging
import os
from typing import Any, Callable, Collection, ContextManager, Dict, Iterator, List, Optional, Tuple, Union

import torch

from .. import _api
from . import paged
from .bindings import Constant, State
from .graphs import Graphs
from .steps import Step

log = logging.getLogger("medusa.torch")

# What the take-over stands on; a transformers that lacks one of these keeps making its graphs itself.
RUNNER_NEEDS = ("_capture_graph", "inputs_and_outputs", "cache", "logit_processor")
IO_NEEDS = ("_get_graph_key", "set_graph", "get_graph", "use_block_table", "input_ids")
CAPTURE_PARAMETERS = ["forward_fn", "compute_stream", "args"]
MOST_KEPT = 64 << 20  # bytes: masks are larger, and no address comes from them
BLOCKS = "block_table"  # which graphs of decoding read, and no others


def attach(
    manager: Any, path: Union[str, "os.PathLike[str]", None] = None, name: str = "", **options: Any
) -> "ContinuousBatching":
    """Lets one manager's graphs be restored. Call it before manager.warmup() or manager.start(), in every mode.

    path, name and options are those of medusa.torch.Graphs, `bind` excepted: model, paged cache and the static tensors
    of all IO pairs are bound here. Nothing of transformers is changed but an attribute of this manager's runner. The
    cache has the same size in every start: where num_blocks is not set in ContinuousBatchingConfig, the artifact says
    how much memory transformers may divide.
    """
    if manager.batch_processor is None:
        with paged.same_size(manager):
            manager.batch_processor = manager._create_batch_processor()
    runner = manager.batch_processor.model_runner
    reason = _unfit(runner)
    if reason:
        log.warning("continuous batching is left unchanged: %s", reason)
        return ContinuousBatching(runner, None, reason)
    ios = _pairs(runner)
    bind = {"model": manager.model, **paged.bindings(runner.cache)}
    for index, io in enumerate(ios):
        bind[f"io{index}"] = State(_tensors(io))
    processors = list(runner.logit_processor.logits_processor)
    if processors:
        bind["processors"] = Constant(processors)
    options.setdefault("warmup", 1)  # as often as transformers: sampling draws the same numbers
    inputs = _Inputs(ios, manager.model.config.get_text_config().vocab_size)
    options.setdefault("randomize", inputs.randomize)
    options["fingerprint"] = {**_facts(manager, runner, processors), **(options.get("fingerprint") or {})}
    attached = ContinuousBatching(runner, Graphs(path, bind=bind, name=name, **options), "", inputs)
    runner._capture_graph = attached.capture
    return attached


class ContinuousBatching:
    """What attach() returns. `steps` lists the graphs made so far; `reason` says why nothing was taken over, or ""."""

    def __init__(self, runner: Any, graphs: Optional[Graphs], reason: str, inputs: Optional["_Inputs"] = None) -> None:
        self.runner, self.graphs, self.reason, self._inputs = runner, graphs, reason, inputs
        self.steps: List[Step] = []
        self._is_ready = False
        self._own_capture = runner._capture_graph

    def capture(self, forward_fn: Callable[..., None], compute_stream: Any, *args: Any) -> None:
        """Stands in for ModelRunner._capture_graph: a graph for the batch at hand, and that batch computed."""
        try:
            if compute_stream is not None:  # the static tensors are filled on the caller's stream, masks for a millisecond
                compute_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(compute_stream):
                step = self._make(lambda: forward_fn(*args))
        except Exception:  # pylint: disable=broad-except  # the engine's own capture meets the engine's own errors again
            log.exception("continuous batching: transformers makes this graph itself")
            self._own_capture(forward_fn, compute_stream, *args)
            return
        self.steps.append(step)
        self.runner.inputs_and_outputs.set_graph(_Graph(step))

    def _make(self, forward: Callable[[], None]) -> Step:
        assert self.graphs is not None
        kind, batch = _label(self.runner.inputs_and_outputs)
        if self._inputs is not None and _api.mode() in ("capture", "verify"):
            self._inputs.keep(kind, batch)
        step = self.graphs.get(kind, batch, forward)
        # A live graph's warm-up has computed this batch, as transformers' own does; a test may have overwritten that.
        if step.restored or _api.mode() == "verify" or (_api.mode() == "capture" and self._is_ready):
            step.replay()
        log.info("graph %s/%d: %s", kind, batch, "restored" if step.restored else f"live, {step.reason}")
        return step

    def ready(self) -> None:
        """Everything is captured or restored; see Graphs.ready()."""
        if self.graphs is not None:
            with self._valid_inputs():
                self.graphs.ready()
            self._is_ready = True

    def complete(self) -> None:
        """Calls ready(), and says that a capture need not see more; see Graphs.complete()."""
        if self.graphs is not None:
            with self._valid_inputs():
                self.graphs.complete()
            self._is_ready = True

    def _valid_inputs(self) -> ContextManager[None]:
        """A capture replays all graphs at "ready", on what the static tensors hold then: that has to be valid for each of them."""
        return self._inputs.valid_for_all() if self._inputs is not None and _api.mode() == "capture" else contextlib.nullcontext()

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
    if parameters != CAPTURE_PARAMETERS:
        return f"_capture_graph takes {parameters}, not {CAPTURE_PARAMETERS}"
    return paged.unfit(runner.cache)


def _tensors(io: Any) -> Dict[str, Any]:
    """All tensors that one set of inputs and outputs holds itself, by their attributes' names."""
    found: Dict[str, Any] = {}
    for key, value in vars(io).items():
        if isinstance(value, torch.Tensor):
            found[key.lstrip("_")] = value
        elif isinstance(value, dict) and value and all(isinstance(part, torch.Tensor) for part in value.values()):
            found[key.lstrip("_")] = value
    return found


def _whole(io: Any) -> Dict[str, torch.Tensor]:
    """Those that are no part of another one, and are not too large to be kept."""
    return {name: tensor for name, tensor in _tensors(io).items()
            if isinstance(tensor, torch.Tensor) and tensor.nbytes == tensor.untyped_storage().nbytes() <= MOST_KEPT}


def _label(ios: Any) -> Tuple[str, int]:
    """A graph's kind and batch: which path, whose static tensors, and the sizes that transformers tells graphs by."""
    pair = getattr(ios, "current_pair", 0)
    io = ios.io_pairs[pair].device_io if hasattr(ios, "io_pairs") else ios
    batch, *sizes = io._get_graph_key()
    path = "decode" if io.use_block_table else "varlen"
    return ".".join([path, str(pair), *(str(size) for size in sizes)]), batch


class _Inputs:
    """Random inputs that are valid for a graph: places and lengths of the batch that it was made with, and other tokens."""

    def __init__(self, ios: List[Any], vocabulary: int) -> None:
        self._ios, self._vocabulary = ios, vocabulary
        self._kept: Dict[Tuple[str, int], Dict[str, torch.Tensor]] = {}  # on the host

    def _io(self, kind: str) -> Any:
        return self._ios[int(kind.split(".")[1])]

    def keep(self, kind: str, batch: int) -> None:
        """Keeps the present contents of the static tensors, which are valid for this graph; later they hold another batch."""
        self._kept[kind, batch] = {name: tensor.detach().to("cpu", copy=True) for name, tensor in _whole(self._io(kind)).items()}

    def _put(self, kind: str, batch: int, names: Collection[str] = ()) -> None:
        tensors = _tensors(self._io(kind))
        for name, kept in self._kept.get((kind, batch), {}).items():
            if not names or name in names:
                tensors[name].copy_(kept)

    @contextlib.contextmanager
    def valid_for_all(self) -> Iterator[None]:
        """Static tensors hold, meanwhile, the smallest batch of each set: places in a larger one lie beyond the rows of a smaller one."""
        before = [(tensor, tensor.detach().to("cpu", copy=True)) for io in self._ios for tensor in _whole(io).values()]
        try:
            for pair in sorted({kind.split(".")[1] for kind, _ in self._kept}):
                made = sorted((batch, kind) for kind, batch in self._kept if kind.split(".")[1] == pair)
                varlen = [(kind, batch) for batch, kind in made if kind.startswith("varlen.")]
                decode = [(kind, batch) for batch, kind in made if kind.startswith("decode.")]
                self._put(*(varlen or decode)[0])
                if varlen and decode:
                    self._put(*decode[0], names=(BLOCKS,))
            yield
        finally:
            for tensor, held in before:
                tensor.copy_(held)

    def randomize(self, kind: str, batch: int, generator: torch.Generator) -> None:
        io = self._io(kind)
        self._put(kind, batch)
        ids = io.input_ids[:batch]
        ids.copy_(torch.randint(self._vocabulary, ids.shape, generator=generator, device=generator.device))


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
