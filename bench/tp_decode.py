#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a tensor-parallel decoder with NCCL: takes its decode graphs through medusa.torch, and measures itself.

Started by torchrun, once for each rank (h200-tp.sh). Each rank has its share of the heads and of the MLP, and sums are all-reduced behind both, as
in vLLM. Nothing is launched between "communicator and weights are ready" and the first graph that is asked for.
"""
import argparse
import ctypes
import hashlib
import json
import os
import statistics
import sys
import time

try:
    import torch
except ImportError:
    print("tp_decode: skipped: PyTorch is not installed")
    sys.exit(77)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "models/torch"), os.path.join(ROOT, "bench")]
import medusa.torch as medusa  # noqa: E402
from torch_model import BATCHES, read_recipe  # noqa: E402

DTYPE = torch.bfloat16
WARM_ELEMENTS = 4096


class Rotary(torch.nn.Module):
    def __init__(self, head, positions, theta):
        super().__init__()
        angles = torch.arange(positions)[:, None] / theta ** (torch.arange(0, head, 2) / head)
        self.register_buffer("cos", angles.cos().repeat(1, 2).to(DTYPE))
        self.register_buffer("sin", angles.sin().repeat(1, 2).to(DTYPE))

    def forward(self, x, at):
        low, high = x.chunk(2, -1)
        return x * self.cos[at][:, None] + torch.cat((-high, low), -1) * self.sin[at][:, None]


class Block(torch.nn.Module):
    """This rank's heads and its part of the MLP."""

    def __init__(self, recipe, ranks, length):
        super().__init__()
        width, self.head, self.heads = recipe["hidden_size"], recipe["head_dim"], recipe["heads"] // ranks
        inner, epsilon = recipe["intermediate_size"] // ranks, float(recipe["rms_epsilon"])
        self.before, self.middle = torch.nn.RMSNorm(width, eps=epsilon), torch.nn.RMSNorm(width, eps=epsilon)
        self.qkv = torch.nn.Linear(width, 3 * self.heads * self.head, bias=False)
        self.out = torch.nn.Linear(self.heads * self.head, width, bias=False)
        self.gate_up = torch.nn.Linear(width, 2 * inner, bias=False)
        self.down = torch.nn.Linear(inner, width, bias=False)
        self.register_buffer("steps", torch.arange(length))

    def forward(self, x, at, rotary, keys, values):
        rows = torch.arange(x.shape[0], device=x.device)
        q, k, v = self.qkv(self.before(x)).view(x.shape[0], 3, self.heads, self.head).unbind(1)
        keys[rows, :, at] = rotary(k, at)
        values[rows, :, at] = v
        mask = (self.steps <= at[:, None])[:, None, None]
        y = torch.nn.functional.scaled_dot_product_attention(rotary(q, at)[:, :, None], keys[:x.shape[0]], values[:x.shape[0]], attn_mask=mask)
        y = self.out(y.reshape(x.shape[0], -1))
        torch.distributed.all_reduce(y)
        x = x + y
        gate, up = self.gate_up(self.middle(x)).chunk(2, -1)
        y = self.down(torch.nn.functional.silu(gate) * up)
        torch.distributed.all_reduce(y)
        return x + y


class Engine:
    def __init__(self, recipe, ranks, device, batch, length):
        self.vocabulary, self.length = recipe["vocabulary"], length
        with torch.device("meta"):
            self.model = torch.nn.ModuleDict({
                "embed": torch.nn.Embedding(self.vocabulary, recipe["hidden_size"]),
                "blocks": torch.nn.ModuleList(Block(recipe, ranks, length) for _ in range(recipe["layers"])),
                "norm": torch.nn.RMSNorm(recipe["hidden_size"], eps=float(recipe["rms_epsilon"])),
                "head": torch.nn.Linear(recipe["hidden_size"], self.vocabulary // ranks, bias=False)}).to(DTYPE)
        self.model = self.model.to_empty(device=device)
        self.model["rotary"] = Rotary(recipe["head_dim"], length, float(recipe["rope_theta"])).to(device)
        for block in self.model["blocks"]:
            block.steps.copy_(torch.arange(length))
        shape = batch, recipe["heads"] // ranks, length, recipe["head_dim"]
        self.keys, self.values = ([torch.zeros(shape, dtype=DTYPE, device=device) for _ in range(recipe["layers"])] for _ in range(2))
        self.tokens, self.at = (torch.zeros(batch, dtype=torch.long, device=device) for _ in range(2))

    def load_weights(self, scale, rank):
        device = self.tokens.device
        source = torch.Generator(device=device).manual_seed(3 + rank)
        for name, parameter in self.model.named_parameters():
            if parameter.dim() == 1:
                torch.nn.init.ones_(parameter)
            else:  # what all ranks have alike has one seed
                same = torch.Generator(device=device).manual_seed(2) if name.startswith("embed") else source
                parameter.data.normal_(0, scale, generator=same)

    @property
    def bind(self):
        return {"model": medusa.Constant(self.model), "kv": {"keys": self.keys, "values": self.values},
                "inputs": {"tokens": self.tokens, "at": self.at}}

    @torch.no_grad()
    def step(self, rows):
        x, at = self.model["embed"](self.tokens[:rows]), self.at[:rows]
        for block, keys, values in zip(self.model["blocks"], self.keys, self.values):
            x = block(x, at, self.model["rotary"], keys, values)
        part = self.model["head"](self.model["norm"](x))
        whole = torch.empty(torch.distributed.get_world_size() * rows, part.shape[1], dtype=part.dtype, device=part.device)
        torch.distributed.all_gather_into_tensor(whole, part)
        return whole

    def fill(self, seed):
        source = torch.Generator(device=self.tokens.device).manual_seed(seed)  # the same in all ranks
        self.tokens.random_(0, self.vocabulary, generator=source)
        self.at.random_(0, self.length, generator=source)
        for tensor in self.keys + self.values:
            tensor.normal_(0, 1, generator=source)


def digest(*tensors):
    whole = hashlib.sha256()
    for tensor in tensors:
        held = tensor.detach().contiguous().cpu()
        whole.update(ctypes.string_at(held.data_ptr(), held.nbytes))
    return whole.hexdigest()


def replay_us(step, count):
    torch.cuda.synchronize()
    torch.distributed.barrier()
    began = time.perf_counter()
    for _ in range(count):
        step.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e6 / count


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", required=True, help="a shape in models/recipes whose heads and sizes the ranks can divide")
    parser.add_argument("--batches", help="batch sizes, comma-separated (default: vLLM's 35)")
    parser.add_argument("--length", type=int, default=64, help="positions of a sequence in the KV cache (%(default)s)")
    parser.add_argument("--layers", type=int, help="fewer layers than the recipe has")
    parser.add_argument("--replays", type=int, default=0, help="time so many replays of each graph")
    parser.add_argument("--report", required=True, help="write JSON here")
    args = parser.parse_args()
    args.batches = [int(batch) for batch in args.batches.split(",")] if args.batches else BATCHES
    return args


def main():
    args = parse_arguments()
    recipe, rank, ranks = read_recipe(args.recipe), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    recipe["layers"] = args.layers or recipe["layers"]
    if torch.cuda.device_count() < ranks:
        print(f"tp_decode: skipped: {ranks} GPUs are needed, and {torch.cuda.device_count()} are here")
        sys.exit(77)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    began = time.perf_counter()
    torch.distributed.init_process_group("nccl", device_id=device)
    torch.distributed.all_reduce(torch.ones(WARM_ELEMENTS, device=device))
    torch.distributed.all_gather_into_tensor(torch.empty(ranks * WARM_ELEMENTS, device=device), torch.ones(WARM_ELEMENTS, device=device))
    torch.cuda.synchronize()
    connected = time.perf_counter()
    engine = Engine(recipe, ranks, device, max(args.batches), args.length)
    graphs, steps, first = medusa.Graphs(bind=engine.bind), {}, None  # buffers have their places; what is loaded into them comes
    engine.load_weights(recipe["scale"], rank)
    torch.cuda.synchronize()
    torch.distributed.barrier()
    torch.cuda.synchronize()
    ready = time.perf_counter()
    for rows in args.batches:
        steps[rows] = graphs.get("decode", rows, lambda rows=rows: engine.step(rows))
        if first is None:
            steps[rows].replay()
            torch.cuda.synchronize()
            first = time.perf_counter()
    torch.cuda.synchronize()
    done = time.perf_counter()
    graphs.ready()
    out = {"recipe": os.path.basename(args.recipe), "mode": medusa.mode(), "rank": rank, "ranks": ranks, "layers": recipe["layers"],
           "communicator_ms": (connected - began) * 1e3, "weights_ms": (ready - connected) * 1e3, "first_graph_ms": (first - ready) * 1e3,
           "graphs_ms": (done - ready) * 1e3, "medusa": graphs.stats() or None, "graphs": []}
    for rows, step in steps.items():
        results = []
        for seed in (1, 2, 3):  # a verification compares replays of different inputs
            engine.fill(1000 * seed + rows)
            results.append(step.replay().clone())
            results += [tensor[:rows].clone() for tensor in (engine.keys[0], engine.values[-1])]
        torch.cuda.synchronize()
        out["graphs"].append({"batch": rows, "restored": bool(step.restored), "reason": step.reason or "", "output": digest(*results[::3]),
                              "kv": digest(*results[1::3], *results[2::3])})
    for graph, step in zip(out["graphs"], steps.values()):
        if args.replays:
            graph["replay_us"] = statistics.median(replay_us(step, args.replays) for _ in range(5))
    with open(args.report, "w", encoding="utf-8") as file:
        json.dump(out, file)
    torch.distributed.barrier()  # the group is not destroyed: NCCL waits there for the graphs that it is in


if __name__ == "__main__":
    main()
