# SPDX-License-Identifier: Apache-2.0
"""Processes of PyTorch on a GPU whose model's parameters are one backbone: equal outputs, memory taken once, times. Needs a medusa-backbone.

torch_share.py [GIGABYTES [READERS]]; it starts itself for each process: torch_share.py --one WAY GIGABYTES.
"""
import json
import subprocess
import sys
import time

WIDTH = 4096


def one(way, gigabytes):
    import torch

    import medusa.torch as medusa

    torch.cuda.init()
    torch.zeros(1, device="cuda")
    layers = max(1, int(gigabytes * 1e9 / (2 * WIDTH * WIDTH)))
    with torch.device("meta"):
        model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16) for _ in range(layers)))

    def fill():
        generator = torch.Generator(device="cuda").manual_seed(5)
        for parameter in model.parameters():
            parameter.data.normal_(0, 1 / WIDTH**0.5, generator=generator)

    torch.cuda.synchronize()
    free, began = torch.cuda.mem_get_info()[0], time.perf_counter()
    said = {}
    if way == "private":
        model.to_empty(device="cuda")
        fill()
    else:
        with medusa.share(model, f"torch-{gigabytes}", revision="5") as had:
            if had.fill:
                fill()
        said = {"private": had.private, "reason": had.reason}
    torch.cuda.synchronize()
    said |= {"ms": (time.perf_counter() - began) * 1e3, "taken": free - torch.cuda.mem_get_info()[0]}
    generator = torch.Generator(device="cuda").manual_seed(9)
    tokens = torch.randn(8, WIDTH, device="cuda", dtype=torch.bfloat16, generator=generator)
    with torch.no_grad():
        for layer in model:
            tokens = torch.nn.functional.rms_norm(layer(tokens), (WIDTH,))
    said["sum"] = tokens.double().sum().item()
    said["bytes"] = tokens.view(torch.int16).long().mul(torch.arange(8 * WIDTH, device="cuda").view(8, WIDTH) % 8191 + 1).sum().item()
    if way == "writes":
        try:
            next(model.parameters()).data.zero_()
            torch.cuda.synchronize()
            said["write"] = "went through"
        except Exception as error:  # pylint: disable=broad-except
            said["write"] = str(error).splitlines()[0]
    print(json.dumps(said), flush=True)
    sys.stdin.read()


def main(gigabytes, readers):
    def start(way):
        process = subprocess.Popen([sys.executable, __file__, "--one", way, str(gigabytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline()
        return process, json.loads(line) if line else {}

    failures, running = 0, []

    def check(what, good):
        nonlocal failures
        failures += not good
        print(f"  {'pass' if good else 'FAIL'}  {what}", flush=True)

    process, alone = start("private")
    process.communicate()
    for number in range(readers + 1):
        process, said = start("shared")
        running.append(process)
        check(f"process {number} has what a private model has ({said.get('ms', 0):.1f} ms, {said.get('taken', 0) / 1e6:.0f} MB)",
              not said.get("private", True) and (said["sum"], said["bytes"]) == (alone["sum"], alone["bytes"]))
        if number:
            check("and takes no memory for its parameters", said.get("taken", 1e18) < 0.02 * gigabytes * 1e9)
    process, said = start("writes")
    process.communicate()
    check(f"a write ends its own process alone: {said.get('write')}", "went through" not in said.get("write", "went through"))
    process, said = start("shared")
    check("the others see no change", (said.get("sum"), said.get("bytes")) == (alone["sum"], alone["bytes"]))
    for each in [*running, process]:
        each.communicate()
    sys.exit(failures > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], float(sys.argv[3]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 8.0, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
