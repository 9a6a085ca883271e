# SPDX-License-Identifier: Apache-2.0
"""The few driver calls that replays need, on the libcuda that this process uses."""
from __future__ import annotations

import ctypes
from typing import Callable, Optional

_library: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    """libcuda.so.1 with argument types set; OSError where there is none."""
    global _library
    if _library is None:
        loaded = ctypes.CDLL("libcuda.so.1")
        loaded.cuGraphLaunch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        loaded.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
        loaded.cuGetErrorName.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
        _library = loaded
    return _library


def launcher() -> Callable[[ctypes.c_void_p, int], int]:
    """cuGraphLaunch itself: called at every replay, so nothing stands in between."""
    return library().cuGraphLaunch


def error_name(code: int) -> str:
    name = ctypes.c_char_p()
    if library().cuGetErrorName(code, ctypes.byref(name)) == 0 and name.value:
        return name.value.decode()
    return f"CUDA error {code}"


def read_u64(address: int) -> int:
    """One word of device memory; waits for the device's legacy default stream."""
    word = ctypes.c_uint64()
    code = library().cuMemcpyDtoH_v2(ctypes.byref(word), address, 8)
    if code:
        raise RuntimeError(f"reading device memory failed: {error_name(code)}")
    return word.value
