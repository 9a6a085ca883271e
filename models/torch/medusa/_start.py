# SPDX-License-Identifier: Apache-2.0
"""medusa-torch.pth calls begin() when Python starts with a Medusa library preloaded: hooks wait for transformers' server."""
from __future__ import annotations

from typing import Any

from . import _settings
from ._imports import after_import

UTILS, SERVER = "transformers.cli.serving.utils", "transformers.cli.serving.server"


def begin() -> None:
    """Loads neither PyTorch nor transformers; has no effect on a program that never imports the server."""
    if _settings.is_on("MEDUSA_TRANSFORMERS", True, "transformers' server is left as it is", "medusa.torch"):
        after_import(UTILS, _hook_utils, "medusa.torch")
        after_import(SERVER, _hook_server, "medusa.torch")


def _hook_utils(module: Any) -> None:
    from ._api import mode

    if mode() != "none":
        from .torch import serve

        serve.hook_utils(module)


def _hook_server(module: Any) -> None:
    from ._api import mode

    if mode() != "none":
        from .torch import serve

        serve.hook_server(module)
