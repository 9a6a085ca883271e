# SPDX-License-Identifier: Apache-2.0
"""An engine that speaks OpenAI's API and computes nothing: engine.py --port N [--name NAME] [--start SECONDS] ...

It says which model it is, how it was asked, and streams as many pieces as max_tokens says.
"""
import argparse
import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time

from answers import Answer
from engine_adapters import Adapters
from engine_prefixes import Prefixes
import plain_server

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--name", default="engine")
parser.add_argument("--start", type=float, default=0, help="seconds until /health says 200")
parser.add_argument("--never-healthy", action="store_true")
parser.add_argument("--endless-health", action="store_true", help="the answer to the first GET /health has no end")
parser.add_argument("--die-at-start", action="store_true")
parser.add_argument("--ignore-term", action="store_true")
parser.add_argument("--token", type=float, default=0.001, help="seconds between two pieces")
parser.add_argument("--device-mb", type=int, default=0, help="device memory, which counts requests")
parser.add_argument("--weights-mb", type=int, default=0, help="more of it, which never changes")
parser.add_argument("--weights-seed", type=int, default=0, help="what it holds")
parser.add_argument("--weights-are-constant", action="store_true", help="which medusa_bind is told")
parser.add_argument("--dies-with-device", action="store_true", help="when a driver call fails, as engines do")
parser.add_argument("--journal", help="file that gets a line for each request: its id")
parser.add_argument("--spans", help="file that gets a line when a request begins, and when it ends: the time, + or -, its id")
parser.add_argument("--lora-slots", type=int, default=0, help="places for adapters, which then may be loaded and unloaded")
parser.add_argument("--lora-modules", nargs="*", default=[], help="NAME=PATH: adapters that it has from its start")
parser.add_argument("--lora-journal", help="file that gets a line for each load and unload of an adapter")
parser.add_argument("--prefill", type=float, help="seconds for 1,000 characters of a prompt that its prefix cache lacks")
parser.add_argument("--prefixes", choices=["tell", "silent", "zero"], default="tell", help="what that cache keeps, and says of it")
options = parser.parse_args()
began = time.monotonic()
lock = threading.Lock()
counts = {"requests": 0, "running": 0, "most": 0, "cancelled": 0, "lists": 0}


CONSTANT = 1  # MEDUSA_BIND_CONSTANT


class Device:
    """Device memory full of one byte, which each request looks at and counts up."""

    def __init__(self, megabytes):
        self.cuda, self.bytes, self.value = ctypes.CDLL("libcuda.so.1"), megabytes << 20, 1
        self.context, self.address = ctypes.c_void_p(), ctypes.c_uint64()
        self.must("cuInit", 0)
        self.must("cuCtxCreate_v2", ctypes.byref(self.context), 0, 0)
        self.must("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(self.bytes))
        self.must("cuMemsetD8_v2", self.address, ctypes.c_ubyte(1), ctypes.c_size_t(self.bytes))
        self.weights, self.content = ctypes.c_uint64(), b""
        if options.weights_mb:
            import random # takes long, and most engines have no weights
            self.content = random.Random(options.weights_seed).randbytes(options.weights_mb << 20)
        if self.content:
            self.must("cuMemAlloc_v2", ctypes.byref(self.weights), ctypes.c_size_t(len(self.content)))
            self.must("cuMemcpyHtoD_v2", self.weights, self.content, ctypes.c_size_t(len(self.content)))
        if options.weights_are_constant and ctypes.CDLL(None).medusa_bind(b"weights", self.weights, ctypes.c_size_t(len(self.content)), CONSTANT):
            sys.exit("medusa_bind has failed")

    def must(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code:
            print(f"{name}: {code}", flush=True)
            if options.dies_with_device:
                os._exit(70)
            raise RuntimeError(f"{name}: {code}")

    def write_weights(self):
        """To memory that was said never to change: the code of the call."""
        with lock:
            self.must("cuCtxSetCurrent", self.context)
            return self.cuda.cuMemcpyHtoD_v2(self.weights, self.content, ctypes.c_size_t(len(self.content)))

    def place(self):
        """Which of the machine's devices it is: the last byte of hostcuda's UUID."""
        uuid = ctypes.create_string_buffer(16)
        self.must("cuDeviceGetUuid_v2", uuid, 0)
        return uuid.raw[15]

    def count(self):
        with lock:
            self.must("cuCtxSetCurrent", self.context)
            found = ctypes.create_string_buffer(self.bytes)
            self.must("cuMemcpyDtoH_v2", found, self.address, ctypes.c_size_t(self.bytes))
            right = found.raw == bytes([self.value]) * self.bytes
            if self.content:
                found = ctypes.create_string_buffer(len(self.content))
                self.must("cuMemcpyDtoH_v2", found, self.weights, ctypes.c_size_t(len(self.content)))
                right = right and found.raw == self.content
            self.value = self.value % 250 + 1
            self.must("cuMemsetD8_v2", self.address, ctypes.c_ubyte(self.value), ctypes.c_size_t(self.bytes))
            self.must("cuCtxSynchronize")
            return right


class Handler(plain_server.Handler):
    def answer(self, status, body, kind="application/json"):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def have_no_end(self):
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(b"x")
            time.sleep(0.1)

    def do_GET(self):
        if self.path == "/health" and options.endless_health:
            options.endless_health = False
            self.have_no_end()
        elif self.path == "/health":
            ready = time.monotonic() - began >= options.start and not options.never_healthy
            self.answer(200 if ready else 503, "ok" if ready else "loading", "text/plain")
        elif self.path == "/write":
            self.answer(200, {"code": device.write_weights()})
        elif self.path == "/counts":
            self.answer(200, {**counts, **(prefixes.counts() if prefixes else {}), "asked": adapters.lists if adapters else 0})
        elif adapters and self.path == "/v1/models":
            self.answer(200, adapters.list())
            counts["lists"] += 1
        else:
            self.answer(200, {"path": self.path, "name": options.name, "headers": dict(self.headers)})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = adapters.post(self.path, body, lambda: self.connection.shutdown(socket.SHUT_RDWR)) if adapters else None
        if done:
            self.answer(*done)
            return
        with lock:
            counts["requests"] += 1
            counts["running"] += 1
            counts["most"] = max(counts["most"], counts["running"])
        self.runs, self.span = True, ""
        if options.spans and body[:1] == b"{":
            self.span = json.loads(body).get("id", "")
            with lock:
                self.note("+")
        try:
            self.complete(body)
        except (BrokenPipeError, ConnectionResetError):
            counts["cancelled"] += 1
        finally:
            self.end()

    def end(self):
        """The request runs no more. Called before the last bytes: whoever has those may send the next request at once."""
        with lock:
            counts["running"] -= self.runs
            if self.runs and self.span:
                self.note("-")
        self.runs = False

    def note(self, what):
        """One write, so that lines of all engines are whole; in the order of time for whoever sorts them."""
        with open(options.spans, "a", encoding="utf-8") as spans:
            spans.write(f"{time.monotonic_ns()} {what} {self.span}\n")

    def usage(self, asked):
        """As the request wishes: [prompt, completion]."""
        wanted = asked.get("tokens")
        return self.told if prefixes else {"usage": dict(zip(("prompt_tokens", "completion_tokens"), wanted))} if wanted else {}

    def perhaps_die(self, asked):
        """The whole answer is the system's now."""
        if asked.get("die_after"):
            os.kill(os.getpid(), signal.SIGKILL)

    def cut(self, kind, size):
        """An answer that ends too early: within an event, a length, or chunks."""
        event = json.dumps({"choices": [{"index": 0, "delta": {"content": "whole"}}]})
        text = f'data: {event}\n\ndata: {event[:9]}' if kind == "event" else '{"half": "' + "x" * size
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if kind == "event" else "application/json; charset=utf-8")
        if kind == "length":
            self.send_header("Content-Length", str(len(text) + 5))
        else:
            self.send_header("Transfer-Encoding", "chunked")
            text = f"{len(text):x}\r\n{text}\r\n"
        self.end_headers()
        self.wfile.write(text.encode())
        self.wfile.flush()
        self.close_connection = True

    def raw(self, status, headers, pieces, after=None, whole=True, dies=None, chunks=True, end="SIGKILL", head=None, times=1):
        """These pieces, characters for bytes; each further one when the file `after` with its number is there. Then the end, or a break: at once,
        or by the engine's death when the file `dies` is there: by a signal, by its own wish (exit), or after the connection (late). Without chunks
        nothing but the end of the connection says where the answer ends; head: these characters and none of our own; times: all pieces come so often."""
        pieces = pieces * times
        if head:
            self.wfile.write(head.encode("latin-1"))
        else:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if chunks:
                self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
        for i, piece in enumerate(pieces):
            while i and after and not os.path.exists(f"{after}{i}"):
                time.sleep(0.01)
            text = piece.encode("latin-1")
            self.wfile.write(f"{len(piece):x}\r\n".encode() + text + b"\r\n" if chunks and not head else text)
            self.wfile.flush()
        while dies and not os.path.exists(dies):
            time.sleep(0.01)
        if dies and end == "late":
            self.connection.shutdown(socket.SHUT_RDWR)
            time.sleep(0.02)
        if dies and end == "exit":
            os._exit(0)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if whole:
            self.end()
        if whole and chunks and not head:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def prove(self, asked, right, adapter):
        """An answer that only this engine, or this adapter in it, gives to this request, and whose client can compute it, too."""
        made = Answer((adapter or options.name) if right else "an engine whose memory is wrong", asked)
        until_close = asked.get("until_close")
        if not asked.get("stream") and not until_close:
            self.end()
            self.answer(200, made.whole())
            return
        self.close_connection = self.close_connection or until_close
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if asked.get("stream") else "application/json")
        if not until_close:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if not asked.get("stream"):
            body = json.dumps(made.whole()).encode()
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            if asked.get("die_half"):
                os.kill(os.getpid(), signal.SIGKILL)
            self.end()
            self.wfile.write(body[len(body) // 2:])
            return
        for i in range(made.count):
            if asked.get("die_at") == i:
                os.kill(os.getpid(), signal.SIGKILL)
            self.chunk(made.event(i), until_close)
            time.sleep(asked.get("token", options.token))
        self.chunk(made.usage_event(), until_close)
        self.end()
        self.wfile.write(b"data: [DONE]\n\n" if until_close else b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def chunk(self, event, plain=False):
        self.wfile.write((event if plain else f"{len(event):x}\r\n{event}\r\n").encode())
        self.wfile.flush()

    def complete(self, body):
        if self.headers.get("Content-Type", "").startswith("multipart/"):
            self.end()
            self.answer(200, {"name": options.name, "type": self.headers["Content-Type"], "form": body.decode("latin-1")})
            return
        asked = json.loads(body)
        refused, adapter = adapters.of(asked.get("model")) if adapters else (None, None)
        if refused:
            while asked.get("refuse_when") and not os.path.exists(asked["refuse_when"]):
                time.sleep(0.01)
            self.end()
            self.answer(*refused)
            return
        if options.journal:
            with open(options.journal, "a", encoding="utf-8") as journal:
                journal.write(f"{asked.get('id')}\n")
        if asked.get("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(asked.get("wait", 0))
        while asked.get("until") and not os.path.exists(asked["until"]):
            time.sleep(0.01)
        if prefixes:
            self.told = prefixes.take(asked)
        for i in range(asked.get("print", 0)):
            sys.stdout.write(f"line {i + asked.get('print_from', 0)} {'.' * 990}\n")
        sys.stdout.flush()
        memory = device.count() if device else None
        if asked.get("prove"):
            self.prove(asked, memory is not False, adapter)
            return
        if asked.get("raw"):
            self.raw(**asked["raw"])
            return
        if asked.get("cut"):
            self.cut(asked["cut"], asked.get("size", 0))
            while asked.get("dies") and not os.path.exists(asked["dies"]):
                time.sleep(0.01)
            if asked.get("dies"):
                os.kill(os.getpid(), signal.SIGKILL)
            return
        if not asked.get("stream"):
            self.end()
            self.answer(asked.get("status", 200), {**self.usage(asked), "pad": "x" * asked.get("pad", 0), "name": options.name, "adapter": adapter, "memory": memory, "gpu": device.place() if device else None, "pid": os.getpid(), "notify": os.environ.get("NOTIFY_SOCKET"), "path": self.path, "asked": asked,
                                                   "headers": dict(self.headers)})
            self.perhaps_die(asked)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(asked.get("max_tokens", 5)):
            if asked.get("die_at") == i:
                os.kill(os.getpid(), signal.SIGKILL)
            event = f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': f'{options.name}{i} ' + 'x' * asked.get('pad', 0)}}]})}\n\n"
            self.wfile.write(f"{len(event):x}\r\n{event}\r\n".encode())
            self.wfile.flush()
            time.sleep(asked.get("token", options.token))
        if asked.get("tokens") or prefixes:
            event = f"data: {json.dumps({'choices': [], **self.usage(asked)})}\n\n"
            self.wfile.write(f"{len(event):x}\r\n{event}\r\n".encode())
        self.end()
        self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        self.perhaps_die(asked)


if options.die_at_start:
    sys.exit(3)
device = Device(options.device_mb) if options.device_mb else None
prefixes = Prefixes(options.prefill, options.prefixes) if options.prefill is not None else None
adapters = Adapters(options.name, options.lora_slots, options.lora_journal) if options.lora_slots else None
for module in options.lora_modules:
    adapters.have(*module.split("=", 1))
signal.signal(signal.SIGTERM, signal.SIG_IGN if options.ignore_term else lambda *_: os._exit(0))
print(f"{options.name} listens on {options.port}, pid {os.getpid()}, gpus {os.environ.get('CUDA_VISIBLE_DEVICES', '-')}", flush=True)
plain_server.Server(("127.0.0.1", options.port), Handler).serve_forever()
