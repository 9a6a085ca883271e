# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 in fp32 with cuDNN, written out: its workspaces come and go, so the caching allocator has much to decide."""
import torch_common as common
from torch_common import torch

check = common.Check("torch_resnet")
common.need_gpu()
if not torch.backends.cudnn.is_available():
    common.skip("PyTorch has no cuDNN here")
torch.backends.cudnn.benchmark = False  # its choice depends on timing: graph and eager could differ
nn = torch.nn
SIDE = 224


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.path = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after))
        self.short = nn.Sequential()
        if stride != 1 or before != after:
            self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.path(x) + self.short(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(before, width, stride if i == 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


torch.manual_seed(5)
model = resnet50().eval().cuda()
image = torch.zeros(max(common.BATCHES), 3, SIDE, SIDE, device="cuda")


@torch.no_grad()
def classify(batch):
    return model(image[:batch])


def fill(seed):
    image.copy_(torch.randn(image.shape, generator=torch.Generator().manual_seed(seed)))


graphs = check.graphs({"model": model, "inputs": {"image": image}})
steps = {batch: check.get(graphs, "decode", batch, lambda batch=batch: classify(batch)) for batch in common.BATCHES}
graphs.ready()
for batch, step in steps.items():
    for seed in (1, 2):
        fill(seed)
        expected = classify(batch).clone()
        check.same(f"decode/{batch}.{seed}", step.replay().clone(), expected)
check.expect("all")
check.finish()
