# SPDX-License-Identifier: Apache-2.0
"""Operations between pieces (mostly attention): recorded while a model runs, described as JSON, and found again by name."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from medusa.torch.graphs import Graphs, Unsupported

LAYER = "LayerName"  # the class in which vLLM hides names of layers from the compiler


class Seeing(TorchDispatchMode):
    """Calls seen(operation, arguments, options) after each operation."""

    def __init__(self, seen: Callable[[Any, Tuple[Any, ...], Dict[str, Any]], None]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        result = operation(*arguments, **(options or {}))
        self._seen(operation, arguments, options or {})
        return result


def is_view(operation: Any) -> bool:
    """Whether an operation only makes views, which are described where they are used."""
    returned = operation._schema.returns
    return bool(returned) and all(part.alias_info is not None and not part.alias_info.is_write for part in returned)


def written(operation: Any, arguments: Tuple[Any, ...], options: Dict[str, Any]) -> List[torch.Tensor]:
    """The tensors that an operation writes according to its schema."""
    names = [argument.name for argument in operation._schema.arguments]
    given = {**dict(zip(names, arguments)), **options}
    writes = {argument.name for argument in operation._schema.arguments if argument.alias_info and argument.alias_info.is_write}
    return [value for name, value in given.items() if name in writes and isinstance(value, torch.Tensor)]


def _pack(value: Any) -> Optional[dict]:
    if type(value).__name__ == LAYER:
        return {"layer": value.value}
    if isinstance(value, torch.dtype):
        return {"type": str(value).replace("torch.", "")}
    return None


def describe(graphs: Graphs, operation: Any, arguments: Tuple[Any, ...], options: Dict[str, Any]) -> dict:
    """One call as JSON. Raises Unsupported, which names the part that cannot be described."""
    try:
        return {"name": operation._schema.name, "overload": operation._overloadname,
                "arguments": graphs.pack(list(arguments), _pack), "options": graphs.pack(dict(options), _pack)}
    except Unsupported as error:
        raise Unsupported(f"the operation {operation}: {error}") from None


class Finding:
    """Turns descriptions back into calls; layers: those of this engine."""

    def __init__(self, graphs: Graphs, layers: Any) -> None:
        self._graphs, self._layers = graphs, layers

    def call(self, described: dict) -> Tuple[Any, List[Any], Dict[str, Any]]:
        """The operation, its arguments and its options. Raises Unsupported, which names what is missing."""
        return (_operation(described["name"], described["overload"]), self._graphs.unpack(described["arguments"], self._unpack),
                self._graphs.unpack(described["options"], self._unpack))

    def _unpack(self, packed: dict) -> Any:
        if "layer" in packed:
            from vllm.utils.torch_utils import _encode_layer_name

            if packed["layer"] not in self._layers:
                raise Unsupported(f"this model has no layer {packed['layer']}")
            return _encode_layer_name(packed["layer"])
        if "type" in packed:
            return getattr(torch, packed["type"])
        return NotImplemented


def _operation(name: str, overload: str) -> Any:
    space, _, last = name.partition("::")
    try:
        return getattr(getattr(getattr(torch.ops, space), last), overload)
    except AttributeError:
        raise Unsupported(f"this process has no operation {name}.{overload}") from None
