# SPDX-License-Identifier: Apache-2.0
"""Stand-in: static inputs, graphs by size, made when a batch first needs them; one request at a time."""
import torch

INTERVAL, MOST_READ = 4, 64


class CudaGraphBuffer:
    def __init__(self):
        self.storage = {}


class ContinuousBatchingIOs:
    def __init__(self, cache):
        self.cache, self.graphs, self.use_block_table, self.compute_stream = cache, CudaGraphBuffer(), False, None
        most = cache.max_batch_tokens
        self._bulk_input_tensor = torch.zeros(2, most, dtype=torch.int32)
        self.input_ids, self.logits_indices = self._bulk_input_tensor[0], self._bulk_input_tensor[1, :1]
        self.write_index = torch.zeros(most, dtype=torch.int64)
        self.read_index = torch.zeros(MOST_READ, dtype=torch.int64)
        self.output_ids = torch.zeros(1, dtype=torch.int32)
        self.num_q_tokens = 0

    def prepare(self, ids, first, padded):
        self.num_q_tokens = padded
        self.input_ids.zero_()
        self.write_index.fill_(self.cache.write_trash_index)
        self.read_index.zero_()
        self.input_ids[: len(ids)] = torch.tensor(ids, dtype=torch.int32)
        places = 8 + first + torch.arange(len(ids))
        self.write_index[: len(ids)] = places
        self.read_index[: first + len(ids)] = 8 + torch.arange(first + len(ids))
        self.logits_indices.fill_(len(ids) - 1)

    def _get_graph_key(self):
        return (self.num_q_tokens, MOST_READ)

    def get_graph(self):
        return self.graphs.storage.get(self._get_graph_key())

    def set_graph(self, graph):
        self.graphs.storage[self._get_graph_key()] = graph


class ModelRunner:
    own_graphs = 0

    def __init__(self, settings, cache, ios, logit_processor):
        self.cb_config, self.cache, self.inputs_and_outputs, self.logit_processor = settings, cache, ios, logit_processor
        self.do_sample = self.return_logprobs = False
        self.use_cuda_graph_varlen = settings.cuda_graph_booleans[0]

    def compute_batch(self, model):
        graph, size = self.inputs_and_outputs.get_graph(), self.inputs_and_outputs.num_q_tokens
        if not self.use_cuda_graph_varlen:
            self._forward(model, size)
        elif graph is not None:
            graph.replay()
        else:
            self._capture_graph(self._forward, None, model, size)

    def _capture_graph(self, forward_fn, compute_stream, *args):
        forward_fn(*args)
        ModelRunner.own_graphs += 1
        graph = type("Graph", (), {"replay": lambda self: forward_fn(*args), "reset": lambda self: None})()
        self.inputs_and_outputs.set_graph(graph)

    @torch.no_grad()
    def _forward(self, model, size):
        ios, tokens = self.inputs_and_outputs, self.cache.tokens
        new = model.embed(ios.input_ids[:size])
        tokens.index_copy_(0, ios.write_index[:size], new)
        # As on a device, an index that is valid for a larger batch alone ends everything.
        last = new[int(ios.logits_indices[0])]
        past = tokens[ios.read_index].sum(0)
        ios.output_ids[0] = torch.argmax(self.logit_processor.scale * model.head(last + past)).int()

    def run_one_warmup(self, model, num_q_tokens, max_kv_read):
        try:
            self.inputs_and_outputs.prepare([0] * num_q_tokens, 0, -(-num_q_tokens // INTERVAL) * INTERVAL)
            self.compute_batch(model)
        except Exception as error:
            print(f"Failed to warm up: {error}", flush=True)
        return 0.0

    def warmup(self, model):
        self.run_one_warmup(model, num_q_tokens=self.cache.max_batch_tokens, max_kv_read=0)
