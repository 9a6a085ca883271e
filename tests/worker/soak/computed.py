# SPDX-License-Identifier: Apache-2.0
"""Functions on a backbone that computes, in a soak: llama-engine with LoRA adapters, whose tokens are those of the engine offline."""
import os

from adapters import make, offline_with, write_shape
from reference import ENGINE, prompt_of

BACKBONE = "tiny"
ADAPTERS = {"tiny-one": (1,), "tiny-eight": (8,), "tiny-some": (4, "--projections", "q,v", "--layers", "1")} # rank, what else
SLOTS = ("--lora-slots", "2", "--max-lora-rank", "8")
COUNT, TOKENS = 4, 12
PROMPTS = [prompt_of(i, 7, 300) for i in range(COUNT)]
LIKE_WHOLE = ("long prompt", "long answer", "slow reader", "stalled reader", "engine dies") # kinds that engine.py alone knows

expected = {} # model -> tokens of each prompt


def prepare(folder):
    """Makes the adapters, and asks the engine offline. Once, before there are requests."""
    os.makedirs(f"{folder}/computed")
    shape = write_shape(f"{folder}/computed")
    words = ["--recipe", shape, "--seed", "7", "--max-context", "128"]
    for seed, (name, more) in enumerate(ADAPTERS.items()):
        make(shape, path_of(folder, name), seed, *more)
    for name in (BACKBONE, *ADAPTERS):
        expected[name] = offline_with(f"{folder}/computed", words, COUNT, TOKENS, path_of(folder, name) if name in ADAPTERS else None)
    if len({str(tokens) for tokens in expected.values()}) != len(expected):
        raise RuntimeError(f"adapters do not change the tokens: {expected}")
    return f"{ENGINE} {' '.join(words)} --batches 1,2,4 --kv-blocks 48 {' '.join(SLOTS)} --serve 127.0.0.1:${{PORT}} --served-name {BACKBONE}"


def path_of(folder, name):
    return f"{folder}/computed/{name}"


class Computed:
    """The answer to a request, as answers.Answer has it."""

    def __init__(self, request):
        prompt = int(request["name"].rsplit(".", 1)[1]) % COUNT
        self.prompt, self.right = PROMPTS[prompt], expected[request["model"]][prompt][:request["tokens"]]
        self.tokens = len(self.prompt), request["tokens"]

    def asked(self, stream):
        more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {"stream": False}
        return {"prompt": self.prompt, "max_tokens": self.tokens[1], "return_token_ids": True, "ignore_eos": True, **more}

    def content(self, choice):
        """What a choice says, of an event or of a whole answer."""
        return choice.get("token_ids") or []

    nothing = []

    def begins_with(self, got):
        return self.right[:len(got)] == got

    def is_all(self, got):
        return self.right == got

    def is_whole(self, answer):
        usage = answer.get("usage", {})
        return self.is_all(self.content(answer["choices"][0])) and (usage.get("prompt_tokens"), usage.get("completion_tokens")) == self.tokens
