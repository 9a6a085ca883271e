# SPDX-License-Identifier: Apache-2.0
"""A prefix cache of an engine that computes nothing: prompts take time by what it lacks, and it counts what it had."""
import hashlib
import json
import threading
import time

BLOCK = 64  # characters


class Prefixes:
    """how: "tell": it keeps prefixes, and says what it had; "silent": it keeps them; "zero": it keeps none, and says so."""

    def __init__(self, seconds_per_kb, how):
        self.seconds, self.how = seconds_per_kb, how
        self.lock, self.known = threading.Lock(), set()
        self.cached = self.computed = 0  # characters

    def take(self, asked):
        """Takes its time; what stands in `usage` then."""
        text = json.dumps([asked.get("tools"), asked.get("system"), asked.get("messages"), asked.get("prompt")])
        digest, had, blocks = hashlib.blake2b(), 0, []
        for at in range(0, len(text) - BLOCK + 1, BLOCK):
            digest.update(text[at:at + BLOCK].encode())
            blocks.append(digest.digest())
        with self.lock:
            while self.how != "zero" and had < len(blocks) and blocks[had] in self.known:
                had += 1
            self.cached += had * BLOCK
            self.computed += len(text) - had * BLOCK
        time.sleep(self.seconds * (len(text) - had * BLOCK) / 1000)
        with self.lock:
            self.known.update(blocks)
        told = {} if self.how == "silent" else {"prompt_tokens_details": {"cached_tokens": had * BLOCK // 4}}
        return {"usage": {"prompt_tokens": len(text) // 4, "completion_tokens": 5, **told}}

    def counts(self):
        return {"cached": self.cached, "computed": self.computed}
