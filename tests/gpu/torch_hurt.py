# SPDX-License-Identifier: Apache-2.0
"""What must never hurt: each case disturbs a start; results stay right, and what is not restored says why."""
import os

import torch_common as common
import torch_trouble
import torch_workers
from torch_common import torch
from torch_trouble import start, take

CASES = {}


def case(expected):
    """expected: how many graphs a restore gives in this case."""

    def register(function):
        CASES[function.__name__.replace("_", "-")] = function, expected
        return function

    return register


def start_and_serve(check, engine=None, **options):
    engine, graphs, steps = start(check, engine, **options)
    graphs.ready()
    check.serve(engine, steps)


@case("all")
def base(check):
    start_and_serve(check)


@case("none")
def other_fingerprint(check):
    start_and_serve(check, fingerprint={"weights": "another revision"})


@case("none")
def other_version(check):
    torch.__version__ = "2.99.0+other"
    start_and_serve(check)


@case("none")
def other_artifact(check):
    start_and_serve(check, path=os.path.join(os.path.dirname(os.path.abspath(__file__)), "no-such.medusa"))


@case("none")
def damaged(check):
    """The shell test hands over a file cut short."""
    start_and_serve(check)


@case("some")
def changed_batches(check):
    start_and_serve(check, batches=(1, 3, 5, 8))


@case("none")
def changed_shape(check):
    start_and_serve(check, common.Engine(width=384))


@case("none")
def changed_cache(check):
    start_and_serve(check, common.Engine(context=96))


@case("any")
def expandable_segments(check):
    start_and_serve(check)
    check.require(any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot()),
                  "PyTorch does not use expandable segments: set PYTORCH_CUDA_ALLOC_CONF")


@case("any")
def cuda_malloc_async(check):
    start_and_serve(check)
    check.require(torch.cuda.get_allocator_backend() == "cudaMallocAsync",
                  "PyTorch does not use cudaMallocAsync: set PYTORCH_CUDA_ALLOC_CONF")


@case("some")
def weight_moved(check):
    engine, graphs, _ = start(check, batches=(1,))
    up = engine.model.layers[0].mlp.up
    up.weight.data = up.weight.data * 2
    later = take(check, engine, graphs, (2, 4))
    check.require(not any(step.restored for step in later.values()), "a graph was restored over a weight that moved")
    check.serve(engine, later)


@case("all")
def two_engines(check):
    """Captured like this as well: an artifact of its own."""
    engines = [common.Engine(seed=seed) for seed in (7, 8)]
    graphs = [check.graphs(engine.bind, name=name) for engine, name in zip(engines, ("first", "second"))]
    steps = [take(check, engine, made, (1, 4)) for engine, made in zip(engines, graphs)]
    graphs[1].ready()
    for engine, taken, name in zip(engines, steps, ("first", "second")):
        check.serve(engine, taken, name)
    graphs[0].close()
    check.serve(engines[1], steps[1], "second alone")
    graphs[1].close()


@case("some")
def same_name_later(check):
    """The second must not move the bindings of the first, which has not taken all of its graphs yet."""
    first, graphs, steps = start(check, batches=(1, 2))
    second = common.Engine(seed=8)
    _, _, others = start(check, second)
    steps.update(take(check, first, graphs, (4, 8)))
    check.serve(first, steps, "first")
    check.serve(second, others, "second")


@case("any")
def same_name_before(check):
    """Both say what they are before either takes a graph: a name can mean only one of them."""
    engines = [common.Engine(seed=seed) for seed in (7, 8)]
    graphs = [check.graphs(engine.bind) for engine in engines]
    steps = [take(check, engine, made, (1, 4)) for engine, made in zip(engines, graphs)]
    check.serve(engines[0], steps[0], "first")
    check.serve(engines[1], steps[1], "second")


@case("all")
def fork(check):
    torch_workers.fork(check)


@case("all")
def spawn(check):
    torch_workers.spawn(check)


@case("any")
def second_gpu(check):
    """The artifact comes from the first GPU, which stays visible."""
    if torch.cuda.device_count() < 2:
        common.skip("second-gpu: one GPU on this machine")
    with torch.cuda.device(1):
        start_and_serve(check, common.Engine(device="cuda:1"))


@case("all")
def free_graphs(check):
    torch_trouble.free_graphs(check)


@case("none")
def failed_restore(check):
    torch_trouble.failed_restore(check)


@case("some")
def exception(check):
    torch_trouble.exception(check)


@case("some")
def ctrl_c(check):
    torch_trouble.ctrl_c(check)


def main():
    check = common.Check("torch_hurt", case={"choices": sorted(CASES), "default": "base"})
    check.name = check.arguments.case
    function, expected = CASES[check.arguments.case]
    if function is not fork:  # there the parent must not touch the device
        common.need_gpu()
    function(check)
    check.expect(expected)
    check.finish()


if __name__ == "__main__":
    main()
