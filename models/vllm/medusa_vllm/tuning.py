# SPDX-License-Identifier: Apache-2.0
"""Inductor's choices among the variants of a kernel stay those of an earlier start.

Inductor measures the variants when a kernel first runs, and writes the fastest one to a file beside the kernel. PyTorch 2.11 passes over that file where it
has added a variant itself (to long reductions: RMSNorm of wide models), because it compares the whole list. So each start measures anew, and of two variants
that take equally long now this one wins and now that one: captures disagree about the kernels of nearly all graphs, and sums are rounded otherwise.
"""
from __future__ import annotations

import functools
import json
import logging
import os
import stat
from typing import Any, Dict, Iterator, List, Optional

from . import fit, switches

log = logging.getLogger("vllm.medusa")

TUNERS = "torch._inductor.runtime.triton_heuristics"
TUNER: Dict[str, List[str]] = {"autotune_to_one_config": ["self", "args", "kwargs"]}
MOST_BYTES = 64 << 10  # of such a file, which has some hundred


def hook_tuners(module: Any) -> None:
    """Wraps CachingAutotuner's measurement. Another vLLM, or a PyTorch without this method, is left as it is."""
    if not switches.tuning():
        return
    owner = getattr(module, "CachingAutotuner", None)
    why = fit.unfit_version() or (fit.unfit_module(owner, TUNER) if owner is not None else f"{TUNERS} has no CachingAutotuner")
    if why:
        log.warning("medusa: Inductor measures its kernels' variants anew in each start: %s", why)
        return
    method = owner.autotune_to_one_config  # type: ignore[union-attr]
    if getattr(method, "_medusa", False):
        return

    @functools.wraps(method)
    def autotune_to_one_config(tuner: Any, *arguments: Any, **options: Any) -> Any:
        launcher = _chosen_before(tuner)
        if launcher is None:
            return method(tuner, *arguments, **options)
        tuner.launchers = [launcher]
        return None

    autotune_to_one_config._medusa = True  # type: ignore[attr-defined]
    owner.autotune_to_one_config = autotune_to_one_config  # type: ignore[union-attr]


def _chosen_before(tuner: Any) -> Optional[Any]:
    """The variant, among the tuner's, that an earlier start has chosen; None if that is not known."""
    try:
        for choice in _choices(tuner):
            found = [launcher for launcher in tuner.launchers if _is(launcher.config, choice)]
            if len(found) == 1:
                return found[0]
    except Exception:  # pylint: disable=broad-except  # another PyTorch: it measures, as it does without the plug-in
        log.debug("medusa: what Inductor has chosen before is not known", exc_info=True)
    return None


def _choices(tuner: Any) -> Iterator[Dict[str, Any]]:
    """What the files say: the one that was named when the kernel was compiled, then the same one where caches are now."""
    cache = getattr(getattr(tuner, "save_cache_hook", None), "__self__", None)
    named = getattr(cache, "local_cache", None)
    if not named:
        return
    path = str(named[1])
    now = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    places = [path] + ([os.path.join(now, *path.split(os.sep)[-2:])] if now else [])
    for place in dict.fromkeys(places):
        choice = _read(place)
        if isinstance(choice, dict):
            yield choice


def _read(path: str) -> Any:
    """None if it is no file, or no JSON. Nothing is waited for, whatever lies there."""
    try:
        with open(path, encoding="utf-8", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
            return json.loads(file.read(MOST_BYTES)) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except (OSError, ValueError, RecursionError):
        return None


def _is(config: Any, choice: Dict[str, Any]) -> bool:
    wanted = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return all(name in choice and choice[name] == value for name, value in wanted.items())
