"""Kueue's queues and Workloads as tests write and read them."""

from dataclasses import dataclass
from typing import Any

from waiting import until

from torchctl.api.kube import JOB, POD
from torchctl.runtime.client.client import Client
from torchctl.runtime.kinds import Kind, PartialObject

__all__ = [
    "GPU",
    "LINUX",
    "PRIORITY_CLASS",
    "QUEUE_NAME",
    "URGENT",
    "WORKLOAD",
    "Quota",
    "a_priority_class",
    "an_owner",
    "condition",
]

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
WORKLOAD = Kind(GROUP, VERSION, "Workload", "workloads", PartialObject)
CLUSTER_QUEUE = Kind(GROUP, VERSION, "ClusterQueue", "clusterqueues", PartialObject, namespaced=False)
LOCAL_QUEUE = Kind(GROUP, VERSION, "LocalQueue", "localqueues", PartialObject)
FLAVOR = Kind(GROUP, VERSION, "ResourceFlavor", "resourceflavors", PartialObject, namespaced=False)
PRIORITY_CLASS = Kind(
    GROUP, VERSION, "WorkloadPriorityClass", "workloadpriorityclasses", PartialObject, namespaced=False
)
OWNER = Kind("", "v1", "ConfigMap", "configmaps", PartialObject)

PATIENCE_S = 120.0
"""How long Kueue, the garbage collector and nodes may take together; the collector hears of new kinds every 30 s."""

GPU = "nvidia.com/gpu"
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
PRIORITY_NAME = "kueue.x-k8s.io/priority-class"
URGENT = {PRIORITY_NAME: "urgent"}
"""The label of a Job that preempts others."""


LINUX = {"kubernetes.io/os": "linux"}
"""The node labels of each flavor."""


def a_priority_class() -> dict[str, Any]:
    """The WorkloadPriorityClass of urgent Jobs."""
    return {
        "apiVersion": PRIORITY_CLASS.api_version,
        "kind": PRIORITY_CLASS.kind,
        "metadata": {"name": URGENT[PRIORITY_NAME]},
        "value": 1000,
    }


def condition(workload: dict[str, Any], type_: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition; empty if there is none."""
    found = workload.get("status", {}).get("conditions", [])
    return next(((one["status"], one["reason"], one["message"]) for one in found if one["type"] == type_), ("", "", ""))


async def an_owner(admin: Client, namespace: str) -> dict[str, Any]:
    """The owner reference to an object that is made for it."""
    made = await admin.create(OWNER, {"metadata": {"name": "owner", "namespace": namespace}})
    return {
        "apiVersion": OWNER.api_version,
        "kind": OWNER.kind,
        "name": "owner",
        "uid": made.metadata.uid,
        "controller": True,
    }


@dataclass(frozen=True)
class Quota:
    """A namespace whose LocalQueue `train` has a ClusterQueue and a ResourceFlavor of its own.

    Attributes:
        creator: The client of the field manager that creates Jobs.
        owner: The owner reference of Jobs, to an object of a kind that Kueue does not know.
    """

    admin: Client
    creator: Client
    namespace: str
    owner: dict[str, Any]

    @property
    def cluster_queue(self) -> str:
        return self.namespace

    async def create(self, *, gpus: int) -> None:
        meta = {"name": self.namespace}
        flavor = {"nodeLabels": LINUX, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
        await self.admin.create(FLAVOR, _object(FLAVOR, meta, flavor))
        await self.admin.create(CLUSTER_QUEUE, _object(CLUSTER_QUEUE, meta, self._quota(gpus)))
        await self.local_queue("train")

    async def local_queue(self, name: str) -> None:
        """Makes one that Kueue has seen: before that, its webhook takes nothing for it."""
        meta = {"name": name, "namespace": self.namespace}
        body = _object(LOCAL_QUEUE, meta, {"clusterQueue": self.cluster_queue})
        await self.admin.create(LOCAL_QUEUE, body)

        async def seen() -> bool:
            return condition(await self.admin.get_raw(LOCAL_QUEUE, name, self.namespace), "Active")[0] != ""

        await until(seen, timeout_s=PATIENCE_S)

    async def resize(self, *, gpus: int) -> None:
        """Changes the quota of GPUs."""
        await self.change(**self._quota(gpus))

    async def change(self, **spec: Any) -> None:
        """Changes the ClusterQueue."""
        await self.admin.merge_patch(CLUSTER_QUEUE, self.cluster_queue, {"spec": spec})

    def _quota(self, gpus: int) -> dict[str, Any]:
        amounts = {"cpu": 1000, "memory": "10Ti", "ephemeral-storage": "10Ti", GPU: gpus}
        resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
        groups = [{"coveredResources": list(amounts), "flavors": [{"name": self.namespace, "resources": resources}]}]
        return {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": groups,
        }

    async def workloads(self, job: str) -> list[dict[str, Any]]:
        """The Workloads of a Job, or of a pod, that are not finished, the oldest first."""
        every = await self.admin.list_raw(WORKLOAD, namespace=self.namespace)
        return [one for one in every if _owner(one) == job and condition(one, "Finished")[0] != "True"]

    async def workload(self, job: str) -> dict[str, Any]:
        """The one Workload of a Job, once there is one."""

        async def look() -> list[dict[str, Any]]:
            return await self.workloads(job)

        (found,) = await until(look, timeout_s=PATIENCE_S)
        return found

    async def told(self, job: str, type_: str, status: str, reason: str = "", words: str = "") -> dict[str, Any]:
        """A Workload of the Job, once a condition is told so."""

        async def look() -> dict[str, Any] | None:
            for one in await self.workloads(job):
                seen = condition(one, type_)
                if seen[0] == status and reason in ("", seen[1]) and words in seen[2]:
                    return one
            return None

        found = await until(look, timeout_s=PATIENCE_S)
        assert found is not None
        return found

    async def admitted(self, job: str) -> dict[str, Any]:
        return await self.told(job, "Admitted", "True")

    async def activate(self, job: str, active: bool) -> None:
        """Pauses the Workload of a Job, or lets it go on."""
        name = (await self.workload(job))["metadata"]["name"]
        await self.admin.merge_patch(WORKLOAD, name, {"spec": {"active": active}}, namespace=self.namespace)

    async def job(self, name: str) -> dict[str, Any]:
        return await self.admin.get_raw(JOB, name, self.namespace)

    async def pods(self, job: str) -> list[dict[str, Any]]:
        """The pods of a Job that are not being deleted."""
        return [one for one in await self._all_pods(job) if "deletionTimestamp" not in one["metadata"]]

    async def _all_pods(self, job: str) -> list[dict[str, Any]]:
        chosen = f"batch.kubernetes.io/job-name={job}"
        return list(await self.admin.list_raw(POD, namespace=self.namespace, labels=chosen))

    async def leaving(self, job: str) -> list[dict[str, Any]]:
        """The Job's pods, once all that it has are being deleted."""
        pods: list[dict[str, Any]] = []

        async def look() -> bool:
            pods[:] = await self._all_pods(job)
            return bool(pods) and all("deletionTimestamp" in one["metadata"] for one in pods)

        await until(look, timeout_s=PATIENCE_S)
        return pods

    async def running(self, job: str, count: int) -> list[dict[str, Any]]:
        """The Job's pods, once so many run and there is no other."""
        pods: list[dict[str, Any]] = []

        async def look() -> bool:
            pods[:] = await self.pods(job)
            return [one["status"]["phase"] for one in pods] == ["Running"] * count

        await until(look, timeout_s=PATIENCE_S)
        return pods

    async def clear(self) -> None:
        """Deletes all Jobs and waits until their pods are gone."""
        for kind in (JOB, POD):
            await self.admin.delete_collection(kind, namespace=self.namespace)

        async def none_left() -> bool:
            return not await self.admin.list(POD, namespace=self.namespace)

        await until(none_left, timeout_s=PATIENCE_S)


def _owner(workload: dict[str, Any]) -> str:
    owners = workload["metadata"].get("ownerReferences", [])
    return next((owner["name"] for owner in owners if owner.get("controller")), "")


def _object(kind: Kind[Any], metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
