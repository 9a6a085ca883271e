# SPDX-License-Identifier: Apache-2.0
"""Two ranks with NCCL: decode graphs of each rank's own, which are restored, and graphs with an all-reduce, which are captured live.

Started once for each rank by ranks.sh, with the variables of torchrun.
"""
import os

import torch_common as common
from torch_common import medusa, torch

check = common.Check("torch_ranks", expect={"default": "local", "choices": ("local", "none"),
                                            "help": "which graphs a restore must restore"})
common.need_gpu()
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if torch.cuda.device_count() < ranks:
    common.skip(f"{ranks} GPUs are needed, and {torch.cuda.device_count()} are here")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
engine = common.Engine(device=torch.device("cuda", torch.cuda.current_device()))


@torch.no_grad()
def reduced(batch):
    logits = engine.forward(batch).clone()
    torch.distributed.all_reduce(logits)
    return logits


torch.distributed.all_reduce(torch.ones(1, device="cuda"))  # the communicator exists before any graph is captured
graphs = check.graphs(engine.bind)
local = {batch: check.get(graphs, "decode", batch, lambda batch=batch: engine.forward(batch)) for batch in common.BATCHES}
both = {batch: check.get(graphs, "reduce", batch, lambda batch=batch: reduced(batch)) for batch in (1, 4)}
graphs.ready()
check.serve(engine, local, "decode")
for batch, step in both.items():
    for seed in (1, 2):
        engine.fill(seed + 100 * rank)
        expected = reduced(batch).clone()
        engine.fill(seed + 100 * rank)
        check.same(f"reduce {batch}.{seed}", step.replay().clone(), expected)
if medusa.mode() == "restore":
    for step in check.steps:
        wanted = check.arguments.expect == "local" and step["graph"].startswith("decode")
        check.require(step["restored"] == wanted, f"{step['graph']}: restored={step['restored']} ({step['reason']})")
torch.distributed.barrier()  # the group is not destroyed: NCCL waits there for the graphs that it is in
check.finish()
