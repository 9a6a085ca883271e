#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file of a recipe's shape with random weights, so that an engine has bytes to read: gguf_weights.py RECIPE SEED FILE.

BF16, each matrix of values between 2**-7 and 2**-6 of either sign; no two blocks of 1 MiB are equal. The first 256 tokens are the bytes, so that any text is a prompt, and the others t256, t257 ...; there
are no merges.
"""
import os
import random
import struct
import sys

SLICE = 32 << 20
UINT32, FLOAT32, STRING, ARRAY, BF16 = 4, 6, 8, 9, 30


def read_recipe(path):
    shape = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            name, _, value = line.split("#")[0].partition(":")
            if value.strip():
                shape[name.strip()] = value.strip()
    return shape


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def byte_tokens():
    """The 256 bytes as GPT-2 writes them: printable ones as themselves, the others as the characters from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)]


def metadata(shape):
    tokens = (byte_tokens() + [f"t{i}" for i in range(256, int(shape["vocabulary"]))])[:int(shape["vocabulary"])]
    values = [("general.architecture", STRING, text("llama"))]
    for name, key in (("embedding_length", "hidden_size"), ("feed_forward_length", "intermediate_size"), ("block_count", "layers"), ("attention.head_count", "heads"),
                      ("attention.head_count_kv", "kv_heads"), ("attention.key_length", "head_dim"), ("context_length", "max_context")):
        values.append((f"llama.{name}", UINT32, struct.pack("<I", int(shape[key]))))
    for name, key in (("attention.layer_norm_rms_epsilon", "rms_epsilon"), ("rope.freq_base", "rope_theta")):
        values.append((f"llama.{name}", FLOAT32, struct.pack("<f", float(shape[key]))))
    values += [("tokenizer.ggml.model", STRING, text("gpt2")),
               ("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, len(tokens)) + b"".join(map(text, tokens))),
               ("tokenizer.ggml.merges", ARRAY, struct.pack("<IQ", STRING, 0))]
    return len(values), b"".join(text(name) + struct.pack("<I", kind) + data for name, kind, data in values)


def tensors(shape):
    """(name, rows, columns), as the reference engine reads them."""
    hidden, inner, head = int(shape["hidden_size"]), int(shape["intermediate_size"]), int(shape["head_dim"])
    query, key, vocabulary = int(shape["heads"]) * head, int(shape["kv_heads"]) * head, int(shape["vocabulary"])
    yield "token_embd.weight", vocabulary, hidden
    for i in range(int(shape["layers"])):
        for part, rows, columns in (("attn_norm", 1, hidden), ("attn_q", query, hidden), ("attn_k", key, hidden), ("attn_v", key, hidden), ("attn_output", hidden, query),
                                    ("ffn_norm", 1, hidden), ("ffn_gate", inner, hidden), ("ffn_up", inner, hidden), ("ffn_down", hidden, inner)):
            yield f"blk.{i}.{part}.weight", rows, columns
    yield "output_norm.weight", 1, hidden
    if shape.get("tie_embeddings") != "true":
        yield "output.weight", vocabulary, hidden


def main():
    recipe, seed, path = sys.argv[1:]
    shape = read_recipe(recipe)
    rng = random.Random(int(seed))
    bits = int.from_bytes(b"\x7f\x80" * (SLICE // 2), "little"), int.from_bytes(b"\x00\x3c" * (SLICE // 2), "little")
    matrix = bytearray((int.from_bytes(rng.randbytes(SLICE), "little") & bits[0] | bits[1]).to_bytes(SLICE, "little"))
    norm, blocks = b"\x80\x3f", 0
    count, values = metadata(shape)
    listed, offset = b"", 0
    for name, rows, columns in tensors(shape):
        listed += text(name) + struct.pack("<IQQIQ", 2, columns, rows, BF16, offset) if rows > 1 else text(name) + struct.pack("<IQIQ", 1, columns, BF16, offset)
        offset += (rows * columns * 2 + 31) // 32 * 32
    with open(f"{path}.part", "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, sum(1 for _ in tensors(shape)), count) + values + listed)
        file.write(b"\0" * (-file.tell() % 32))
        for name, rows, columns in tensors(shape):
            size = rows * columns * 2
            if rows == 1:
                file.write(norm * columns)
            else:
                for at in range(0, size, SLICE):
                    piece = min(SLICE, size - at)
                    for block in range(0, piece, 1 << 20): # the numbers of blocks, seven bits in each of four values
                        for i in range(4):
                            matrix[block + 2 * i] = matrix[block + 2 * i] & 0x80 | blocks >> 7 * i & 0x7f
                        blocks += 1
                    file.write(memoryview(matrix)[:piece])
            file.write(b"\0" * (-size % 32))
    os.rename(f"{path}.part", path)


if __name__ == "__main__":
    main()
