# SPDX-License-Identifier: Apache-2.0
"""Decoder layers of Llama-3.1-8B's shape without attention, for few rows, whose matrix products are split along K and reduced by a second
kernel: each graph is replayed many times and compared with eager execution; the capture verifies restored graphs against live ones."""
import argparse

import torch_common as common
from torch_common import medusa, torch

common.need_gpu()
parser = argparse.ArgumentParser()
parser.add_argument("--expect-restored", action="store_true")
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--replays", type=int, default=50)
options = parser.parse_args()
BATCHES, WIDTH, INNER, QKV = (1, 2, 4, 8, 16, 24, 32), 4096, 14336, 6144
torch.manual_seed(3)
torch.set_default_dtype(torch.bfloat16)


def matrix(rows, columns):
    return torch.empty(rows, columns, device="cuda").normal_(0, columns ** -0.5)


layers = [{"out": matrix(WIDTH, WIDTH), "gate_up": matrix(2 * INNER, WIDTH), "down": matrix(WIDTH, INNER), "qkv": matrix(QKV, WIDTH)}
          for _ in range(options.layers)]
weights = {f"{name}.{at}": medusa.Constant(value) for at, layer in enumerate(layers) for name, value in layer.items()}
inputs = {"x": torch.zeros(max(BATCHES), WIDTH, device="cuda"), "attention": torch.zeros(max(BATCHES), WIDTH, device="cuda")}


def fill(kind, batch, generator):
    for value in inputs.values():
        value.copy_(torch.randn(value.shape, generator=generator, device=generator.device))


def norm(x):
    return torch.nn.functional.rms_norm(x, (WIDTH,))


def step(batch):
    x, mixed, parts = inputs["x"][:batch], inputs["attention"][:batch], []
    for layer in layers:
        x = x + torch.nn.functional.linear(mixed, layer["out"])
        both = torch.nn.functional.linear(norm(x), layer["gate_up"])
        x = x + torch.nn.functional.linear(torch.nn.functional.silu(both[:, :INNER]) * both[:, INNER:], layer["down"])
        parts.append(torch.nn.functional.linear(norm(x), layer["qkv"]))
        mixed = parts[-1][:, :WIDTH]
    return torch.cat(parts, 1)


with torch.inference_mode():
    graphs = medusa.Graphs(bind={**weights, "inputs": inputs}, randomize=fill)
    steps = {batch: graphs.get("decode", batch, lambda batch=batch: step(batch)) for batch in BATCHES}
    graphs.ready()
    source = torch.Generator("cuda").manual_seed(11)
    wrong = []
    for batch, graph in steps.items():
        fill("decode", batch, source)
        right = step(batch)
        differ = sum(not torch.equal(graph.replay(), right) for _ in range(options.replays))
        print(f"decode/{batch} restored={graph.restored} of {options.replays} replays {differ} differ from eager execution", flush=True)
        wrong += [batch] * bool(differ)
if wrong:
    raise SystemExit(f"batches {wrong}: some replays are not what eager execution gives")
if options.expect_restored and medusa.mode() == "restore" and not all(graph.restored for graph in steps.values()):
    raise SystemExit("not all graphs were restored")
print(f"torch_products: {medusa.mode()}: right")
