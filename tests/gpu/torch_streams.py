# SPDX-License-Identifier: Apache-2.0
"""Graphs that are no chain: a decode step whose MLP halves run on two streams, forked and joined by events."""
import torch_common as common
from torch_common import torch

check = common.Check("torch_streams")
common.need_gpu()
silu = torch.nn.functional.silu


def two_streams(mlp, side):
    """The gate on a side stream while the main one does the other half."""

    def forward(x):
        main = torch.cuda.current_stream()
        x = mlp.norm(x)
        forked, joined = torch.cuda.Event(), torch.cuda.Event()
        forked.record(main)
        side.wait_event(forked)
        with torch.cuda.stream(side):
            gate = silu(mlp.gate(x))
            joined.record(side)
        up = mlp.up(x)
        main.wait_event(joined)
        return mlp.down(gate * up)

    return forward


engine = common.Engine()
side = torch.cuda.Stream()
for layer in engine.model.layers:
    layer.mlp.forward = two_streams(layer.mlp, side)
graphs = check.graphs(engine.bind)
steps = {batch: check.get(graphs, "decode", batch, lambda batch=batch: engine.forward(batch))
         for batch in common.BATCHES}
graphs.ready()
check.serve(engine, steps)
check.expect("all")
check.finish()
