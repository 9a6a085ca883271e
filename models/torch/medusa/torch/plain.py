# SPDX-License-Identifier: Apache-2.0
"""Escapes text for the log: labels, names and reasons come from an engine, and a terminal would act upon some characters."""
from __future__ import annotations

import logging


def plain(text: str) -> str:
    """Of one line, each character that is not to be printed as its escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Plain(logging.Filter):
    """Changes each record, and lets it pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = plain(record.getMessage()), ()
        return True


logging.getLogger("medusa.torch").addFilter(Plain())
