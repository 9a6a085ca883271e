# SPDX-License-Identifier: Apache-2.0
"""Cases of torch_hurt.py about what is left behind: memory after graphs are dropped, captures after an exception."""
import gc
import signal

import torch_common as common
from torch_common import BATCHES, medusa, torch


# All cases take their graphs here: the adapter tells functions by their source.
def start(check, engine=None, batches=BATCHES, **options):
    engine = engine or common.Engine()
    graphs = check.graphs(engine.bind, **options)
    return engine, graphs, take(check, engine, graphs, batches)


def take(check, engine, graphs, batches):
    return {batch: check.get(graphs, "decode", batch, lambda batch=batch: engine.forward(batch)) for batch in batches}


def settle():
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free


def free_graphs(check):
    """Wants the device to itself: what other processes allocate would be seen as well."""
    engine = common.Engine()
    for batch in BATCHES:
        engine.forward(batch)
    before = settle()
    _, graphs, steps = start(check, engine)
    check.serve(engine, steps)
    held, private = settle(), medusa.memory_stats().get("private_bytes", 0)
    steps.clear()
    graphs.close()
    after = settle()
    check.require(after <= held - 0.9 * private, f"{private} private bytes held, {held - after} came back")
    check.require(after - before < 64 << 20, f"{(after - before) >> 20} MiB more than before the graphs were made")
    check.require(not medusa.memory_stats().get("private_bytes", 0), "private bytes are counted after close()")
    check.facts["used_bytes"] = after


def failed_restore(check):
    """The shell test compares what is allocated at the end with a run without Medusa."""
    engine, graphs, steps = start(check, fingerprint={"weights": "another revision"})
    check.serve(engine, steps)
    steps.clear()
    graphs.close()
    check.facts["used_bytes"] = settle()


class Broken(Exception):
    pass


def interrupt(check, moments):
    """moments: {name: (exception expected, in a capture?, what raises it)}. Batch 3 is in no artifact: fn is run."""
    engine, graphs, steps = start(check, batches=(1,))
    for name, (expected, capturing, strike) in moments.items():
        def forward():
            result = engine.forward(3)
            if torch.cuda.is_current_stream_capturing() == capturing:
                strike()
            return result
        try:
            graphs.get("decode", 3, forward)
            check.require(False, f"{name}: the exception was swallowed")
        except expected:
            pass
        check.require(not torch.cuda.is_current_stream_capturing(), f"{name}: a capture stayed open")
        torch.cuda.synchronize()
    steps.update(take(check, engine, graphs, (3,)))
    graphs.ready()
    check.serve(engine, steps)


def raiser(exception):
    def strike():
        raise exception("struck")
    return strike


def exception(check):
    interrupt(check, {"warm-up": (Broken, False, raiser(Broken)), "capture": (Broken, True, raiser(Broken))})


def ctrl_c(check):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
    interrupt(check, {"raised in capture": (KeyboardInterrupt, True, raiser(KeyboardInterrupt)),
                      "signal in warm-up": (KeyboardInterrupt, False, lambda: signal.raise_signal(signal.SIGINT)),
                      "signal in capture": (KeyboardInterrupt, True, lambda: signal.raise_signal(signal.SIGINT))})
