# SPDX-License-Identifier: Apache-2.0
"""torch.compile(mode="reduce-overhead"): PyTorch's own graphs, which have no label. Right outputs in every mode; live in all of them."""
import torch_common as common
from torch_common import medusa, torch

check = common.Check("torch_graph_trees")
common.need_gpu()
BATCHES, WIDTH, ROUNDS = (1, 4), 256, 6


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


torch.manual_seed(3)
model = torch.nn.Sequential(Block(), Block()).to("cuda").eval()
compiled = torch.compile(model, mode="reduce-overhead")
torch._dynamo.config.cache_size_limit = 16

with torch.no_grad():
    for batch in BATCHES:
        for turn in range(ROUNDS):  # the first one compiles, the second one captures, the others replay
            x = torch.randn(batch, WIDTH, generator=torch.Generator().manual_seed(10 * batch + turn)).to("cuda")
            torch.compiler.cudagraph_mark_step_begin()
            got, expected = compiled(x).clone(), model(x)
            check.outputs[f"{batch}.{turn}"] = common.digest(got)
            check.require(torch.allclose(got, expected, rtol=1e-4, atol=1e-4), f"batch {batch}, turn {turn}: not what eager computes")
            if turn > 1:  # from the third call on graphs are replayed: the same input gives the same bits
                torch.compiler.cudagraph_mark_step_begin()
                check.require(common.digest(compiled(x).clone()) == check.outputs[f"{batch}.{turn}"],
                              f"batch {batch}, turn {turn}: a replay differs from the one before")
torch.cuda.synchronize()
counters = torch._dynamo.utils.counters["inductor"]
check.require(not counters.get("cudagraph_skips"), f"PyTorch made no graphs: {dict(counters)}")
print(f"torch_graph_trees: mode {medusa.mode()}, {len(check.outputs)} outputs")
check.finish()
