# SPDX-License-Identifier: Apache-2.0
"""Worker processes of torch_hurt.py: forked before the device is touched, forked after, and spawned two at a time."""
import multiprocessing
import queue

import torch_common as common
from torch_common import torch
from torch_trouble import start as start_engine

TIMEOUT = 120  # seconds; a hang is the failure to be found


class Tally(common.Check):
    """A check without a command line, for a process that is not the main program."""

    def __init__(self, artifact):
        self.artifact, self.steps, self.outputs, self.failures, self.facts = artifact, [], {}, [], {}

    def graphs(self, bind, **options):
        return common.medusa.Graphs(self.artifact, bind=bind, **options)


def serve(artifact):
    tally = Tally(artifact)
    engine, graphs, steps = start_engine(tally)
    graphs.ready()
    tally.serve(engine, steps)
    return tally, engine, steps


def work(artifact, name, results):
    tally, _, _ = serve(artifact)
    results.put((name, tally.steps, tally.outputs, tally.failures))


def idle(results):
    results.put(("idle", [], {}, []))


def gather(check, workers, results):
    """The queue is read before joining: a child waits in its exit until its results are taken."""
    for worker in workers:
        worker.start()
    for _ in workers:
        try:
            name, steps, outputs, failures = results.get(timeout=TIMEOUT)
        except queue.Empty:
            check.require(False, f"a worker gave no result; exit codes {[worker.exitcode for worker in workers]}")
            break
        check.steps += steps
        check.outputs.update({f"{name}.{key}": value for key, value in outputs.items()})
        check.failures += [f"{name}: {failure}" for failure in failures]
    for worker in workers:
        worker.join(TIMEOUT)
        check.require(worker.exitcode == 0, f"{worker.name} ended with {worker.exitcode}")
        if worker.is_alive():
            worker.kill()


def start(check, method, names):
    context = multiprocessing.get_context(method)
    results = context.Queue()
    gather(check, [context.Process(target=work, args=(check.arguments.artifact, name, results)) for name in names],
           results)


def fork(check):
    """A worker that does the GPU work; then one forked by a parent with graphs, which loads data only."""
    start(check, "fork", ["worker"])
    common.need_gpu()
    tally, engine, steps = serve(check.arguments.artifact)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    gather(check, [context.Process(target=idle, args=(results,))], results)
    tally.serve(engine, steps, "after")
    torch.cuda.synchronize()
    check.steps += tally.steps
    check.outputs.update(tally.outputs)
    check.failures += tally.failures


def spawn(check):
    start(check, "spawn", ["first", "second"])
