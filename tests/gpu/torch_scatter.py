# SPDX-License-Identifier: Apache-2.0
"""Sums by atomics in no fixed order: refused with a reason that names the flag, or restored within a tolerance."""
import argparse

import torch_common as common
from torch_common import medusa, torch

common.need_gpu()
parser = argparse.ArgumentParser()
parser.add_argument("--expect-restored", action="store_true")
options = parser.parse_args()
torch.manual_seed(9)
ROWS, PLACES = 1 << 18, 64
places = torch.randint(0, PLACES, (ROWS,), device="cuda")
inputs = {"x": torch.zeros(ROWS, device="cuda")}


def fill(kind, batch, generator):
    inputs["x"].copy_(torch.randn(ROWS, generator=generator, device=generator.device) + 1.0)


def add_up(batch):
    return torch.zeros(PLACES * batch, device="cuda").index_add_(0, places * batch, inputs["x"])


graphs = medusa.Graphs(bind={"places": medusa.Constant(places), "inputs": inputs}, randomize=fill)
steps = {batch: graphs.get("decode", batch, lambda batch=batch: add_up(batch)) for batch in common.BATCHES}
graphs.ready()
source = torch.Generator("cuda").manual_seed(11)
for batch, step in steps.items():
    fill("decode", batch, source)
    sums = [step.replay().clone() for _ in range(8)]
    right = torch.zeros(PLACES * batch, device="cuda", dtype=torch.float64).index_add_(
        0, places * batch, inputs["x"].double())
    far = max(float((one.double() - right).abs().max()) for one in sums)
    print(f"decode/{batch} restored={step.restored} replays alike={all(torch.equal(one, sums[0]) for one in sums)} far={far:.3g}")
    if far > 1.0:
        raise SystemExit(f"decode/{batch}: not the sums")
if options.expect_restored and medusa.mode() == "restore" and not all(step.restored for step in steps.values()):
    raise SystemExit("not all graphs were restored")
print(f"torch_scatter: {medusa.mode()}: right")
