"""Trains a small network with PyTorch's DistributedDataParallel, as torchrun starts such scripts, and logs to MLflow.

It knows nothing of Muster: it reads torchrun's variables, resumes from its own newest checkpoint, and writes one when it is told to stop.
"""

import argparse
import os
import pathlib
import signal
import time

import mlflow
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def checkpoint(path, model, optimizer, step):
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--checkpoint-dir", type=pathlib.Path, default=pathlib.Path("checkpoints"))
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps, to look at it")
    options = parser.parse_args()

    asked = {"to_stop": False}
    signal.signal(signal.SIGTERM, lambda *_: asked.update(to_stop=True))
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    inputs = torch.randn(4096, 32)
    targets = (inputs @ torch.randn(32, 10)).argmax(dim=1)
    network = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = 0
    path = options.checkpoint_dir / "newest.pt"
    if path.exists():
        state = torch.load(path)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    print(f"rank {rank} of {world} begins at step {first}", flush=True)

    if rank == 0:
        mlflow.set_experiment("examples")
        mlflow.start_run()
        mlflow.log_params({"steps": options.steps, "lr": 0.1})
    for step in range(first + 1, options.steps + 1):
        rows = torch.randint(0, len(inputs), (64,), generator=torch.Generator().manual_seed(step * world + rank))
        loss = torch.nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # Whoever was told first, all stop at the same step.
        stop = torch.tensor([float(asked["to_stop"])])
        dist.all_reduce(stop)
        if rank == 0 and step % 5 == 0:
            mlflow.log_metric("train_loss", loss.item(), step=step)
        if stop.item() > 0:
            if rank == 0:
                checkpoint(path, model, optimizer, step)
                print(f"stopped with a checkpoint of step {step}", flush=True)
            dist.barrier()
            return
        time.sleep(options.pause)
    if rank == 0:
        checkpoint(path, model, optimizer, options.steps)
        mlflow.end_run()
    print(f"rank {rank} is done after step {options.steps}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
