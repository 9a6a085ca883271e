# SPDX-License-Identifier: Apache-2.0
"""What the plug-in's sleep mode imports of vLLM and of PyTorch, for tests that have neither."""
import importlib
import sys
import types


class SleepModeBackend:
    def __init__(self):
        self._state = "RUNNING"

    def state(self):
        return self._state


class SleepModeBackendFactory:
    _registry: dict = {"cumem": None}

    @classmethod
    def register_backend(cls, name, module, backend):
        if name in cls._registry:
            raise ValueError(f"Sleep-mode backend '{name}' is already registered.")
        cls._registry[name] = lambda: getattr(importlib.import_module(module), backend)

    @classmethod
    def create_backend(cls, config):
        backend = cls._registry[config.sleep_mode_backend]()
        if not backend.is_supported():
            raise ValueError("not supported")
        return backend()


def modules():
    """By name, to be put into sys.modules."""
    made = {name: types.ModuleType(name) for name in ("vllm", "vllm.device_allocator", "vllm.device_allocator.sleep_mode_backend", "torch")}
    made["vllm"].__version__ = "0.26.0"
    last = made["vllm.device_allocator.sleep_mode_backend"]
    last.SleepModeBackend = SleepModeBackend
    last.SleepModeBackendFactory = type("SleepModeBackendFactory", (SleepModeBackendFactory,), {"_registry": {"cumem": None}})
    made["torch"].cuda = types.SimpleNamespace(empty_cache=lambda: None)
    return made


def install():
    sys.modules.update(modules())
