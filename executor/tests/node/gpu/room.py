"""Allocates all free GPU memory except the given bytes, and keeps it until its input ends."""

import sys

import torch

free, _ = torch.cuda.mem_get_info()
taken = torch.empty(free - int(sys.argv[1]), dtype=torch.uint8, device="cuda")
taken.fill_(1)
torch.cuda.synchronize()
print(taken.numel(), flush=True)
sys.stdin.read()
