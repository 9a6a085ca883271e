# SPDX-License-Identifier: Apache-2.0
"""Answers that can be checked: what engine.py says to a request with "prove", and what its client expects."""
import hashlib
import json


class Answer:
    """To a request with prove (its name), max_tokens, and maybe prompt and pad: pieces that depend on all of it."""

    def __init__(self, engine, asked):
        prompt = asked.get("prompt", "")
        self.engine, self.name, self.pad = engine, asked["prove"], asked.get("pad", 0)
        self.count = asked.get("max_tokens", 5)
        self.digest = hashlib.blake2b(prompt.encode(), digest_size=16).hexdigest()
        self.tokens = (len(prompt) // 4 + 1, self.count) # of the prompt, and of the answer

    def piece(self, i):
        text = f"{self.engine} {self.name} {i} {self.digest}"
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest() + "." * self.pad + " "

    def text(self):
        return "".join(self.piece(i) for i in range(self.count))

    def usage(self):
        return {"usage": dict(zip(("prompt_tokens", "completion_tokens"), self.tokens))}

    def whole(self):
        return {"choices": [{"index": 0, "message": {"content": self.text()}}], **self.usage()}

    def event(self, i):
        return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': self.piece(i)}}]})}\n\n"

    def usage_event(self):
        return f"data: {json.dumps({'choices': [], **self.usage()})}\n\n"
