# SPDX-License-Identifier: Apache-2.0
"""transformers' continuous batching on a small Llama: its own code decides what is captured; the same tokens always."""
import torch_common as common
from torch_common import medusa, torch

check = common.Check("torch_continuous_batching",
                     sync={"action": "store_true", "help": "one IO pair instead of two that take turns"})
common.need_gpu()
try:
    from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM
except ImportError:
    common.skip("this transformers has no continuous batching, or there is none")
from medusa.torch import continuous_batching  # noqa: E402

REQUESTS, TOKENS, VOCABULARY = 6, 12, 512
SETTINGS = {"block_size": 32, "num_blocks": 32, "max_batch_tokens": 64, "max_requests_per_batch": 8,
            "use_cuda_graph": True, "use_async_batching": not check.arguments.sync,
            "q_padding_interval_size": 16, "kv_padding_interval_size": 256}


def make_model():
    torch.manual_seed(11)
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
                         attn_implementation="paged|sdpa")
    return LlamaForCausalLM(config).to(torch.bfloat16).to("cuda").eval()


def make_manager(model):
    greedy = GenerationConfig(max_new_tokens=TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0)
    return model.init_continuous_batching(generation_config=greedy,
                                          continuous_batching_config=ContinuousBatchingConfig(**SETTINGS))


def generate(manager):
    """All requests wait before the loop starts: which batches it makes depends on no timing."""
    manager.warmup()
    for index in range(REQUESTS):
        prompt = [(37 * index + 11 * place) % VOCABULARY for place in range(9 + 8 * index)]
        manager.add_request(prompt, request_id=f"request{index}", max_new_tokens=TOKENS, eos_token_id=-1)
    manager.start()
    tokens = {}
    while len(tokens) < REQUESTS:
        result = manager.get_result(timeout=120)
        if result is None:
            print(f"failure: no result came: {manager.background_thread_status.fatal_error}")
            manager.stop(hard_stop=True, timeout=10)
            raise SystemExit(1)
        check.require(result.error is None, f"{result.request_id}: {result.error}")
        tokens[result.request_id] = result.generated_tokens
    manager.stop()
    return tokens


model = make_model()
manager = make_manager(model)
attached = continuous_batching.attach(manager, check.arguments.artifact)
check.require(not attached.reason, attached.reason)
tokens = generate(manager)
attached.ready()
for index, step in enumerate(attached.steps):
    check.steps.append({"graph": f"graph {index}", "restored": bool(step.restored), "reason": step.reason or ""})
check.require(attached.steps, "no graph was made")
attached.close()
expected = tokens
if medusa.mode() in ("none", "restore"):  # elsewhere these graphs would be recorded too, with no label
    expected = generate(make_manager(model))
for request, made in sorted(tokens.items()):
    check.require(len(made) == TOKENS, f"{request}: {len(made)} tokens")
    check.same(request, torch.tensor(made), torch.tensor(expected[request]))
check.expect("all")
check.finish()
