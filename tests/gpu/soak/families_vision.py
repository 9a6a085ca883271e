# SPDX-License-Identifier: Apache-2.0
"""Vision, sound and diffusion: convolutions (cuDNN), windows, transforms (cuFFT), resampling."""
import torch
from families import Engine, draw_batches, draw_dtype, family, module, refill
from torch import nn
from torch.nn import functional as F


def import_all():
    import torchvision  # noqa: F401
    import transformers

    transformers.logging.set_verbosity_error()
    for name in TRANSFORMERS:
        transformers.AutoModel._model_mapping.get(type(transformers.AutoConfig.for_model(name)), None)


TORCHVISION = ("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "densenet121", "squeezenet1_1",
               "shufflenet_v2_x1_0", "regnet_y_400mf", "convnext_tiny", "swin_t", "vit_b_16", "alexnet", "vgg11", "googlenet",
               "mnasnet0_5")
TRANSFORMERS = {
    "vit": {"image_size": 64, "patch_size": 16}, "deit": {"image_size": 64, "patch_size": 16},
    "dinov2": {"image_size": 56, "patch_size": 14}, "beit": {"image_size": 64, "patch_size": 16},
    "clip_vision_model": {"image_size": 64, "patch_size": 16}, "siglip_vision_model": {"image_size": 64, "patch_size": 16},
}


def see(choose, device, make, size):
    dtype = draw_dtype(choose, "float32", "float32", "float16", "bfloat16")
    model, batches = module(make, dtype, device), draw_batches(choose, 8)
    image = torch.zeros(max(batches), 3, size, size, dtype=dtype, device=device)
    if choose.random() < 0.5:
        model, image = model.to(memory_format=torch.channels_last), image.to(memory_format=torch.channels_last)
    inputs = {"image": image}

    def call(batch):
        result = model(inputs["image"][:batch])
        return result if isinstance(result, torch.Tensor) else result.last_hidden_state

    return Engine({"model": model, "inputs": inputs}, {"see": call}, refill(inputs, {}), batches)


def register():
    for name in TORCHVISION:
        def make(choose, device, name=name):
            import torchvision

            options = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
            size = 224 if name == "vit_b_16" else choose.choice((64, 96))
            return see(choose, device, lambda: getattr(torchvision.models, name)(weights=None, **options), size)

        make.__name__ = name
        family(make)
    for name, options in TRANSFORMERS.items():
        def make(choose, device, name=name, options=options):
            import transformers

            width = choose.choice((64, 128, 192))
            config = transformers.AutoConfig.for_model(name, hidden_size=width, num_hidden_layers=choose.randint(2, 4),
                                                       num_attention_heads=width // 32, intermediate_size=2 * width, **options)
            return see(choose, device, lambda: transformers.AutoModel.from_config(config), options["image_size"])

        make.__name__ = name.replace("_model", "")
        family(make)


register()


class Block(nn.Module):
    def __init__(self, width, time):
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(3))
        self.one, self.two = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(time, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, time):
        y = self.one(F.silu(self.norms[0](x))) + self.time(time)[:, :, None, None]
        x = x + self.two(F.silu(self.norms[1](y)))
        rows = self.norms[2](x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(rows).chunk(3, -1)
        return x + self.out(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]).transpose(1, 2).view_as(x)


class Unet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.time = nn.Linear(64, 128)
        self.first, self.last = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.down = nn.ModuleList(Block(width, 128) for _ in range(depth))
        self.shrink = nn.ModuleList(nn.Conv2d(width, width, 3, stride=2, padding=1) for _ in range(depth))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(width, width, 4, stride=2, padding=1) for _ in range(depth))
        self.up = nn.ModuleList(Block(width, 128) for _ in range(depth))

    def forward(self, x, steps):
        rates = torch.exp(torch.arange(32, device=x.device) * -0.25)
        angles = steps.float()[:, None] * rates
        time = F.silu(self.time(torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype)))
        x, held = self.first(x), []
        for block, shrink in zip(self.down, self.shrink):
            x = block(x, time)
            held.append(x)
            x = shrink(x)
        for block, grow in zip(self.up, self.grow):
            x = block(grow(x) + held.pop(), time)
        return self.last(x)


@family
def diffusion(choose, device):
    dtype, batches = draw_dtype(choose), draw_batches(choose, 4)
    size, depth, width = choose.choice((16, 32)), choose.randint(1, 2), choose.choice((32, 64))
    model = module(lambda: Unet(width, depth), dtype, device)
    inputs = {"noise": torch.zeros(max(batches), 4, size, size, dtype=dtype, device=device),
              "steps": torch.zeros(max(batches), dtype=torch.int64, device=device)}

    def denoise(batch):
        noise = inputs["noise"][:batch]
        return noise - 0.1 * model(noise, inputs["steps"][:batch])

    return Engine({"model": model, "inputs": inputs}, {"denoise": denoise}, refill(inputs, {"steps": (0, 1000)}), batches)


@family
def sound(choose, device):
    """Spectra by cuFFT, a small network on them, and sound again."""
    batches, length = draw_batches(choose, 8), choose.choice((1024, 1600, 2048, 1536))
    window = choose.choice((128, 200, 256))
    net = module(lambda: nn.Sequential(nn.Linear(window // 2 + 1, 64), nn.GELU(), nn.Linear(64, window // 2 + 1)),
                 torch.float32, device)
    hann = torch.hann_window(window, device=device)
    inputs = {"sound": torch.zeros(max(batches), length, device=device)}

    def clean(batch):
        framed = inputs["sound"][:batch].unfold(1, window, window // 2) * hann
        spectra = torch.fft.rfft(framed)
        return torch.fft.irfft(spectra * torch.sigmoid(net(spectra.abs())), n=window)

    return Engine({"net": net, "hann": hann, "inputs": inputs}, {"clean": clean}, refill(inputs, {}), batches)


@family
def waves(choose, device):
    """Two- and three-dimensional transforms of lengths with several prime factors."""
    batches, sides = draw_batches(choose, 8), (choose.choice((12, 30, 49, 64)), choose.choice((16, 21, 50, 128)))
    inputs = {"field": torch.zeros(max(batches), *sides, device=device)}
    weight = torch.randn(*sides, device=device)

    def convolve(batch):
        return torch.fft.ifft2(torch.fft.fft2(inputs["field"][:batch]) * torch.fft.fft2(weight)).real

    return Engine({"weight": weight, "inputs": inputs}, {"convolve": convolve}, refill(inputs, {}), batches)


@family
def detector(choose, device):
    """Sampling, resizing, pooling, sorting: what detection models do besides convolutions."""
    dtype, batches = draw_dtype(choose, "float32", "float16"), draw_batches(choose, 4)
    body = module(lambda: nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.Hardswish(), nn.Conv2d(32, 64, 3, 2, 1),
                                        nn.BatchNorm2d(64), nn.Mish(), nn.Conv2d(64, 64, 3, 1, 1, groups=64)), dtype, device)
    grid = (torch.rand(max(batches), 9, 9, 2, device=device) * 2 - 1).to(dtype)
    inputs = {"image": torch.zeros(max(batches), 3, 64, 64, dtype=dtype, device=device)}

    def detect(batch):
        features = body(inputs["image"][:batch])
        large = F.interpolate(features, scale_factor=2, mode="bilinear", align_corners=False)
        picked = F.grid_sample(large, grid[:batch], align_corners=False)
        scores, order = picked.flatten(2).amax(1).sort(dim=-1, descending=True, stable=True)
        return scores, order, F.adaptive_avg_pool2d(features, 3), F.max_pool2d(features, 2)

    return Engine({"body": body, "grid": grid, "inputs": inputs}, {"detect": detect}, refill(inputs, {}), batches)


@family
def speech(choose, device):
    """One-dimensional convolutions and a Conformer-like block."""
    dtype, batches, width = draw_dtype(choose), draw_batches(choose, 8), choose.choice((64, 128))
    front = module(lambda: nn.Sequential(nn.Conv1d(1, width, 10, 5), nn.GELU(), nn.Conv1d(width, width, 3, 2), nn.GELU()), dtype, device)
    deep = module(lambda: nn.Conv1d(width, width, 7, padding=3, groups=width), dtype, device)
    layer = module(lambda: nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True), dtype, device)
    inputs = {"sound": torch.zeros(max(batches), 1, choose.choice((800, 1000, 1600)), dtype=dtype, device=device)}

    def hear(batch):
        x = front(inputs["sound"][:batch])
        return layer((x + F.silu(deep(x))).transpose(1, 2).contiguous())

    return Engine({"front": front, "deep": deep, "layer": layer, "inputs": inputs}, {"hear": hear}, refill(inputs, {}), batches)
