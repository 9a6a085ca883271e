# SPDX-License-Identifier: Apache-2.0
"""Keeps the plug-in's failures from the engine: a step that fails is logged, and the engine goes on as without the plug-in."""
from __future__ import annotations

import logging
from typing import Any, Callable

log = logging.getLogger("vllm.medusa")


def spared(what: str, call: Callable[[], Any], otherwise: Any = None) -> Any:
    """What call() returns. If it fails, `otherwise`, and the log says `what` follows. Never used around the engine's own work."""
    try:
        return call()
    except Exception:  # pylint: disable=broad-except  # a plug-in's failure is not the engine's
        log.exception("medusa: %s, because the plug-in failed", what)
        return otherwise
