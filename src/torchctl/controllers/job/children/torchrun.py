"""The environment by which torchrun in one worker finds the others, for every rendezvous backend.

All of it is environment (each option of torchrun has a PET_ twin), so that a torchrun in the user's own line
finds it too. The endpoint is worker 0 by its fully qualified name: TorchElastic decides once, at start, by
resolving that name, which worker hosts the store, and only the full name is in the hosts file that the kubelet
writes; a short name loses a race with DNS, and then nobody hosts it.
"""

import re
from dataclasses import dataclass
from typing import Any

from torchctl.api import names
from torchctl.api.common import RdzvBackend
from torchctl.controllers.job.children.containers import field
from torchctl.controllers.job.template.frozen import FrozenTemplate

__all__ = ["Rendezvous", "defaults", "environment", "hosts_by_index", "nnodes", "rendezvous"]

_IP = "status.podIP"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_WITH_PORT = re.compile(r":[0-9]+$")
_HOSTED = (RdzvBackend.C10D, RdzvBackend.STATIC)
"""Backends whose store lives in a worker."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The meeting point of the workers of one attempt."""

    endpoint: str
    id: str
    master: str
    port: int


def rendezvous(template: FrozenTemplate, job: str, namespace: str, uid: str, attempt: int) -> Rendezvous:
    """Returns the meeting point of an attempt's workers: the user's endpoint, or one made of the job's names."""
    settings = template.rendezvous
    child = names.worker_job(job, attempt)
    host = names.master_host(child, job, namespace, template.cluster_domain)
    default = settings.port if settings.backend in _HOSTED else names.ETCD_PORT
    endpoint = settings.endpoint or host
    if not _WITH_PORT.search(endpoint):
        endpoint = f"{endpoint}:{default}"
    master, _, port = endpoint.rpartition(":") if settings.backend in _HOSTED else (host, "", str(settings.port))
    return Rendezvous(endpoint, names.rendezvous_id(uid, attempt), master, int(port))


def environment(
    template: FrozenTemplate, job: str, namespace: str, uid: str, attempt: int, *, checkpoints: str = ""
) -> list[dict[str, Any]]:
    """The operator's part of a worker's environment, in the order in which a user's `$(NAME)` may refer to it."""
    meeting = rendezvous(template, job, namespace, uid, attempt)
    backend, conf = template.rendezvous.backend, _conf(template)
    nodes = nnodes(template)
    values = {
        "PET_NNODES": nodes,
        "PET_NPROC_PER_NODE": str(template.nproc_per_node),
        "PET_RDZV_BACKEND": backend,
        "PET_RDZV_ENDPOINT": meeting.endpoint,
        "PET_RDZV_ID": meeting.id,
        "PET_RDZV_CONF": ",".join(f"{key}={value}" for key, value in sorted(conf.items())),
        "PET_MAX_RESTARTS": str(template.max_worker_restarts),
        "NNODES": nodes,
        "NPROC_PER_NODE": str(template.nproc_per_node),
        "MASTER_ADDR": meeting.master,
        "MASTER_PORT": str(meeting.port),
        "TORCHRUN_JOB_NAME": job,
        "TORCHRUN_JOB_ID": uid,
        "TORCHRUN_ATTEMPT": str(attempt),
        "TORCHRUN_BACKEND": template.backend,
        "TORCHRUN_CHECKPOINT_DIR": checkpoints,
        "TORCHELASTIC_ERROR_FILE": _termination_log(template),
    }
    fields = {"POD_IP": _IP, "NODE_RANK": INDEX}
    if template.pod["spec"].get("hostNetwork"):
        fields["PET_LOCAL_ADDR"] = _IP  # the node's name, which torchrun would tell the others, is in no DNS of theirs
    if backend == RdzvBackend.STATIC:
        fields["PET_NODE_RANK"] = INDEX
        values |= {"PET_MASTER_ADDR": meeting.master, "PET_MASTER_PORT": str(meeting.port)}
    return [
        *(field(name, path) for name, path in fields.items()),
        *({"name": name, "value": value} for name, value in values.items() if value),
    ]


def _conf(template: FrozenTemplate) -> dict[str, str]:
    """The settings of the rendezvous. Workers of c10d wait for its store as long as for their peers.

    torch gives the store 60 s (c10d_rendezvous_backend, read_timeout) and the peers 600 s (join_timeout): if worker 0
    pulled its image for longer than that minute, the others would exit 1, as if the program had failed.
    """
    conf = template.rendezvous.conf
    if template.rendezvous.backend != RdzvBackend.C10D or nnodes(template) == "1":
        return conf
    return {"read_timeout": conf.get("join_timeout", "600")} | conf


def nnodes(template: FrozenTemplate) -> str:
    """Returns torchrun's --nnodes; for an elastic job `min:max`, whatever its number of nodes is now."""
    elastic = template.elastic
    return f"{elastic.min_nodes}:{elastic.max_nodes}" if elastic else str(template.nodes)


def defaults(template: FrozenTemplate) -> dict[str, str]:
    """Variables that users may set otherwise."""
    # A survivor's cached store address makes a replacement of its peer wait for ever (torch 2.13).
    alone = {} if nnodes(template) == "1" else {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"} | alone


def hosts_by_index(backend: str, endpoint: str, conf: dict[str, str], *, host_network: bool) -> bool:
    """Whether is_host has to be given: on the host's network a pod finds itself in no hosts file."""
    return host_network and backend == RdzvBackend.C10D and not endpoint and "is_host" not in conf


def _termination_log(template: FrozenTemplate) -> str:
    """Returns the path at which the kubelet reads the trainer's termination message."""
    trainer = template.pod["spec"]["containers"][0]
    return str(trainer.get("terminationMessagePath", "/dev/termination-log"))
