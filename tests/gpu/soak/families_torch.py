# SPDX-License-Identifier: Apache-2.0
"""Engines in plain PyTorch: quantized, sparse, compiled, recurrent, sorting, scattering, drawing random numbers."""
import torch
from families import Engine, draw_batches, draw_dtype, family, module, refill
from torch import nn
from torch.nn import functional as F


def import_all():
    import torch._dynamo  # noqa: F401
    import torch._inductor.compile_fx  # noqa: F401
    from torch.nn.attention import flex_attention  # noqa: F401


def dense(choose, device, dtype, width=None):
    width = width or choose.choice((64, 128, 256))
    batches = draw_batches(choose, 32)
    return width, batches, {"x": torch.zeros(max(batches), width, dtype=dtype, device=device)}


@family
def mlp(choose, device):
    dtype = draw_dtype(choose)
    width, batches, inputs = dense(choose, device, dtype)
    model = module(lambda: nn.Sequential(*[part for _ in range(choose.randint(1, 6)) for part in (
        nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width), nn.LayerNorm(width))]), dtype, device)
    return Engine({"model": model, "inputs": inputs}, {"run": lambda batch: model(inputs["x"][:batch])}, refill(inputs, {}), batches)


@family
def fp8(choose, device):
    width, batches, inputs = dense(choose, device, torch.bfloat16, choose.choice((128, 256)))
    weight = (torch.randn(width, width, device=device) * 0.1).to(torch.float8_e4m3fn)
    one = torch.ones((), device=device)

    def run(batch):
        x = inputs["x"][:batch].clamp(-8, 8).to(torch.float8_e4m3fn)
        return torch._scaled_mm(x, weight.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    return Engine({"weight": weight, "one": one, "inputs": inputs}, {"run": run}, refill(inputs, {}), [16, 32][:choose.randint(1, 2)])


@family
def int8(choose, device):
    width, _, _ = dense(choose, device, torch.float32)
    batches = [32, 64]
    inputs = {"x": torch.zeros(64, width, dtype=torch.float32, device=device)}
    weight = torch.randint(-127, 128, (width, width), device=device).to(torch.int8)
    scale = torch.rand(width, device=device)

    def run(batch):
        x = inputs["x"][:batch]
        step = x.abs().amax(-1, keepdim=True) / 127
        return torch._int_mm((x / step).round().to(torch.int8), weight).float() * step * scale

    return Engine({"weight": weight, "scale": scale, "inputs": inputs}, {"run": run}, refill(inputs, {}), batches)


@family
def int4_unpacked(choose, device):
    """Weights of four bits, unpacked in the graph by plain operations, with group scales."""
    width, batches, inputs = dense(choose, device, torch.bfloat16, 256)
    packed = torch.randint(0, 256, (width, width // 2), dtype=torch.uint8, device=device)
    scales = torch.rand(width, width // 64, device=device).to(torch.bfloat16)

    def run(batch):
        low, high = (packed & 15).to(torch.bfloat16) - 8, (packed >> 4).to(torch.bfloat16) - 8
        weight = torch.stack([low, high], -1).view(width, width // 64, 64) * scales[:, :, None]
        return inputs["x"][:batch] @ weight.view(width, width).t()

    return Engine({"packed": packed, "scales": scales, "inputs": inputs}, {"run": run}, refill(inputs, {}), batches)


@family
def sparse24(choose, device):
    if device == "cpu":
        return mlp(choose, device)
    from torch.sparse import to_sparse_semi_structured

    width, _, _ = dense(choose, device, torch.float16)
    mask = torch.tensor([0, 0, 1, 1], device=device).tile((width, width // 4)).bool()
    weight = to_sparse_semi_structured((torch.randn(width, width, device=device).half() * mask))
    batches = [64, 128]
    inputs = {"x": torch.zeros(128, width, dtype=torch.float16, device=device)}
    return Engine({"weight": weight, "inputs": inputs}, {"run": lambda batch: F.linear(inputs["x"][:batch], weight)},
                  refill(inputs, {}), batches)


def recurrent(kind):
    def make(choose, device):
        dtype = draw_dtype(choose, "float32", "float16")
        width, batches, steps = choose.choice((32, 64, 128)), draw_batches(choose, 8), choose.choice((4, 9))
        model = module(lambda: kind(width, width, choose.randint(1, 2), batch_first=True), dtype, device)
        inputs = {"x": torch.zeros(max(batches), steps, width, dtype=dtype, device=device)}
        return Engine({"model": model, "inputs": inputs}, {"run": lambda batch: model(inputs["x"][:batch])[0]},
                      refill(inputs, {}), batches)

    return make


for kind in (nn.LSTM, nn.GRU, nn.RNN):
    made = recurrent(kind)
    made.__name__ = kind.__name__.lower()
    family(made)


@family
def compiled(choose, device):
    dtype = draw_dtype(choose, "bfloat16", "float32")
    width, batches, inputs = dense(choose, device, dtype)
    model = module(lambda: nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width), nn.RMSNorm(width)),
                   dtype, device)
    run = torch.compile(model, dynamic=False) if device != "cpu" else model
    return Engine({"model": model, "inputs": inputs}, {"run": lambda batch: run(inputs["x"][:batch])}, refill(inputs, {}), batches[:2])


@family
def flex(choose, device):
    if device == "cpu":
        return attention(choose, device)
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    batches, window = draw_batches(choose, 4, 2), choose.choice((16, 32))
    mask = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < window), None, None, 128, 128, device=device)
    run = torch.compile(flex_attention, dynamic=False)
    inputs = {name: torch.zeros(max(batches), 2, 128, 64, dtype=torch.bfloat16, device=device) for name in "qkv"}

    def call(batch):
        return run(inputs["q"][:batch], inputs["k"][:batch], inputs["v"][:batch], block_mask=mask)

    return Engine({"mask": mask, "inputs": inputs}, {"attend": call}, refill(inputs, {}), batches)


@family
def attention(choose, device):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    dtype, batches = draw_dtype(choose, "bfloat16", "float16"), draw_batches(choose, 8)
    backends = [SDPBackend.MATH] if device == "cpu" else [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION,
                                                          SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION]
    backend, length, head = choose.choice(backends), choose.choice((33, 64, 128)), choose.choice((64, 128))
    inputs = {name: torch.zeros(max(batches), 4, length, head, dtype=dtype, device=device) for name in "qkv"}

    def call(batch):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(*(inputs[name][:batch] for name in "qkv"), is_causal=True)

    return Engine({"inputs": inputs}, {"attend": call}, refill(inputs, {}), batches)


@family
def paged(choose, device):
    """Attention over pages that a block table names: indices decide what is read."""
    dtype, batches = draw_dtype(choose, "bfloat16", "float32"), draw_batches(choose, 8)
    pages, size, table = choose.choice((16, 32)), 8, 4
    keys, values = (torch.zeros(pages, size, 4, 32, dtype=dtype, device=device) for _ in range(2))
    inputs = {"q": torch.zeros(max(batches), 4, 32, dtype=dtype, device=device),
              "blocks": torch.zeros(max(batches), table, dtype=torch.int32, device=device),
              "lengths": torch.zeros(max(batches), dtype=torch.int32, device=device)}

    def call(batch):
        blocks = inputs["blocks"][:batch].long()
        k, v = (cache[blocks].flatten(1, 2).transpose(1, 2) for cache in (keys, values))
        mask = torch.arange(table * size, device=device) < inputs["lengths"][:batch, None]
        return F.scaled_dot_product_attention(inputs["q"][:batch, :, None], k, v, mask[:, None, None])

    given = refill(inputs, {"blocks": (0, pages), "lengths": (1, table * size)})

    def fill(numbers):
        given(numbers)
        keys.normal_(0, 1, generator=numbers)
        values.normal_(0, 1, generator=numbers)

    return Engine({"kv": [keys, values], "inputs": inputs}, {"attend": call}, fill, batches)


@family
def sampler(choose, device):
    """Top-k, sort, cumulative sums, gather: a sampler without random numbers."""
    vocabulary, batches = choose.choice((1000, 5000)), draw_batches(choose, 16)
    inputs = {"logits": torch.zeros(max(batches), vocabulary, device=device),
              "noise": torch.zeros(max(batches), vocabulary, device=device)}

    def call(batch):
        logits = inputs["logits"][:batch]
        values, order = logits.sort(dim=-1, descending=True, stable=True)
        kept = values.softmax(-1).cumsum(-1) < 0.9
        masked = torch.full_like(logits, -1e9).scatter(1, order, torch.where(kept, values, -1e9))
        return (masked + inputs["noise"][:batch]).argmax(-1), logits.topk(5).indices

    return Engine({"inputs": inputs}, {"sample": call}, refill(inputs, {}), batches)


@family
def bags(choose, device):
    """Embedding bags and segment sums: a recommender."""
    rows, width, batches = 1000, choose.choice((16, 64)), draw_batches(choose, 16)
    table = torch.randn(rows, width, device=device)
    net = module(lambda: nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1)), torch.float32, device)
    inputs = {"ids": torch.zeros(max(batches), 10, dtype=torch.int64, device=device)}
    return Engine({"table": table, "net": net, "inputs": inputs},
                  {"score": lambda batch: net(F.embedding_bag(inputs["ids"][:batch], table, mode="mean"))},
                  refill(inputs, {"ids": (0, rows)}), batches)


@family
def scattered(choose, device):
    """Sums by atomics: not the same bits in every replay unless the rows are apart."""
    batches, rows = draw_batches(choose, 16), choose.choice((4, 64))
    inputs = {"x": torch.zeros(max(batches), 256, device=device),
              "where": torch.zeros(max(batches), 256, dtype=torch.int64, device=device)}

    def call(batch):
        return torch.zeros(batch, rows, device=device).scatter_add_(1, inputs["where"][:batch], inputs["x"][:batch])

    return Engine({"inputs": inputs}, {"sum": call}, refill(inputs, {"where": (0, rows)}), batches)


@family
def random_numbers(choose, device):
    width, batches, inputs = dense(choose, device, torch.float32)
    given = refill(inputs, {})

    def fill(numbers):
        given(numbers)
        torch.manual_seed(numbers.initial_seed())  # the graph draws from the default generator

    return Engine({"inputs": inputs}, {"draw": lambda batch: F.dropout(inputs["x"][:batch], 0.25, True) + 0}, fill, batches)


@family
def linear_algebra(choose, device):
    """Batched products, triangular solves and norms (cuBLAS; pointer arrays in some)."""
    side, batches = choose.choice((8, 32, 48)), draw_batches(choose, 16)
    inputs = {"a": torch.zeros(max(batches), side, side, device=device), "b": torch.zeros(max(batches), side, 3, device=device)}
    eye = torch.eye(side, device=device)

    def call(batch):
        lower = inputs["a"][:batch].tril() * 0.05 + 2 * eye
        return torch.linalg.solve_triangular(lower, inputs["b"][:batch], upper=False), torch.baddbmm(lower, lower, lower)

    return Engine({"eye": eye, "inputs": inputs}, {"solve": call}, refill(inputs, {}), batches)


@family
def cache_of_its_own(choose, device):
    """A model with buffers that it writes itself: running statistics, a ring buffer, counters."""
    width, batches, inputs = dense(choose, device, torch.float32)
    ring, count = torch.zeros(8, width, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    weight = torch.randn(width, width, device=device) * 0.1

    def call(batch):
        x = inputs["x"][:batch] @ weight
        ring.index_copy_(0, count % 8, x.mean(0, keepdim=True))
        count.add_(1)
        return x + ring.mean(0)

    given = refill(inputs, {})

    def fill(numbers):
        given(numbers)
        ring.normal_(0, 1, generator=numbers)
        count.random_(0, 100, generator=numbers)

    return Engine({"ring": ring, "count": count, "weight": weight, "inputs": inputs}, {"run": call}, fill, batches, [ring, count])


@family
def side_streams(choose, device):
    width, batches, inputs = dense(choose, device, torch.float32)
    weights = [torch.randn(width, width, device=device) * 0.1 for _ in range(3)]
    streams = [torch.cuda.Stream() for _ in weights] if device != "cpu" else []

    def call(batch):
        x = inputs["x"][:batch]
        if not streams:
            return sum(x @ weight for weight in weights)
        main, parts = torch.cuda.current_stream(), []
        for stream, weight in zip(streams, weights):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                parts.append(torch.relu(x @ weight))
        for stream in streams:
            main.wait_stream(stream)
        return parts[0] + parts[1] + parts[2]

    return Engine({"weights": weights, "inputs": inputs}, {"run": call}, refill(inputs, {}), batches)


@family
def complex_numbers(choose, device):
    side, batches = choose.choice((16, 40)), draw_batches(choose, 8)
    inputs = {"x": torch.zeros(max(batches), side, 2, device=device)}
    weight = torch.view_as_complex(torch.randn(side, side, 2, device=device))

    def call(batch):
        return torch.view_as_real(torch.view_as_complex(inputs["x"][:batch]) @ weight)

    return Engine({"weight": weight, "inputs": inputs}, {"rotate": call}, refill(inputs, {}), batches)


@family
def graph_network(choose, device):
    """Message passing over fixed edges: index_select and ordered segment sums."""
    nodes, degree, width, batches = 64, 4, 32, draw_batches(choose, 8)
    edges = torch.randint(0, nodes, (nodes, degree), device=device)
    layers = nn.ModuleList(module(lambda: nn.Linear(2 * width, width), torch.float32, device) for _ in range(3))
    inputs = {"x": torch.zeros(max(batches), nodes, width, device=device)}

    def call(batch):
        x = inputs["x"][:batch]
        for layer in layers:
            gathered = x[:, edges.flatten()].view(batch, nodes, degree, width).amax(2)
            x = torch.tanh(layer(torch.cat([x, gathered], -1)))
        return x

    return Engine({"edges": edges, "layers": layers, "inputs": inputs}, {"pass": call}, refill(inputs, {}), batches)
