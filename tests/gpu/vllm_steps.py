# SPDX-License-Identifier: Apache-2.0
"""What the processor does in each decode step of vLLM: times, instructions, page faults, switches, and calls of Python functions.

    python3 tests/gpu/vllm_steps.py --shape qwen05b --cache FOLDER --out FILE.json [--wait SECONDS] [--probe profile]

Options are those of vllm_engine.py; the engine core is in this process. Where a GPU waits for the processor, as it does with small
models, times of steps differ between two hosts of one kind by more than between a live and a restored engine; counts do not.
What a step costs may depend on how Python has specialized the functions, so that is noted, too, with the memory in huge pages and
with how fast two loops are that have nothing to do with vLLM.
--probe profile: a live engine meets what the take-over's thread does to Python (sys.setprofile in another thread), and is measured
before and after that.
"""
import collections
import ctypes
import dis
import gc
import json
import os
import resource
import statistics
import struct
import sys
import threading
import time

import vllm_engine

STEPS, ROUNDS, COUNTED = 128, 9, 32
INSTRUCTIONS, CYCLES = 1, 0
PERF_EVENT_OPEN = 298  # on x86-64


class Counter:
    """A hardware counter of the calling thread, user code alone; .read() is 0 where the kernel does not permit it."""

    def __init__(self, event):
        attributes = bytearray(128)
        struct.pack_into("IIQ", attributes, 0, 0, 128, event)
        struct.pack_into("Q", attributes, 40, 1 << 5 | 1 << 6)  # neither kernel nor hypervisor
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.syscall(PERF_EVENT_OPEN, (ctypes.c_char * 128).from_buffer(attributes), 0, -1, -1, 0)

    def read(self):
        return int.from_bytes(os.read(self._fd, 8), "little") if self._fd >= 0 else 0


def eval_frame_is_default():
    """Whether Python calls functions by its own interpreter's loop; torch._dynamo puts another one in while it compiles."""
    python = ctypes.pythonapi
    try:
        python.PyInterpreterState_Get.restype = ctypes.c_void_p
        python._PyInterpreterState_GetEvalFrameFunc.restype = ctypes.c_void_p
        python._PyInterpreterState_GetEvalFrameFunc.argtypes = [ctypes.c_void_p]
        now = python._PyInterpreterState_GetEvalFrameFunc(python.PyInterpreterState_Get())
        return now == ctypes.cast(python._PyEval_EvalFrameDefault, ctypes.c_void_p).value
    except (AttributeError, ValueError):
        return None


def threads():
    """Processor time of each thread, in clock ticks, by name."""
    found = {}
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/stat", encoding="utf-8") as file:
                head, rest = file.read().rsplit(")", 1)
        except OSError:
            continue
        fields = rest.split()
        found[f"{head.split('(', 1)[1]} {task}"] = int(fields[11]) + int(fields[12])
    return found


def sample(counters):
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return [time.perf_counter(), time.thread_time(), time.process_time(), usage.ru_minflt, usage.ru_nvcsw, usage.ru_nivcsw,
            *(counter.read() for counter in counters)]


NAMES = ("wall_us", "thread_us", "process_us", "faults", "waits", "preempted", "instructions", "cycles")


def measure(engine, batch, counters):
    """Medians over rounds, of each step."""
    choose = vllm_engine.random.Random(11)
    prompts = [([choose.randrange(1000, 30000) for _ in range(256)], 0) for _ in range(batch)]
    engine.ask(prompts, 8)
    rounds = []
    for _ in range(ROUNDS):
        found = []
        for tokens in (1, STEPS):
            before = sample(counters)
            engine.ask(prompts, tokens)
            found.append([after - was for after, was in zip(sample(counters), before)])
        rounds.append([(long - short) / (STEPS - 1) for short, long in zip(*found)])
    scale = (1e6, 1e6, 1e6, 1, 1, 1, 1, 1)
    return {name: round(statistics.median(values) * by, 3) for name, values, by in zip(NAMES, zip(*rounds), scale)}


def count_calls(engine, batch):
    """Calls of each function in the steps of one request after its first token."""
    choose = vllm_engine.random.Random(11)
    prompts = [([choose.randrange(1000, 30000) for _ in range(256)], 0) for _ in range(batch)]
    counts = []
    for tokens in (1, COUNTED + 1):
        calls = collections.Counter()

        def note(frame, event, argument, calls=calls):
            if event == "call":
                code = frame.f_code
                calls[f"{code.co_filename.rsplit('site-packages/', 1)[-1].rsplit('/site/', 1)[-1]}:{code.co_qualname}"] += 1
            elif event == "c_call":
                calls[f"C:{getattr(argument, '__module__', '')}.{getattr(argument, '__qualname__', argument)}"] += 1

        sys.setprofile(note)
        try:
            engine.ask(prompts, tokens)
        finally:
            sys.setprofile(None)
        counts.append(calls)
    short, long = counts
    return {name: (long[name] - short[name]) / COUNTED for name in long if long[name] != short[name]}


def yardstick():
    """ns of one turn of a loop in the first-level cache, and of one that goes through 64 MiB of this process's heap."""
    def timed(work, turns):
        began = time.perf_counter_ns()
        work()
        return round((time.perf_counter_ns() - began) / turns, 2)

    def small():
        total = 0
        for at in range(1000000):
            total += at & 7

    cells = [[at] for at in range(1000000)]
    order = list(range(len(cells)))
    vllm_engine.random.Random(3).shuffle(order)

    def large():
        total = 0
        for at in order:
            total += cells[at][0]

    return {"small_ns": min(timed(small, 1000000) for _ in range(5)), "large_ns": min(timed(large, len(cells)) for _ in range(5))}


def memory():
    """kB of anonymous memory, and of it in huge pages."""
    found = {}
    with open("/proc/self/smaps_rollup", encoding="utf-8") as file:
        for line in file:
            name, *value = line.split()
            if name in ("Anonymous:", "AnonHugePages:", "Rss:"):
                found[name[:-1]] = int(value[0])
    return found


def sample_codes(engine, batch):
    """Code objects of frames that steps are in, seen from another thread, which changes nothing in how they run: samples by code."""
    main, seen, ended = threading.get_ident(), collections.Counter(), threading.Event()

    def watch():
        while not ended.wait(0.001):
            frame = sys._current_frames().get(main)
            while frame is not None:
                seen[frame.f_code] += 1
                frame = frame.f_back

    thread = threading.Thread(target=watch)
    thread.start()
    choose = vllm_engine.random.Random(11)
    prompts = [([choose.randrange(1000, 30000) for _ in range(256)], 0) for _ in range(batch)]
    engine.ask(prompts, 512)
    ended.set()
    thread.join()
    return seen


def specialized(codes):
    """How Python runs the instructions of these functions now: by name, specialized ones, and those of instrumented code, included."""
    found = collections.Counter()
    for code in codes:
        try:
            found.update(instruction.opname for instruction in dis.get_instructions(code, adaptive=True))
        except (IndexError, KeyError, ValueError):
            found["?"] += 1
    return found


def profile_in_thread():
    """What the take-over does while it loads the compiled model."""
    def work():
        sys.setprofile(lambda frame, event, argument: None)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            sum(map(int, "1" * 100))
        sys.setprofile(None)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def difference(live, restored):
    """The functions whose calls differ most, by calls in each step."""
    names = sorted(set(live) | set(restored), key=lambda name: -abs(restored.get(name, 0) - live.get(name, 0)))
    return [(name, live.get(name, 0), restored.get(name, 0)) for name in names if abs(restored.get(name, 0) - live.get(name, 0)) > 0.05]


def table(folder):
    reports = {"live": [], "takeover": [], "probe": []}
    for name in sorted(os.listdir(folder)):
        if name.startswith("steps_") and name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                reports[name.split("_")[1].removesuffix(".json")].append(json.load(file))
    print(f"{'prompts':>7} {'start':9} {'when':9}" + "".join(f"{name:>13}" for name in NAMES))
    for batch in ("1", "64"):
        for kind, found in reports.items():
            for at, report in enumerate(found):
                for when, steps in report["steps"].items():
                    print(f"{batch:>7} {kind + ' ' + str(at + 1):9} {when:9}" + "".join(f"{steps[batch][name]:13.1f}" for name in NAMES))
    for kind, found in reports.items():
        for report in found:
            print(f"{kind}: counted {report['counted']}, gc {report['gc']}, default eval frame {report['default_eval_frame']}, "
                  f"{report['threads']} threads, memory {report['memory']}, yardstick {report['yardstick']}")
    if reports["live"] and reports["takeover"]:
        for name, was, now in difference(reports["live"][0]["instructions"], reports["takeover"][0]["instructions"])[:40]:
            print(f"instructions of the functions that were seen: {name}: {was} live, {now} after the takeover")
        for batch in ("1", "64"):
            for name, was, now in difference(reports["live"][0]["calls"][batch], reports["takeover"][0]["calls"][batch])[:40]:
                print(f"{batch:>3} prompts: {name}: {was:.2f} calls a step live, {now:.2f} after the takeover")


def main():
    if sys.argv[1:2] == ["--table"]:
        table(sys.argv[2])
        return
    probe = None
    if "--probe" in sys.argv:
        at = sys.argv.index("--probe")
        probe = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    sys.argv.append("--in-process")
    options = vllm_engine.parse()
    vllm_engine.environment(options)
    os.environ[vllm_engine.TIMES] = os.path.join(os.path.abspath(options.cache), f"times.{os.getpid()}.jsonl")
    folder = vllm_engine.model_folder(options.cache, options.shape)
    open(os.environ[vllm_engine.TIMES], "w", encoding="utf-8").close()
    vllm_engine.watch_stages()
    in_file = options.shape in vllm_engine.WITH_FILES and not options.dummy_weights
    if in_file:
        vllm_engine.write_weights(folder, vllm_engine.SHAPES[options.shape])
    settings = {"load_format": "auto" if in_file else "dummy", "dtype": "bfloat16", "max_model_len": 4096, "max_num_seqs": 256,
                "gpu_memory_utilization": 0.8, "seed": 0, **json.loads(options.extra)}
    engine = vllm_engine.Engine(options, folder, settings)
    choose = vllm_engine.random.Random(5)
    engine.ask([([choose.randrange(1000, 30000) for _ in range(512)], 0)], 1)
    if options.wait:
        vllm_engine.wait_for_takeover(options.wait)
    counters = [Counter(INSTRUCTIONS), Counter(CYCLES)]
    report = {"medusa": vllm_engine.read_stages()[1], "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), len(gc.get_objects())],
              "default_eval_frame": eval_frame_is_default(), "threads": len(threads()), "steps": {}, "calls": {}}
    report["memory"], report["yardstick"] = [memory()], [yardstick()]
    for name in ("first", "second") if probe is None else ("first", "profiled"):
        if name == "profiled":
            thread = profile_in_thread()
            measure(engine, 1, counters)
            thread.join()
        before = threads()
        report["steps"][name] = {str(batch): measure(engine, batch, counters) for batch in (1, 64)}
        after = threads()
        report["busy_threads"] = {each: after[each] - before.get(each, 0) for each in after if after[each] > before.get(each, 0)}
    report["memory"].append(memory())
    report["yardstick"].append(yardstick())
    codes = sample_codes(engine, 1)
    report["instructions"] = specialized(codes)
    for batch in (1, 64):
        report["calls"][str(batch)] = count_calls(engine, batch)
    report["counted"] = {str(batch): sum(report["calls"][str(batch)].values()) for batch in (1, 64)}
    os.unlink(os.environ[vllm_engine.TIMES])
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(report, file)
    print(json.dumps({key: value for key, value in report.items() if key not in ("calls", "instructions")}), flush=True)


if __name__ == "__main__":
    main()
