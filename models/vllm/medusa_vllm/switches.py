# SPDX-License-Identifier: Apache-2.0
"""The plug-in's own settings in the environment: what is permitted, what is the default, and what happens with anything else."""
from __future__ import annotations

from typing import Optional

from medusa import _settings

LOG = "vllm.medusa"
PIECES, TAKEOVER, AFTER = "MEDUSA_VLLM_PIECES", "MEDUSA_VLLM_TAKEOVER", "MEDUSA_VLLM_TAKEOVER_AFTER"
AFTER_S = 1.0


def plugin() -> bool:
    return _settings.is_on("MEDUSA_VLLM", True, "vLLM is left as it is", LOG)


def prefork() -> bool:
    return _settings.is_on("MEDUSA_VLLM_PREFORK", True, "the engine core's process is spawned", LOG)


def sleep() -> bool:
    return _settings.is_on("MEDUSA_VLLM_SLEEP", True, "sleep mode is left to vLLM", LOG)


def any_version() -> bool:
    return _settings.is_on("MEDUSA_VLLM_ANY_VERSION", False, "versions that were never tried are left alone", LOG)


def tuning() -> bool:
    return _settings.is_on("MEDUSA_VLLM_TUNING", True, "Inductor measures its kernels' variants anew in each start", LOG)


def prefill() -> str:
    """ "eager" or "compiled": how batches with prefills run after a restore."""
    return _settings.word("MEDUSA_VLLM_PREFILL", ("eager", "compiled"), "eager", "compiled",
                          "the model is compiled before the first answer, as vLLM does it", LOG)


def pieces() -> Optional[bool]:
    """Whether vLLM's pieces are recorded and restored; None: where that is possible, and nobody is warned where it is not."""
    found = _settings.word(PIECES, (), "", "0", "no pieces are recorded or restored", LOG, {True: "1", False: "0"})
    return None if not found else found == "1"


def takeover() -> str:
    """ "load", "compile" or "0": whether vLLM's compiled model takes over."""
    return _settings.word(TAKEOVER, ("load", "compile"), "load", "0",
                          "batches with prefills stay as they are after the start", LOG, {True: "load", False: "0"})


def takeover_after() -> float:
    """Seconds without a step, after the first one, until work begins that may make a request wait."""
    return _settings.number(AFTER, AFTER_S, LOG, 0.0, 1e6)
