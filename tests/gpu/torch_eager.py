# SPDX-License-Identifier: Apache-2.0
"""Graphs that differ from eager, as other kernels are chosen under capture: restored as they replay live, bit for bit.

Under capture the layer adds up its sum in two halves; a run outside of it adds it up at once. Results differ by a rounding.
"""
import argparse
import os

import torch_common as common
from torch_common import medusa, torch

common.need_gpu()
parser = argparse.ArgumentParser()
parser.add_argument("--eager-tolerance", help="as MEDUSA_EAGER_TOLERANCE; any by default")
parser.add_argument("--out")
options = parser.parse_args()
torch.manual_seed(5)
WIDTH = 4096


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, device="cuda", dtype=torch.float32))

    def forward(self, x):
        if torch.cuda.is_current_stream_capturing():
            half = WIDTH // 2
            return (x[:, :half] * self.weight[:half]).sum(1) + (x[:, half:] * self.weight[half:]).sum(1)
        return (x * self.weight).sum(1)


model, inputs = Layer(), {"x": torch.zeros(max(common.BATCHES), WIDTH, device="cuda")}


def fill(kind, batch, generator):
    inputs["x"].copy_(torch.randn(inputs["x"].shape, generator=generator, device=generator.device))


graphs = medusa.Graphs(bind={"model": model, "inputs": inputs}, randomize=fill, eager_tolerance=options.eager_tolerance)
with torch.no_grad():
    steps = {batch: graphs.get("decode", batch, lambda batch=batch: model(inputs["x"][:batch])) for batch in common.BATCHES}
    graphs.ready()
    source = torch.Generator("cuda").manual_seed(7)
    for batch, step in steps.items():
        fill("decode", batch, source)
        replayed = step.replay().clone()
        half = WIDTH // 2
        halves = (inputs["x"][:batch, :half] * model.weight[:half]).sum(1) + (inputs["x"][:batch, half:] * model.weight[half:]).sum(1)
        eager = model(inputs["x"][:batch])
        print(f"decode/{batch} restored={step.restored} as captured={torch.equal(replayed, halves)} "
              f"as eager={torch.equal(replayed, eager)} far={float((replayed - eager).abs().max()):.3g}")
        if not torch.equal(replayed, halves):
            raise SystemExit(f"decode/{batch}: not what the graph replays live")
mode = medusa.mode()
if mode == "restore" and os.environ.get("EXPECT_RESTORED", "1") == "1" and not all(step.restored for step in steps.values()):
    raise SystemExit("not all graphs were restored")
print(f"torch_eager: {mode}: right")
