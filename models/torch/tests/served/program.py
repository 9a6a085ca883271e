# SPDX-License-Identifier: Apache-2.0
"""The stand-in's `transformers serve`: program.py MODE ARTIFACT SOCKET [NAME=VALUE...]; device and C side are fakes."""
import http.server
import os
import pickle
import signal
import socket
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
mode, path, listening = sys.argv[1:4]
settings = types.SimpleNamespace(**{"num_blocks": None, "max_batch_tokens": 16, "q_padding_interval_size": 4,
                                    "varlen_compile_config": None, "decode_compile_config": None})
options = dict(word.split("=") for word in sys.argv[4:])
settings.cuda_graph_booleans = (options.get("graphs") != "0",) * 2

import torch  # noqa: E402
from fakes import Cuda, Graph, Library  # noqa: E402
from medusa import _api  # noqa: E402
from medusa.torch import continuous_batching, live  # noqa: E402

device = Cuda()
computes = {}  # what a restored graph computes, by its handle


class CSide(Library):
    def present(self):
        return self.mode_name != "none"

    def mark(self, name):
        print("mark", name, flush=True)
        if name == "ready" and self.mode_name == "capture":
            for forward in asked:  # which memory they hand to each other is found by replays
                forward()
        if name == "complete" and self.mode_name == "capture":
            print("refused", self.refused, flush=True)
            with open(path, "wb") as file:
                pickle.dump(self.artifact, file)
            os._exit(0)  # as the command ends a server

    def kv_capacity(self, key, block_bytes, utilization, callback, most=None):
        known = self.artifact.get("kv", [None])[0] == key
        if not known and callback.pointer(None):
            raise _api.Error(_api.INVALID, "the profile failed")
        blocks = self.artifact["kv"][1] if known else most.value // block_bytes
        self.artifact["kv"] = key, blocks
        return types.SimpleNamespace(bytes=blocks * block_bytes, blocks=blocks, from_profile=int(known)), ""

    def graph_get(self, label, batch, timeout_ns):
        super().graph_get(label, batch, timeout_ns)
        print("restored", label, batch, flush=True)
        computes[len(computes) + 1] = asked[-1]
        return len(computes)


def run(recorder, forward, before_capture, original=live.Recorder.run):
    captured = original(recorder, forward, before_capture)
    captured.graph.again = forward
    return captured


def make(attached, forward, original=continuous_batching.ContinuousBatching._make):
    asked.append(forward)
    if options.get("fail") == "graph":
        raise RuntimeError("the adapter fails")
    return original(attached, forward)


asked = []
live.Recorder.run, continuous_batching.ContinuousBatching._make = run, make
if options.get("fail") == "ready":
    continuous_batching.ContinuousBatching.ready = lambda attached: 1 / 0
    continuous_batching.ContinuousBatching.close = lambda attached: print("closed", flush=True)
device.launch = lambda graph, stream: computes[graph.value]() or 0
device.patch().__enter__()
stream_of = torch.cuda.stream
torch.cuda.stream = lambda stream: stream_of(stream or device.current)
torch.cuda.empty_cache = lambda: None
if mode != "none":
    with open(path, "rb") if mode == "restore" else open(os.devnull, "rb") as stored:
        artifact = pickle.load(stored) if mode == "restore" else {}
    CSide(mode, artifact).patch().__enter__()

from transformers.cli.serving import utils  # noqa: E402

from transformers.cli.serving import server  # noqa: E402
from transformers.generation.continuous_batching import ContinuousBatchingManager  # noqa: E402


class Configuration:
    def __init__(self, body):
        self.values = {"do_sample": None, "temperature": body.get("temperature"), "repetition_penalty": body.get("repetition_penalty"),
                       "max_new_tokens": body.get("max_tokens", 1024)}

    def to_dict(self):
        return dict(self.values)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.embed, self.head, self.dtype = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50, bias=False), torch.float32
        self.config = types.SimpleNamespace(_attn_implementation="sdpa", vocab_size=50, to_dict=lambda: {"hidden": 8})
        self.config.get_text_config = lambda: self.config
        self.generation_config = None

    def init_continuous_batching(self, generation_config=None, continuous_batching_config=None):
        return ContinuousBatchingManager(self, generation_config, continuous_batching_config)


class ChatHandler:
    def _resolve_model(self, body):
        return "model@main", model, None

    def _build_generation_config(self, body, model_generation_config, use_cb=False):
        return Configuration(body)

    def handle_request(self, body):
        manager = state.get_manager("model@main", use_cb=True)
        early = manager._cb is not None
        manager.init_cb(model, self._build_generation_config(body, None, use_cb=True))
        tokens = manager.generate(body["ids"], body.get("max_tokens", 6))
        return {"tokens": tokens, "blocks": manager._cb.batch_processor.model_runner.cache.num_blocks, "early": early}


model = Model().eval()
state = utils.GenerationState(options.get("batching") != "0", settings)
models = types.SimpleNamespace(force_model=options.get("model", "model") or None, get_model_modality=lambda model, processor=None: "LLM")
handler = server.build_server(models, ChatHandler(), generation_state=state)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background has it ignored
print("serving", flush=True)
answering = http.server.HTTPServer(("127.0.0.1", 0), handler)
answering.socket.close()
answering.socket = socket.socket(fileno=int(listening))
answering.serve_forever()
