# SPDX-License-Identifier: Apache-2.0
"""Graphs with cuDNN's kernels: convolutions, and attention that cuDNN fuses and compiles at run time."""
import torch_common as common
from torch_common import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

check = common.Check("torch_cudnn")
common.need_gpu()
if not torch.backends.cudnn.is_available():
    common.skip("PyTorch has no cuDNN here")
torch.backends.cudnn.benchmark = False  # its choice depends on timing: graph and eager could differ

BATCH = max(common.BATCHES)
torch.manual_seed(3)
model = torch.nn.Sequential(
    torch.nn.Conv2d(8, 32, 3, padding=1), torch.nn.ReLU(),
    torch.nn.Conv2d(32, 64, 3, stride=2, padding=1), torch.nn.ReLU(),
).to(torch.float16).to("cuda", memory_format=torch.channels_last)
inputs = {"image": torch.zeros(BATCH, 8, 32, 32, dtype=torch.float16, device="cuda",
                               ).to(memory_format=torch.channels_last)}
for name in ("q", "k", "v"):
    inputs[name] = torch.zeros(BATCH, 4, 128, 64, dtype=torch.float16, device="cuda")


@torch.no_grad()
def convolve(batch):
    return model(inputs["image"][:batch])


@torch.no_grad()
def attend(batch):
    q, k, v = (inputs[name][:batch] for name in ("q", "k", "v"))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def fill(seed):
    source = torch.Generator().manual_seed(seed)
    for tensor in inputs.values():
        tensor.copy_(torch.randn(tensor.shape, generator=source))


kinds = {"convolve": convolve, "attend": attend}
try:
    attend(1)
except RuntimeError as error:
    del kinds["attend"]
    print(f"skipped attend: {str(error).splitlines()[0]}")
graphs = check.graphs({"model": model, "inputs": inputs})
steps = {(kind, batch): (check.get(graphs, kind, batch, lambda run=run, batch=batch: run(batch)), run)
         for kind, run in kinds.items() for batch in (1, BATCH)}
graphs.ready()
for (kind, batch), (step, run) in steps.items():
    for seed in (1, 2):
        fill(seed)
        expected = run(batch).clone()
        check.same(f"{kind}/{batch}.{seed}", step.replay().clone(), expected)
check.expect("all")
check.finish()
