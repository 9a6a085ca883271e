# SPDX-License-Identifier: Apache-2.0
"""What an engine's objects are set to, besides tensors: texts that are equal in every process that builds the same.

Constants of a captured graph come from there (an epsilon, a scale, a window, a switch between two kernels). Only values
whose text does not depend on the process are looked at; of other objects the class is named. Where files lie is not
part of it: a checkpoint may be in another folder.
"""
import dataclasses
import enum
import functools
import os
import types
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

MAX_DEPTH = 8
MAX_ITEMS = 4096
SCALARS = (bool, int, float, complex, str, bytes, type(None))
NOT_SETTINGS = {"name_or_path", "_name_or_path", "transformers_version", "_commit_hash", "_original_object_hash"}
_NAMED = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
_PACKAGES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _is_configuration(value: Any) -> bool:
    kind = type(value)
    return dataclasses.is_dataclass(kind) or kind.__name__.endswith("Config") or callable(getattr(kind, "to_dict", None))


def _texts(values: Iterable[Any], depth: int) -> str:
    return ",".join(describe(value, depth) for value, _ in zip(values, range(MAX_ITEMS)))


def describe(value: Any, depth: int = 0) -> str:
    """The text of a value; of an object whose text would differ between processes, its class."""
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, SCALARS):
        is_path = isinstance(value, str) and value.startswith(os.sep)
        return "a path" if is_path else repr(value)
    if isinstance(value, _NAMED):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    if _kind(value) == "torch.dtype":
        return str(value)
    if depth >= MAX_DEPTH:
        return _kind(value)
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({_texts(value, depth + 1)}) of {len(value)}"
    if isinstance(value, (set, frozenset)):
        return f"set({','.join(sorted(describe(item, depth + 1) for item in value))})"
    if isinstance(value, dict):
        items = sorted((repr(key), describe(item, depth + 1)) for key, item in value.items() if isinstance(key, SCALARS))
        return f"dict({items[:MAX_ITEMS]}) of {len(value)}"
    if isinstance(value, functools.partial):
        return f"partial({describe(value.func)},{_texts(value.args, depth + 1)},{describe(value.keywords, depth + 1)})"
    if _is_configuration(value):
        return f"{_kind(value)}({describe_settings(value, depth + 1)})"
    return _kind(value)


def describe_settings(value: Any, depth: int = 0) -> str:
    """The attributes of a configuration, by name."""
    attributes = dict(getattr(value, "__dict__", {}))
    for name in getattr(type(value), "__slots__", ()):
        attributes[name] = getattr(value, name, None)
    return describe({name: item for name, item in attributes.items() if name not in NOT_SETTINGS}, depth)


def _settings_of(module: Any, known: Dict[int, str], is_setting: Callable[[str, Any], bool]) -> Iterator[Tuple[str, str]]:
    for name, value in vars(module).items():
        if not is_setting(name, value):
            continue
        if isinstance(value, SCALARS):
            if name not in NOT_SETTINGS:
                yield name, describe(value)
        elif name.startswith("_"):  # PyTorch's own: parameters, hooks, children
            continue
        elif _is_configuration(value):  # which all parts of a model share
            if id(value) not in known:
                known[id(value)] = describe(value)
            yield name, known[id(value)]
        else:
            yield name, describe(value)


def module_settings(
    modules: Iterable[Any], is_setting: Optional[Callable[[str, Any], bool]] = None
) -> Dict[str, List[str]]:
    """Class name -> what each module of that class is set to, in order. is_setting(name, value) leaves attributes out."""
    settings: Dict[str, List[str]] = {}
    known: Dict[int, str] = {}
    for module in modules:
        found = _settings_of(module, known, is_setting or (lambda name, value: True))
        text = ";".join(f"{name}={value}" for name, value in sorted(found))
        settings.setdefault(_kind(module), []).append(text)
    return settings


# ---- functions ----


def _constants(values: Iterable[Tuple[str, Any]]) -> List[str]:
    plain = SCALARS + (tuple, frozenset, enum.Enum)
    return [f"{name}={describe(value)}" for name, value in values if isinstance(value, plain)]


def _cells(function: types.FunctionType) -> Iterator[Tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            pass


def function_values(call: Any, function: Optional[types.FunctionType], names: Set[str]) -> List[str]:
    """Plain values that a call has by partial arguments, defaults, closures, and, outside of packages, global names."""
    texts: List[str] = []
    while isinstance(call, functools.partial):
        texts += _constants((str(index), value) for index, value in enumerate(call.args))
        texts += _constants(sorted(call.keywords.items()))
        call = call.func
    if function is None:
        return texts
    texts += _constants(enumerate(function.__defaults__ or ()))
    texts += _constants(sorted((function.__kwdefaults__ or {}).items()))
    texts += _constants(_cells(function))
    if not any(folder in function.__code__.co_filename for folder in _PACKAGES):
        named = function.__globals__
        hidden = (name for name in sorted(names) if name in named and not name.startswith("__"))
        texts += _constants((name, named[name]) for name in hidden)
    return texts
