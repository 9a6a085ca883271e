# SPDX-License-Identifier: Apache-2.0
"""Graphs with Triton kernels: a decoder whose MLP goes through torch.compile, against the compiled MLP run eagerly."""
import torch_common as common
from torch_common import torch

check = common.Check("torch_triton")
common.need_gpu()
try:
    import torch.utils._triton as triton
    usable = triton.has_triton()
except ImportError:
    usable = False
if not usable:
    common.skip("torch.compile has no Triton here")

torch._dynamo.config.recompile_limit = 64  # one code object, compiled for each layer and batch
engine = common.Engine()
for layer in engine.model.layers:
    layer.mlp.compile(dynamic=False)
graphs = check.graphs(engine.bind)
steps = {batch: check.get(graphs, "decode", batch, lambda batch=batch: engine.forward(batch))
         for batch in common.BATCHES}
graphs.ready()
check.serve(engine, steps)
check.expect("all")
check.finish()
