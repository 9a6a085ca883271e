# SPDX-License-Identifier: Apache-2.0
"""What medusa-vllm.pth calls when Python starts with a Medusa library preloaded: waits for vLLM's command line."""
from __future__ import annotations

from typing import Any

COMMAND_LINE = "vllm.entrypoints.serve.utils.api_utils"


def begin() -> None:
    """Loads neither PyTorch nor vLLM; a program that never imports vLLM's server never hears of this."""
    from medusa._imports import after_import

    after_import(COMMAND_LINE, _hook_command_line, "vllm.medusa")  # settings are read when a server starts


def _hook_command_line(module: Any) -> None:
    from . import prefork

    prefork.hook_command_line(module)
