# SPDX-License-Identifier: Apache-2.0
"""Calls a function right after the import of a module, if the program ever imports it. Loads nothing else."""
from __future__ import annotations

import importlib.abc
import importlib.util
import logging
import sys
from typing import Any, Callable, Optional, Sequence


def after_import(name: str, act: Callable[[Any], None], log: str = "medusa") -> None:
    """Calls act(module) now if the module is loaded, else right after its import. Exceptions of act are logged to `log`."""
    module = sys.modules.get(name)
    if module is not None:
        act(module)
    elif not any(isinstance(finder, Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder(name, act, log))


class Finder(importlib.abc.MetaPathFinder):
    """Precedes the other finders until its module is imported, once."""

    def __init__(self, name: str, act: Callable[[Any], None], log: str) -> None:
        self.name, self._act, self._log = name, act, log

    def find_spec(self, name: str, path: Optional[Sequence[str]], target: Any = None) -> Any:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        load, act, log = spec.loader.exec_module, self._act, self._log

        def exec_module(module: Any) -> None:
            load(module)
            try:
                act(module)
            except Exception:  # pylint: disable=broad-except  # an adapter's failure is not the program's
                logging.getLogger(log).exception("medusa: %s is left as it is", name)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
