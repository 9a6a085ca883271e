# SPDX-License-Identifier: Apache-2.0
"""One engine of the soak in one process: builds it from its family and seed, takes its graphs, writes what they answer."""
import argparse
import ctypes
import hashlib
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../models/torch"))

FILLS = (101, 202)
POISON_BYTES = 1 << 30


def poison(torch, seed):
    """Device memory that the engine is given next holds garbage: part of it through PyTorch's cache, part by the driver."""
    for value in (0xFF, 0xA5):
        torch.empty(POISON_BYTES, dtype=torch.uint8, device="cuda").fill_(value)
    if seed % 2:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def tensors_in(value):
    """The tensors of a result, in a fixed order."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for key in sorted(value) for tensor in tensors_in(value[key])]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_in(part)]
    return []


def digest(tensors):
    found = hashlib.sha256()
    for tensor in tensors:
        held = tensor.detach().contiguous().cpu()
        found.update(ctypes.string_at(held.data_ptr(), held.nbytes) if held.nbytes else b"")
    return found.hexdigest()[:32]


def apart(torch, got, expected):
    """Largest difference of two results, for the record: eager need not choose the kernels that a capture chooses."""
    most = 0.0
    for one, two in zip(got, expected):
        if one.shape == two.shape and one.is_floating_point():
            most = max(most, float((one.double() - two.double()).abs().nan_to_num().max()) if one.numel() else 0.0)
    return most


def settings(torch, choose):
    """Settings that change which kernels and which memory a process uses; the same for all processes of one artifact."""
    torch.backends.cuda.matmul.allow_tf32 = choose.random() < 0.3
    torch.backends.cudnn.benchmark = False
    allocator = choose.choice(["", "", "", "expandable_segments:True", "max_split_size_mb:32", "roundup_power2_divisions:4"])
    if allocator:
        torch.cuda.memory._set_allocator_settings(allocator)
    return {"tf32": torch.backends.cuda.matmul.allow_tf32, "allocator": allocator}


def run(arguments):
    import torch

    import families
    import medusa.torch as medusa

    choose = random.Random(arguments.seed)
    torch.set_grad_enabled(False)
    if arguments.poison:
        poison(torch, arguments.poison)
    said = settings(torch, choose)
    torch.manual_seed(arguments.seed)
    engine = families.make(arguments.family, choose, arguments.device)
    said["prefills"] = choose.random() < 0.5  # eager forwards between replays, whoever made the graphs
    batches = arguments.batches or engine.batches
    result = {"family": arguments.family, "seed": arguments.seed, "mode": medusa.mode(), "settings": said, "graphs": {},
              "outputs": {}, "eager": {}}
    graphs = medusa.Graphs(arguments.artifact, bind=engine.bind, fingerprint=engine.fingerprint,
                           randomize=lambda kind, batch, numbers: engine.fill(numbers))
    steps = {(kind, batch): graphs.get(kind, batch, lambda call=call, batch=batch: call(batch))
             for kind, call in engine.calls.items() for batch in batches}
    graphs.ready()
    for (kind, batch), step in steps.items():
        result["graphs"][f"{kind}/{batch}"] = {"restored": bool(step.restored), "reason": step.reason or ""}
        for fill in FILLS:
            if said["prefills"]:
                engine.fill(torch.Generator(arguments.device).manual_seed(fill + 1))
                eager = [tensor.clone() for tensor in tensors_in(engine.calls[kind](batch))]
                result["outputs"][f"{kind}/{batch}.{fill}.prefill"] = digest(eager)
            engine.fill(torch.Generator(arguments.device).manual_seed(fill))
            got = [tensor.clone() for tensor in tensors_in(step.replay())] + [tensor.clone() for tensor in engine.state]
            result["outputs"][f"{kind}/{batch}.{fill}"] = digest(got)
            if medusa.mode() == "none":
                engine.fill(torch.Generator(arguments.device).manual_seed(fill))
                eager = tensors_in(engine.calls[kind](batch)) + list(engine.state)
                result["eager"][f"{kind}/{batch}.{fill}"] = apart(torch, got, eager)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as out:
            json.dump(result, out)
    restored = sum(graph["restored"] for graph in result["graphs"].values())
    print(f"{arguments.family} {arguments.seed}: {len(steps)} graphs, {restored} restored")
    graphs.close()
    return 0


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--artifact")
    parser.add_argument("--poison", type=int, default=0)
    parser.add_argument("--out")
    return parser.parse_args(words)


def main(words):
    return run(parse(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
