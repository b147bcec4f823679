"""What a LocalQueue named `default` takes that did not ask for it, and what it leaves alone."""

from typing import Any

from kueuejobs import steady, submit
from kueueobjects import QUEUE_NAME, Quota

from torchctl.api.kube import POD

GATE = "kueue.x-k8s.io/admission"


def a_pod(quota: Quota, name: str = "sync", **metadata: Any) -> dict[str, Any]:
    """A pod of its own, as the one that fetches a job's code."""
    container = {"name": "fetch", "image": "torchctl:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": quota.namespace, "ownerReferences": [quota.owner]} | metadata,
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


async def test_job_without_a_queue_is_left_alone(quota: Quota) -> None:
    await submit(quota, steady(quota, queue=""))
    assert QUEUE_NAME not in (await quota.job("job"))["metadata"]["labels"]


async def test_job_without_a_queue_is_taken_by_the_default(quota: Quota) -> None:
    await quota.local_queue("default")
    await submit(quota, steady(quota, queue=""))
    assert (await quota.job("job"))["metadata"]["labels"][QUEUE_NAME] == "default"
    await quota.admitted("job")


async def test_pod_alone_is_taken_by_the_default(quota: Quota) -> None:
    """Whatever its owner is; it waits at a gate until it is admitted by quota of its own."""
    await quota.change(stopPolicy="Hold")
    await quota.local_queue("default")
    await quota.admin.create(POD, a_pod(quota))
    live = await quota.admin.get_raw(POD, "sync", quota.namespace)
    assert live["metadata"]["labels"][QUEUE_NAME] == "default"
    assert GATE in [gate["name"] for gate in live["spec"].get("schedulingGates", [])]


async def test_pod_that_asks_for_more_kinds_than_quota_waits(quota: Quota) -> None:
    """A ClusterQueue has to cover each resource that a pod asks for, ephemeral storage too."""
    await quota.local_queue("default")
    pod = a_pod(quota)
    pod["spec"]["containers"][0]["resources"] = {
        "requests": {"example.com/disk": "1"},
        "limits": {"example.com/disk": "1"},
    }
    await quota.admin.create(POD, pod)
    await quota.told(
        "sync", "QuotaReserved", "False", "NoMatchingFlavor", "example.com/disk unavailable in ClusterQueue"
    )


async def test_pod_of_a_queued_job_is_left_alone(quota: Quota) -> None:
    """Its controller is of a kind that Kueue knows and has Kueue's label: nothing else keeps a pod from the default."""
    await quota.local_queue("default")
    await submit(quota, steady(quota))
    for pod in await quota.running("job", 2):
        assert QUEUE_NAME not in pod["metadata"]["labels"]
        assert "schedulingGates" not in pod["spec"]
