# SPDX-License-Identifier: Apache-2.0
"""Switches, numbers and words of the environment, each read by one rule, as base/setting.h has it. No framework."""
from __future__ import annotations

import logging
import math
import os
from typing import Dict, Optional, Sequence, Set, Tuple

ON, OFF = ("1", "on", "true", "yes"), ("0", "off", "false", "no")
PERMITTED = ", ".join((*ON, *OFF))
_named: Set[Tuple[str, str]] = set()


def _say(name: str, value: str, wanted: str, so: str, log: str) -> None:
    """One line for each variable and value."""
    if (name, value) not in _named:
        _named.add((name, value))
        logging.getLogger(log).error("medusa: %s=%.60r: %s is wanted; %s", name, value, wanted, so)


def parse_switch(text: str) -> Optional[bool]:
    """None: neither on nor off."""
    word = text.lower()
    return True if word in ON else False if word in OFF else None


def is_on(name: str, default: bool, so: str, log: str = "medusa", unreadable: bool = False) -> bool:
    """A switch. A variable that is not set or empty is the default; one that is neither on nor off is an error, and the answer is
    `unreadable`. so: what happens then, for the log."""
    text = os.environ.get(name, "")
    answer = parse_switch(text) if text else default
    if answer is not None:
        return answer
    _say(name, text, f"one of {PERMITTED}", so, log)
    return unreadable


def word(name: str, words: Sequence[str], default: str, unreadable: str, so: str, log: str = "medusa",
         switches: Optional[Dict[bool, str]] = None) -> str:
    """One of some words, in small letters or capitals. switches: which of them a switch that is on, or off, stands for."""
    text = os.environ.get(name, "")
    found = text.lower()
    if not text:
        return default
    if found in words:
        return found
    switch = parse_switch(text)
    if switches and switch is not None and switch in switches:
        return switches[switch]
    permitted = [*words, *(ON if switches and True in switches else ()), *(OFF if switches and False in switches else ())]
    _say(name, text, f"one of {', '.join(dict.fromkeys(permitted))}", so, log)
    return unreadable


def number(name: str, default: float, log: str = "medusa", least: float = 0.0, most: float = 1e9) -> float:
    """A decimal number; the default if the variable is not set, empty, or holds anything else, which is an error."""
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if least <= value <= most:
        return value
    _say(name, text, f"a number from {least:g} to {most:g}", f"{default:g} is used", log)
    return default


def whole(name: str, default: int, log: str = "medusa", least: int = 0, most: int = 2**31 - 1) -> int:
    """The same for a whole number."""
    text = os.environ.get(name, "")
    if not text:
        return default
    if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most:
        return int(text)
    _say(name, text, f"a whole number from {least} to {most}", f"{default} is used", log)
    return default
