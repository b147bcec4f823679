"""Stands for a user's training whose code changes while it runs: it notes its first step and goes on for ever."""

import json
import os
import time

TEXT = "one"
begun = time.time()

import torch  # noqa: E402  # its import is timed
import torch.distributed as dist  # noqa: E402  # as torch itself
from torch import nn  # noqa: E402  # as torch itself
from torch.nn.parallel import DistributedDataParallel  # noqa: E402  # as torch itself

imported = time.time()


def note(**what: object) -> None:
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps({"text": TEXT, "rank": dist.get_rank(), "pid": os.getpid(), **what}) + "\n")


def main() -> None:
    dist.init_process_group("gloo")
    joined = time.time()
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        optimizer.zero_grad()
        model(torch.randn(16, 8)).sum().backward()
        optimizer.step()
        step += 1
        if step == 1:
            times = {"begun": begun, "imported": imported, "joined": joined, "stepped": time.time()}
            random = torch.rand(1).item()
            note(
                **times, world=dist.get_world_size(), random=random, threads=torch.get_num_threads(), ppid=os.getppid()
            )
        time.sleep(0.02)


main()
