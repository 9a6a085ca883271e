# SPDX-License-Identifier: Apache-2.0
"""vLLM in this process, on a model of a known shape with made-up weights: how long its start took, and what it answers.

    python3 tests/gpu/vllm_engine.py --shape qwen2.5-0.5b --cache FOLDER --out FILE.json [--prompts N] [--extra JSON]

FOLDER holds the model's configuration and the caches of vLLM, Inductor and Triton; the second start with the same one is warm.
"""
import argparse
import hashlib
import json
import os
import random
import time

BEGAN = time.perf_counter()
QWEN = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 151936, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "hidden_act": "silu", "bos_token_id": 151643, "eos_token_id": 151645, "use_sliding_window": False,
        "rope_theta": 1000000.0}
SHAPES = {
    "qwen2.5-0.5b": {**QWEN, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
                     "num_key_value_heads": 2, "tie_word_embeddings": True},
    "qwen2.5-14b": {**QWEN, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 48, "num_attention_heads": 40,
                    "num_key_value_heads": 8, "vocab_size": 152064, "tie_word_embeddings": False},
    "llama-3.1-8b": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
                     "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                     "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "hidden_act": "silu",
                     "bos_token_id": 128000, "eos_token_id": 128001, "tie_word_embeddings": False, "rope_theta": 500000.0},
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen2.5-0.5b", choices=SHAPES)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--out")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--longest", type=int, default=500, help="tokens of the longest prompt")
    parser.add_argument("--extra", default="{}", help="more arguments of LLM(), as JSON")
    return parser.parse_args()


def environment(cache):
    for name, value in {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
                        "VLLM_CACHE_ROOT": cache + "/vllm", "TRITON_CACHE_DIR": cache + "/triton",
                        "TORCHINDUCTOR_CACHE_DIR": cache + "/inductor", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                        "VLLM_USE_FLASHINFER_SAMPLER": "0"}.items():
        os.environ.setdefault(name, value)


def model_folder(cache, shape):
    folder = os.path.join(cache, "models", shape)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({**SHAPES[shape], "torch_dtype": "bfloat16", "initializer_range": 0.02, "attention_dropout": 0.0}, file)
    return folder


class Times:
    """Seconds in methods of vLLM, the device's work included; the methods are called as they are."""

    def __init__(self):
        self.seconds = {}

    def watch(self, owner, name):
        import torch

        method = owner.__dict__.get(name)
        if method is None:
            return

        def timed(*arguments, **options):
            began = time.perf_counter()
            try:
                return method(*arguments, **options)
            finally:
                torch.cuda.synchronize()
                self.seconds[name] = round(self.seconds.get(name, 0) + time.perf_counter() - began, 3)

        timed.__wrapped__ = method
        setattr(owner, name, timed)


def main():
    options = parse()
    environment(options.cache)
    folder = model_folder(options.cache, options.shape)
    import torch

    torch_at = time.perf_counter()
    from vllm import LLM, SamplingParams

    vllm_at = time.perf_counter()
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    import vllm.v1.worker.gpu_worker as worker

    times = Times()
    for name in ("init_device", "load_model", "determine_available_memory", "initialize_from_config", "compile_or_warm_up_model"):
        times.watch(worker.Worker, name)
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner

    for name in ("profile_run", "capture_model"):
        times.watch(GPUModelRunner, name)
    imported_at = time.perf_counter()
    settings = {"model": folder, "load_format": "dummy", "dtype": "bfloat16", "max_model_len": 4096, "max_num_seqs": 256,
                "gpu_memory_utilization": 0.8, "seed": 0, "skip_tokenizer_init": True, **json.loads(options.extra)}
    llm = LLM(**settings)
    ready_at = time.perf_counter()
    choose = random.Random(7)
    prompts = [{"prompt_token_ids": [choose.randrange(1000, 100000) for _ in range(choose.randrange(8, options.longest))]}
               for _ in range(options.prompts)]
    sampling = SamplingParams(temperature=0, max_tokens=options.tokens, ignore_eos=True, detokenize=False)
    first = llm.generate(prompts[:1], SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, detokenize=False), use_tqdm=False)
    first_at = time.perf_counter()
    answers = [list(answer.outputs[0].token_ids) for answer in llm.generate(prompts, sampling, use_tqdm=False)]
    torch.cuda.synchronize()
    done_at = time.perf_counter()
    report = {
        "shape": options.shape, "device": torch.cuda.get_device_name(), "extra": json.loads(options.extra),
        "seconds": {"import_torch": round(torch_at - BEGAN, 3), "import_vllm": round(vllm_at - torch_at, 3),
                    "engine": round(ready_at - imported_at, 3), "first_token": round(first_at - ready_at, 3),
                    "all_answers": round(done_at - first_at, 3), **times.seconds},
        "first": list(first[0].outputs[0].token_ids),
        "answers": hashlib.sha256(json.dumps(answers).encode()).hexdigest()[:16], "tokens": answers,
    }
    try:
        from medusa import _api

        report["medusa"] = {"mode": _api.mode(), **_api.stats()}
    except ImportError:
        pass
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(report, file)
    print(json.dumps({key: value for key, value in report.items() if key != "tokens"}), flush=True)


if __name__ == "__main__":
    main()
