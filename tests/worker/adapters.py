# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters for tests of the reference engine's server."""
import subprocess

from reference import offline

SLOTS = ["--lora-slots", "6", "--max-lora-rank", "64"]
# Name: rank, and what else make_adapter.py is told.
ADAPTERS = {
    "one": (1,), "eight": (8,), "full": (64,), "some": (16, "--projections", "q,v", "--layers", "1"),
    "feed": (5, "--projections", "up,down", "--ranks", "down=3"), "wide": (16, "--type", "bf16"),
}


def write_shape(folder):
    """A small model with room for prompts of text: the path of its recipe."""
    path = f"{folder}/shape.yaml"
    with open(path, "w", encoding="utf-8") as recipe:
        recipe.write("hidden_size: 64\nintermediate_size: 160\nlayers: 2\nheads: 4\nkv_heads: 2\nhead_dim: 16\nvocabulary: 300\n"
                     "max_context: 8192\nrope_theta: 10000\nrope_interleaved: false\nrms_epsilon: 1e-5\ntie_embeddings: false\n"
                     "block_size: 16\nscale: 0.2\n")
    return path


def make(model, path, seed, rank, *more, kind="--peft"):
    subprocess.run(["python3", "tests/llama/make_adapter.py", "--model", model, "--rank", str(rank), "--alpha", str(rank), "--seed", str(seed),
                    "--std", "0.1", *more, kind, path], check=True)
    return path


def make_all(model, folder):
    """Name -> path."""
    return {name: make(model, f"{folder}/adapter.{name}", seed, *ADAPTERS[name]) for seed, name in enumerate(ADAPTERS)}


def offline_with(folder, options, prompts, tokens, path):
    """What so many random prompts give with this adapter, without a server; path None: without one."""
    return offline(folder, options, prompts, tokens, "--batches", "1,2,4", *(SLOTS + ["--adapter", path] if path else []))


def load(engine, name, path, **more):
    reply = engine.ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path, **more})
    return reply.status, reply.body.decode() if reply.status == 200 else reply.json["error"]["message"]


def unload(engine, name):
    reply = engine.ask("POST", "/v1/unload_lora_adapter", {"lora_name": name})
    return reply.status, reply.body.decode() if reply.status == 200 else reply.json["error"]["message"]
