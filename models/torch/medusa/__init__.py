# SPDX-License-Identifier: Apache-2.0
"""Medusa for Python engines: `import medusa.torch as medusa`. Importing this package alone loads no framework."""

__version__ = "0.1.0"
