"""All-reduce by gloo through PyTorch. Rank 0 prints the seconds of each round."""

import os
import sys
import time

import torch
import torch.distributed as dist

floats, rounds = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group(
    "gloo",
    init_method="file://" + os.environ["MEETING"],
    rank=int(os.environ["RANK"]),
    world_size=int(os.environ["WORLD_SIZE"]),
)
values = torch.ones(floats)
for _ in range(rounds):
    values.fill_(1.0)
    dist.barrier()
    began = time.perf_counter()
    dist.all_reduce(values)
    took = time.perf_counter() - began
    if dist.get_rank() == 0:
        print(took, flush=True)
assert float(values[floats - 1]) == dist.get_world_size()
dist.barrier()
# Otherwise gloo's threads can outlive the interpreter, which then aborts.
dist.destroy_process_group()
