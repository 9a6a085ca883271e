# SPDX-License-Identifier: Apache-2.0
"""Functions of libmedusa that also work where nothing is preloaded: they speak with another process."""
from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional

from ._api import NOT_FOUND, Error


class Client:
    """prototypes: name -> argument types; each function returns a result code."""

    def __init__(self, module: str, prototypes: Dict[str, list]) -> None:
        self._module, self._prototypes, self._loaded = module, prototypes, None  # type: str, Dict[str, list], Optional[ctypes.CDLL]

    def library(self) -> ctypes.CDLL:
        """The library that is preloaded; in other processes libmedusa.so.0."""
        if self._loaded is None:
            library = ctypes.CDLL(None)
            if not hasattr(library, next(iter(self._prototypes))):
                try:
                    library = ctypes.CDLL("libmedusa.so.0")
                except OSError as error:
                    raise Error(NOT_FOUND, f"{self._module} needs libmedusa.so.0, where the dynamic linker finds it: {error}") from error
            for name, arguments in self._prototypes.items():
                function = getattr(library, name)
                function.restype, function.argtypes = ctypes.c_int, arguments
            library.medusa_reason.restype = ctypes.c_char_p
            self._loaded = library
        return self._loaded

    def call(self, function: str, *arguments: Any) -> None:
        """Raises Error with medusa_reason() unless the function returns MEDUSA_OK."""
        library = self.library()
        code = getattr(library, function)(*arguments)
        if code:
            raise Error(code, (library.medusa_reason() or b"").decode(errors="replace") or f"error {code}")
