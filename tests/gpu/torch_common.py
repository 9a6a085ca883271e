# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch programs here share: a small decoder with a KV cache, and the verdict on graphs against eager."""
import argparse
import ctypes
import hashlib
import json
import os
import sys

try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/torch"))
import medusa.torch as medusa  # noqa: E402

BATCHES = (1, 2, 4, 8)
DTYPE = torch.bfloat16


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def need_gpu():
    """Not done on import: a parent that forks workers must not touch the device."""
    if not torch.cuda.is_available():
        skip("no CUDA device")


class Layer(torch.nn.Module):
    """Attention over a static cache, then an MLP; one token a sequence."""

    def __init__(self, width, heads, context, batch):
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.before = torch.nn.RMSNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.mlp = Mlp(width)
        self.register_buffer("rows", torch.arange(batch), persistent=False)
        self.register_buffer("steps", torch.arange(context), persistent=False)

    def forward(self, x, positions, cache):
        batch = x.shape[0]
        q, k, v = self.qkv(self.before(x)).view(batch, 3, self.heads, self.head).unbind(1)
        keys, values = cache["keys"], cache["values"]
        keys[self.rows[:batch], :, positions] = k
        values[self.rows[:batch], :, positions] = v
        mask = (self.steps <= positions[:, None])[:, None, None]
        y = torch.nn.functional.scaled_dot_product_attention(q[:, :, None], keys[:batch], values[:batch], mask)
        x = x + self.out(y.reshape(batch, -1))
        return x + self.mlp(x)


class Mlp(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.RMSNorm(width)
        self.gate = torch.nn.Linear(width, 3 * width, bias=False)
        self.up = torch.nn.Linear(width, 3 * width, bias=False)
        self.down = torch.nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        x = self.norm(x)
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


class Decoder(torch.nn.Module):
    def __init__(self, width, layers, heads, context, batch, vocabulary):
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, width)
        self.layers = torch.nn.ModuleList(Layer(width, heads, context, batch) for _ in range(layers))
        self.norm = torch.nn.RMSNorm(width)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, positions, kv):
        x = self.embed(tokens)
        for layer, cache in zip(self.layers, kv):
            x = layer(x, positions, cache)
        return self.head(self.norm(x)).float()


class Engine:
    """Model, KV cache and static inputs: all that a decode step touches. The same seed gives the same bytes."""

    def __init__(self, device="cuda", seed=7, width=256, layers=2, heads=4, context=64, batch=max(BATCHES)):
        torch.manual_seed(seed)
        self.vocabulary, self.context, self.batch = 512, context, batch
        self.model = Decoder(width, layers, heads, context, batch, self.vocabulary).to(DTYPE).to(device)
        shape = batch, heads, context, width // heads
        self.kv = [{name: torch.zeros(shape, dtype=DTYPE, device=device) for name in ("keys", "values")}
                   for _ in range(layers)]
        self.inputs = {k: torch.zeros(batch, dtype=torch.long, device=device) for k in ("tokens", "positions")}

    @property
    def bind(self):
        return {"model": self.model, "kv": self.kv, "inputs": self.inputs}

    @torch.no_grad()
    def forward(self, batch):
        return self.model(self.inputs["tokens"][:batch], self.inputs["positions"][:batch], self.kv)

    def fill(self, seed):
        """Other inputs and another past. A live start has written into the cache, a restored one has not."""
        source = torch.Generator().manual_seed(seed)
        self.inputs["tokens"].copy_(torch.randint(self.vocabulary, (self.batch,), generator=source))
        self.inputs["positions"].copy_(torch.randint(self.context, (self.batch,), generator=source))
        for cache in self.kv:
            for tensor in cache.values():
                tensor.copy_(torch.randn(tensor.shape, generator=source).to(DTYPE))

    def past(self):
        return torch.cat([tensor.flatten() for cache in self.kv for tensor in cache.values()])


def digest(tensor):
    held = tensor.detach().contiguous().cpu()
    return hashlib.sha256(ctypes.string_at(held.data_ptr(), held.nbytes)).hexdigest()


class Check:
    """Gathers steps, outputs and failures of one program; writes them for a comparison of runs; says the verdict."""

    def __init__(self, name, **arguments):
        parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
        parser.add_argument("--artifact", help="the path given to medusa.Graphs (default: whatever is being restored)")
        parser.add_argument("--out", help="where to write the outputs' hashes and how each graph was made, as JSON")
        for flag, options in arguments.items():
            parser.add_argument("--" + flag, **options)
        self.arguments = parser.parse_args()
        self.name, self.steps, self.outputs, self.failures, self.facts = name, [], {}, [], {}

    def graphs(self, bind, **options):
        return medusa.Graphs(options.pop("path", self.arguments.artifact), bind=bind, **options)

    def get(self, graphs, kind, batch, fn):
        step = graphs.get(kind, batch, fn)
        self.steps.append({"graph": f"{kind}/{batch}", "restored": bool(step.restored), "reason": step.reason or ""})
        return step

    def require(self, holds, why):
        if not holds:
            self.failures.append(why)

    def same(self, name, got, expected):
        """Bit by bit: a NaN must be the same NaN."""
        self.outputs[name] = digest(got)
        self.require(got.shape == expected.shape and got.dtype == expected.dtype and
                     self.outputs[name] == digest(expected), f"{name}: the graph's result differs from eager")

    def serve(self, engine, steps, name=""):
        """Replays each {batch: step} on two fillings and compares output and KV cache with eager."""
        for batch, step in steps.items():
            for seed in (1, 2):
                engine.fill(seed)
                expected, past = engine.forward(batch).clone(), engine.past()
                engine.fill(seed)
                self.same(f"{name} {batch}.{seed}", step.replay().clone(), expected)
                self.same(f"{name} {batch}.{seed} kv", engine.past(), past)

    def expect(self, restored):
        """In a restore: all, some, none, any. Whatever is live says why."""
        if medusa.mode() != "restore":
            return
        done = sum(step["restored"] for step in self.steps)
        self.require({"all": done == len(self.steps), "none": done == 0, "any": True,
                      "some": 0 < done < len(self.steps)}[restored],
                     f"{done} of {len(self.steps)} graphs were restored, expected: {restored}")
        for step in self.steps:
            self.require(step["restored"] or step["reason"], f"{step['graph']}: live, and no reason is given")

    def finish(self):
        done = sum(step["restored"] for step in self.steps)
        reasons = sorted({step["reason"] for step in self.steps if step["reason"]})
        if self.arguments.out:
            with open(self.arguments.out, "w", encoding="utf-8") as out:
                json.dump({"mode": medusa.mode(), "steps": self.steps, "outputs": self.outputs, **self.facts}, out)
        for failure in self.failures:
            print(f"failure: {failure}")
        print(f"{self.name}: {len(self.steps)} graphs, {done} restored; {len(self.outputs)} results "
              + ("equal to eager" if not self.failures else f"compared, {len(self.failures)} failures")
              + (f"; live: {reasons[0]}" if reasons and medusa.mode() == "restore" else ""))
        sys.exit(1 if self.failures else 0)
