# SPDX-License-Identifier: Apache-2.0
"""Language models in transformers' own code: decoders with a static cache or without, mixtures, state spaces, encoders."""
import os
import sys

import torch
from families import Engine, draw_batches, draw_dtype, family, module, refill

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bench"))


def import_all():
    import transformers

    transformers.logging.set_verbosity_error()
    for name in {model_type for model_type, _, _ in DECODERS.values()} | ENCODERS.keys() | PAIRS.keys():
        config = transformers.AutoConfig.for_model(name)
        for auto in (transformers.AutoModelForCausalLM, transformers.AutoModelForSeq2SeqLM, transformers.AutoModel):
            auto._model_mapping.get(type(config), None)
    import torch_model  # noqa: F401


def draw_shape(choose):
    heads, head = choose.choice((2, 4, 8)), choose.choice((32, 64))
    groups = choose.choice([part for part in (1, 2, 4, 8) if heads % part == 0])
    return {"heads": heads, "head": head, "groups": groups, "width": heads * head, "layers": choose.randint(2, 4),
            "inner": choose.choice((128, 192, 256, 384)) * 2, "vocabulary": choose.choice((512, 1000, 1024))}


def common_config(shape):
    return {"hidden_size": shape["width"], "num_hidden_layers": shape["layers"], "num_attention_heads": shape["heads"],
            "intermediate_size": shape["inner"], "vocab_size": shape["vocabulary"], "max_position_embeddings": 512,
            "pad_token_id": None, "bos_token_id": 0, "eos_token_id": 1}


def grouped(shape):
    return {"num_key_value_heads": shape["groups"], "head_dim": shape["head"]}


MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}
# name: (model type, further configuration, whether it has a static cache of one shape for all layers)
DECODERS = {
    "llama": ("llama", grouped, True),
    "mistral": ("mistral", lambda s: {**grouped(s), "sliding_window": None}, True),
    "mistral_sliding": ("mistral", lambda s: {**grouped(s), "sliding_window": 16}, False),
    "qwen2": ("qwen2", lambda s: {"num_key_value_heads": s["groups"]}, True),
    "qwen3": ("qwen3", grouped, True),
    "mixtral": ("mixtral", lambda s: {**grouped(s), **MOE, "sliding_window": None}, True),
    "qwen2_moe": ("qwen2_moe", lambda s: {"num_key_value_heads": s["groups"], "num_experts": 4, "num_experts_per_tok": 2,
                                          "moe_intermediate_size": 128, "shared_expert_intermediate_size": 128}, False),
    "qwen3_moe": ("qwen3_moe", lambda s: {**grouped(s), "num_experts": 4, "num_experts_per_tok": 2,
                                          "moe_intermediate_size": 128}, True),
    "olmoe": ("olmoe", lambda s: {"num_key_value_heads": s["groups"], "num_experts": 4, "num_experts_per_tok": 2}, False),
    "phi": ("phi", lambda s: {"num_key_value_heads": s["groups"]}, False),
    "phi3": ("phi3", lambda s: {"num_key_value_heads": s["groups"], "sliding_window": None}, True),
    "gpt_neox": ("gpt_neox", lambda s: {}, False),
    "gptj": ("gptj", lambda s: {"n_embd": s["width"], "n_layer": s["layers"], "n_head": s["heads"], "rotary_dim": 16,
                                "n_inner": s["inner"], "n_positions": 512}, False),
    "gpt2": ("gpt2", lambda s: {"n_embd": s["width"], "n_layer": s["layers"], "n_head": s["heads"], "n_positions": 512}, False),
    "opt": ("opt", lambda s: {"ffn_dim": s["inner"], "word_embed_proj_dim": s["width"], "pad_token_id": 1}, False),
    "bloom": ("bloom", lambda s: {"n_layer": s["layers"], "n_head": s["heads"]}, False),
    "starcoder2": ("starcoder2", lambda s: {"num_key_value_heads": s["groups"], "sliding_window": None}, True),
    "olmo2": ("olmo2", lambda s: {"num_key_value_heads": s["groups"]}, True),
    "granite": ("granite", lambda s: {"num_key_value_heads": s["groups"]}, True),
    "cohere": ("cohere", lambda s: {"num_key_value_heads": s["groups"]}, True),
    "cohere2": ("cohere2", lambda s: {"num_key_value_heads": s["groups"], "sliding_window": 16}, False),
    "gemma": ("gemma", grouped, True),
    "gemma2": ("gemma2", lambda s: {**grouped(s), "sliding_window": 16, "query_pre_attn_scalar": 64}, False),
    "stablelm": ("stablelm", lambda s: {"num_key_value_heads": s["groups"]}, False),
    "falcon": ("falcon", lambda s: {"num_kv_heads": s["heads"], "multi_query": False, "new_decoder_architecture": True,
                                    "alibi": False}, False),
    "glm": ("glm", grouped, False),
    "nemotron": ("nemotron", grouped, False),
    "smollm3": ("smollm3", lambda s: {"num_key_value_heads": s["groups"], "pad_token_id": 0}, False),
    "deepseek_v2": ("deepseek_v2", lambda s: {
        "num_key_value_heads": s["heads"], "kv_lora_rank": 32, "q_lora_rank": None, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32,
        "v_head_dim": 32, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}, False),
    "mamba": ("mamba", lambda s: {"state_size": 16}, False),
    "xglm": ("xglm", lambda s: {"d_model": s["width"], "ffn_dim": s["inner"], "num_layers": s["layers"],
                                "attention_heads": s["heads"]}, False),
    "gpt_bigcode": ("gpt_bigcode", lambda s: {"n_embd": s["width"], "n_layer": s["layers"], "n_head": s["heads"],
                                              "n_positions": 512, "n_inner": s["inner"]}, False),
    "codegen": ("codegen", lambda s: {"n_layer": s["layers"], "n_head": 4, "n_embd": 128,
                                      "num_attention_heads": 4, "hidden_size": 128, "rotary_dim": 16, "n_positions": 512}, False),
    "persimmon": ("persimmon", lambda s: {}, False),
    "ministral": ("ministral", lambda s: {**grouped(s), "sliding_window": 16}, False),
    "arcee": ("arcee", grouped, True),
    "gemma3": ("gemma3_text", lambda s: {**grouped(s), "sliding_window": 16, "query_pre_attn_scalar": 64}, False),
    "glm4": ("glm4", grouped, False),
    "helium": ("helium", grouped, False),
    "exaone4": ("exaone4", lambda s: {"num_key_value_heads": s["groups"], "sliding_window": 16}, False),
    "ernie4_5": ("ernie4_5", lambda s: {"num_key_value_heads": s["groups"]}, False),
    "seed_oss": ("seed_oss", grouped, False),
    "apertus": ("apertus", lambda s: {"num_key_value_heads": s["groups"]}, False),
    "nanochat": ("nanochat", lambda s: {"num_key_value_heads": s["groups"]}, False),
    "lfm2": ("lfm2", lambda s: {"num_key_value_heads": s["groups"]}, False),
    "olmo3": ("olmo3", lambda s: {"num_key_value_heads": s["groups"], "sliding_window": 16}, False),
    "falcon_mamba": ("falcon_mamba", lambda s: {"state_size": 16}, False),
    "mamba2": ("mamba2", lambda s: {"state_size": 16, "num_heads": 2 * s["width"] // 32, "head_dim": 32, "n_groups": 1,
                                    "chunk_size": 16}, False),
    "rwkv": ("rwkv", lambda s: {"attention_hidden_size": s["width"]}, False),
    "recurrent_gemma": ("recurrent_gemma", lambda s: {**grouped(s), "lru_width": s["width"], "attention_window_size": 16}, False),
    "granitemoe": ("granitemoe", lambda s: {"num_key_value_heads": s["groups"], **MOE}, False),
    "phimoe": ("phimoe", lambda s: {"num_key_value_heads": s["groups"], **MOE, "sliding_window": None}, False),
    "gpt_oss": ("gpt_oss", lambda s: {**grouped(s), **MOE, "sliding_window": 16}, False),
    "gpt_neo": ("gpt_neo", lambda s: {"num_layers": 2, "num_hidden_layers": 2, "attention_types": [[["global", "local"], 1]], "num_heads": s["heads"],
                                      "window_size": 8}, False),
    "openai_gpt": ("openai-gpt", lambda s: {"n_embd": s["width"], "n_layer": s["layers"], "n_head": s["heads"],
                                            "n_positions": 512}, False),
    "ctrl": ("ctrl", lambda s: {"n_embd": s["width"], "n_layer": s["layers"], "n_head": s["heads"], "dff": s["inner"],
                                "n_positions": 512}, False),
    "biogpt": ("biogpt", lambda s: {}, False),
    "diffllama": ("diffllama", lambda s: {"num_key_value_heads": s["heads"]}, False),
    "hunyuan": ("hunyuan_v1_dense", grouped, False),
    "dots1": ("dots1", lambda s: {"num_key_value_heads": s["groups"], "n_routed_experts": 4, "n_shared_experts": 1,
                                  "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1}, False),
    "deepseek_v3": ("deepseek_v3", lambda s: {
        "num_key_value_heads": s["heads"], "kv_lora_rank": 32, "q_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32,
        "v_head_dim": 32, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}, False),
}


def make_model(choose, device, name):
    import transformers

    model_type, further, cached = DECODERS[name]
    shape, dtype = draw_shape(choose), draw_dtype(choose, "bfloat16", "bfloat16", "float16", "float32")
    config = transformers.AutoConfig.for_model(model_type, **{**common_config(shape), **further(shape)})


    def build():
        try:  # with the eager one, masks come from the CPU in each forward: no capture allows it
            return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        except ValueError:
            return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")

    return module(build, dtype, device), shape, cached


def prefill(choose, device, name):
    model, shape, _ = make_model(choose, device, name)
    batches, length = draw_batches(choose, 8), choose.choice((4, 7, 16, 24))
    inputs = {"tokens": torch.zeros(max(batches), length, dtype=torch.int64, device=device)}

    def call(batch):
        return model(input_ids=inputs["tokens"][:batch], use_cache=False).logits[:, -1]

    return Engine({"model": model, "inputs": inputs}, {"prefill": call},
                  refill(inputs, {"tokens": (2, shape["vocabulary"])}), batches)


def decode(choose, device, name):
    from torch_model import Decoder

    model, shape, _ = make_model(choose, device, name)
    batches, heads = draw_batches(choose, 16), getattr(model.config, "num_key_value_heads", shape["heads"])
    head = getattr(model.config, "head_dim", None) or shape["width"] // shape["heads"]
    recipe = {"vocabulary": shape["vocabulary"], "kv_heads": heads, "head_dim": head, "layers": shape["layers"]}
    decoder = Decoder(model, recipe, batches, choose.choice((32, 64, 96)))
    bind = decoder.bindings(lambda x: x, lambda x: x, lambda x: x)
    return Engine(bind, {"decode": decoder.step}, lambda numbers: decoder.randomize(max(batches), numbers), batches,
                  decoder.keys + decoder.values)


def register_decoders():
    for name, (_, _, cached) in DECODERS.items():
        def make(choose, device, name=name, cached=cached):
            return (decode if cached and choose.random() < 0.6 else prefill)(choose, device, name)

        make.__name__ = name
        family(make)


# name: (further configuration, class of transformers)
ENCODERS = {
    "bert": {}, "roberta": {}, "electra": {"embedding_size": 64}, "distilbert": None, "albert": {"embedding_size": 64},
    "mpnet": {}, "deberta-v2": {}, "modernbert": {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "eos_token_id": 1},
    "xlm-roberta": {}, "camembert": {},
}
PAIRS = {"t5": {}, "bart": {}, "mbart": {}, "pegasus": {}, "marian": {}}


def encoder(choose, device, name):
    import transformers

    shape, dtype = draw_shape(choose), draw_dtype(choose)
    if name == "distilbert":
        further = {"dim": shape["width"], "n_layers": shape["layers"], "n_heads": shape["heads"], "hidden_dim": shape["inner"]}
    else:
        further = ENCODERS[name] or {}
    config = transformers.AutoConfig.for_model(name, **{**common_config(shape), "pad_token_id": 0, **further})
    model = module(lambda: transformers.AutoModel.from_config(config), dtype, device)
    batches, length = draw_batches(choose, 8), choose.choice((8, 16, 31))
    inputs = {"tokens": torch.zeros(max(batches), length, dtype=torch.int64, device=device)}
    mask = torch.ones(max(batches), length, dtype=torch.int64, device=device)

    def call(batch):
        return model(input_ids=inputs["tokens"][:batch], attention_mask=mask[:batch]).last_hidden_state

    return Engine({"model": model, "inputs": inputs, "mask": mask}, {"encode": call},
                  refill(inputs, {"tokens": (3, shape["vocabulary"])}), batches)


def pair(choose, device, name):
    import transformers

    shape, dtype = draw_shape(choose), draw_dtype(choose, "float32", "bfloat16")
    further = {"d_model": shape["width"], "vocab_size": shape["vocabulary"], "decoder_start_token_id": 0, "pad_token_id": 0,
               "eos_token_id": 1}
    if name == "t5":
        further.update(num_layers=shape["layers"], num_heads=shape["heads"], d_kv=shape["head"], d_ff=shape["inner"])
    else:
        for part in ("encoder", "decoder"):
            further.update({f"{part}_layers": shape["layers"], f"{part}_attention_heads": shape["heads"],
                            f"{part}_ffn_dim": shape["inner"]})
        further["max_position_embeddings"] = 128
    config = transformers.AutoConfig.for_model(name, **further)
    model = module(lambda: transformers.AutoModelForSeq2SeqLM.from_config(config), dtype, device)
    batches, length = draw_batches(choose, 8), choose.choice((8, 16))
    inputs = {part: torch.zeros(max(batches), length, dtype=torch.int64, device=device) for part in ("source", "target")}

    def call(batch):
        return model(input_ids=inputs["source"][:batch], decoder_input_ids=inputs["target"][:batch], use_cache=False).logits

    limits = 2, shape["vocabulary"]
    return Engine({"model": model, "inputs": inputs}, {"translate": call}, refill(inputs, {"source": limits, "target": limits}),
                  batches)


def register_others():
    for names, maker in ((ENCODERS, encoder), (PAIRS, pair)):
        for name in names:
            def make(choose, device, name=name, maker=maker):
                return maker(choose, device, name)

            make.__name__ = name.replace("-", "_")
            family(make)


register_decoders()
register_others()


@family
def two_models(choose, device):
    """A draft and a target model in one process, as in speculative decoding; the draft's choice is the target's input."""
    draft, target = (make_model(choose, device, choose.choice(("llama", "qwen2", "gpt_neox"))) for _ in range(2))
    vocabulary, batches, length = min(draft[1]["vocabulary"], target[1]["vocabulary"]), draw_batches(choose, 4), 8
    inputs = {"tokens": torch.zeros(max(batches), length, dtype=torch.int64, device=device)}
    chosen = torch.zeros(max(batches), 1, dtype=torch.int64, device=device)

    def propose(batch):
        logits = draft[0](input_ids=inputs["tokens"][:batch], use_cache=False).logits[:, -1, :vocabulary]
        chosen[:batch].copy_(logits.argmax(-1, keepdim=True))
        return logits

    def accept(batch):
        tokens = torch.cat([inputs["tokens"][:batch], chosen[:batch]], 1)
        return target[0](input_ids=tokens, use_cache=False).logits[:, -1]

    given = refill(inputs, {"tokens": (2, vocabulary)})

    def fill(numbers):
        given(numbers)
        chosen.random_(2, vocabulary, generator=numbers)

    return Engine({"draft": draft[0], "target": target[0], "inputs": inputs, "chosen": chosen},
                  {"propose": propose, "accept": accept}, fill, batches, [chosen])


@family
def whisper(choose, device):
    import transformers

    width, layers, dtype = choose.choice((64, 128)), 2, draw_dtype(choose, "float32", "float16")
    config = transformers.WhisperConfig(
        d_model=width, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=256, decoder_ffn_dim=256, vocab_size=512, num_mel_bins=80, max_source_positions=50,
        max_target_positions=64, pad_token_id=0, bos_token_id=0, eos_token_id=1, decoder_start_token_id=0,
        suppress_tokens=None, begin_suppress_tokens=None)
    model = module(lambda: transformers.WhisperForConditionalGeneration(config), dtype, device)
    batches = draw_batches(choose, 8)
    inputs = {"sound": torch.zeros(max(batches), 80, 100, dtype=dtype, device=device),
              "target": torch.zeros(max(batches), 6, dtype=torch.int64, device=device)}

    def call(batch):
        return model(input_features=inputs["sound"][:batch], decoder_input_ids=inputs["target"][:batch], use_cache=False).logits

    return Engine({"model": model, "inputs": inputs}, {"listen": call}, refill(inputs, {"target": (2, 512)}), batches)


@family
def lora(choose, device):
    """Unmerged adapters, chosen by row: slots in a pool, indices are inputs."""
    model, shape, _ = make_model(choose, device, "llama")
    weight, rank, slots = next(model.parameters()), choose.choice((8, 16)), 4
    batches, length = draw_batches(choose, 8), 8
    down = torch.randn(slots, shape["width"], rank, device=device).to(weight.dtype)
    up = torch.randn(slots, rank, shape["width"], device=device).to(weight.dtype)
    inputs = {"tokens": torch.zeros(max(batches), length, dtype=torch.int64, device=device),
              "slots": torch.zeros(max(batches), dtype=torch.int64, device=device)}

    def call(batch):
        hidden = model.model(input_ids=inputs["tokens"][:batch], use_cache=False).last_hidden_state
        index = inputs["slots"][:batch]
        return model.lm_head(hidden + torch.bmm(torch.bmm(hidden, down[index]), up[index]) * 0.01)

    return Engine({"model": model, "pool": [down, up], "inputs": inputs}, {"prefill": call},
                  refill(inputs, {"tokens": (2, shape["vocabulary"]), "slots": (0, slots)}), batches)
