# SPDX-License-Identifier: Apache-2.0
"""What must be equal, beside device and driver, for a restored graph to compute what a live one would."""
from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
import sysconfig
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Callable, Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Set

import torch

from .. import _api
from .._configuration import function_values, module_settings
from .bindings import Bindings

_file_hashes: Dict[str, str] = {}
_said = False
MAX_FUNCTIONS = 256
MAX_OWN = 4096  # functions and classes of the user's own
MAX_CLASSES = 64
MAX_FACT = 2000  # characters; the C side takes 4,096 bytes
MAX_SHOWN = 64  # characters of a variable's value
FILE_START = 1 << 14

KNOWN = ("torch", "transformers", "triton", "builtins")  # packages whose version is a fact
_STDLIB = os.path.join(sysconfig.get_paths()["stdlib"], "")
_PACKAGES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        digest.update(part.encode(errors="replace") + b"\n")
    return digest.hexdigest()


def digest(facts: Mapping[str, str]) -> str:
    """All facts of an engine in one short text."""
    return _digest(f"{name}={facts[name]}" for name in sorted(facts))


def hash_file(path: str) -> str:
    """Hash of a file, read once in a process; "" if it can't be read."""
    if path not in _file_hashes:
        try:
            with open(path, "rb") as file:
                _file_hashes[path] = hashlib.blake2b(file.read(), digest_size=12).hexdigest()
        except OSError:
            _file_hashes[path] = ""
    return _file_hashes[path]


# ---- the process ----


class _DlInfo(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), *((name, ctypes.c_void_p) for name in ("base", "symbol", "address"))]


def _loaded_path(library: str, symbol: str) -> str:
    """The file of a library that is loaded already; OSError or AttributeError if there is none."""
    found = getattr(ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY), symbol)
    info, ask = _DlInfo(), ctypes.CDLL(None).dladdr
    ask.argtypes = [ctypes.c_void_p, ctypes.POINTER(_DlInfo)]
    if not ask(ctypes.cast(found, ctypes.c_void_p), ctypes.byref(info)) or not info.path:
        raise OSError(f"nobody knows the file of {library}")
    return info.path.decode(errors="surrogateescape")


def _cudnn() -> str:
    """cuDNN by its file: to say its version it would load megabytes that a restore may never need."""
    try:
        version = torch._C._cudnn.getCompileVersion()
        with open(_loaded_path(f"libcudnn.so.{version[0]}", "cudnnGetVersion"), "rb") as file:
            start, size = file.read(FILE_START), os.fstat(file.fileno()).st_size
        identity = hashlib.blake2b(start, digest_size=8).hexdigest()  # its build id is in there
        return f"{'.'.join(map(str, version))} {size} bytes {identity}"
    except (OSError, AttributeError, TypeError):
        return str(torch.backends.cudnn.version())


def _process_facts() -> Dict[str, str]:
    transformers = sys.modules.get("transformers")
    triton = sys.modules.get("triton")
    facts = {
        "torch": f"{torch.__version__} {torch.version.git_version}",
        "torch.cuda": str(torch.version.cuda),
        "cudnn": _cudnn(),
    }
    if transformers is not None:
        facts["transformers"] = str(getattr(transformers, "__version__", "?"))
    if triton is not None:
        facts["triton"] = str(getattr(triton, "__version__", "?"))
    return facts


def _flag(where: Any, name: str) -> str:
    try:
        return f"{name}={getattr(where, name)}"
    except Exception:  # pylint: disable=broad-except  # settings come and go with versions, and some refuse to be read
        return f"{name}=?"


def _settings() -> str:
    """Switches that choose other kernels for the same operation."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    parts = [f"precision={torch.get_float32_matmul_precision()}"]
    parts += [_flag(matmul, f"allow_{name}_reduced_precision_reduction") for name in ("fp16", "bf16")]
    parts += [_flag(cudnn, name) for name in ("enabled", "benchmark", "deterministic")]
    parts.append(f"deterministic={torch.are_deterministic_algorithms_enabled()}")
    for name in ("flash_sdp_enabled", "mem_efficient_sdp_enabled", "math_sdp_enabled", "cudnn_sdp_enabled"):
        asked = getattr(torch.backends.cuda, name, None)
        parts.append(f"{name}={asked() if asked else '?'}")
    preferred = getattr(torch.backends.cuda, "preferred_blas_library", None)
    parts.append(f"preferred_blas_library={preferred() if preferred else '?'}")
    for name in ("NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "DISABLE_ADDMM_CUDA_LT",
                 "TORCH_CUDNN_USE_HEURISTIC_MODE_B", "TORCH_CUDNN_V8_API_DISABLED"):
        parts.append(f"{name}={os.environ.get(name, '')}")
    return " ".join(parts)


# Variables by which compilers and libraries of kernels choose other code; not those with one of these words, which say where files lie, how much
# is told, and how many processes work.
CHOOSING = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_", "TRITON_", "CUBLAS_", "CUBLASLT_", "FLASHINFER_", "FLASH_ATTENTION_", "DG_")
NOT_CHOOSING = frozenset((
    "BASE", "CACHE", "CACHES", "CPROFILE", "DEBUG", "DIR", "DUMP", "FILE", "HOME", "HOST", "JOB", "LOG", "LOGGING", "LOGINFO", "LOGLEVEL", "LOGPATH", "PATH",
    "PGO", "POOL", "PORT", "PRINT", "PROFILE", "PROFILER", "PROFILING", "PROTON", "REDIS", "REMOTE", "REPLAY", "REPRO", "THREADS", "TIMEOUT", "TRACE", "URL",
    "VERBOSE", "WORKER",
))


def shown(value: str) -> str:
    """A variable's value; if it is long, or not one word, its hash."""
    return value if len(value) <= MAX_SHOWN and value.isascii() and value.isprintable() and " " not in value else _digest([value])


def bounded(text: str) -> str:
    """A fact's text; of a long one, which no artifact takes, the beginning and a hash."""
    return text if len(text) <= MAX_FACT else f"{text[:MAX_FACT]} ... {_digest([text])}"


def compilers(environment: Mapping[str, str]) -> str:
    """The variables of an environment that change what compilers make of the same source, and which kernels libraries take."""
    chosen = [name for name in sorted(environment) if name.startswith(CHOOSING) and not NOT_CHOOSING & set(name.split("_"))]
    return bounded(" ".join(f"{name}={shown(environment[name])}" for name in chosen)) or "none"


# ---- the engine ----


def _file_of(kind: type) -> str:
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or ""


def _module_files(modules: Iterable[Any]) -> Dict[str, str]:
    """Class name -> hash of its source, for classes that don't come with PyTorch."""
    hashes: Dict[str, str] = {}
    for kind in {type(module) for module in modules}:
        if kind.__module__.split(".")[0] != "torch":
            hashes[f"{kind.__module__}.{kind.__qualname__}"] = hash_file(_file_of(kind))
    return hashes


def _package(named: Any) -> str:
    """The top-level package of a class or function."""
    return (named.__module__ or "").split(".")[0]


def _parts_of(module: Any) -> Iterator[type]:
    """The classes of a module's attributes that are of its own package, or of none that is installed: others come and go with first calls."""
    for value in vars(module).values():
        kind = type(value)
        if _package(kind) == _package(type(module)) or not any(folder in _file_of(kind) for folder in _PACKAGES):
            yield kind


def _own_files(modules: Iterable[Any], known: Collection[str]) -> Dict[str, str]:
    """Module name -> hash of its source, for the user's own code that the modules' classes, those of their attributes, and what these inherit and call
    by name, come from. known: packages that a version stands for."""
    kinds = {id(kind): kind for module in modules for kind in (type(module), *_parts_of(module))}
    todo: List[Any] = list(kinds.values())
    seen: Set[int] = set()
    hashes: Dict[str, str] = {}
    while todo and len(seen) < MAX_OWN:
        reached = todo.pop()
        found = reached if isinstance(reached, type) else _function_of(reached)
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        source = _file_of(found) if isinstance(found, type) else found.__code__.co_filename
        if _package(found) in known or _is_of_python(source) or not hash_file(source):
            continue
        hashes[found.__module__ or source] = hash_file(source)
        todo += [*found.__mro__, *vars(found).values()] if isinstance(found, type) else _called_by(found, known)
    return hashes


def _configuration(modules: Iterable[Any], is_setting: Optional[Callable[[str, Any], bool]]) -> Dict[str, str]:
    """What the modules are set to: a fact for each class, so that a difference names it."""
    by_class = module_settings(modules, is_setting)
    classes = sorted(by_class, key=lambda name: (-len(by_class[name]), name))
    apart, rest = sorted(classes[:MAX_CLASSES]), sorted(classes[MAX_CLASSES:])
    facts = {f"configuration.{name}": f"{len(by_class[name])}, {_digest(by_class[name])}" for name in apart}
    if rest:
        facts["configuration"] = _digest(text for name in rest for text in [name, *by_class[name]])
    return facts


def engine_facts(
    bindings: Bindings,
    fingerprint: Optional[Mapping[str, str]],
    is_setting: Optional[Callable[[str, Any], bool]] = None,
    packages: Collection[str] = (),
) -> Dict[str, str]:
    """Facts of one engine; names are the same whether or not there are several. packages: those whose versions `fingerprint` has."""
    files = {**_module_files(bindings.modules), **_own_files(bindings.modules, {*KNOWN, *packages})}
    layouts = [f"{bound.name}:{bound.layout}" for bound in bindings if bound.role == _api.CONSTANT]
    facts = {
        "torch.settings": _settings(),
        "compilers": compilers(os.environ),
        "code": f"{len(files)} sources, {_digest(f'{name}={files[name]}' for name in sorted(files))}",
        "constants": f"{len(layouts)} tensors, {_digest(layouts)}",
    }
    facts.update(_configuration(bindings.modules, is_setting))
    facts.update({f"engine.{name}": str(value) for name, value in (fingerprint or {}).items()})
    return facts


def say_process() -> None:
    """Tells the C side what this process runs, once; a mismatch refuses the artifact and is logged there."""
    global _said
    if _said:
        return
    _said = True
    for name, value in _process_facts().items():
        say(name, value)


def say(name: str, value: str) -> None:
    try:
        _api.fingerprint_add(name, value)
    except _api.Error:  # the C side has logged it, and refuses graphs with this reason
        pass


# ---- the function of one graph ----


def _function_of(call: Any) -> Optional[FunctionType]:
    for _ in range(16):
        if isinstance(call, functools.partial):
            call = call.func
        elif isinstance(call, (MethodType, classmethod, staticmethod)):
            call = call.__func__
        elif isinstance(call, property):
            call = call.fget
        elif type(call).__module__.split(".")[0] == "triton" and hasattr(call, "fn"):
            call = call.fn
        elif hasattr(call, "__wrapped__"):
            call = call.__wrapped__
        else:
            break
    if isinstance(call, FunctionType):
        return call
    method = getattr(type(call), "__call__", None)
    return method if isinstance(method, FunctionType) else None


def _names_in(code: CodeType) -> Set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_in(constant)
    return names


def _is_of_python(source: str) -> bool:
    return source.startswith(_STDLIB) and not any(folder in source for folder in _PACKAGES)


def _is_known_by_version(function: FunctionType) -> bool:
    return _package(function) == "torch" or _is_of_python(function.__code__.co_filename)


def _called_by(function: FunctionType, known: Collection[str]) -> List[Any]:
    """What a function's code can reach by name, in the same order in every process: its closure, the globals that it mentions, and the
    attributes that it mentions of modules among these."""
    reached: List[Any] = []
    for cell in function.__closure__ or ():
        try:
            reached.append(cell.cell_contents)
        except ValueError:  # not filled yet
            pass
    names = sorted(_names_in(function.__code__))
    reached += [function.__globals__[name] for name in names if name in function.__globals__]
    for module in [value for value in reached if isinstance(value, ModuleType)]:
        reached += _mentioned(module, names, known)
    return reached


def _mentioned(module: ModuleType, names: Iterable[str], known: Collection[str]) -> Iterator[Any]:
    """Attributes of a module that is the user's own. Loads nothing, as getattr() might."""
    own = (getattr(module, "__file__", None) or "") and module.__name__.split(".")[0] not in known
    return (vars(module)[name] for name in names if own and name in vars(module))


def _code_text(code: CodeType) -> str:
    constants = [_code_text(part) if isinstance(part, CodeType) else repr(part) for part in code.co_consts]
    return f"{code.co_code.hex()}{constants}{code.co_names}{code.co_varnames}"


def function_hash(call: Callable[[], Any], packages: Collection[str] = ()) -> str:
    """Hash of the source files of a graph's function and of the functions that it reaches by name, and of plain values
    that these were given. Of modules of `packages`, whose versions are facts, no attributes are looked at."""
    todo: List[Any] = [call]
    seen: Set[int] = set()
    hashes: Set[str] = set()
    while todo and len(seen) < MAX_FUNCTIONS:
        reached = todo.pop()
        function = _function_of(reached)
        if function is None or id(function) in seen:
            continue
        seen.add(id(function))
        if _is_known_by_version(function):
            continue
        hashes.add(hash_file(function.__code__.co_filename) or _code_text(function.__code__))
        hashes.update(function_values(reached, function, _names_in(function.__code__)))
        todo += _called_by(function, {*KNOWN, *packages})
    return _digest(sorted(hashes))
