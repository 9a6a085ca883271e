# SPDX-License-Identifier: Apache-2.0
"""An unmodified PyTorch program that captures CUDA graphs of a small decoder layer and compares them with eager."""
import sys

try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)
if not torch.cuda.is_available():
    print("skipped: no CUDA device")
    sys.exit(77)


class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.RMSNorm(width, device="cuda", dtype=torch.bfloat16)
        self.up = torch.nn.Linear(width, 4 * width, bias=False, device="cuda", dtype=torch.bfloat16)
        self.down = torch.nn.Linear(4 * width, width, bias=False, device="cuda", dtype=torch.bfloat16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


torch.manual_seed(7)
width, layers = 512, 4
model = torch.nn.Sequential(*[Layer(width) for _ in range(layers)])
graphs = {}
with torch.no_grad():
    for batch in (1, 2, 8, 32):
        x = torch.randn(batch, width, device="cuda", dtype=torch.bfloat16)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                model(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(x)
        graphs[batch] = graph, x, out
    for batch, (graph, x, out) in graphs.items():
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        if not torch.equal(out, model(x)):
            print(f"batch {batch}: the graph's output differs from eager")
            sys.exit(1)
print(f"{len(graphs)} graphs replayed, equal to eager")
