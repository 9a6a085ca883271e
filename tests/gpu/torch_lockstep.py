# SPDX-License-Identifier: Apache-2.0
"""Two ranks with NCCL, whose CUDA graphs communicate: all-reduce, all-gather, reduce-scatter, send and receive, and a layer as tensor-parallel engines have it.

Started by torchrun (lockstep.sh), once for each rank.
"""
import os
import signal
import time

import torch_common as common
from torch_common import medusa, torch

check = common.Check("torch_lockstep", expect={"default": "all", "choices": ("all", "local", "any"),
                                               "help": "which graphs a restore must restore"},
                     die={"default": "", "help": "KIND: rank 1 ends before it asks for that graph"})
common.need_gpu()
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if torch.cuda.device_count() < ranks:
    common.skip(f"{ranks} GPUs are needed, and {torch.cuda.device_count()} are here")
began = time.monotonic()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = torch.device("cuda", torch.cuda.current_device())
torch.distributed.init_process_group("nccl", device_id=device)
torch.distributed.all_reduce(torch.ones(1, device=device))
torch.cuda.synchronize()
check.facts["communicator_s"] = time.monotonic() - began

WIDTH, ROWS = 256, (1, 8)
torch.manual_seed(11)  # the same in all ranks; each takes its half
up = torch.randn(WIDTH, 4 * WIDTH).chunk(ranks, 1)[rank].to(common.DTYPE).to(device) / 16
down = torch.randn(4 * WIDTH, WIDTH).chunk(ranks, 0)[rank].to(common.DTYPE).to(device) / 32
inputs = torch.zeros(ranks * max(ROWS), WIDTH, dtype=common.DTYPE, device=device)


def local(rows):
    return inputs[:rows] @ up @ down


def all_reduce(rows):
    out = inputs[:rows] * 2
    torch.distributed.all_reduce(out)
    return out + 1


def all_gather(rows):
    out = torch.empty(ranks * rows, WIDTH, dtype=inputs.dtype, device=device)
    torch.distributed.all_gather_into_tensor(out, inputs[:rows] * 3)
    return out + 1


def reduce_scatter(rows):
    out = torch.empty(rows, WIDTH, dtype=inputs.dtype, device=device)
    torch.distributed.reduce_scatter_tensor(out, inputs[:ranks * rows] * 5)
    return out + 1


def send_receive(rows):
    """To the next rank, and from the one before."""
    mine, theirs = inputs[:rows] * 7, torch.empty(rows, WIDTH, dtype=inputs.dtype, device=device)
    for work in torch.distributed.batch_isend_irecv([
            torch.distributed.P2POp(torch.distributed.isend, mine, (rank + 1) % ranks),
            torch.distributed.P2POp(torch.distributed.irecv, theirs, (rank - 1) % ranks)]):
        work.wait()
    return theirs + 1


def layer(rows):
    """Twice what a tensor-parallel block does: each half of the weights, then the sum of both."""
    x = inputs[:rows]
    for _ in range(2):
        y = torch.nn.functional.silu(x @ up) @ down
        torch.distributed.all_reduce(y)
        x = x + y
    return x


KINDS = {kind.__name__: kind for kind in (local, all_reduce, all_gather, reduce_scatter, send_receive, layer)}


def fill(seed):
    inputs.copy_(torch.randn(inputs.shape, generator=torch.Generator().manual_seed(seed + 100 * rank)).to(common.DTYPE))


with torch.no_grad():
    fill(0)
    for call in KINDS.values():  # each way of the communicator is open before a graph is asked for
        call(ROWS[-1])
    torch.cuda.synchronize()
    torch.distributed.barrier()
    began = time.monotonic()
    graphs = check.graphs({"up": medusa.Constant(up), "down": medusa.Constant(down), "inputs": inputs})
    steps = {}
    for name, call in KINDS.items():
        for rows in ROWS:
            if rank == 1 and check.arguments.die == name:
                os.kill(os.getpid(), signal.SIGKILL)
            steps[name, rows] = check.get(graphs, name, rows, lambda call=call, rows=rows: call(rows))
    torch.cuda.synchronize()
    check.facts["graphs_s"] = time.monotonic() - began
    graphs.ready()
    for (name, rows), step in steps.items():
        for seed in (1, 2, 3):
            fill(seed)
            expected = KINDS[name](rows).clone()
            fill(seed)
            check.same(f"{name} {rows}.{seed}", step.replay().clone(), expected)
    check.facts["replay_us"] = {}
    for (name, rows), step in steps.items():
        torch.cuda.synchronize()
        torch.distributed.barrier()
        began = time.monotonic()
        for _ in range(200):
            step.replay()
        torch.cuda.synchronize()
        check.facts["replay_us"][f"{name}/{rows}"] = (time.monotonic() - began) * 1e6 / 200
if medusa.mode() == "restore":
    for step in check.steps:
        if check.arguments.expect == "all" or (check.arguments.expect == "local" and step["graph"].startswith("local")):
            check.require(step["restored"], f"{step['graph']}: live: {step['reason']}")
torch.distributed.barrier()  # the group is not destroyed: NCCL waits there for the graphs that it is in
check.finish()
