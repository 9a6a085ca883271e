# SPDX-License-Identifier: Apache-2.0
"""vLLM's own sleep mode, level 1, on a made-up model of 16 GB: seconds to sleep and to wake, as JSON on the last line."""
import json
import sys
import time

sys.argv[1:1] = ["--shape", "llama8b"]
import vllm_engine  # noqa: E402


def main():
    options = vllm_engine.parse()
    options.in_process = True
    vllm_engine.environment(options)
    from vllm import LLM, SamplingParams

    llm = LLM(model=vllm_engine.model_folder(options.cache, options.shape), skip_tokenizer_init=True, load_format="dummy",
              dtype="bfloat16", max_model_len=4096, gpu_memory_utilization=0.5, enforce_eager=True, enable_sleep_mode=True)
    prompt, settings = {"prompt_token_ids": list(range(100, 612))}, SamplingParams(temperature=0, max_tokens=16, detokenize=False)
    before = llm.generate([prompt], settings)[0].outputs[0].token_ids
    result = {}
    for _ in range(2):
        start = time.perf_counter()
        llm.sleep(level=1)
        result["sleep_ms"] = (time.perf_counter() - start) * 1e3
        start = time.perf_counter()
        llm.wake_up()
        result["wake_ms"] = (time.perf_counter() - start) * 1e3
    after = llm.generate([prompt], settings)[0].outputs[0].token_ids
    print(json.dumps({**result, "same": list(before) == list(after)}))


if __name__ == "__main__":
    main()
