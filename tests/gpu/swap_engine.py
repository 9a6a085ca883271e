# SPDX-License-Identifier: Apache-2.0
"""A small PyTorch engine that is asked through its standard input: one command a line, one line of JSON for each.

    answer SEED    a prefill of 512 tokens and 64 replays of a captured decode graph; the hash of all logits
    first SEED N   a prefill of N tokens; the hash of its logits
    change         other weights, everywhere
    held           what the process has: descriptors, threads, KiB of host memory
    pause, resume  torch_memory_saver's (with --saver)
    end
"""
import argparse
import contextlib
import hashlib
import json
import os
import re
import sys
import time

import torch

HIDDEN, HEADS, VOCABULARY, LONGEST = 4096, 32, 32000, 4096


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.RMSNorm(HIDDEN)
        self.qkv, self.out = torch.nn.Linear(HIDDEN, 3 * HIDDEN, bias=False), torch.nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.up, self.down = torch.nn.Linear(HIDDEN, 4 * HIDDEN, bias=False), torch.nn.Linear(4 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x, cache, at):
        count, width = x.shape[0], HIDDEN // HEADS
        query, key, value = self.qkv(self.norm(x)).view(count, 3, HEADS, width).unbind(1)
        cache[0].index_copy_(0, at, key)
        cache[1].index_copy_(0, at, value)
        seen = torch.arange(LONGEST, device=x.device)[None, :] <= at[:, None]
        mixed = torch.nn.functional.scaled_dot_product_attention(
            query.transpose(0, 1), cache[0].transpose(0, 1), cache[1].transpose(0, 1), attn_mask=seen[None])
        x = x + self.out(mixed.transpose(0, 1).reshape(count, HIDDEN))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Engine:
    def __init__(self, gigabytes, cache_gigabytes, region):
        layers = max(1, int(gigabytes * 1e9 / (2 * 12 * HIDDEN * HIDDEN)))
        with region, torch.device("cuda"), torch.inference_mode():
            torch.set_default_dtype(torch.bfloat16)
            self.embedding = torch.nn.Embedding(VOCABULARY, HIDDEN)
            self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))
            self.cache = [torch.zeros(2, LONGEST, HEADS, HIDDEN // HEADS) for _ in range(layers)]
            self.spare = torch.zeros(int(cache_gigabytes * 1e9) // 2)  # blocks of the KV cache that nobody uses
            self.token, self.place = torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long)
            self.change(1)
        self.graph = torch.cuda.CUDAGraph()
        with torch.inference_mode():
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                self.step()
            torch.cuda.synchronize()
            with torch.cuda.graph(self.graph):
                self.logits = self.step()

    @torch.inference_mode()
    def change(self, seed):
        torch.manual_seed(seed)
        for parameter in self.layers.parameters():
            parameter.normal_(0, 0.02) if parameter.dim() > 1 else parameter.fill_(1)
        self.embedding.weight.normal_(0, 1)

    def forward(self, tokens, at):
        x = self.embedding(tokens)
        for layer, cache in zip(self.layers, self.cache):
            x = layer(x, cache, at)
        return x[-1] @ self.embedding.weight.t()

    def step(self):
        logits = self.forward(self.token, self.place)
        self.token.copy_(logits.argmax().view(1))
        self.place.add_(1)
        return logits

    @torch.inference_mode()
    def answer(self, seed, prompt=512, tokens=64):
        start = time.perf_counter()
        numbers = torch.Generator().manual_seed(seed)
        logits = self.forward(torch.randint(VOCABULARY, (prompt,), generator=numbers).cuda(), torch.arange(prompt, device="cuda"))
        self.token.copy_(logits.argmax().view(1))
        self.place.fill_(prompt)
        torch.cuda.synchronize()
        first = time.perf_counter() - start
        found = hashlib.sha256(logits.cpu().view(torch.int16).numpy().tobytes())
        for _ in range(tokens):
            self.graph.replay()
            found.update(self.logits.cpu().view(torch.int16).numpy().tobytes())
        return {"answer": found.hexdigest()[:16], "first_ms": first * 1e3, "ms": (time.perf_counter() - start) * 1e3}


    @torch.inference_mode()
    def first(self, seed, prompt):
        start = time.perf_counter()
        numbers = torch.Generator().manual_seed(seed)
        logits = self.forward(torch.randint(VOCABULARY, (prompt,), generator=numbers).cuda(), torch.arange(prompt, device="cuda"))
        found = hashlib.sha256(logits.cpu().view(torch.int16).numpy().tobytes())
        return {"answer": found.hexdigest()[:16], "ms": (time.perf_counter() - start) * 1e3}


def held():
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        text = file.read()
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": int(re.search(r"Threads:\s+(\d+)", text)[1]),
            "anonymous_kib": int(re.search(r"RssAnon:\s+(\d+)", text)[1])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=1, help="of weights")
    parser.add_argument("--cache-gb", type=float, default=0, help="of a KV cache beside the part that is used")
    parser.add_argument("--saver", action="store_true", help="memory belongs to torch_memory_saver")
    options = parser.parse_args()
    saver = None
    if options.saver:
        from torch_memory_saver import torch_memory_saver as saver

        saver.hook_mode = "torch"
    region = saver.region(enable_cpu_backup=True) if saver else contextlib.nullcontext()
    engine, seed = Engine(options.gb, options.cache_gb, region), 1
    weights = sum(part.numel() * part.element_size() for part in (*engine.layers.parameters(), engine.embedding.weight))
    print(json.dumps({"ready": weights, "reserved": torch.cuda.memory_reserved()}), flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        result = {}
        start = time.perf_counter()
        if command == "answer":
            result = engine.answer(int(arguments[0]))
        elif command == "first":
            result = engine.first(int(arguments[0]), int(arguments[1]))
        elif command == "held":
            result = held()
        elif command == "change":
            seed += 1
            engine.change(seed)
            torch.cuda.synchronize()
        elif command in ("pause", "resume"):
            getattr(saver, command)()
            torch.cuda.synchronize()
        elif command == "end":
            break
        print(json.dumps({"command": command, "seconds": time.perf_counter() - start, **result}), flush=True)


if __name__ == "__main__":
    main()
