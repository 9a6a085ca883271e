# SPDX-License-Identifier: Apache-2.0
"""medusa-vllm.pth calls begin() when Python starts with a Medusa library preloaded: hooks wait for vLLM's command line."""
from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import sys
from typing import Any, List

FIRST = "vllm.version"  # imported before every other module of vLLM, and before PyTorch
COMMAND_LINE = "vllm.entrypoints.serve.utils.api_utils"
begun: List[bool] = []  # holds an element when Python has read medusa-vllm.pth
resting: List[bool] = []  # holds an element while this module keeps the garbage collector off
SERVERS = ("vllm.entrypoints.cli.main", "vllm.entrypoints.openai.api_server")


def begin() -> None:
    """Loads neither PyTorch nor vLLM, and has no effect on a program that never imports vLLM's server."""
    from medusa._imports import after_import

    if begun:
        return  # in a virtual environment, Python reads .pth files twice
    begun.append(True)
    after_import(COMMAND_LINE, _hook_command_line, "vllm.medusa")  # settings are read when a server starts
    if _is_command_line():
        after_import(FIRST, _hook_first, "vllm.medusa")


def preloaded() -> bool:
    """Whether a Medusa library answers in this process. Asked before anything of the package `medusa`, a name that others have, too."""
    return hasattr(ctypes.CDLL(None), "medusa_mode")


def incomplete() -> str:
    """What of Medusa is not installed; "" if nothing is missing. Runs nothing of a package `medusa`."""
    found = importlib.util.find_spec("medusa")
    if found is None:
        return "the package medusa-torch is not installed: pip install ./models/torch ./models/vllm"
    folders = list(found.submodule_search_locations or ())
    if not any(os.path.exists(os.path.join(folder, "_api.py")) for folder in folders):
        return (f"the package medusa in {(folders or [found.origin])[0]} is another one than medusa-torch's: remove it, "
                "or put the folder of medusa-torch before it (PYTHONPATH)")
    return ""


def unread() -> str:
    """What a process lacks whose Python has not read medusa-vllm.pth at its start; "" if it has."""
    if begun:
        return ""
    return ("Python did not read medusa-vllm.pth when it started (PYTHONPATH does not do that, and python -S reads none): `vllm serve` spawns its engine "
            "core and imports vLLM twice; install the plug-in (pip install ./models/torch ./models/vllm, or with -e)")


def _hook_first(module: Any) -> None:
    """Switches the garbage collector off until imported(): imported objects stay, and collections take a tenth of the imports' time."""
    from . import fit, switches

    if gc.isenabled() and str(module.__version__).startswith(fit.VERSIONS) and switches.plugin():
        gc.disable()
        resting.append(True)


def imported() -> None:
    """Called when vLLM's command line has finished its imports, or when an engine is being made."""
    if resting:
        resting.clear()
        gc.enable()


def _is_command_line() -> bool:
    words = sys.orig_argv[1:]
    return words[:1] == ["-m"] and words[1:2] != [] and words[1] in SERVERS or os.path.basename((words or [""])[0]) == "vllm"


def _hook_command_line(module: Any) -> None:
    from . import prefork

    prefork.hook_command_line(module)
