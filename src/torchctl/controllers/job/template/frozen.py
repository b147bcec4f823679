"""The frozen template: what a job runs with, whatever happens to its queue or to the operator afterwards.

It is made once from queue, job and settings (`render.py`), kept in a ControllerRevision named by its digest, and
every child is rendered from it. What depends on the attempt is not in it.
"""

from typing import Any

import msgspec

from torchctl.api.common import Distribution, RdzvBackend
from torchctl.api.job import HotReload, JobSpec, WorkspaceSource
from torchctl.controllers.gangs.kai import FrozenKai, FrozenTopology
from torchctl.controllers.gangs.kueue import FrozenKueue
from torchctl.controllers.gangs.native import FrozenNative
from torchctl.controllers.gangs.none import NoGangScheduler
from torchctl.controllers.gangs.scheduler import GangScheduler, PodGroupScheduler
from torchctl.controllers.gangs.volcano import FrozenVolcano
from torchctl.controllers.job.template.digest import seal

__all__ = [
    "FrozenCheckpoints",
    "FrozenElastic",
    "FrozenKai",
    "FrozenKueue",
    "FrozenNative",
    "FrozenRendezvous",
    "FrozenTemplate",
    "FrozenTopology",
    "FrozenVolcano",
    "FrozenWorkspace",
]


class FrozenWorkspace(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The claim `<job>-workspace`, what fills it, and how it reaches the workers (never `auto`)."""

    size: str
    access_modes: tuple[str, ...]
    storage_class: str = ""
    mount_path: str
    distribution: str
    source: str
    url: str = ""
    ref: str = ""
    secret: str = ""
    claim: str = ""
    sub_path: str = ""
    timeout_s: int
    receives: bool = False
    """Whether the sync pod takes an upload itself. False in templates of before 0.1.0: their image cannot."""
    packed: bool = False
    """Whether the sync pod keeps an upload as one file on the claim, because each worker has a copy of its own."""
    cache: str = ""
    """The claim that keeps uploaded files for later uploads."""
    pod: dict[str, Any] = {}
    """The queue's overlay of the sync pods: a pod template without keys of the operator."""

    @property
    def decides_place(self) -> bool:
        """Whether the pod that fills the claim decides on which nodes workers can run.

        Workers mount it, and only one node at a time can: such a volume may be bound to the node or the zone of its
        first pod. One that many nodes can mount is taken to be reachable from all of them, and a user's claim has its
        volume, whose place the scheduler knows.
        """
        mounted = self.distribution in (Distribution.SHARED, Distribution.COPY)
        many = {"ReadWriteMany", "ReadOnlyMany"} & set(self.access_modes)
        return mounted and not many and self.source != WorkspaceSource.EXISTING

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written to the claim."""
        return self.access_modes == ("ReadOnlyMany",)

    @property
    def uploaded(self) -> bool:
        """Whether a person has to bring the code."""
        return self.source == "zip" and not self.url


class FrozenCheckpoints(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The checkpoints claim: a shared one (`claim`), or one of the job's own."""

    mount_path: str
    claim: str = ""
    size: str = ""
    access_modes: tuple[str, ...] = ()
    storage_class: str = ""
    retain: bool = True


class FrozenRendezvous(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The rendezvous; an empty endpoint means worker 0 of the attempt. With `preflight` the workers ask first."""

    backend: str
    endpoint: str = ""
    conf: dict[str, str] = {}
    port: int
    preflight: bool = False


class FrozenElastic(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The fewest and the most nodes that the job may run on."""

    min_nodes: int
    max_nodes: int


class FrozenTemplate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Everything from which the children of a job are rendered.

    `pod` is the workers' pod template with the user's parts merged and canonical; what an attempt adds (names,
    addresses, labels) is not in it. A text that may be left out has the default "": whether another default is left
    out would depend on which of two equal texts it is, and the digest with it.
    """

    queue: str
    nodes: int
    elastic: FrozenElastic | None = None
    hot_reload: str = ""
    """How workers take up new code while they run; empty if they do not."""
    gpus_per_node: int = 0
    gpu_resource: str = ""
    nproc_per_node: int
    max_worker_restarts: int = 0
    queue_run_policy: dict[str, Any] = {}
    backend: str
    rendezvous: FrozenRendezvous
    cluster_domain: str
    operator_image: str
    workspace: FrozenWorkspace | None = None
    checkpoints: FrozenCheckpoints | None = None
    kai: FrozenKai | None = None
    volcano: FrozenVolcano | None = None
    native: FrozenNative | None = None
    kueue: FrozenKueue | None = None
    auto: bool = False
    """Whether the operator chose the gang scheduler, by what the cluster had when the template was made."""
    coordinated: bool = False
    """Whether the coordinator lets each attempt in."""
    pod: dict[str, Any]

    @property
    def gang_scheduler(self) -> GangScheduler:
        """The gang scheduler of the pods; one that asks for nothing if none makes them a gang."""
        return self.pod_groups or self.kueue or NoGangScheduler()

    @property
    def pod_groups(self) -> PodGroupScheduler | None:
        """The same if it knows gangs by PodGroups, else None."""
        return self.kai or self.volcano or self.native

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def launches(self) -> bool:
        """Whether the first process of each worker is a launcher, which takes up new code."""
        return bool(self.hot_reload) and HotReload(self.hot_reload).launches

    @property
    def max_nodes(self) -> int:
        """The most pods that the job can have."""
        return self.elastic.max_nodes if self.elastic else self.nodes

    @property
    def metadata(self) -> dict[str, dict[str, str]]:
        """The user's labels and annotations of the workers; the other children have some of them."""
        found: dict[str, dict[str, str]] = self.pod["metadata"]
        return found

    @property
    def min_nodes(self) -> int:
        """The fewest pods with which the job can train: all of them, unless it is elastic."""
        return self.elastic.min_nodes if self.elastic else self.nodes

    @property
    def meets_at_worker_0(self) -> bool:
        """Whether worker 0 hosts the store at which the others meet."""
        return self.rendezvous.backend == RdzvBackend.C10D and not self.rendezvous.endpoint

    def rank_of(self, index: int | None) -> int | None:
        """Returns the rank of a pod with one process if torchrun did not tell it; None if only torchrun knows.

        Static rendezvous takes the index, and so does the companion of a job that reloads its code. c10d sorts the
        workers' names as text (torch's dynamic_rendezvous), so worker 10 comes before worker 2; on the host's network
        they have no names of that order.
        """
        if index is None or index >= self.nodes or self.nproc_per_node != 1 or self.elastic:
            return None
        if self.rendezvous.backend == RdzvBackend.STATIC or self.launches:
            return index
        if self.rendezvous.backend == RdzvBackend.ETCD or self.pod["spec"].get("hostNetwork"):
            return None
        return sorted(range(self.nodes), key=lambda node: f"{node}.").index(index)

    def desired(self, spec: JobSpec) -> int:
        """Returns how many pods the job should have now, because numNodes of an elastic job may have changed."""
        return spec.num_nodes if self.elastic and spec.num_nodes is not None else self.nodes

    def data(self) -> dict[str, Any]:
        """The JSON form that a ControllerRevision holds."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    @classmethod
    def load(cls, data: dict[str, Any]) -> "FrozenTemplate":
        """Reads what `data` gave, also that of another operator version if only optional fields differ.

        Raises:
            msgspec.ValidationError: It is not such a template.
        """
        return msgspec.convert(data, cls)

    def digest(self) -> str:
        """Returns a name that equal templates share, in any process, and other templates do not (`digest.py`)."""
        return seal(self.data())
