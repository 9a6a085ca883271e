# SPDX-License-Identifier: Apache-2.0
"""A process that shares a model's weights, on hostcuda, with PyTorch's CPU tensors over the device's memory: share_engine.py WAY.

It prints one line of JSON, and ends when its standard input does. Only `over` and a few names of torch.cuda are stood in for.
"""
import contextlib
import ctypes
import json
import sys
from unittest import mock

import torch

from medusa import _driver
from medusa.torch import share, shared


def begin():
    cuda = _driver.library()
    device, context = ctypes.c_int(), ctypes.c_void_p()
    for name, *arguments in (("cuInit", 0), ("cuDeviceGet", ctypes.byref(device), 0), ("cuDevicePrimaryCtxRetain", ctypes.byref(context), device),
                             ("cuCtxSetCurrent", context)):
        if getattr(cuda, name)(*arguments):
            sys.exit(name)


class Memory:
    def __init__(self, address, size, owner):
        self.owner = owner
        self.bytes = (ctypes.c_uint8 * size).from_address(address)


def over(address, size, owner, device):
    memory = Memory(address, size, owner)
    memory.bytes.keeper = memory
    return torch.frombuffer(memory.bytes, dtype=torch.uint8)


def model(device):
    with torch.device(device):
        made = torch.nn.Sequential(torch.nn.Linear(6, 8, dtype=torch.bfloat16), torch.nn.BatchNorm1d(8, dtype=torch.bfloat16),
                                   torch.nn.Linear(8, 6, bias=False, dtype=torch.bfloat16))
        made[0].weight.loader = "kept"
        made.append(torch.nn.Linear(6, 8, bias=False, dtype=torch.bfloat16))
        made[3].weight = made[0].weight  # tied
    return made


def state(seed):
    torch.manual_seed(seed)
    return {name: torch.randn(tensor.shape).to(tensor.dtype) for name, tensor in model("cpu").state_dict().items()}


def numbers(made):
    return {name: parameter.float().flatten().tolist() for name, parameter in made.named_parameters()}


def main(way):
    begin()
    made = model("cpu" if way == "loaded" else "meta")
    if way == "loaded":
        made.load_state_dict(state(7))
    with share(made, "net", revision="2" if way == "revision" else "1") as had:
        filled = had.fill
        if way == "raises" and filled:
            raise RuntimeError("the file is broken")
        if way == "assigns" and filled:
            made.load_state_dict(state(7), assign=True)
        elif way != "loaded" and filled:
            made.load_state_dict({**state(7), "1.running_mean": torch.zeros(8)}, strict=False)
    print(json.dumps({"fill": filled, "private": had.private, "reason": had.reason, "bytes": had.bytes, "numbers": numbers(made),
                      "tied": made[3].weight is made[0].weight, "attribute": getattr(made[0].weight, "loader", None),
                      "buffers": made[1].running_mean.device.type, "grad": made[0].weight.requires_grad}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    patches = contextlib.ExitStack()
    empty = torch.empty
    for name, value in (("device", lambda index: contextlib.nullcontext()), ("synchronize", lambda device=None: None),
                        ("current_device", lambda: 0)):
        patches.enter_context(mock.patch.object(torch.cuda, name, value))
    patches.enter_context(mock.patch.object(shared, "over", over))
    patches.enter_context(mock.patch.object(shared, "device_of", lambda index: torch.device("cpu")))
    with patches:
        main(sys.argv[1])
