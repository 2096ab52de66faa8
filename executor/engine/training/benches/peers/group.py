"""Local processes that communicate by gloo over loopback and read commands from the standard input
of rank 0."""

import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def serve(workers, make):
    """Starts the processes. `make(rank, workers)` returns each one's function from a count to a dict
    of figures. For each input line `run <count>` all functions run, and rank 0 prints its dict as
    JSON. The end of the input ends the processes. The first line of output is
    {"torch": version, "workers": n}."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        others = mp.start_processes(worker, (workers, f"file://{folder}/meet", make), workers - 1, join=False, start_method="spawn")
        worker(workers - 1, workers, f"file://{folder}/meet", make)
        others.join()


def worker(index, workers, meet, make):
    # The process with the standard input has the last index, and rank 0.
    rank = (index + 1) % workers
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=workers)
    run = make(rank, workers)
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "workers": workers}), flush=True)
    while (count := next_count(rank)) > 0:
        figures = run(count)
        if rank == 0:
            print(json.dumps(figures), flush=True)
    dist.destroy_process_group()


def next_count(rank):
    """Next count of the input; 0 at its end."""
    count = torch.zeros(1, dtype=torch.int64)
    while rank == 0 and (line := sys.stdin.readline()):
        match line.split():
            case ["run", number] if number.isdigit() and int(number) > 0:
                count[0] = int(number)
                break
            case _:
                print(json.dumps({"error": f"not a command: {line.strip()}"}), flush=True)
    dist.broadcast(count, 0)
    return int(count[0])
