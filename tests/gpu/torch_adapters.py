# SPDX-License-Identifier: Apache-2.0
"""AdapterSlots: graphs that were captured, or restored, before an adapter was made serve it, in batches that mix adapters by row."""
import argparse
import json
import os
import tempfile

import safetensors.torch
import torch_common as common
from torch_common import medusa, torch

common.need_gpu()
parser = argparse.ArgumentParser()
parser.add_argument("--expect-restored", action="store_true")
options = parser.parse_args()
torch.manual_seed(9)
WIDTH, RANK = 256, 8
model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(3)))
plain = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(3)))
plain.load_state_dict(model.state_dict())
most = max(common.BATCHES)
slots = medusa.AdapterSlots(model, slots=2, max_rank=RANK, rows=most)
x = torch.zeros(most, WIDTH, device="cuda", dtype=torch.bfloat16)
weights = {name: medusa.Constant(parameter.data) for name, parameter in model.named_parameters()}
tables = {name: medusa.State(tensor) for name, tensor in slots.tensors().items()}


def fill(kind, batch, generator):
    for name, tensor in slots.tensors().items():
        if name.endswith("index"):
            tensor.copy_(torch.randint(0, 3, tensor.shape, generator=generator, device=generator.device))
        else:
            tensor.copy_(torch.randn(tensor.shape, generator=generator, device=generator.device) / 16)
    x.copy_(torch.randn(x.shape, generator=generator, device=generator.device))


graphs = medusa.Graphs(bind={**weights, **tables, "x": x}, randomize=fill)
with torch.no_grad():
    steps = {batch: graphs.get("decode", batch, lambda batch=batch: model(x[:batch])) for batch in common.BATCHES}
graphs.ready()
for tensor in slots.tensors().values():
    tensor.zero_()  # what fill() has left there is no adapter's
made = {}
with tempfile.TemporaryDirectory() as folder:
    for name, rank in ("a", 8), ("b", 2), ("c", 5):
        made[name] = {layer: (torch.randn(rank, WIDTH) / 16, torch.randn(WIDTH, rank) / 16) for layer in "02"}
        safetensors.torch.save_file({f"base_model.model.{layer}.lora_{half}.weight": tensor.contiguous() for layer, pair in made[name].items()
                                     for half, tensor in zip("AB", pair)}, os.path.join(folder, "adapter_model.safetensors"))
        with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
            json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank}, file)
        slots.load(name, folder)


def wanted(row, name):
    y = row.double()
    for number, layer in enumerate(plain):
        weight = layer.weight.double()
        if str(number) in made.get(name, {}):
            a, b = (half.double().cuda() for half in made[name][str(number)])
            weight = weight + b @ a
        y = y @ weight.t() + layer.bias.double()
    return y


for batch, step in steps.items():
    for turn in (None, "a", "b"), ("c", "a"), ("b",), (None,):
        names = [turn[row % len(turn)] for row in range(batch)]
        slots.select(names)
        x.copy_(torch.randn_like(x))
        got = step.replay()
        for row, name in enumerate(names):
            far = float((got[row].double() - wanted(x[row], name)).abs().max())
            if not far < 0.1:
                raise SystemExit(f"decode/{batch} row {row}, adapter {name}: {far} from what it should be")
    print(f"decode/{batch} restored={step.restored}")
if options.expect_restored and medusa.mode() == "restore" and not all(step.restored for step in steps.values()):
    raise SystemExit("not all graphs were restored")
print(f"torch_adapters: {medusa.mode()}: right")
