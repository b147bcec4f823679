"""torchctl as its manifests deploy it: two replicas under a service account of their own."""

from waiting import until

from torchctl.runtime.client.client import Client
from torchctl.runtime.kinds import LEASE
from torchctl.testing.node import LocalNode

NAMESPACE = "torchctl-system"


async def test_the_other_replica_leads_once_the_leader_is_deleted(operator: LocalNode, admin: Client) -> None:
    kubectl = operator.control_plane.kubectl
    first = await holder(admin)
    pods = (await kubectl("get", "pods", f"--namespace={NAMESPACE}", "--output=name")).split()
    (leader,) = [pod for pod in pods if first.startswith(pod.removeprefix("pod/"))]
    await kubectl("delete", leader, f"--namespace={NAMESPACE}", "--wait=false")

    async def another_leads() -> bool:
        return await holder(admin) not in ("", first)

    await until(another_leads, timeout_s=30)
    await kubectl("rollout", "status", "deployment/torchctl", f"--namespace={NAMESPACE}", timeout_s=60)


async def holder(admin: Client) -> str:
    lease = await admin.get(LEASE, "torchctl", NAMESPACE)
    return lease.spec.holder_identity or ""
