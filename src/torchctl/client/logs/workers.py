"""Workers as their logs show them: which node of the job each is, and which ranks run on it. Pure.

A rank is shown only if it is known:

- With the static rendezvous worker i is node i, and with the launcher of a job that reloads its code, which gives
  out the ranks by the index.
- With c10d torchrun sorts the workers by their address, which is the full name of the pod's host
  (torch.distributed.elastic, `_NodeDesc` and `_mark_rendezvous_complete`). The names differ in the index only and are
  sorted as text, so with more than ten workers index 10 comes before 2. That holds for a fixed number of workers with
  names of their own.
- An elastic job has another order in each world, etcd-v2 the order in which workers come. There the node is shown.
- Rank = node's rank * ranks of a node + local rank. torchrun's own prefix `[default0]:` and torch's `[rank3]:` tell the
  rank of a line; without one, it is known only on nodes with a single rank.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from torchctl.api.casing import camel
from torchctl.api.kube import ContainerStatus
from torchctl.api.labels import attempt_of
from torchctl.api.names import LAUNCHER_ROOT, TRAINER
from torchctl.runtime.kinds import Kind, ObjectMeta

__all__ = ["WORKER", "Worker", "WorkerPod", "label", "numbered", "ranks_in", "worker"]

INDEX = "batch.kubernetes.io/job-completion-index"

_OWN_RANKS = re.compile(r"--nproc[-_]per[-_]node|--nnodes|--node[-_]rank|--standalone")
"""Options of a torchrun in the user's own line that overrule the environment."""
_GLOBAL = re.compile(r"\[rank(\d{1,9})\]:")
"""torch's prefix of a rank's tracebacks and log."""
_LOCAL = re.compile(r"\[default(\d{1,9})\]:")
"""torchrun's prefix of what it hands on (--tee), with the name of its default role."""


class EnvView(msgspec.Struct, frozen=True, gc=False, rename=camel):
    name: str = ""
    value: str = ""


class ContainerView(msgspec.Struct, frozen=True, gc=False, rename=camel):
    name: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[EnvView, ...] | None = None


class WorkerSpec(msgspec.Struct, frozen=True, gc=False, rename=camel):
    node_name: str = ""
    host_network: bool = False
    containers: tuple[ContainerView, ...] = ()


class WorkerStatus(msgspec.Struct, frozen=True, gc=False, rename=camel):
    phase: str = ""
    container_statuses: tuple[ContainerStatus, ...] | None = None


class WorkerPod(msgspec.Struct, frozen=True, gc=False, rename=camel):
    """A worker's pod, with what its ranks are derived from."""

    metadata: ObjectMeta
    spec: WorkerSpec = WorkerSpec()
    status: WorkerStatus = WorkerStatus()


WORKER = Kind("", "v1", "Pod", "pods", WorkerPod)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker of a job.

    Attributes:
        pod: Name of its pod.
        uid: The pod's.
        machine: Name of the Kubernetes node.
        attempt: The attempt that it belongs to.
        index: Its index, which is the number of the node in the job.
        node_rank: torchrun's rank of the node; None if it is unknown.
        ranks: The number of ranks on it; None if it is unknown.
        nodes: The number of nodes of the job; None if it is unknown or changes.
        has_started: Its trainer runs or has run, so it has a log.
        has_ended: Its trainer will write nothing more.
    """

    pod: str
    uid: str
    machine: str = ""
    attempt: int = 0
    index: int = 0
    node_rank: int | None = None
    ranks: int | None = None
    nodes: int | None = None
    has_started: bool = False
    has_ended: bool = False

    def runs(self, rank: int) -> bool:
        """Tells if a rank is known to run on it."""
        return self.node_rank is not None and self.ranks is not None and rank // self.ranks == self.node_rank


def worker(pod: WorkerPod) -> Worker:
    """Reads a pod."""
    meta = pod.metadata
    trainer = next((each for each in pod.spec.containers if each.name == TRAINER), ContainerView())
    given = {each.name: each.value for each in trainer.env or ()}
    index = int(meta.annotations.get(INDEX) or meta.labels.get(INDEX) or 0)
    has_started, has_ended = _progress(pod)
    argv = " ".join((*(trainer.command or ()), *(trainer.args or ())))
    knows = not _OWN_RANKS.search(argv)
    by_index = given.get("PET_RDZV_BACKEND") == "static" or LAUNCHER_ROOT in argv
    ranks, nodes = given.get("PET_NPROC_PER_NODE", ""), given.get("PET_NNODES", "")
    return Worker(
        pod=meta.name,
        uid=meta.uid,
        machine=pod.spec.node_name,
        attempt=attempt_of(meta.labels),
        index=index,
        node_rank=_node_rank(index, given, by_index=by_index, is_own_host=not pod.spec.host_network) if knows else None,
        ranks=_number(ranks) if knows else None,
        nodes=_number(nodes) if knows else None,
        has_started=has_started,
        has_ended=has_ended,
    )


def label(worker: Worker, line: str) -> str:
    """Returns the prefix of a line: the rank that wrote it if that is known, else the node."""
    rank = _rank(worker, line)
    return f"node {worker.index}" if rank is None else f"rank {rank}"


def numbered(workers: Iterable[Worker], rank: int) -> list[Worker]:
    """Returns the workers on which a rank runs, as far as is known: one an attempt."""
    return [each for each in workers if each.runs(rank)]


def ranks_in(workers: Iterable[Worker]) -> int:
    """Returns how many ranks a job has, by what its workers say; 0 if it is unknown."""
    return max(((each.ranks or 0) * (each.nodes or 0) for each in workers), default=0)


def _rank(worker: Worker, line: str) -> int | None:
    if found := _GLOBAL.match(line):
        return int(found.group(1))
    if worker.node_rank is None or worker.ranks is None:
        return None
    found = _LOCAL.match(line)
    local = int(found.group(1)) if found else 0 if worker.ranks == 1 else None
    return None if local is None or local >= worker.ranks else worker.node_rank * worker.ranks + local


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and int(text) else None


def _node_rank(index: int, given: Mapping[str, str], *, by_index: bool, is_own_host: bool) -> int | None:
    nodes = given.get("PET_NNODES", "")
    if not nodes.isdecimal():
        return None  # elastic, or no torchrun
    if nodes == "1" or by_index:
        return index
    if given.get("PET_RDZV_BACKEND") != "c10d" or not is_own_host:
        return None
    return sorted(range(int(nodes)), key=_as_in_a_name).index(index) if index < int(nodes) else None


def _as_in_a_name(index: int) -> str:
    """Sorts indexes as hosts sort whose names are `<job>-<index>.<job>`."""
    return f"{index}."


def _progress(pod: WorkerPod) -> tuple[bool, bool]:
    state = next((each.state for each in pod.status.container_statuses or () if each.name == TRAINER), None)
    if state is None:
        return False, pod.status.phase in ("Succeeded", "Failed")
    has_ended = state.terminated is not None
    return state.running is not None or has_ended, has_ended or pod.status.phase in ("Succeeded", "Failed")
