# SPDX-License-Identifier: Apache-2.0
"""What the template has imported, from which files and under which environment; compared with what a new start would find."""
from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from . import inherited

# Modules that a server and its engine core import before the first answer. A module that this version lacks is left out.
MODULES = (
    "vllm.entrypoints.cli.main", "vllm.entrypoints.cli.benchmark.main", "vllm.entrypoints.cli.collect_env",
    "vllm.entrypoints.cli.launch", "vllm.entrypoints.cli.openai", "vllm.entrypoints.cli.run_batch", "vllm.entrypoints.cli.serve",
    "vllm.entrypoints.serve.utils.api_utils", "vllm.entrypoints.openai.api_server", "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core_client", "vllm.v1.engine.core", "vllm.v1.executor.uniproc_executor", "vllm.v1.worker.gpu_worker",
    "vllm.v1.worker.gpu.model_runner", "vllm.v1.worker.gpu_model_runner", "vllm.v1.attention.backends.flash_attn",
    "vllm.model_executor.models.llama", "vllm.model_executor.models.qwen2", "vllm.model_executor.models.qwen3",
    "vllm.model_executor.model_loader.default_loader", "vllm.model_executor.model_loader.dummy_loader",
    "vllm.compilation.backends", "vllm.compilation.cuda_graph", "vllm.tokenizers.hf", "vllm.renderers.hf", "uvicorn", "uvloop",
    "vllm.entrypoints.launcher", "medusa_vllm.hooks",
)
NEEDED = MODULES[0]
# C libraries read variables with these prefixes when they are loaded, and Python does not see it.
READ_IN_C = ("LD_", "GLIBC_", "MALLOC_", "GCONV_", "LC_", "LANG", "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "GOTO_", "MKL_", "BLIS_", "TORCH",
             "PYTORCH_", "ATEN_", "CUDA_", "RUST_", "RAYON_", "PYTHON")
DEVICES = "CUDA_VISIBLE_DEVICES"
Stamp = Tuple[int, int, int]


class Unforkable(Exception):
    """The name of a module after whose import this process cannot be forked, and the reason."""


def fork() -> int:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of threads, which are counted
        return os.fork()


def unforkable() -> str:
    """Why a fork of this process could not become an engine; "" if it could."""
    child = fork()
    if child == 0:
        os._exit(0)
    others = inherited.threads()  # right after a fork, without threads that a library ends before it and restarts later
    os.waitpid(child, 0)
    return inherited.device_in_use() or (f"threads of C libraries are running ({', '.join(others)})" if others else "")


@contextlib.contextmanager
def recorded(names: Set[str]) -> Iterator[None]:
    """Adds to names each variable that Python code asks os.environ for, except when it copies all variables."""
    kind = type(os.environ)
    copied: List[str] = []  # names that a walk over all variables will ask for next, in this order

    class Recorded(kind):  # type: ignore[valid-type, misc]
        def __iter__(self) -> Iterator[str]:
            copied[:] = list(super().__iter__())
            return iter(list(copied))

        def __getitem__(self, name: str) -> str:
            if copied[:1] == [name]:
                del copied[0]
            else:
                copied.clear()
                names.add(name)
            return str(super().__getitem__(name))

    os.environ.__class__ = Recorded  # type: ignore[assignment]
    try:
        yield
    finally:
        os.environ.__class__ = kind  # type: ignore[assignment]


def _stamp(path: str) -> Optional[Stamp]:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _kinds_of_devices() -> int:
    """The number of different models among this machine's NVIDIA GPUs, without a driver call."""
    found, folder = set(), "/proc/driver/nvidia/gpus"
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        with contextlib.suppress(OSError), open(f"{folder}/{name}/information", encoding="utf-8", errors="replace") as file:
            found.update(line for line in file if line.startswith("Model:"))
    return len(found)


class Imports:
    """The imports of the template, and whether a new process would still import the same."""

    def __init__(self, vary: List[str]) -> None:
        self._vary = set(vary) | ({DEVICES} if _kinds_of_devices() < 2 else set())
        self._read: Set[str] = set()
        self._before: Dict[str, str] = dict(os.environ)
        self._set: Dict[str, Optional[str]] = {}  # variables that imports have set; None: removed
        self._stamps: Dict[str, Stamp] = {}
        self.missing: List[str] = []

    def load(self, more: List[str], leave_out: List[str]) -> None:
        """Raises ImportError if vLLM itself or a module of `more` cannot be imported, and Unforkable for another module."""
        with recorded(self._read):
            for name in [name for name in (*MODULES, *more) if name not in leave_out]:
                self._load_one(name, name == NEEDED or name in more)
        now = dict(os.environ)
        self._set = {name: now.get(name) for name in set(now) | set(self._before) if now.get(name) != self._before.get(name)}
        self._stamps = {path: stamp for path in self._files() for stamp in [_stamp(path)] if stamp}

    def _load_one(self, name: str, needed: bool) -> None:
        try:
            importlib.import_module(name)
        except Exception as error:  # pylint: disable=broad-except  # an engine that needs the module reports the failure
            if needed:
                raise ImportError(f"{name}: {type(error).__name__}: {error}") from error
            self.missing.append(name)
        why = unforkable()
        if why and needed:
            raise ImportError(f"{name} cannot be in a template, which cannot be forked after this import: {why}")
        if why:
            raise Unforkable(name, why)

    @staticmethod
    def _files() -> Set[str]:
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        files.update(os.environ.get("LD_PRELOAD", "").replace(":", " ").split())
        return {path for path in files if isinstance(path, str) and os.path.isabs(path)}

    @property
    def count(self) -> int:
        return len(self._stamps)

    def stale(self) -> str:
        """An imported file that has changed since; "" if there is none."""
        for path, stamp in self._stamps.items():
            if _stamp(path) != stamp:
                return path
        return ""

    def differs(self, environment: Dict[str, str]) -> str:
        """A variable whose value could make a new start import something else; "" if there is none."""
        for name in sorted(set(environment) | set(self._before)):
            if environment.get(name) == self._before.get(name) or name in self._vary:
                continue
            if name in self._read or name.startswith(READ_IN_C):
                return name
        return ""

    def environment(self, given: Dict[str, str]) -> Dict[str, str]:
        """The environment as a new start would have it after its imports."""
        now: Dict[str, Any] = {**given, **self._set}
        return {name: value for name, value in now.items() if value is not None}
