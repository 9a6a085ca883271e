# SPDX-License-Identifier: Apache-2.0
"""One engine of vllm_hurt.py: LLM() on a small model, disturbed and asked in groups of questions; the answers go to a file as JSON.

    python3 tests/gpu/vllm_hurt_engine.py --cache FOLDER --model dense|moe --out FILE.json --groups "prompts preemption ..."
    python3 tests/gpu/vllm_hurt_engine.py --cache FOLDER --make

The engine core runs in this process, so that the same questions make the same batches in each start; --own-core gives it a process.
Answers depend on the whole context (weights() in vllm_engine.py says why that is not a matter of course).
"""
import argparse
import gc
import json
import multiprocessing
import os
import random
import re
import resource
import subprocess
import sys
import threading
import time
import traceback

import vllm_engine

VOCABULARY, LONGEST, STEP, BLOCKS, BLOCK = 2048, 1024, 256, 96, 16  # STEP: tokens of a batch; BLOCKS: of the KV cache
SMALL = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": VOCABULARY,
         "max_position_embeddings": 2048, "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 257}
SHAPES = {"dense": {**vllm_engine.QWEN, **SMALL, "intermediate_size": 1024},
          "moe": {**vllm_engine.SHAPES["moe"], **SMALL, "intermediate_size": 512}}
SETTINGS = {"dtype": "bfloat16", "max_model_len": LONGEST, "max_num_seqs": 16, "max_num_batched_tokens": STEP, "seed": 0,
            "num_gpu_blocks_override": BLOCKS, "block_size": BLOCK, "gpu_memory_utilization": 0.06, "async_scheduling": False,
            "enable_prefix_caching": True, "compilation_config": {"cudagraph_capture_sizes": [1, 2, 4, 8, 16]}}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "size": {"enum": ["s", "m", "l"]}, "count": {"type": "integer"}},
          "required": ["name", "size", "count"], "additionalProperties": False}
TAKEOVER_S, DEAD_S = 60.0, 20.0
LEFT_ON_DISK = 64  # bytes of each file


# ---- files of a model ----


def folder_of(cache, model):
    return os.path.join(cache, "models", "hurt-" + model)


def make(cache):
    """Writes the models, their tokenizer, and three adapters of the dense one."""
    for model, shape in SHAPES.items():
        vllm_engine.SHAPES["hurt-" + model] = shape
        folder = vllm_engine.model_folder(cache, "hurt-" + model)
        vllm_engine.write_tokenizer(folder)
        vllm_engine.write_weights(folder, shape)
    for number in (1, 2, 3):
        print(vllm_engine.write_adapter(cache, "hurt-dense", number))


# ---- the engine ----


class Problem(Exception):
    """An answer, or the engine, is not as it must be in any engine; str() says what was seen."""


def require(there, what):
    if not there:
        raise Problem(what)


def prompt(choose, tokens):
    return {"prompt_token_ids": [choose.randrange(300, VOCABULARY) for _ in range(tokens)]}


class Engine:
    """LLM(), and how it is asked."""

    def __init__(self, model, settings):
        from vllm import LLM, SamplingParams

        self._sampling = SamplingParams
        self.llm = LLM(model=model, disable_log_stats=False, **settings)

    def sampling(self, tokens, **options):
        return self._sampling(**{"temperature": 0, "max_tokens": tokens, "ignore_eos": True, "detokenize": False, **options})

    def ask(self, prompts, tokens=24, **options):
        """vLLM's outputs; options: those of all prompts, or a list with one dictionary for each."""
        each = options.pop("each", None) or [{}] * len(prompts)
        return self.llm.generate(prompts, [self.sampling(tokens, **options, **one) for one in each], use_tqdm=False)

    def answers(self, prompts, tokens=24, **options):
        answers = [list(part.token_ids) for output in self.ask(prompts, tokens, **options) for part in output.outputs]
        require(all(answers), "an answer is empty")
        return answers

    def counter(self, name):
        return sum(metric.value for metric in self.llm.get_metrics() if metric.name == name)

    def settle(self):
        """Until nothing is captured or compiled beside the engine any more; cached KV blocks of eager layers are dropped."""
        self.answers([prompt(random.Random(1), 40)], 2)
        end = time.monotonic() + TAKEOVER_S
        while any(thread.name == "medusa-takeover" for thread in threading.enumerate()):
            require(time.monotonic() < end, f"the compiled model has not taken over in {TAKEOVER_S:.0f} s")
            time.sleep(0.05)
        require(self.llm.reset_prefix_cache(), "vLLM does not drop its cached prefixes")


# ---- groups of questions ----


def prompts(engine):
    """Batches of 1 to 20 requests, four more than run at once."""
    choose = random.Random(7)
    return [answer for size in (1, 2, 3, 5, 8, 16, 20)
            for answer in engine.answers([prompt(choose, choose.randrange(17, 60)) for _ in range(size)])]


def singles(engine):
    """One request after the other: the same batches even if the engine core has a process of its own."""
    choose = random.Random(8)
    return [engine.answers([prompt(choose, choose.randrange(30, 200))])[0] for _ in range(6)]


def shapes(engine):
    """Lengths at the borders of blocks, of batches and of the model."""
    choose = random.Random(9)
    return [engine.answers([prompt(choose, tokens)], 8)[0] for tokens in (1, 2, 15, 16, 17, STEP - 1, STEP, STEP + 1, LONGEST - 8)]


def prefix_caching(engine):
    choose = random.Random(10)
    common = prompt(choose, 400)["prompt_token_ids"]
    tails = [{"prompt_token_ids": common + prompt(choose, 20)["prompt_token_ids"]} for _ in range(4)]
    outputs = [engine.ask([tail])[0] for tail in tails] + engine.ask(tails)
    require(outputs[-1].num_cached_tokens and outputs[-1].num_cached_tokens >= 400 - BLOCK,
            f"only {outputs[-1].num_cached_tokens} of 400 tokens came from cached blocks")
    return [list(output.outputs[0].token_ids) for output in outputs]


def chunked_prefill(engine):
    """A prompt of several batches, while others decode."""
    choose = random.Random(11)
    return engine.answers([prompt(choose, tokens) for tokens in (40, 3 * STEP, 60, 30)], 40)


def preemption(engine):
    """16 requests need 160 blocks of the 96 that there are."""
    choose, before = random.Random(12), engine.counter("vllm:num_preemptions")
    answers = engine.answers([prompt(choose, 60) for _ in range(16)], 100)
    require(engine.counter("vllm:num_preemptions") > before, "no request was preempted, so the KV cache is not small enough")
    return answers


def structured_output(engine):
    from vllm.sampling_params import StructuredOutputsParams

    choose = random.Random(13)
    wanted = [{"json": SCHEMA}, {"regex": r"[a-c]{3}-[0-9]{4}"}, {"choice": ["yes", "no", "perhaps"]}]
    each = [{"structured_outputs": StructuredOutputsParams(**one), "ignore_eos": False} for one in wanted] + [{}, {}]
    answers = engine.answers([prompt(choose, 30 + 10 * at) for at in range(5)], 80, each=each)
    decode = engine.llm.get_tokenizer().decode
    texts = [decode(answer, skip_special_tokens=True) for answer in answers[:3]]
    require(re.fullmatch(r"[a-c]{3}-[0-9]{4}", texts[1]) and texts[2] in wanted[2]["choice"], f"answers against their grammar: {texts[1:]}")
    # A grammar of JSON may let control characters through, and an answer may end before its object does.
    require(len(answers[0]) == 80 or set(json.loads(texts[0], strict=False)) == set(SCHEMA["required"]), f"not of the JSON schema: {texts[0]}")
    return answers


def sampled(engine):
    choose = random.Random(14)
    each = [{"temperature": 0.8, "seed": 5, "top_p": 0.9}, {"temperature": 1.0, "seed": 6, "top_k": 20, "min_p": 0.01},
            {"repetition_penalty": 1.3, "presence_penalty": 0.5}, {"logprobs": 3}, {"n": 3, "temperature": 0.7, "seed": 9},
            {"stop_token_ids": list(range(300, 420)), "min_tokens": 4}]
    return engine.answers([prompt(choose, 35) for _ in each], each=each)


def abort(engine):
    """Requests are aborted while they wait, prefill and decode; those beside them and after them are answered."""
    choose, inner, found = random.Random(15), engine.llm.llm_engine, {}
    for number in range(20):
        inner.add_request(str(number), prompt(choose, 30 if number % 5 else 2 * STEP), engine.sampling(30))
    for step in range(400):
        if step in (2, 9):
            inner.abort_request([str(number) for number in ((0, 1, 5, 19) if step == 2 else (2, 10, 11))])
        if not inner.has_unfinished_requests():
            break
        found.update({output.request_id: list(output.outputs[0].token_ids) for output in inner.step() if output.finished})
    require(not inner.has_unfinished_requests(), f"{inner.get_num_unfinished_requests()} requests are unfinished after 400 steps")
    whole = [answer for _, answer in sorted(found.items()) if len(answer) == 30]
    require(len(whole) == 13, f"{len(whole)} requests were answered instead of 13")
    return whole + engine.answers([prompt(choose, 50)])


def bad_request(engine):
    """Requests that vLLM refuses; the engine goes on."""
    choose = random.Random(16)
    for wrong in (prompt(choose, LONGEST + 1), {"prompt_token_ids": [VOCABULARY + 5]}):
        try:
            engine.ask([wrong], 4)
        except ValueError:
            continue
        raise Problem("vLLM has accepted a request that it must refuse")
    return engine.answers([prompt(choose, 50)])


GROUPS = {made.__name__: made for made in (prompts, singles, shapes, prefix_caching, chunked_prefill, preemption, structured_output,
                                           sampled, abort, bad_request)}


def answer(engine, names):
    """Name -> tokens of answers, or {"problem": what was seen}. A group that fails leaves the others alone, as far as the engine lives."""
    found = {}
    for name in names:
        try:
            found[name] = GROUPS[name](engine)
        except KeyboardInterrupt:
            raise
        except Problem as problem:
            found[name] = {"problem": str(problem)}
        except BaseException as error:  # vLLM's own, SystemExit included
            traceback.print_exc()
            found[name] = {"problem": f"{type(error).__name__}: {error}"[:300]}
    return found


# ---- disturbances ----


class Holder:
    """Another process that holds all but `left` bytes of the device's free memory; if `left` is negative, it holds that many bytes."""

    CODE = """
import ctypes, sys
driver, left = ctypes.CDLL("libcuda.so.1"), int(sys.argv[1])
context, device, free, total, address = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
assert not driver.cuInit(0) and not driver.cuDeviceGet(ctypes.byref(device), 0)
assert not driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) and not driver.cuCtxSetCurrent(context)
assert not driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
left += free.value if left < 0 else 0
for part in (1 << 30, 16 << 20, 2 << 20):
    while not driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) and free.value >= left + part:
        if driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(part)):
            break
print(free.value, flush=True)
sys.stdin.read()
"""

    def __init__(self, left):
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.startswith("MEDUSA_")}
        self._process = subprocess.Popen([sys.executable, "-c", self.CODE, str(left)], env=environment, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        self.free = int(self._process.stdout.readline() or -1)
        print(f"hurt: another process holds the device's memory; {self.free >> 20} MiB are free", flush=True)

    def release(self):
        if self._process.poll() is None:
            self._process.stdin.close()
            self._process.wait(30)


def hold_memory(left):
    """From the moment that graphs are restored until that has succeeded or is given up, another process holds the memory."""
    from medusa_vllm.takeover import Takeover

    attempt, close, holders = Takeover.attempt, Takeover._close, []

    def release():
        while holders:
            holders.pop().release()

    def held(takeover, *arguments, **options):
        holders.append(Holder(left))
        try:
            return attempt(takeover, *arguments, **options)
        finally:
            release()

    def closed(takeover):
        release()  # before the graphs are captured live, which needs memory in any engine
        close(takeover)

    Takeover.attempt, Takeover._close = held, closed


def hold(size):
    """Holds memory until the standard input ends."""
    holder = Holder(-size)
    sys.stdin.read()
    holder.release()


def fill_disk(on):
    """No file can grow beyond a few bytes any more, as on a full disk; Python's search for a temporary folder needs these."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LEFT_ON_DISK if on else most, most))


def kill_core():
    for child in multiprocessing.active_children():
        if "EngineCore" in child.name:
            print(f"hurt: {child.name}, process {child.pid}, is killed", flush=True)
            child.kill()
            return
    raise Problem(f"there is no engine core among {[child.name for child in multiprocessing.active_children()]}")


def ask_killed(engine):
    """What vLLM raises when its core is gone. It is asked when it has seen that: requests before that wait for ever, in vLLM itself."""
    kill_core()
    resources, end = engine.llm.llm_engine.engine_core.resources, time.monotonic() + DEAD_S
    while not resources.engine_dead:
        require(time.monotonic() < end, f"vLLM has not seen in {DEAD_S:.0f} s that its core is gone")
        time.sleep(0.05)
    try:
        engine.answers([prompt(random.Random(1), 40)], 2)
    except Exception as error:  # vLLM's own class of a dead engine
        return type(error).__name__
    raise Problem("an engine whose core was killed goes on")


def drop(engine):
    """Bytes that tensors take on the device after vLLM has freed an engine of this process."""
    import torch

    engine.llm.llm_engine.engine_core.shutdown()
    del engine.llm
    gc.collect()
    return torch.cuda.memory_allocated()


# ---- the whole ----


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--make", action="store_true", help="write the models, and end")
    parser.add_argument("--hold", type=int, help="hold so many MiB of the device until the standard input ends")
    parser.add_argument("--model", choices=SHAPES, default="dense")
    parser.add_argument("--out", help="for answers; without it the engine is asked nothing")
    parser.add_argument("--groups", default=" ".join(GROUPS))
    parser.add_argument("--settings", default="{}", help="other arguments of LLM(), as JSON")
    parser.add_argument("--early", action="store_true", help="ask all groups once before the compiled model has taken over, too")
    parser.add_argument("--own-core", action="store_true", help="the engine core in a process of its own")
    parser.add_argument("--kill", action="store_true", help="with --own-core: the core is killed, and another engine is made")
    parser.add_argument("--again", action="store_true", help="without --own-core: the engine is dropped, and another one is made in this process")
    parser.add_argument("--pair", action="store_true", help="with --own-core: two engines, asked in turns")
    parser.add_argument("--version", help="what vLLM says its version is")
    parser.add_argument("--left", type=int, help="MiB that another process leaves while graphs are restored")
    parser.add_argument("--full-disk", action="store_true")
    return parser.parse_args()


def run(options):
    """The report: answers by group, and what else was seen."""
    names, report = options.groups.split(), {}
    model, settings = folder_of(options.cache, options.model), {**SETTINGS, **json.loads(options.settings)}
    if options.left is not None:
        hold_memory(options.left << 20)
    if options.full_disk:
        fill_disk(True)
    began = time.perf_counter()
    engine = Engine(model, settings)
    report["seconds"] = round(time.perf_counter() - began, 2)
    if options.kill:
        report["raised"] = ask_killed(engine)
        del engine
        engine = Engine(model, settings)
    if options.pair:
        other = Engine(model, settings)
        report["other"] = answer(other, names)
    if options.early:
        report["early"] = answer(engine, names)
    if options.out and not options.own_core:
        engine.settle()
    report["answers"] = answer(engine, names) if options.out else {}
    if options.pair:
        report["other_again"] = answer(other, names)
    if options.again:
        report["held"] = drop(engine)
        del engine
        engine = Engine(model, settings)
        engine.settle()
        report["second"] = answer(engine, names)
    return report


def main():
    options = parse()
    vllm_engine.environment(argparse.Namespace(cache=options.cache, in_process=not options.own_core, runner=None))
    if options.make:
        make(options.cache)
        return
    if options.hold:
        hold(options.hold << 20)
        return
    if options.version:
        import vllm

        vllm.__version__ = options.version
    report = run(options)
    if options.full_disk:
        fill_disk(False)
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(report, file)
    print(f"hurt: ready in {report['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
