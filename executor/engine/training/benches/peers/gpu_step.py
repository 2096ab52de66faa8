"""Training steps in bf16 on a GPU, written as a user of PyTorch would write them.

`gpu_step.py MODEL eager|compiled WARM STEPS` prints the milliseconds of each step.

resnet18    18 layers for 224 × 224 × 3 and 1,000 classes, channels last, batch 256.
lstm        embedding 1,024 of 10,000 tokens, one LSTM layer of 1,024 (cuDNN's), dense to 10,000;
            128 steps, batch 128.
gpt2-small  124 million parameters, 1,024 positions, fused attention, tied scores, no dropout,
            batch 8.
Each step copies its batch from pinned memory, like the engine's side. SGD with momentum 0.9.
Autocast to bf16, f32 parameters.
"""

import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Basic(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.one = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)])
        self.around = None
        if stride != 1 or before != channels:
            self.around = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = F.relu(self.norms[0](self.one(x)))
        y = self.norms[1](self.two(y))
        return F.relu(y + (x if self.around is None else self.around(x)))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for channels in (64, 128, 256, 512):
        layers += [Basic(before, channels, 1 if channels == 64 else 2), Basic(channels, channels, 1)]
        before = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10_000, 1024)
        self.lstm = nn.LSTM(1024, 1024, batch_first=True)
        self.scores = nn.Linear(1024, 10_000)

    def forward(self, x):
        return self.scores(self.lstm(self.table(x))[0])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50_257, 768), nn.Embedding(1024, 768)
        self.blocks = nn.Sequential(*[Block(768, 12) for _ in range(12)])
        self.norm = nn.LayerNorm(768)

    def forward(self, x):
        y = self.tokens(x) + self.places.weight[: x.shape[1]]
        return F.linear(self.norm(self.blocks(y)), self.tokens.weight)


def main():
    name, how, warm, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    if name == "resnet18":
        model, inputs, targets = resnet18(), torch.randn(256, 3, 224, 224), torch.randint(1000, (256,))
        model, inputs = model.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
    elif name == "lstm":
        model, inputs, targets = Lstm(), torch.randint(10_000, (128, 128)), torch.randint(10_000, (128, 128))
    else:
        model, inputs, targets = Gpt(), torch.randint(50_257, (8, 1024)), torch.randint(50_257, (8, 1024))
    model, inputs, targets = model.cuda(), inputs.pin_memory(), targets.pin_memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    run = torch.compile(model) if how == "compiled" else model
    for step in range(warm + steps):
        torch.cuda.synchronize()
        began = time.perf_counter()
        x, t = inputs.cuda(non_blocking=True), targets.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = run(x)
            loss = F.cross_entropy(scores.flatten(0, -2), t.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()
        if step >= warm:
            print((time.perf_counter() - began) * 1e3, flush=True)


main()
