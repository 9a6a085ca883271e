# SPDX-License-Identifier: Apache-2.0
"""A small decoder with random weights whose decode steps run as CUDA graphs: live, captured or restored, unchanged.

    python3 decode.py                                              captures its graphs live
    medusa-capture -o decode.medusa -- python3 decode.py           the same, recorded, once
    medusa-restore decode.medusa -- python3 decode.py              a cold start
"""
import argparse
import sys
import time

import torch
import torch.nn.functional as F

import medusa.torch as medusa


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.up = torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)

    def forward(self, x, cache, rows, positions, mask):
        batch, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, 3, self.heads, -1).unbind(1)
        cache["keys"][rows, positions] = k
        cache["values"][rows, positions] = v
        keys, values = (cache[name][:batch].transpose(1, 2) for name in ("keys", "values"))
        attended = F.scaled_dot_product_attention(q.unsqueeze(2), keys, values, attn_mask=mask)
        x = x + self.out(attended.reshape(batch, width))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Decoder(torch.nn.Module):
    def __init__(self, vocabulary, width, layers, heads):
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, width)
        self.layers = torch.nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = torch.nn.RMSNorm(width)

    def forward(self, tokens, positions, kv):
        rows = torch.arange(len(tokens), device=tokens.device)
        length = kv[0]["keys"].shape[1]
        mask = (torch.arange(length, device=tokens.device) <= positions[:, None])[:, None, None, :]
        x = self.embed(tokens)
        for layer, cache in zip(self.layers, kv):
            x = layer(x, cache, rows, positions, mask)
        return self.norm(x) @ self.embed.weight.T


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--artifact", help="default: the one that medusa-restore names")
    parser.add_argument("--batches", default="1,2,4,8,16")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    batches = [int(batch) for batch in options.batches.split(",")]
    most, length, heads, vocabulary = max(batches), 256, 16, 32000

    torch.manual_seed(7)
    torch.set_grad_enabled(False)
    with medusa.stage("weights"), torch.device(options.device):
        model = Decoder(vocabulary, options.width, options.layers, heads).to(torch.bfloat16)
        shape = most, length, heads, options.width // heads
        kv = [{name: torch.zeros(shape, dtype=torch.bfloat16) for name in ("keys", "values")} for _ in model.layers]
        inputs = {name: torch.zeros(most, dtype=torch.int64) for name in ("tokens", "positions")}

    def forward(batch):
        return model(inputs["tokens"][:batch], inputs["positions"][:batch], kv)

    def randomize(kind, batch, generator):  # valid values: medusa-verify compares eager with the graph on them
        inputs["tokens"].random_(0, vocabulary, generator=generator)
        inputs["positions"].random_(0, length, generator=generator)

    start = time.perf_counter()
    graphs = medusa.Graphs(
        options.artifact, bind={"model": model, "kv": kv, "inputs": inputs}, want=batches, randomize=randomize
    )
    steps = {batch: graphs.get("decode", batch, lambda batch=batch: forward(batch)) for batch in batches}
    graphs.ready()
    print(f"mode {medusa.mode()}: {len(steps)} graphs after {(time.perf_counter() - start) * 1e3:.1f} ms")

    numbers = torch.Generator(options.device).manual_seed(11)
    failed = 0
    for batch, step in steps.items():
        equal = True
        for _ in range(3):
            randomize("decode", batch, numbers)
            logits = step.replay().clone()
            equal = equal and torch.equal(logits, forward(batch))
        failed += not equal
        how = "restored" if step.restored else f"live ({step.reason})" if step.reason else "live"
        print(f"batch {batch:3}: {how}, {'equal to eager' if equal else 'DIFFERS from eager'}, {tuple(logits.shape)}")
    print(f"memory: {medusa.memory_stats()}")
    graphs.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
