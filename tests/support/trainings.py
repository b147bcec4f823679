"""Trainings on the real node: the queue that they run in, the repository that their code comes from, their logs."""

from jobs import Place

from torchctl.testing.node import LocalNode

__all__ = ["NAMESPACE", "SECRET", "log", "submit"]

NAMESPACE = "training"
SECRET = "git-authority"


async def submit(place: Place, name: str, url: str, command: str = "python ddp.py --steps=50", **spec: object) -> None:
    """Creates a job of two nodes, unless `spec` says otherwise, whose workspace is the repository."""
    workspace = {"source": "git", "url": url, "ref": "main", "secretRef": SECRET}
    await place.job(name, command=command, volumes={"workspace": workspace}, **spec)


async def log(node: LocalNode, job: str, *, index: int = 0, attempt: int = 0) -> str:
    """What a worker has printed so far."""
    selector = (
        f"--selector=torchrun.ai/job-name={job},torchrun.ai/attempt={attempt},"
        f"batch.kubernetes.io/job-completion-index={index}"
    )
    options = (f"--namespace={NAMESPACE}", "--tail=-1", "--container=trainer")
    return await node.control_plane.kubectl("logs", selector, *options)
