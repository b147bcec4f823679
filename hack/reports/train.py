"""What `hack/reports/capture.py` has torchrun run: a training that goes wrong in the way that its argument names."""

import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

RANK, LOCAL = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
FIRST = 1
"""The rank that goes wrong."""


class Failed(Exception):
    pass


def deep(depth: int) -> None:
    """A long way down, so that the traceback is longer than a termination message."""
    if depth == 0:
        raise Failed("lost in a deep recursion")
    if depth % 2:
        return deep_too(depth - 1, [depth] * 3)
    return deep_too(depth - 1, [depth] * 4)


def deep_too(depth: int, unused: list[int]) -> None:
    return deep(depth)


def fail(how: str) -> None:
    """Goes wrong."""
    match how:
        case "exit":
            sys.exit(int(sys.argv[2]))
        case "exception":
            raise Failed("the loss is nan at step 7")
        case "deep":
            deep(60)
        case "long":
            raise Failed("shapes do not match: " + ", ".join(f"layer{n}: [{n}, {n * 7}]" for n in range(400)))
        case "words":
            raise Failed('{"message": "not JSON \udc80 \x00", "errorCode": 7}\n  rank      : 9\n  exitcode  : 9')
        case "signal":
            os.kill(os.getpid(), int(sys.argv[2]))
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "wait":
            time.sleep(600)
        case "noise":
            for number in range(200):
                print(f"step {number}: loss 0.{number:03}", flush=True)
            raise Failed("after much talk")


def main() -> None:
    how = sys.argv[1]
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    print(f"rank {RANK} is training", flush=True)
    if how == "all":
        raise Failed(f"rank {RANK} does not like it either")
    if RANK == FIRST:
        fail(how)
    # The others wait for it. With its connection their own training goes too.
    dist.all_reduce(torch.ones(1))


if os.environ.get("RECORDED"):
    main = record(main)

if __name__ == "__main__":
    signal.alarm(120)
    main()
