#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a LoRA adapter with seeded values, in the form of PEFT (a folder) or of llama.cpp (a GGUF file).

    make_adapter.py --model RECIPE_OR_GGUF --rank 8 --alpha 16 --seed 1 --peft FOLDER
    make_adapter.py --model RECIPE_OR_GGUF --rank 8 --alpha 16 --seed 1 --gguf FILE

Both forms of the same arguments are the same adapter. The values of a matrix depend on the seed, its layer, its projection and
its shape alone, so an adapter of fewer projections or layers has the same ones there. Nothing but Python is needed.
"""
import argparse
import json
import os
import random
import struct

UINT32, FLOAT32, STRING, ARRAY = 4, 6, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
# What PEFT calls a projection, and llama.cpp.
PROJECTIONS = {
    "q": ("self_attn.q_proj", "attn_q"), "k": ("self_attn.k_proj", "attn_k"), "v": ("self_attn.v_proj", "attn_v"), "o": ("self_attn.o_proj", "attn_output"),
    "gate": ("mlp.gate_proj", "ffn_gate"), "up": ("mlp.up_proj", "ffn_up"), "down": ("mlp.down_proj", "ffn_down"),
}
# Type: name in a safetensors file, number in a GGUF file, bytes.
TYPES = {"f32": ("F32", 0, 4), "f16": ("F16", 1, 2), "bf16": ("BF16", 30, 2)}


def read_recipe(path):
    shape = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            name, _, value = line.split("#")[0].partition(":")
            if value.strip():
                shape[name.strip()] = value.strip()
    return {name: int(shape[name]) for name in ("hidden_size", "intermediate_size", "layers", "heads", "kv_heads", "head_dim")}


def read_value(file, kind):
    if kind == STRING:
        return file.read(struct.unpack("<Q", file.read(8))[0])
    if kind == ARRAY:
        item, count = struct.unpack("<IQ", file.read(12))
        if item == STRING:
            return [read_value(file, STRING) for _ in range(count)]
        return file.read(SIZES[item] * count)
    return struct.unpack("<" + FORMATS[kind], file.read(SIZES[kind]))[0]


def read_gguf(path):
    values = {}
    with open(path, "rb") as file:
        _, _, _, count = struct.unpack("<4sIQQ", file.read(24))
        for _ in range(count):
            key = read_value(file, STRING).decode()
            values[key] = read_value(file, struct.unpack("<I", file.read(4))[0])
    heads = values["llama.attention.head_count"]
    return {
        "hidden_size": values["llama.embedding_length"], "intermediate_size": values["llama.feed_forward_length"], "layers": values["llama.block_count"], "heads": heads,
        "kv_heads": values.get("llama.attention.head_count_kv", heads), "head_dim": values.get("llama.attention.key_length", values["llama.embedding_length"] // heads),
    }


def read_shape(path):
    with open(path, "rb") as file:
        magic = file.read(4)
    return read_gguf(path) if magic == b"GGUF" else read_recipe(path)


def sizes(shape, projection):
    """(inputs, outputs)"""
    hidden, inner, query, key = shape["hidden_size"], shape["intermediate_size"], shape["heads"] * shape["head_dim"], shape["kv_heads"] * shape["head_dim"]
    return {"q": (hidden, query), "k": (hidden, key), "v": (hidden, key), "o": (query, hidden), "gate": (hidden, inner), "up": (hidden, inner), "down": (inner, hidden)}[projection]


def interleave(rows, heads):
    """Rows i and i + half of each head become rows 2i and 2i + 1, as in llama.cpp's files."""
    dim = len(rows) // heads
    return [rows[head * dim + row // 2 + row % 2 * (dim // 2)] for head in range(heads) for row in range(dim)]


def encode(rows, kind):
    values = [value for row in rows for value in row]
    if kind == "f16":
        return struct.pack(f"<{len(values)}e", *values)
    data = struct.pack(f"<{len(values)}f", *values)
    if kind == "f32":
        return data
    upper = bytearray(len(values) * 2)
    upper[0::2], upper[1::2] = data[2::4], data[3::4]
    return bytes(upper)


def matrices(options, shape):
    """(layer, projection, "A" or "B", rows)"""
    for layer in options.layers if options.layers is not None else range(shape["layers"]):
        for projection in options.projections:
            inputs, outputs = sizes(shape, projection)
            rank = options.ranks.get(projection, options.rank)
            for side, rows, columns in (("A", rank, inputs), ("B", outputs, rank)):
                rng = random.Random(f"{options.seed} {layer} {projection} {side}")
                yield layer, projection, side, [[rng.gauss(0, options.std) for _ in range(columns)] for _ in range(rows)]


def write_peft(options, shape):
    os.makedirs(options.peft, exist_ok=True)
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": options.model, "inference_mode": True, "bias": "none", "lora_dropout": 0.0, "r": options.rank,
        "lora_alpha": options.alpha, "use_rslora": options.rslora, "use_dora": False, "fan_in_fan_out": False, "modules_to_save": None, "layers_to_transform": options.layers,
        "target_modules": [PROJECTIONS[projection][0].partition(".")[2] for projection in options.projections],
        "rank_pattern": {PROJECTIONS[projection][0]: rank for projection, rank in options.ranks.items()},
        "alpha_pattern": {PROJECTIONS[projection][0]: alpha for projection, alpha in options.alphas.items()},
    }
    with open(f"{options.peft}/adapter_config.json", "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    header, data = {"__metadata__": {"format": "pt"}}, []
    offset = 0
    for layer, projection, side, rows in matrices(options, shape):
        data.append(encode(rows, options.type))
        header[f"base_model.model.model.layers.{layer}.{PROJECTIONS[projection][0]}.lora_{side}.weight"] = {
            "dtype": TYPES[options.type][0], "shape": [len(rows), len(rows[0])], "data_offsets": [offset, offset + len(data[-1])]}
        offset += len(data[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{options.peft}/adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def write_gguf(options, shape):
    values = [(key, STRING, text(value)) for key, value in (("general.type", "adapter"), ("general.architecture", "llama"), ("adapter.type", "lora"))]
    values.append(("adapter.lora.alpha", FLOAT32, struct.pack("<f", options.alpha)))
    listed, data, count, offset = b"", [], 0, 0
    for layer, projection, side, rows in matrices(options, shape):
        if side == "B" and projection in ("q", "k"):
            rows = interleave(rows, shape["heads" if projection == "q" else "kv_heads"])
        content = encode(rows, options.type)
        data.append(content + bytes(-len(content) % 32))
        name = f"blk.{layer}.{PROJECTIONS[projection][1]}.weight.lora_{side.lower()}"
        listed += text(name) + struct.pack("<IQQIQ", 2, len(rows[0]), len(rows), TYPES[options.type][1], offset)
        offset += len(data[-1])
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(values)) + b"".join(text(key) + struct.pack("<I", kind) + value for key, kind, value in values) + listed
    with open(options.gguf, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + b"".join(data))


def pairs(kind):
    return lambda value: {name: kind(number) for name, number in (pair.split("=") for pair in value.split(",")) if PROJECTIONS[name]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a recipe, or a GGUF file, whose shape the adapter has")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=pairs(int), default={}, metavar="q=4,v=2", help="ranks of single projections")
    parser.add_argument("--alpha", type=float, required=True)
    parser.add_argument("--alphas", type=pairs(float), default={}, metavar="q=4,v=2", help="alphas of single projections: PEFT only")
    parser.add_argument("--rslora", action="store_true", help="alpha / sqrt(rank): PEFT only")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--projections", type=lambda value: value.split(","), default=list(PROJECTIONS), metavar="q,k,v,o,gate,up,down")
    parser.add_argument("--layers", type=lambda value: [int(layer) for layer in value.split(",")], metavar="0,2", help="by default all")
    parser.add_argument("--type", choices=list(TYPES), default="f32")
    parser.add_argument("--std", type=float, default=0.05, help="standard deviation of the values")
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--peft", metavar="FOLDER")
    form.add_argument("--gguf", metavar="FILE")
    options = parser.parse_args()
    if options.gguf and (options.alphas or options.rslora):
        parser.error("a GGUF file has one alpha, and no --rslora")
    shape = read_shape(options.model)
    (write_peft if options.peft else write_gguf)(options, shape)


if __name__ == "__main__":
    main()
