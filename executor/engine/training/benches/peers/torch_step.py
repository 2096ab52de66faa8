"""PyTorch's training steps on one thread, on request, so that a bench can alternate with it:

    $(scripts/ensure-torch) executor/engine/training/benches/peers/torch_step.py [--fused] [--channels-last]
    < run cnn 20 momentum
    > {"model": "cnn", "optimizer": "momentum", "loss": 2.3, "cpu_ns": [...], "wall_ns": [...]}

`run <model> <steps> [momentum|adam]` continues the previous run with the same arguments; the first
run begins with three steps that are not counted. `cpu_ns` is the CPU time of the whole process per
step. The first line of output is {"torch": version, "threads": 1}. The end of the input ends the
program.
"""

import argparse
import json
import sys
import time

import torch

import models

WARM_UP = 3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fused", action="store_true", help="PyTorch's fused optimizers, which a user has to ask for")
    parser.add_argument("--channels-last", action="store_true", help="images as NHWC, which a user has to ask for")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    say({"torch": torch.__version__, "threads": torch.get_num_threads()})
    ready = {}
    for line in sys.stdin:
        match line.split():
            case ["run", model, steps, *rest] if model in models.MODELS and steps.isdigit():
                optimizer = rest[0] if rest else "momentum"
                key = (model, optimizer)
                if key not in ready:
                    ready[key] = prepare(model, optimizer, options)
                say({"model": model, "optimizer": optimizer} | timed(ready[key], int(steps)))
            case _:
                say({"error": f"not a command: {line.strip()}"})


def prepare(model, optimizer, options):
    network, rule, inputs, targets = models.make(model, optimizer, fused=options.fused or None)
    if options.channels_last and inputs.dim() == 4:
        network, inputs = network.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
    for _ in range(WARM_UP):
        models.step(network, rule, inputs, targets)
    return network, rule, inputs, targets


def timed(prepared, steps):
    cpu, wall, loss = [], [], None
    for _ in range(steps):
        began, cpu_began = time.perf_counter_ns(), time.process_time_ns()
        loss = models.step(*prepared)
        cpu.append(time.process_time_ns() - cpu_began)
        wall.append(time.perf_counter_ns() - began)
    return {"loss": None if loss is None else loss.item(), "cpu_ns": cpu, "wall_ns": wall}


def say(line):
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
