"""Trains a small model on every worker of a TorchrunJob, with DistributedDataParallel; goes on from a checkpoint.

torchrun --nproc-per-node=2 ddp.py --steps=50
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch._dynamo  # before the process group is made: imported later, as DDP does, it keeps the group for ever
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--save-every", type=int, default=25)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step, as of a larger model")
    options = parser.parse_args()

    dist.init_process_group(os.environ.get("TORCHRUN_BACKEND", "nccl" if torch.cuda.is_available() else "gloo"))
    train(options.steps, options.save_every, options.pause)
    # The model, which holds the group too, is gone by now, so this ends gloo's threads. One that still let go of a
    # tensor while the interpreter ends would abort the process, and a finished training would count as failed.
    dist.destroy_process_group()


def train(steps: int, save_every: int, pause_s: float) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    print(f"rank {rank} of {world} on {device}, attempt {os.environ.get('TORCHRUN_ATTEMPT', '0')}", flush=True)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    checkpoint = checkpoint_path()
    first = load(checkpoint, model, device)
    trainer = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(trainer.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(rank)  # each worker has its own part of the data

    loss = torch.zeros((), device=device)
    for step in range(first, steps):
        inputs = torch.randn(64, 8, generator=data).to(device)
        loss = nn.functional.mse_loss(trainer(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step + 1) % save_every == 0:
            save(checkpoint, model, step + 1)
            print(f"saved step {step + 1}", flush=True)
        time.sleep(pause_s)

    dist.all_reduce(loss := loss.detach())
    if rank == 0:
        print(f"world size {world}, steps {first} to {steps}, loss {loss.item() / world:.4f}", flush=True)


def checkpoint_path() -> Path | None:
    directory = os.environ.get("TORCHRUN_CHECKPOINT_DIR")
    return Path(directory, "model.pt") if directory else None


def load(path: Path | None, model: nn.Module, device: torch.device) -> int:
    """Restores the model and returns the step to go on with."""
    if path is None or not path.exists():
        return 0
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    return int(state["step"])


def save(path: Path | None, model: nn.Module, step: int) -> None:
    """Replaces the checkpoint in one step, so that a worker killed while it writes leaves the last one whole."""
    if path is None:
        return
    unfinished = path.with_suffix(".tmp")
    torch.save({"model": model.state_dict(), "step": step}, unfinished)
    unfinished.replace(path)


if __name__ == "__main__":
    main()
