"""All-reduce of f32 by gloo over loopback between local processes, on request:

    $(scripts/ensure-torch) executor/engine/training/benches/peers/torch_allreduce.py [--workers 2] [--bytes 100000000]
    < run 5
    > {"workers": 2, "bytes": 100000000, "wall_ns": [...], "cpu_ns": ..., "algorithm_gb_per_second": ...}

Algorithm bandwidth is the tensor's bytes divided by the median time, as in NCCL's tests. Times are
those of rank 0, from a barrier to its result. `cpu_ns` is the CPU time of all workers and all
repetitions.
"""

import argparse
import functools
import statistics
import time

import torch
import torch.distributed as dist

import group


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=100_000_000)
    options = parser.parse_args()
    group.serve(options.workers, functools.partial(make, options.bytes))


def make(size, rank, workers):
    tensor = torch.empty(size // 4)

    def run(repetitions):
        cpu_began, times = time.process_time_ns(), []
        for _ in range(repetitions):
            tensor.fill_(rank + 1)
            dist.barrier()
            began = time.perf_counter_ns()
            dist.all_reduce(tensor)
            times.append(time.perf_counter_ns() - began)
            assert tensor[0] == tensor[-1] == workers * (workers + 1) / 2
        cpu = torch.tensor([time.process_time_ns() - cpu_began])
        dist.all_reduce(cpu)
        rate = size / statistics.median(times)
        return {"workers": workers, "bytes": size, "wall_ns": times, "cpu_ns": int(cpu), "algorithm_gb_per_second": rate}

    run(1)
    return run


if __name__ == "__main__":
    main()
