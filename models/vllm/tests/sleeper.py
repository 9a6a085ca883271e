# SPDX-License-Identifier: Apache-2.0
"""An engine with vLLM's worker in small, on the driver alone: goes to sleep as vLLM's worker does, at levels 1 and 2; prints JSON.

Its weights, a buffer and its KV cache lie in device memory; what stands for tensors says where. Arguments: none.
"""
import ctypes
import json
import os
import sys
import time
import types
from contextlib import nullcontext

import vllm_sleep_standin

vllm_sleep_standin.install()
from medusa import _driver, swap  # noqa: E402

cuda, MB, WORDS = _driver.library(), 1 << 20, 1 << 18
VALUES = {"weight": 3, "buffer": 5, "kv": 7}


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, (name, _driver.error_name(code))


class Tensor:
    """As much of a tensor as the backend asks for."""

    def __init__(self, megabytes, value):
        self.address, self.size, self.value = ctypes.c_uint64(), megabytes * MB, value
        call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(self.size))
        self.fill(value)

    def fill(self, value):
        call("cuMemsetD32_v2", self.address, value, ctypes.c_size_t(self.size // 4))

    def numel(self):
        return self.size // 2

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.address.value, nbytes=lambda: self.size)

    def words(self):
        """The first and the last word."""
        found = []
        for offset in (0, self.size - 4):
            word = ctypes.c_uint32()
            call("cuMemcpyDtoH_v2", ctypes.byref(word), ctypes.c_uint64(self.address.value + offset), ctypes.c_size_t(4))
            found.append(word.value)
        return found


def free_bytes():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


class Worker:
    """gpu_worker.py's order of calls; what it does to the device goes to the driver."""

    def __init__(self, config):
        self.vllm_config, self._sleep_mode_backend = types.SimpleNamespace(model_config=config), None

    def init_device(self):
        self.tensors = {"weight": Tensor(16, VALUES["weight"]), "buffer": Tensor(4, VALUES["buffer"]), "kv": Tensor(32, VALUES["kv"])}
        model = types.SimpleNamespace(parameters=lambda: [self.tensors["weight"]], buffers=lambda: [self.tensors["buffer"]])
        self.model_runner = types.SimpleNamespace(model=model, kv_caches=[[self.tensors["kv"]]])

    def _maybe_get_memory_pool_context(self, tag):
        return "cumem" if self.vllm_config.model_config.enable_cumem_allocator else nullcontext()

    def _get_sleep_mode_backend(self):
        from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

        if self._sleep_mode_backend is None:
            self._sleep_mode_backend = SleepModeBackendFactory.create_backend(self.vllm_config.model_config)
        return self._sleep_mode_backend

    def sleep(self, level=1):
        call("cuCtxSynchronize")
        before = free_bytes()
        self._get_sleep_mode_backend().suspend(level)
        call("cuCtxSynchronize")
        return free_bytes() - before

    def wake_up(self, tags=None):
        self._get_sleep_mode_backend().resume(tags)

    def words(self):
        return {name: tensor.words() for name, tensor in self.tensors.items()}


def wait_for_medusa():
    end = time.monotonic() + 20
    while swap.status()["swappable"] < 52 * MB:
        assert time.monotonic() < end
        time.sleep(0.01)


def main():
    from medusa_vllm import sleeping

    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    module = types.SimpleNamespace(Worker=Worker)
    if sleeping.wanted():
        sleeping.hook_worker(module)
    config = types.SimpleNamespace(enable_sleep_mode=True, sleep_mode_backend="cumem", enable_cumem_allocator=True)
    worker = Worker(config)
    worker.init_device()
    said = {"backend": config.sleep_mode_backend, "pool": worker._maybe_get_memory_pool_context("weights") == "cumem"}
    if config.sleep_mode_backend == "medusa":
        wait_for_medusa()
        rounds(worker, said)
    print(json.dumps(said), flush=True)


def rounds(worker, said):
    backend = worker._get_sleep_mode_backend
    said["freed"], said["state"], said["status"] = worker.sleep(1), backend().state(), swap.status()["out"]
    worker.wake_up()
    said["level1"], said["awake"] = worker.words(), backend().state()
    worker.tensors["kv"].fill(VALUES["kv"])
    call("cuCtxSynchronize")
    # By the command: everything is saved, since nobody sleeps.
    os.system("medusa-swap out sleeper >/dev/null && medusa-swap in sleeper >/dev/null")
    said["swapped"] = worker.words()
    worker.sleep(2)
    worker.wake_up(["weights"])
    said["partly"], said["level2"] = backend().state(), worker.words()
    worker.tensors["weight"].fill(VALUES["weight"])
    call("cuCtxSynchronize")
    os.system("medusa-swap out sleeper >/dev/null && medusa-swap in sleeper >/dev/null")
    said["reloaded"] = worker.words()
    worker.wake_up(["kv_cache"])
    worker.tensors["kv"].fill(VALUES["kv"])
    call("cuCtxSynchronize")
    said["end"], said["state_at_end"] = worker.words(), backend().state()
    os.system("medusa-swap out sleeper >/dev/null && medusa-swap in sleeper >/dev/null")
    said["saved"] = worker.words()


if __name__ == "__main__":
    sys.exit(main())
