"""Networks of the benches, written as a user of PyTorch would write them, with the same inputs in
every step.

mlp   784-1024-1024-10, ReLU; batch 128.
cnn   28 × 28 × 1; twice 3×3 convolution with padding 1, ReLU, 2×2 max pooling (32, then 64
      channels); dense 128, ReLU; dense 10; batch 128.
lstm  embedding 256 of 256 tokens, one LSTM layer of 256, dense to 256 tokens; 64 steps, batch 32.
      The loss is over every token.
gpt   256 tokens, 128 learned positions, width 256, 4 blocks (layer norm, causal attention with 4
      heads, layer norm, dense 1024, GELU by tanh, dense 256; residuals), a last layer norm, a
      separate head without bias; batch 8. No dropout. The loss is over every token.
"""

import torch
import torch.nn.functional as F
from torch import nn



def mlp():
    layers = [nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)]
    return nn.Sequential(*layers)


def cnn():
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


class Lstm(nn.Module):
    def __init__(self, vocabulary=256, width=256):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, steps, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, -1)
        q, k, v = (part.view(batch, steps, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, steps, width)
        x = x + self.output(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary=256, steps=128, width=256, blocks=4, heads=4):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(steps, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        positions = self.positions.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(self.tokens(tokens) + positions)))


MODELS = {"mlp": mlp, "cnn": cnn, "lstm": Lstm, "gpt": Gpt}
INPUTS = {"mlp": (128, 1, 28, 28), "cnn": (128, 1, 28, 28), "lstm": (64, 32), "gpt": (8, 128)}


def make(model, optimizer, fused=None):
    """Returns the network, its optimizer, and one batch: inputs and targets."""
    torch.manual_seed(1)
    network = MODELS[model]()
    if optimizer == "momentum":
        rule = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, fused=fused)
    else:
        rule = torch.optim.Adam(network.parameters(), lr=0.001, fused=fused)
    shape = INPUTS[model]
    if len(shape) == 4:
        return network, rule, torch.rand(shape) - 0.5, torch.randint(10, shape[:1])
    return network, rule, torch.randint(256, shape), torch.randint(256, shape)


def step(network, rule, inputs, targets):
    """Runs one training step: forward, loss, backward, update."""
    rule.zero_grad()
    scores = network(inputs)
    loss = F.cross_entropy(scores.flatten(0, -2), targets.flatten())
    loss.backward()
    rule.step()
    return loss
