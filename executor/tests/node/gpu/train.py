"""A training program without any support for Muster.

It trains on the GPU and writes a line for each step with the loss and a sum over every bit of its
weights. On SIGTERM it writes a checkpoint. Each run gives the same result.
"""

import os
import signal

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH = 4096, 256
LINES, KEPT = os.environ["LINES"], os.environ.get("KEPT", "")
# Size of weights, momentum and gradients together.
GIB = float(os.environ.get("GIB", "4"))
# Number of steps; 0 means no limit.
STEPS = int(os.environ.get("STEPS", "0"))

told = False


def on_term(*_):
    global told
    told = True


class Noise(Dataset):
    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        return torch.randn(SIDE, generator=torch.Generator().manual_seed(index))


def from_gpu(rank):
    generator = torch.Generator("cuda").manual_seed(11 + rank)
    while True:
        yield torch.randn(BATCH, SIDE, device="cuda", generator=generator)


def from_loader():
    """Batches from processes that are forked after this process has started to use the GPU."""
    loader = DataLoader(
        Noise(), batch_size=BATCH, shuffle=False, num_workers=2, pin_memory=True, multiprocessing_context="fork"
    )
    for batch in loader:
        yield batch.cuda(non_blocking=True)


def average(gradients):
    for gradient in gradients:
        whole = gradient.cpu()
        dist.all_reduce(whole)
        gradient.copy_(whole.div_(2))


def train(lines, batches, share):
    signal.signal(signal.SIGTERM, on_term)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(7)
    count = max(1, round(GIB * 2**30 / (3 * 4 * SIDE * SIDE)))
    weights = [torch.randn(SIDE, SIDE, device="cuda").mul_(0.02).requires_grad_() for _ in range(count)]
    momentum = [torch.zeros_like(weight) for weight in weights]
    batches = batches()
    step = 0
    with open(lines, "a", buffering=1) as out:
        while not told and (STEPS == 0 or step < STEPS):
            batch = next(batches)
            hidden = batch
            for weight in weights:
                hidden = hidden + 0.1 * torch.tanh(hidden @ weight)
            loss = (hidden - batch.roll(1, 1)).square().mean()
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                share(gradients)
                for weight, moving, gradient in zip(weights, momentum, gradients):
                    moving.mul_(0.9).add_(gradient)
                    weight.sub_(moving, alpha=0.05)
                total = sum(weight.view(torch.int32).sum(dtype=torch.int64) for weight in weights)
            step += 1
            out.write(f"{step} {loss.item().hex()} {total.item()}\n")
            if step == 1:
                print("up", flush=True)
    if told and KEPT:
        torch.save({"step": step, "weight": weights[0].detach().cpu()}, KEPT + ".new")
        os.replace(KEPT + ".new", KEPT)
        print(f"saved {step}", flush=True)


def rank(number, meeting):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=2)
    train(f"{LINES}.{number}", lambda: from_gpu(number), average)


if __name__ == "__main__":
    match os.environ.get("KIND", "alone"):
        case "alone":
            train(LINES, lambda: from_gpu(0), lambda _: None)
        case "loader":
            train(LINES, from_loader, lambda _: None)
        case "ranks":
            mp.spawn(rank, (LINES + ".meeting",), nprocs=2)
