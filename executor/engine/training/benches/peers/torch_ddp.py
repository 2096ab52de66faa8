"""Data-parallel training of the CNN by PyTorch's DistributedDataParallel over gloo, with one thread
per worker, on request:

    $(scripts/ensure-torch) executor/engine/training/benches/peers/torch_ddp.py [--workers 2] [--batch 128]
    < run 20
    > {"workers": 2, "batch": 128, "steps": 20, "wall_ns": ..., "cpu_ns": ..., "images_per_second": ...}

The batch is that of each worker. Time is measured from barrier to barrier; `cpu_ns` is the CPU time
of all workers.
"""

import argparse
import functools
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import group
import models


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    options = parser.parse_args()
    group.serve(options.workers, functools.partial(make, options.batch))


def make(batch, rank, workers):
    network, rule, inputs, targets = models.make("cnn", "momentum")
    network, inputs, targets = DistributedDataParallel(network), inputs[:batch], targets[:batch]
    assert len(inputs) == batch, "at most 128"

    def run(steps):
        dist.barrier()
        began, cpu_began = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(steps):
            models.step(network, rule, inputs, targets)
        cpu = torch.tensor([time.process_time_ns() - cpu_began])
        dist.barrier()
        wall = time.perf_counter_ns() - began
        dist.all_reduce(cpu)
        rate = workers * batch * steps / (wall / 1e9)
        return {"workers": workers, "batch": batch, "steps": steps, "wall_ns": wall, "cpu_ns": int(cpu), "images_per_second": rate}

    run(3)
    return run


if __name__ == "__main__":
    main()
