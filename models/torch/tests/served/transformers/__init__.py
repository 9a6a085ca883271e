# SPDX-License-Identifier: Apache-2.0
"""A stand-in for transformers 5.23: its names and call structure as far as `transformers serve --continuous-batching` goes."""
