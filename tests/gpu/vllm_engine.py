# SPDX-License-Identifier: Apache-2.0
"""vLLM on a model of a known shape with random weights: how long its start took, what it answers, and how fast.

    python3 tests/gpu/vllm_engine.py --shape qwen05b --cache FOLDER --out FILE.json [--runner v1|v2] [--lora] [--serve [--template SOCKET]]

FOLDER holds the model's configuration and the caches of vLLM, Inductor and Triton; the second start with the same one is
warm. FILE.json gets everything, tokens included; the last line of the output is the same without the tokens. The engine core
runs in a process of its own, as is vLLM's default; --in-process keeps it in this one, --serve starts a whole server.
"""
import argparse
import contextlib
import hashlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

TIMES = "VLLM_ENGINE_TIMES"  # names a file, which gets a line for each stage, whichever process it is in
QWEN = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 151936, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "hidden_act": "silu", "bos_token_id": 151643, "eos_token_id": 151645, "use_sliding_window": False,
        "rope_theta": 1000000.0}
SHAPES = {
    "qwen05b": {**QWEN, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
                "num_key_value_heads": 2, "tie_word_embeddings": True},
    "qwen14b": {**QWEN, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 48, "num_attention_heads": 40,
                "num_key_value_heads": 8, "vocab_size": 152064, "tie_word_embeddings": False},
    "llama8b": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
                "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
                "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "hidden_act": "silu", "bos_token_id": 128000,
                "eos_token_id": 128001, "tie_word_embeddings": False, "rope_theta": 500000.0},
    "moe": {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 2048,
            "num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000,
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "tie_word_embeddings": False,
            "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "num_local_experts": 8, "num_experts_per_tok": 2,
            "sliding_window": None},
}
WITH_FILES = ("qwen05b", "moe")  # shapes whose weights are in files; the others, which are large, have vLLM's dummy weights
WORKER = ("init_device", "load_model", "determine_available_memory", "initialize_from_config", "compile_or_warm_up_model")
TAKEOVER = "takeover"
RUNNER = ("profile_run", "profile_cudagraph_memory", "capture_model")
ADAPTERS, RANK, PORT = 2, 16, int(os.environ.get("PORT", "8123"))
ROUNDS = 7  # of the measurement of speed


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen05b", choices=SHAPES)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--out")
    parser.add_argument("--runner", choices=("v1", "v2"), help="vLLM's own choice by default")
    parser.add_argument("--lora", action="store_true", help="two adapters; a third of the prompts for each, and one without")
    parser.add_argument("--serve", action="store_true", help="vllm serve, asked over HTTP")
    parser.add_argument("--template", metavar="SOCKET", help="with --serve: from a template, which is started first; two servers, one after the other")
    parser.add_argument("--in-process", action="store_true", help="the engine core in this process")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--logprobs", action="store_true", help="keep the log-probability of each token of the answers: a comparison "
                        "that sees differences which change no token; not with --serve")
    parser.add_argument("--longest", type=int, default=2000, help="tokens of the longest prompt; the shortest one has 8")
    parser.add_argument("--batch", type=int, default=64, help="prompts that are asked at once, at most")
    parser.add_argument("--wait", type=float, default=0, help="seconds, at most, to wait after the first token until the compiled model "
                        "has taken over from eager prefills")
    parser.add_argument("--dummy-weights", action="store_true", help="vLLM's, instead of those in a file that small shapes have")
    parser.add_argument("--extra", default="{}", help="more arguments of LLM(), as JSON")
    options = parser.parse_args()
    if options.logprobs and options.serve:
        parser.error("--logprobs is for LLM(), not for --serve")
    return options


def environment(options):
    cache = options.cache
    values = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
              "VLLM_CACHE_ROOT": cache + "/vllm", "TRITON_CACHE_DIR": cache + "/triton",
              "TORCHINDUCTOR_CACHE_DIR": cache + "/inductor", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    for name, value in values.items():
        os.environ.setdefault(name, value)
    if options.in_process:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if options.runner:
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(int(options.runner == "v2"))


# ---- files of a model ----


def model_folder(cache, shape):
    folder = os.path.join(cache, "models", shape)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({**SHAPES[shape], "torch_dtype": "bfloat16", "initializer_range": 0.02, "attention_dropout": 0.0}, file)
    return folder


def weights(config):
    """Name -> random weights. With a wrong block in the KV cache, every second token of an answer is another one.

    vLLM's dummy weights are so small that a token depends on the one before it alone, and a wrong KV cache would not be seen.
    With larger ones than these, answers would depend on how each kernel rounds.
    """
    import torch

    numbers = torch.Generator().manual_seed(3)
    hidden, inner, experts = config["hidden_size"], config["intermediate_size"], config.get("num_local_experts", 0)
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]

    def made(rows, columns, size=1.0):
        return (torch.randn(rows, columns, generator=numbers) * size / columns**0.5).bfloat16()

    change = 0.75 / config["num_hidden_layers"] ** 0.5  # of the hidden state by a layer
    # The last norm is random: where the embedding is the output's matrix, too, each token would be the one before it else.
    found = {"model.embed_tokens.weight": made(config["vocab_size"], hidden, hidden**0.5), "model.norm.weight": made(hidden, 1)[:, 0]}
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = made(config["vocab_size"], hidden)
    mlp = zip(("w1", "w3", "w2") if experts else ("gate_proj", "up_proj", "down_proj"), (inner, inner, hidden), (hidden, hidden, inner))
    parts = [(f"{part}{name}", rows, columns) for name, rows, columns in mlp
             for part in ([f"block_sparse_moe.experts.{expert}." for expert in range(experts)] or ["mlp."])]
    for layer in range(config["num_hidden_layers"]):
        place = f"model.layers.{layer}."
        for name, rows, size in (("q", hidden, 1.5), ("k", kv, 1.5), ("v", kv, 1.0), ("o", hidden, change)):
            found[f"{place}self_attn.{name}_proj.weight"] = made(rows, hidden, size)
            if name != "o" and config["model_type"] == "qwen2":
                found[f"{place}self_attn.{name}_proj.bias"] = made(rows, 1, 0.1)[:, 0]
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{place}{name}.weight"] = torch.ones(hidden).bfloat16()
        if experts:
            found[f"{place}block_sparse_moe.gate.weight"] = made(experts, hidden, 3.0)
        for name, rows, columns in parts:
            found[f"{place}{name}.weight"] = made(rows, columns, 1.5 if columns == hidden else change)
    return found


def write_weights(folder, config):
    """Writes the file if it is not there; it takes seconds for each GB.

    In a process of its own: vLLM may fork its engine core from this one, and a fork of a process whose OpenMP threads have computed
    waits for ever in its own first parallel loop.
    """
    path = os.path.join(folder, "model.safetensors")
    if not os.path.exists(path):
        here = os.path.dirname(os.path.abspath(__file__))
        subprocess.run([sys.executable, "-c", "import json, sys\nsys.path.insert(0, sys.argv[1])\nimport vllm_engine\n"
                        "vllm_engine.make_weights(sys.argv[2], json.loads(sys.argv[3]))", here, path, json.dumps(config)], check=True)


def make_weights(path, config):
    from safetensors.torch import save_file

    save_file(weights(config), path + ".new", metadata={"format": "pt"})
    os.replace(path + ".new", path)


def write_tokenizer(folder):
    """Of bytes, for a server, which answers in text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={**{char: at for at, char in enumerate(alphabet)}, "<s>": 256, "</s>": 257}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}, file)


def write_adapter(cache, shape, number):
    """Random low-rank weights for the attention of all layers; large enough to change answers."""
    import torch
    from safetensors.torch import save_file

    config = SHAPES[shape]
    folder = os.path.join(cache, "adapters", f"{shape}-{number}")
    os.makedirs(folder, exist_ok=True)
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv = hidden // heads * config["num_key_value_heads"]
    numbers = torch.Generator().manual_seed(number)
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        for name, width in (("q_proj", hidden), ("v_proj", kv), ("o_proj", hidden)):
            place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{place}.lora_A.weight"] = torch.randn(RANK, hidden, generator=numbers).bfloat16() * 0.1
            weights[f"{place}.lora_B.weight"] = torch.randn(width, RANK, generator=numbers).bfloat16() * 0.1
    save_file(weights, os.path.join(folder, "adapter_model.safetensors"))
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj", "v_proj", "o_proj"],
                   "task_type": "CAUSAL_LM", "bias": "none", "base_model_name_or_path": shape}, file)
    return folder


# ---- stages, in whichever process they are ----


def watch(owner, name, stage=None):
    """Notes how long a method takes, the device's work included; it is called as it is."""
    method = owner.__dict__.get(name)
    if method is None:
        return

    def timed(*arguments, **options):
        import torch

        began = time.perf_counter()
        try:
            return method(*arguments, **options)
        finally:
            torch.cuda.synchronize()
            note({"stage": stage or name, "seconds": round(time.perf_counter() - began, 3)})
            if name == WORKER[-1]:
                note({"medusa": medusa_stats()})

    timed.__wrapped__ = method
    setattr(owner, name, timed)


def note(line):
    with open(os.environ[TIMES], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def medusa_stats():
    try:
        from medusa import _api

        return {"mode": _api.mode(), **_api.stats()}
    except ImportError:
        return {}


def watch_stages():
    """The plug-in must wrap vLLM's methods first: it compares their parameters."""
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    import vllm.v1.worker.gpu_worker as worker
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner as second
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner as first

    for name in WORKER:
        watch(worker.Worker, name)
    for runner in (first, second):
        for name in RUNNER:
            watch(runner, name)
    try:
        from medusa_vllm.background import Background

        watch(Background, "_run", TAKEOVER)
    except ImportError:  # of vLLM alone
        pass


def wait_for_takeover(seconds):
    """Until the plug-in's work beside the engine has ended, however it ended."""
    end = time.monotonic() + seconds
    while TAKEOVER not in read_stages()[0]:
        if time.monotonic() > end:
            raise TimeoutError(f"nothing has taken over in {seconds} s")
        time.sleep(0.05)


def read_stages():
    seconds, medusa = {}, {}
    with open(os.environ[TIMES], encoding="utf-8") as file:
        for line in map(json.loads, file):
            medusa = line.get("medusa", medusa)
            if "stage" in line:
                seconds[line["stage"]] = round(seconds.get(line["stage"], 0) + line["seconds"], 3)
    return seconds, medusa


# ---- questions ----


def make_prompts(options):
    """(ids, number of an adapter or 0) in groups of 1 to --batch; the same ones in every run."""
    choose = random.Random(7)
    made = [([choose.randrange(1000, 30000) for _ in range(choose.randrange(8, options.longest + 1))],
             at % (ADAPTERS + 1) if options.lora else 0) for at in range(options.prompts)]
    groups = []
    while made:
        size = min(len(made), choose.choice([1, 2, 3, 5, 8, 13, 21, 34, options.batch]), options.batch)
        groups.append(made[:size])
        made = made[size:]
    return groups


class Engine:
    """LLM(), with the engine core here or in a process of its own."""

    def __init__(self, options, folder, settings):
        import vllm

        self._vllm, self._adapters = vllm, {}
        self.logprobs = [] if options.logprobs else None  # of the answers so far
        if options.lora:
            from vllm.lora.request import LoRARequest

            for number in range(1, ADAPTERS + 1):
                self._adapters[number] = LoRARequest(f"a{number}", number, write_adapter(options.cache, options.shape, number))
        self._llm = vllm.LLM(model=folder, skip_tokenizer_init=True, **settings)

    def ask(self, prompts, tokens, together=False):
        """together: no prompt is begun before all of them have come, so that each start of the engine makes the same batches."""
        sampling = self._vllm.SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False,
                                             logprobs=None if self.logprobs is None else 0)
        lora = [self._adapters.get(number) for _, number in prompts] if self._adapters else None
        texts = [{"prompt_token_ids": ids} for ids, _ in prompts]
        if not together:
            answers = self._llm.generate(texts, sampling, lora_request=lora, use_tqdm=False)
        else:
            self._llm.sleep(level=0)
            self._llm.enqueue(texts, sampling, lora_request=lora, use_tqdm=False)
            self._llm.wake_up(tags=["scheduling"])
            answers = self._llm.wait_for_completion(use_tqdm=False)
        if self.logprobs is not None:
            self.logprobs += [[found[token].logprob for token, found in zip(one.token_ids, one.logprobs)]
                              for one in (answer.outputs[0] for answer in answers)]
        return [list(answer.outputs[0].token_ids) for answer in answers]

    def close(self):
        pass


class Template:
    """A process that has imported vLLM, with this one's environment but for the artifact. What it says goes to a file beside the socket."""

    def __init__(self, path):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MEDUSA_")}
        command = [sys.executable, "-m", "medusa_vllm.template", "--socket", path]
        said = path + ".said"
        print(f"template: {' '.join(command)}; LD_PRELOAD={environment.get('LD_PRELOAD')}; it says in {said}:", file=sys.stderr, flush=True)
        os.makedirs(os.path.dirname(said), mode=0o700, exist_ok=True)
        with open(said, "w", encoding="utf-8") as file:
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        try:
            self._wait(said)
        finally:
            with open(said, encoding="utf-8", errors="replace") as file:
                print(file.read(), file=sys.stderr, flush=True)

    def _wait(self, said):
        while self._process.poll() is None:
            with open(said, encoding="utf-8", errors="replace") as file:
                if "medusa-vllm-template: ready: " in file.read():
                    return
            time.sleep(0.02)
        raise RuntimeError(f"the template ended with {self._process.returncode}; what it said stands above, and in {said}")

    def close(self):
        self._process.terminate()
        self._process.wait(60)


def client(options):
    """What stands before a command that is to come from the template."""
    return [sys.executable, "-m", "medusa_vllm.template", "run", "--socket", options.template, "--require", "--"] if options.template else []


class Server:
    """vllm serve; prompts of a group are sent at once."""

    def __init__(self, options, folder, settings):
        write_tokenizer(folder)
        command = [*client(options), sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", folder, "--port", str(PORT), "--host", "127.0.0.1",
                   "--served-model-name", "m"]
        for name, value in settings.items():
            flag = "--" + name.replace("_", "-")
            command += [flag] if value is True else [flag, value if isinstance(value, str) else json.dumps(value)]
        if options.lora:
            command += ["--lora-modules", *(f"a{number}={write_adapter(options.cache, options.shape, number)}"
                                            for number in range(1, ADAPTERS + 1))]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), timeout=2):
            raise RuntimeError(f"another server listens at port {PORT}, and would answer instead of this one: name another PORT")
        self._process = subprocess.Popen(command)
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"vllm serve ended with {self._process.returncode}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=2)
                return
            except OSError:
                time.sleep(0.05)

    def _ask_one(self, prompt, tokens):
        ids, number = prompt
        body = {"model": f"a{number}" if number else "m", "prompt": ids, "max_tokens": tokens, "temperature": 0,
                "ignore_eos": True, "return_token_ids": True}
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return list(json.load(answer)["choices"][0]["token_ids"])

    def ask(self, prompts, tokens, together=False):  # a server begins each prompt when it comes
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda prompt: self._ask_one(prompt, tokens), prompts))

    def close(self):
        self._process.terminate()
        self._process.wait(60)


def timed(call):
    began = time.perf_counter()
    value = call()
    return value, time.perf_counter() - began


def speed(engine):
    """TPOT of one request and of 64, in ms, and tokens a second of the 64: medians of rounds, after a run that warms up."""
    choose, found = random.Random(11), {}
    for batch, tokens in ((1, 128), (64, 128)):
        prompts = [([choose.randrange(1000, 30000) for _ in range(256)], 0) for _ in range(batch)]
        engine.ask(prompts, 8)
        rounds = [[timed(lambda p=prompts, n=each: engine.ask(p, n))[1] for each in (1, tokens)] for _ in range(ROUNDS)]
        found[f"tpot_ms_{batch}"] = round(statistics.median(long - short for short, long in rounds) / (tokens - 1) * 1000, 3)
        found[f"tokens_per_s_{batch}"] = round(batch * tokens / statistics.median(long for _, long in rounds), 1)
    return found


def main():
    options = parse()
    environment(options)
    os.environ[TIMES] = os.path.join(os.path.abspath(options.cache), f"times.{os.getpid()}.jsonl")
    folder = model_folder(options.cache, options.shape)
    open(os.environ[TIMES], "w", encoding="utf-8").close()
    seconds = {}
    if not options.serve:
        began = time.perf_counter()
        import torch  # noqa: F401

        seconds["import_torch"] = round(time.perf_counter() - began, 3)
        from vllm import LLM  # noqa: F401

        seconds["import_vllm"] = round(time.perf_counter() - began - seconds["import_torch"], 3)
        watch_stages()
    in_file = options.shape in WITH_FILES and not options.dummy_weights
    if in_file:
        write_weights(folder, SHAPES[options.shape])
    settings = {"load_format": "auto" if in_file else "dummy", "dtype": "bfloat16", "max_model_len": 4096, "max_num_seqs": 256,
                "gpu_memory_utilization": 0.8, "seed": 0, **json.loads(options.extra)}
    if options.lora:
        settings.update(enable_lora=True, max_loras=ADAPTERS, max_lora_rank=RANK)
    template = None
    if options.template:
        template, took = timed(lambda: Template(options.template))
        seconds["template"] = round(took, 3)
    engine, took = timed(lambda: (Server if options.serve else Engine)(options, folder, settings))
    seconds["engine"] = round(took, 3)
    if options.template:
        engine.close()
        engine, took = timed(lambda: Server(options, folder, settings))
        seconds["engine_again"] = round(took, 3)
    choose = random.Random(5)
    prompt = ([choose.randrange(1000, 30000) for _ in range(512)], 0)
    first, took = timed(lambda: engine.ask([prompt], 1))
    seconds["first_token"] = round(took, 3)
    if options.wait:
        wait_for_takeover(options.wait)
    groups = make_prompts(options)
    if options.logprobs:
        engine.logprobs.clear()
    tokens, took = timed(lambda: [answer for group in groups for answer in engine.ask(group, options.tokens, together=True)])
    seconds["all_answers"] = round(took, 3)
    logprobs = list(engine.logprobs) if options.logprobs else None
    rates = speed(engine)
    stages, medusa = read_stages()
    engine.close()
    if template:
        template.close()
    os.unlink(os.environ[TIMES])
    report = {"shape": options.shape, "runner": options.runner or "default", "lora": options.lora, "serve": options.serve,
              "in_process": options.in_process, "weights": "file" if in_file else "dummy", "extra": json.loads(options.extra), "seconds": {**seconds, **stages},
              "rates": rates, "first": first[0], "medusa": medusa,
              "answers": hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:16], "tokens": tokens, "logprobs": logprobs}
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(report, file)
    print(json.dumps({key: value for key, value in report.items() if key not in ("tokens", "logprobs")}), flush=True)


if __name__ == "__mp_main__" and TIMES in os.environ:  # an engine core that was spawned: this file is its main module, too
    watch_stages()
if __name__ == "__main__":
    main()
