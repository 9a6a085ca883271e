#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small engine in PyTorch: loads a model of transformers, takes its decode graphs through medusa.torch, and measures itself.

The same program runs alone (graphs are captured live), under medusa-capture, medusa-restore and medusa-verify. In a
restored run no forward is run before every graph has been taken and replayed.
"""
import argparse
import contextlib
import json
import os
import statistics
import sys
import threading
import time

BESIDE_SECONDS = 5
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# What comes after the structure, in which order. vanilla and async are what MEDUSA's section 7 compares with: vLLM, and vLLM
# with its weights loaded beside the KV cache initialization. late and early know the KV capacity before the weights.
ORDERS = {
    "vanilla": ("weights", "kv", "bind"),
    "async": ("start_weights", "kv", "wait_weights", "bind"),
    "late": ("kv", "weights", "bind"),
    "early": ("start_weights", "kv", "bind", "wait_weights"),
}


def process_age_ms():
    """Since this process began, in steps of the kernel's clock tick."""
    with open("/proc/self/stat", encoding="ascii") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")) * 1e3


class Stages:
    """How long each stage took, and when (since the process began) each moment was."""

    def __init__(self):
        self.began = time.perf_counter() * 1e3 - process_age_ms()
        self.ms, self.at = {}, {}

    @contextlib.contextmanager
    def __call__(self, name):
        start = time.perf_counter()
        yield
        self.ms[name] = (time.perf_counter() - start) * 1e3

    def moment(self, name):
        self.at[name] = time.perf_counter() * 1e3 - self.began

    def between(self, first, second):
        return self.at[second] - self.at[first]


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", required=True, help="a shape in models/recipes with transformers_model_type")
    parser.add_argument("--batches", help="batch sizes, comma-separated, most wanted first (default: vLLM's 35)")
    parser.add_argument("--max-length", type=int, default=64, help="positions of a sequence in the KV cache (%(default)s)")
    parser.add_argument("--layers", type=int, help="fewer layers than the recipe has")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--order", choices=ORDERS, default="vanilla", help="what comes when while loading (%(default)s)")
    parser.add_argument("--profile-tokens", type=int, default=2048, help="prompt of the KV profiling forward (%(default)s)")
    parser.add_argument("--check", action="store_true", help="compare each graph with an eager step, on random inputs and KV")
    parser.add_argument("--background", action="store_true", help="replay the first graph while the others are restored")
    parser.add_argument("--replays", type=int, default=0, help="time so many replays of each graph")
    parser.add_argument("--compare-live", action="store_true", help="and as many of graphs captured live, in turns")
    parser.add_argument("--report", help="write JSON here; %%d becomes the first number that is free")
    args = parser.parse_args(arguments)
    if args.batches:
        args.batches = [int(batch) for batch in args.batches.split(",")]
    return args


class Weights:
    """The parameters' contents, made on the device in this thread or in one of their own."""

    def __init__(self, engine):
        self.engine, self.thread, self.error, self.ms = engine, None, None, None

    def fill(self):
        import torch
        from torch_model import fill_weights

        start = time.perf_counter()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            fill_weights(self.engine.model, self.engine.args.seed, self.engine.recipe["scale"])
        stream.synchronize()
        self.ms = (time.perf_counter() - start) * 1e3
        self.engine.stages.moment("weights_ready")

    def run_and_keep_error(self):
        try:
            self.fill()
        except Exception as error:  # handed to the thread that waits
            self.error = error

    def start(self):
        self.thread = threading.Thread(target=self.run_and_keep_error, name="weights")
        self.thread.start()

    def wait(self):
        if self.thread:
            self.thread.join()
            self.thread = None
        if self.error:
            raise self.error


class Engine:
    def __init__(self, args, stages):
        self.args, self.stages = args, stages
        self.graphs = self.decoder = self.kv = None
        self.steps = {}

    def load(self):
        import torch
        import medusa.torch as medusa
        from torch_model import BATCHES, make_structure, read_recipe

        self.torch, self.medusa = torch, medusa
        self.device = torch.device(self.args.device)
        self.batches = self.args.batches or BATCHES
        self.recipe = read_recipe(self.args.recipe)
        if self.args.layers:
            self.recipe["layers"] = self.args.layers
        with self.stages("context"):
            torch.cuda.init()
            torch.zeros(1, device=self.device)
            torch.cuda.synchronize()
        self.stages.moment("loading")
        with self.stages("structure"):
            self.model = make_structure(self.recipe, self.device)
            torch.cuda.synchronize()
        self.weights = Weights(self)
        for stage in ORDERS[self.args.order]:
            with self.stages(stage):
                getattr(self, "load_" + stage)()
        self.stages.ms["weights"] = self.weights.ms

    def load_weights(self):
        self.weights.fill()

    def load_start_weights(self):
        self.weights.start()

    def load_wait_weights(self):
        self.weights.wait()

    def load_kv(self):
        from torch_model import Decoder, block_bytes

        tokens = min(self.args.profile_tokens, self.recipe["max_context"])
        shape = [self.recipe[key] for key in ("layers", "kv_heads", "head_dim", "block_size")]
        with self.stages("kv_capacity"):
            self.kv = self.medusa.kv_capacity(
                key=f"{os.path.basename(self.args.recipe)} {shape} {tokens}", block_bytes=block_bytes(self.recipe),
                profile=lambda: self.profile(tokens))
        self.decoder = Decoder(self.model, self.recipe, self.batches, self.args.max_length)
        if self.medusa.mode() in ("capture", "verify"):  # zeros would let a replay read the wrong places unseen
            generator = self.torch.Generator(self.device).manual_seed(self.args.seed)
            self.decoder.randomize(max(self.batches), generator)

    def profile(self, tokens):
        """On a model whose structure is all there; its answer does not depend on the weights' values."""
        from torch_model import run_profile

        run_profile(self.model, tokens)
        self.torch.cuda.synchronize()

    def load_bind(self):
        medusa, decoder = self.medusa, self.decoder
        self.stages.moment("buffers_ready")
        self.graphs = medusa.Graphs(
            None, bind=decoder.bindings(medusa.Constant, medusa.State, medusa.Input), want=self.batches,
            trigger=self.trigger, randomize=lambda kind, batch, generator: decoder.randomize_inputs(batch, generator),
            fingerprint={"recipe": json.dumps(self.recipe, sort_keys=True), "max_length": str(self.args.max_length)})

    def trigger(self):
        with self.stages("trigger"):
            self.weights.wait()
            for batch in self.batches:
                self.decoder.first_layer(batch)
            self.torch.cuda.synchronize()

    def take(self, batch):
        def forward():
            self.weights.wait()
            return self.decoder.step(batch)

        self.steps[batch] = self.graphs.get("decode", batch, forward)

    def take_all(self):
        """The first graph, then the others; between them, if asked to, replays of the first beside their restoring."""
        background = None
        with self.stages("first_graph"):
            self.take(self.batches[0])
        self.stages.moment("first_graph")
        if self.args.background:
            background = self.replay_beside(self.steps[self.batches[0]])
        with self.stages("other_graphs"):
            for batch in self.batches[1:]:
                self.take(batch)
        self.weights.wait()
        self.torch.cuda.synchronize()
        self.stages.moment("all_graphs")
        if background and all(step.restored for step in self.steps.values()):
            self.stages.at["all_graphs"] = self.stages.at["all_restored"]
        self.stages.moment("ready")
        self.graphs.ready()
        return background

    # ---- what is measured once all graphs are there ----

    def timed_replay(self, step):
        start = time.perf_counter()
        step.replay()
        self.torch.cuda.current_stream().synchronize()
        return (time.perf_counter() - start) * 1e3

    def restoring(self):
        stats = self.graphs.stats()
        return bool(stats) and stats["graphs_restored"] + stats["graphs_refused"] < stats["graphs_total"]

    def replay_beside(self, step):
        first, beside = self.timed_replay(step), []
        limit = time.monotonic() + BESIDE_SECONDS  # what is left then is restored when it is asked for
        while self.restoring() and time.monotonic() < limit:
            beside.append(self.timed_replay(step))
        self.stages.moment("all_restored")
        alone = [self.timed_replay(step) for _ in range(max(100, min(len(beside), 1000)))]
        return {"first_ms": first, "beside_ms": spread(beside), "alone_ms": spread(alone)}

    def check(self):
        """All replays first, all eager steps then; logits and what was written into the KV cache must be equal bit by bit."""
        torch, decoder = self.torch, self.decoder
        bits = lambda tensor: tensor.contiguous().view(torch.int16)
        results, kept = [], {}

        def prepare(batch):
            generator = torch.Generator(self.device).manual_seed(1000 * self.args.seed + batch)
            decoder.randomize(batch, generator)

        for batch, step in self.steps.items():
            prepare(batch)
            kept[batch] = step.replay().clone(), decoder.written(batch)
        for batch in self.steps:
            prepare(batch)
            logits, written = decoder.step(batch), decoder.written(batch)
            replayed_logits, replayed_written = kept.pop(batch)
            results.append({
                "batch": batch, "logits": torch.equal(bits(logits), bits(replayed_logits)),
                "kv": torch.equal(bits(written), bits(replayed_written)), "finite": bool(torch.isfinite(logits).all()),
                "difference": float((logits.float() - replayed_logits.float()).abs().max())})
        equal = sum(result["logits"] and result["kv"] for result in results)
        return {"equal": equal, "of": len(results), "finite": sum(result["finite"] for result in results),
                "unequal": [result for result in results if not (result["logits"] and result["kv"])]}

    def device_ms(self, replay):
        """What one replay takes on the device: it is queued behind a pause, so that the host's own work does not count."""
        torch = self.torch
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(1_000_000)
        start.record()
        replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    def measure_replays(self):
        """Restored (or, in a live run, captured) graphs; with compare_live, in turns with ones captured here and now."""
        torch, times = self.torch, {}
        self.decoder.randomize(max(self.batches), torch.Generator(self.device).manual_seed(self.args.seed))
        pool = torch.cuda.graph_pool_handle()
        for batch, step in self.steps.items():
            replays = {"replay_ms": step.replay}
            if self.args.compare_live:
                replays["live_replay_ms"] = self.capture_plainly(batch, pool).replay
            measured = {name: [] for name in replays}
            for turn in range(self.args.replays + 1):
                for name in sorted(replays, reverse=turn % 2 == 1):
                    measured[name].append(self.device_ms(replays[name]))
            times[batch] = {name: statistics.median(values[1:]) for name, values in measured.items()}
            replays.clear()
        return times

    def capture_plainly(self, batch, pool):
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.decoder.step(batch)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            self.decoder.step(batch)
        return graph

    # ---- the report ----

    def describe_graphs(self, times):
        return [{"batch": batch, "restored": bool(step.restored), "reason": step.reason, "warmup_ms": (step.warmup_ns or 0) / 1e6,
                 "capture_ms": (step.capture_ns or 0) / 1e6, "instantiate_ms": (step.instantiate_ns or 0) / 1e6,
                 **times.get(batch, {})} for batch, step in self.steps.items()]

    def describe(self, times):
        torch, stages = self.torch, self.stages
        import transformers

        free, total = torch.cuda.mem_get_info()
        ready_from = {"from_process_start": stages.at["ready"], "from_context": stages.at["ready"] - stages.at["loading"]
                      + stages.ms["context"]}
        return {
            "recipe": os.path.basename(self.args.recipe), "mode": self.medusa.mode(), "order": self.args.order,
            "device": torch.cuda.get_device_name(self.device),
            "versions": {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                         "transformers": transformers.__version__, "python": sys.version.split()[0]},
            "weight_bytes": sum(weight.nbytes for weight in self.model.parameters()),
            "kv": {"bytes": self.kv.bytes, "blocks": self.kv.blocks, "from_profile": bool(self.kv.from_profile),
                   "ms": self.kv.ns / 1e6, "reason": self.kv.reason},
            "stages_ms": stages.ms, "ready_ms": ready_from,
            "loading_ms": {"first_graph": max(stages.at["first_graph"], stages.at["weights_ready"]) - stages.at["loading"],
                           "all_graphs": max(stages.at["all_graphs"], stages.at["weights_ready"]) - stages.at["loading"]},
            "after_weights_ms": {"first_graph": stages.between("weights_ready", "first_graph"),
                                 "all_graphs": stages.between("weights_ready", "all_graphs")},
            "graphs_restored": sum(bool(step.restored) for step in self.steps.values()), "graphs": self.describe_graphs(times),
            "medusa": self.graphs.stats() or None,
            "memory": {"reserved": torch.cuda.memory_reserved(), "free": free, "total": total, **self.medusa.memory_stats()},
        }


def spread(values):
    """Count, median, 99th percentile and largest of some times."""
    values = sorted(values)
    if not values:
        return {"count": 0}
    at = lambda part: values[min(len(values) - 1, int(part * len(values)))]
    return {"count": len(values), "p50": at(0.5), "p99": at(0.99), "max": values[-1]}


def write_report(path, report):
    number = 1
    while "%d" in path and os.path.exists(path.replace("%d", str(number))):
        number += 1
    path = path.replace("%d", str(number))
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(report, file)
    os.replace(path + ".part", path)


def main():
    args, stages = parse_arguments(), Stages()
    sys.path.insert(0, os.path.join(ROOT, "models", "torch"))
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with stages("import"):
        import torch  # noqa: F401
        import medusa.torch  # noqa: F401
        from torch_model import read_family, read_recipe

        read_family(read_recipe(args.recipe))
    engine = Engine(args, stages)
    engine.load()
    background = engine.take_all()
    check = engine.check() if args.check else None
    times = engine.measure_replays() if args.replays else {}
    report = engine.describe(times)
    report.update({name: value for name, value in (("background", background), ("check", check)) if value})
    if args.report:
        write_report(args.report, report)
    print(f"{report['recipe']}: {report['graphs_restored']} of {len(report['graphs'])} graphs restored, ready after "
          f"{report['ready_ms']['from_context']:.0f} ms" + (f", {check['equal']} of {check['of']} bit-equal" if check else ""))
    for reason in sorted({step.reason for step in engine.steps.values() if not step.restored} - {"", None}):
        print(f"captured live: {reason}", file=sys.stderr)
    engine.graphs.close()
    return 1 if check and check["equal"] < check["of"] else 0


if __name__ == "__main__":
    sys.exit(main())
