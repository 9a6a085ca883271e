# SPDX-License-Identifier: Apache-2.0
"""A decoder in transformers' own model code, from a recipe: structure, seeded weights, one static KV cache, one decode step."""
import contextlib

import torch

BATCHES = [1, 2, 4] + list(range(8, 257, 8))  # vLLM's 35 batch sizes


def read_recipe(path):
    """The "key: value" lines of models/recipes/*.yaml; numbers and booleans become such, other values stay text."""
    recipe = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            key, colon, value = line.partition("#")[0].partition(":")
            if not colon:
                continue
            value = value.strip()
            if value in ("true", "false"):
                value = value == "true"
            else:
                for number in (int, float):
                    with contextlib.suppress(ValueError):
                        value = number(value)
                        break
            recipe[key.strip()] = value
    return recipe


def split_by_slices():
    """Falcon's code takes keys and values by a list of one index, which is copied to the device: no capture allows it."""
    from transformers.models.falcon import modeling_falcon

    def split(self, fused_qkv):
        batch, length = fused_qkv.shape[:2]
        fused_qkv = fused_qkv.view(batch, length, self.num_heads + 2, self.head_dim)
        return fused_qkv[..., :-2, :], fused_qkv[..., -2:-1, :], fused_qkv[..., -1:, :]

    modeling_falcon.FalconAttention._split_heads = split


def read_family(recipe):
    """(configuration class, model class, configuration) of a recipe."""
    import transformers

    family = recipe["transformers_model_type"]
    common = {"vocab_size": recipe["vocabulary"], "hidden_size": recipe["hidden_size"], "num_hidden_layers": recipe["layers"],
              "num_attention_heads": recipe["heads"], "max_position_embeddings": recipe["max_context"],
              "initializer_range": recipe["scale"], "tie_word_embeddings": recipe["tie_embeddings"],
              "rope_parameters": {"rope_type": "default", "rope_theta": float(recipe["rope_theta"])}}
    if family == "falcon":
        split_by_slices()
        config = transformers.FalconConfig(
            **common, num_kv_heads=recipe["kv_heads"], layer_norm_epsilon=recipe["rms_epsilon"], multi_query=True,
            parallel_attn=True, new_decoder_architecture=False, bias=False, alibi=False,
            ffn_hidden_size=recipe["transformers_intermediate_size"])
        return transformers.FalconForCausalLM, config
    common.update(intermediate_size=recipe["intermediate_size"], num_key_value_heads=recipe["kv_heads"],
                  rms_norm_eps=recipe["rms_epsilon"])
    if family == "qwen2":
        return transformers.Qwen2ForCausalLM, transformers.Qwen2Config(**common, use_sliding_window=False)
    if family == "llama":
        return transformers.LlamaForCausalLM, transformers.LlamaConfig(**common, head_dim=recipe["head_dim"])
    raise ValueError(f"transformers_model_type is {family}; known are llama, qwen2, falcon")


def make_structure(recipe, device, dtype=torch.bfloat16):
    """The model with memory for its parameters on the device, and nothing in them yet but the rotation frequencies."""
    model_class, config = read_family(recipe)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            model = model_class._from_config(config, attn_implementation="sdpa")
    finally:
        torch.set_default_dtype(before)
    model.to_empty(device=device)
    model.tie_weights()
    model.eval().requires_grad_(False)
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            frequencies, module.attention_scaling = module.compute_default_rope_parameters(config, device)
            module.inv_freq = frequencies
            module.original_inv_freq = frequencies.clone()
    return model


def fill_weights(model, seed, scale):
    """Seeded weights, made on the device: normal, of the recipe's scale; factors of norms are 1."""
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 or name.endswith("bias"):
                weight.normal_(0, scale, generator=generator)
            else:
                weight.fill_(1)


class Decoder:
    """One decode step of a model: for each batch size a view of the same inputs and of the same KV cache."""

    def __init__(self, model, recipe, batches, max_length):
        self.model, self.vocabulary, self.max_length = model, recipe["vocabulary"], max_length
        weight = next(model.parameters())
        largest, device = max(batches), weight.device
        shape = (largest, recipe["kv_heads"], max_length, recipe["head_dim"])
        self.keys = [torch.zeros(shape, dtype=weight.dtype, device=device) for _ in range(recipe["layers"])]
        self.values = [torch.zeros(shape, dtype=weight.dtype, device=device) for _ in range(recipe["layers"])]
        # A layer counts its length up with every step, so each has its own; all of a step start at the input's position.
        self.lengths = torch.zeros(recipe["layers"], dtype=torch.int64, device=device)
        self.tokens = torch.zeros((largest, 1), dtype=torch.int64, device=device)
        self.positions = torch.zeros((largest, 1), dtype=torch.int64, device=device)
        self.caches = {batch: self.view_cache(batch) for batch in batches}

    def view_cache(self, batch):
        from transformers import StaticCache

        cache = StaticCache(config=self.model.config, max_cache_len=self.max_length)
        for i, layer in enumerate(cache.layers):
            layer.keys, layer.values = self.keys[i][:batch], self.values[i][:batch]
            layer.dtype, layer.device = layer.keys.dtype, layer.keys.device
            layer.batch_size, layer.num_heads = layer.keys.shape[:2]
            layer.k_head_dim = layer.v_head_dim = layer.keys.shape[-1]
            layer.cumulative_length = self.lengths[i]
            layer.is_initialized = True
        return cache

    def step(self, batch):
        """Logits [batch, 1, vocabulary]. The same inputs and KV contents give the same step, however often it is taken."""
        with torch.no_grad():
            self.lengths.copy_(self.positions[0])
            return self.model(input_ids=self.tokens[:batch], position_ids=self.positions[:batch],
                              past_key_values=self.caches[batch], use_cache=True).logits

    def first_layer(self, batch):
        """The step with only the first layer in it, to make the driver load what the other layers need as well."""
        base = self.model.base_model
        name = "layers" if hasattr(base, "layers") else "h"
        layers = getattr(base, name)
        setattr(base, name, layers[:1])
        try:
            self.step(batch)
        finally:
            setattr(base, name, layers)

    def randomize(self, batch, generator):
        """New tokens, a new position (one for all sequences, as StaticCache has it) and new KV contents."""
        self.randomize_inputs(batch, generator)
        for tensor in self.keys + self.values:
            tensor[:batch].normal_(0, 1, generator=generator)

    def randomize_inputs(self, batch, generator):
        self.tokens[:batch].random_(0, self.vocabulary, generator=generator)
        self.positions[:1].random_(0, self.max_length, generator=generator)
        self.positions.copy_(self.positions[:1].clone().expand_as(self.positions))

    def written(self, batch):
        """What a step wrote into the KV cache."""
        at = self.positions[0]
        return torch.stack([tensor[:batch].index_select(2, at) for tensor in self.keys + self.values])

    def bindings(self, constant, state, given):
        """What a capture must know of: the model, the cache, the inputs."""
        return {"model": constant(self.model), "kv": state({"keys": self.keys, "values": self.values, "lengths": self.lengths}),
                "inputs": given({"tokens": self.tokens, "positions": self.positions})}


def block_bytes(recipe, element_bytes=2):
    return 2 * recipe["layers"] * recipe["kv_heads"] * recipe["head_dim"] * element_bytes * recipe["block_size"]


def run_profile(model, tokens):
    """The forward that finds the peak of memory: a prompt of so many tokens, no cache."""
    with torch.no_grad():
        prompt = torch.zeros((1, tokens), dtype=torch.int64, device=next(model.parameters()).device)
        model(input_ids=prompt, use_cache=False, logits_to_keep=1)
