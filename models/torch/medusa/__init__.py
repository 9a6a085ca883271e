# SPDX-License-Identifier: Apache-2.0
"""Medusa for Python engines: `import medusa.torch as medusa`. Importing this package alone loads no framework."""

import os

# VERSION is a link to the tree's own file, and a copy of it in a wheel.
with open(os.path.join(os.path.dirname(__file__), "VERSION"), encoding="ascii") as _file:
    __version__ = _file.read().strip()
del os, _file
