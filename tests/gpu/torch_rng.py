# SPDX-License-Identifier: Apache-2.0
"""Random numbers inside graphs: the ones that eager draws from the same seed, or a refusal that names the reason."""
import re

import torch_common as common
from torch_common import medusa, torch

SEED = 20240915
check = common.Check("torch_rng")
common.need_gpu()
weights = torch.nn.Linear(64, 128, bias=False).to("cuda")
inputs = {"x": torch.zeros(max(common.BATCHES), 64, device="cuda")}


@torch.no_grad()
def drop(batch):
    return torch.nn.functional.dropout(weights(inputs["x"][:batch]), 0.4, training=True)


@torch.no_grad()
def sample(batch):
    """Twice: the second draw must start where the first one ended."""
    odds = torch.softmax(weights(inputs["x"][:batch]), -1)
    return torch.cat([torch.multinomial(odds, 1), torch.multinomial(odds, 1)], -1)


def draw(run):
    """Two results after the seed was set, and how far the generator went."""
    torch.manual_seed(SEED)
    results = [run().clone(), run().clone()]
    return torch.stack(results), torch.cuda.default_generators[torch.cuda.current_device()].get_offset()


torch.manual_seed(1)
with torch.no_grad():
    weights.weight.copy_(torch.randn(128, 64) * 0.1)
inputs["x"].copy_(torch.randn(inputs["x"].shape))
graphs = check.graphs({"weights": weights, "inputs": inputs})
steps = {(kind, batch): (check.get(graphs, kind, batch, lambda run=run, batch=batch: run(batch)), run)
         for kind, run in (("drop", drop), ("sample", sample)) for batch in (1, 8)}
graphs.ready()
for (kind, batch), (step, run) in steps.items():
    expected, offset = draw(lambda run=run, batch=batch: run(batch))
    got, moved = draw(step.replay)
    check.same(f"{kind}/{batch}", got, expected)
    check.require(moved == offset, f"{kind}/{batch}: two replays move the generator to {moved}, eager to {offset}")
    check.require(kind != "drop" or not torch.equal(got[0], got[1]), f"{kind}/{batch}: both replays drew the same")
if medusa.mode() == "restore":
    for made in check.steps:
        check.require(made["restored"] or re.search("rng|random|philox|generator|seed", made["reason"], re.I),
                      f"{made['graph']}: live for another reason than its random numbers: {made['reason']}")
check.finish()
