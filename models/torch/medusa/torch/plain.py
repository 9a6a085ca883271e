# SPDX-License-Identifier: Apache-2.0
"""What is logged is made plain: labels, names and reasons are an engine's own words, and a terminal would act upon some."""
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
