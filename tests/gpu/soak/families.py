# SPDX-License-Identifier: Apache-2.0
"""The families of engines that the soak draws from: each makes one engine from a seeded chooser, small, with random weights.

    python3 families.py [FAMILY...]     builds each on the CPU and runs it twice, without any graph
"""
import importlib
import os
import random
import sys

FAMILIES = {}
MODULES = ("families_language", "families_vision", "families_torch")


def family(function):
    FAMILIES[function.__name__] = function
    return function


class Engine:
    """What a soak engine is: things to bind, calls by kind (batch -> tensors), a way to fill inputs and state anew.

    state: tensors that graphs write and that count as outputs. refills: all that differs between two fillings.
    """

    def __init__(self, bind, calls, fill, batches, state=(), fingerprint=None):
        self.bind, self.calls, self.fill, self.batches, self.state = bind, calls, fill, batches, state
        self.fingerprint = fingerprint


def draw_batches(choose, most=16, count=4):
    pool = [batch for batch in (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32) if batch <= most]
    return sorted(choose.sample(pool, min(len(pool), choose.randint(2, count))))


def draw_dtype(choose, *names):
    import torch

    return getattr(torch, choose.choice(names or ("bfloat16", "float16", "float32")))


def refill(tensors, low_high):
    """A fill: floats from a normal distribution, integers below their bound, by name."""

    def fill(numbers):
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                tensor.normal_(0, 1, generator=numbers)
            else:
                low, high = low_high[name]
                tensor.random_(low, high, generator=numbers)

    return fill


def module(make, dtype, device):
    import torch

    with torch.device(device):
        made = make().to(dtype).eval().requires_grad_(False)
    for weight in made.parameters():  # some heads begin as zeros: then no input would make a difference
        if weight.dim() > 1 and not weight.any():
            weight.normal_(0, 0.05)
    return made


def import_all():
    """Everything that engines import lazily, so that a template has it once."""
    for name in MODULES:
        importlib.import_module(name).import_all()


def make(name, choose, device="cuda"):
    for part in MODULES:
        importlib.import_module(part)
    return FAMILIES[name](choose, device)


def names():
    for part in MODULES:
        importlib.import_module(part)
    return sorted(FAMILIES)


def check(name, seed):
    import torch

    import engine as program

    torch.manual_seed(seed)
    made = make(name, random.Random(seed), "cpu")
    for kind, call in made.calls.items():
        for batch in made.batches:
            results = []
            for fill in (1, 1, 2):
                made.fill(torch.Generator("cpu").manual_seed(fill))
                results.append(program.digest(program.tensors_in(call(batch)) + list(made.state)))
            assert results[0] == results[1], f"{kind}/{batch}: two runs on the same filling differ"
            assert results[0] != results[2], f"{kind}/{batch}: another filling changes nothing"
    return f"{len(made.calls)} kinds, batches {made.batches}"


def main():
    import torch

    sys.modules.setdefault("families", sys.modules["__main__"])
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    torch.set_grad_enabled(False)
    torch.set_num_threads(2)
    failed = 0
    for name in sys.argv[1:] or names():
        try:
            print(f"  ok    {name}: {check(name, 1)}", flush=True)
        except Exception as error:  # each family by itself: all are wanted in one list
            failed += 1
            print(f"  FAIL  {name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
