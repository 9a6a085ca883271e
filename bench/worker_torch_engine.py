#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small engine on PyTorch, for starts: worker_torch_engine.py PORT RECIPE FILE.gguf [NAME]. Reads the weights of gguf_weights.py, and answers
/v1/completions for lists of tokens, greedily and eagerly. Prints on stderr how long each part of the start took. With NAME it has the weights in common
with others of this name (medusa-backbone); FILE is - then, and the first one draws them.
"""
import http.server
import json
import mmap
import os
import sys
import threading
import time

import torch
from torch.nn import functional

import gguf_weights

BEGAN = time.monotonic()
PIECE = 16 << 20
THREADS = 8


def say(what):
    print(f"{time.monotonic() - BEGAN:.3f} s: {what}", file=sys.stderr, flush=True)


def load(path, size):
    """The last `size` bytes of the file on the device, through page-locked memory, by several threads."""
    weights = torch.empty(size, dtype=torch.uint8, device="cuda")
    start = os.path.getsize(path) - size
    with open(path, "rb") as file:
        source = torch.frombuffer(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE), dtype=torch.uint8)

    def copy(number):
        staging = [torch.empty(PIECE, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        stream, done = torch.cuda.Stream(), [None, None]
        with torch.cuda.stream(stream):
            for turn, at in enumerate(range(number * PIECE, size, THREADS * PIECE)):
                piece, buffer = min(PIECE, size - at), staging[turn % 2]
                if done[turn % 2]:
                    done[turn % 2].synchronize()
                buffer[:piece].copy_(source[start + at:start + at + piece])
                weights[at:at + piece].copy_(buffer[:piece], non_blocking=True)
                done[turn % 2] = stream.record_event()
        stream.synchronize()

    torch.set_num_threads(1) # copies on the host are made by our threads
    threads = [threading.Thread(target=copy, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    return weights, threads


def share(name, size):
    """The same of a backbone: as it is, or filled with what is drawn on the device."""
    from medusa import share as shared
    address, filled = shared.attach(name, f"drawn {size}", size)
    holder = type("Memory", (), {"__cuda_array_interface__": {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}})()
    weights = torch.as_tensor(holder, device="cuda")
    if not filled:
        torch.manual_seed(1)
        weights.view(torch.bfloat16).normal_(0, 0.02)
        torch.cuda.synchronize()
        shared.commit(address)
    return weights, []


class Model:
    def __init__(self, recipe, path, name=None):
        self.shape = gguf_weights.read_recipe(recipe)
        self.heads, self.kv_heads, self.head = (int(self.shape[k]) for k in ("heads", "kv_heads", "head_dim"))
        self.layers, self.epsilon, self.theta = int(self.shape["layers"]), float(self.shape["rms_epsilon"]), float(self.shape["rope_theta"])
        places, size = {}, 0
        for tensor, rows, columns in gguf_weights.tensors(self.shape):
            places[tensor] = (size, rows, columns)
            size += (rows * columns * 2 + 31) // 32 * 32
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        say("the device is there")
        weights, copies = share(name, size) if name else load(path, size)
        self.tensors = {tensor: weights[at:at + rows * columns * 2].view(torch.bfloat16).view(rows, columns) for tensor, (at, rows, columns) in places.items()}
        rehearsal = threading.Thread(target=self.forward, args=([1, 2, 3],)) # of no use but that kernels are there; reads what has come
        rehearsal.start()
        for thread in copies:
            thread.join()
        say(f"{size / 1e9:.1f} GB are there")
        rehearsal.join()
        torch.cuda.synchronize()
        say("kernels are there")

    def norm(self, x, name):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.epsilon)).to(x.dtype) * self.tensors[name].view(-1)

    def rotate(self, x):
        half = self.head // 2
        angles = torch.outer(torch.arange(x.shape[1], device="cuda"), self.theta ** (-torch.arange(half, device="cuda") / half))
        cosine, sine = angles.cos(), angles.sin()
        a, b = x[..., :half].float(), x[..., half:].float()
        return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1).to(x.dtype)

    @torch.inference_mode()
    def forward(self, tokens):
        """The likeliest next token."""
        x = functional.embedding(torch.tensor(tokens, device="cuda"), self.tensors["token_embd.weight"])
        for i in range(self.layers):
            part = lambda name, i=i: self.tensors[f"blk.{i}.{name}.weight"]
            y = self.norm(x, f"blk.{i}.attn_norm.weight")
            q, k, v = ((y @ part(f"attn_{n}").T).view(len(tokens), -1, self.head).transpose(0, 1) for n in "qkv")
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 0) for t in (self.rotate(k), v))
            y = functional.scaled_dot_product_attention(self.rotate(q)[None], k[None], v[None], is_causal=True)[0]
            x = x + y.transpose(0, 1).reshape(len(tokens), -1) @ part("attn_output").T
            y = self.norm(x, f"blk.{i}.ffn_norm.weight")
            x = x + (functional.silu(y @ part("ffn_gate").T) * (y @ part("ffn_up").T)) @ part("ffn_down").T
        y = self.norm(x[-1:], "output_norm.weight")
        return int((y @ self.tensors["output.weight"].T).argmax())


class Handler(http.server.BaseHTTPRequestHandler):
    model = None

    def log_message(self, *words):
        pass

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        tokens = list(asked["prompt"])
        for _ in range(asked["max_tokens"]):
            tokens.append(self.model.forward(tokens))
            self.wfile.write(f'data: {json.dumps({"choices": [{"index": 0, "text": "", "token_ids": tokens[-1:]}]})}\n\n'.encode())
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")


def main():
    port, recipe, path, *name = sys.argv[1:]
    Handler.model = Model(recipe, path, *name)
    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
