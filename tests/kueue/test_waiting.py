"""What Kueue's Workloads say of Jobs that wait, are evicted, and come back: the words that the operator passes on."""

from collections.abc import Awaitable, Callable

import pytest
from kueuejobs import steady, submit
from kueueobjects import URGENT, Quota, condition
from waiting import until

from torchctl.api.kube import JOB


async def _taken(quota: Quota) -> None:
    await submit(quota, steady(quota, "other"))
    await quota.admitted("other")
    await submit(quota, steady(quota))


async def _too_large(quota: Quota) -> None:
    await submit(quota, steady(quota, pods=3))


async def _nowhere(quota: Quota) -> None:
    await submit(quota, steady(quota, queue="nowhere"))


async def _held(quota: Quota) -> None:
    await quota.change(stopPolicy="Hold")
    await submit(quota, steady(quota))


async def _paused(quota: Quota) -> None:
    await quota.resize(gpus=0)
    await submit(quota, steady(quota))
    await quota.activate("job", active=False)


@pytest.mark.parametrize(
    ("make", "reason", "words"),
    [
        (_taken, "WaitingForQuota", "insufficient unused quota for nvidia.com/gpu in flavor"),
        (_too_large, "ExceedsMaxQuota", "(24) > maximum capacity (16)"),
        (_nowhere, "Misconfigured", "LocalQueue nowhere doesn't exist"),
        (_held, "Suspended", "is inactive"),
        (_paused, "Deactivated", "The workload is deactivated"),
    ],
    ids=["taken", "too large", "no queue", "held", "paused"],
)
async def test_waiting_workload_says_why(
    quota: Quota, make: Callable[[Quota], Awaitable[None]], reason: str, words: str
) -> None:
    """In its condition QuotaReserved; Admitted says nothing beyond that."""
    await make(quota)
    said = await quota.told("job", "QuotaReserved", "False", reason, words)
    assert condition(said, "Admitted") in [
        ("False", "NoReservation", "The workload has no reservation"),
        ("", "", ""),
    ]
    assert (await quota.job("job"))["spec"]["suspend"] is True
    assert await quota.pods("job") == []


async def test_admitted_is_said_with_the_quota(quota: Quota) -> None:
    await submit(quota, steady(quota))
    said = await quota.admitted("job")
    assert condition(said, "QuotaReserved") == (
        "True",
        "QuotaReserved",
        f"Quota reserved in ClusterQueue {quota.cluster_queue}",
    )
    assert condition(said, "Admitted")[1:] == ("Admitted", "The workload is admitted")
    (assigned,) = said["status"]["admission"]["podSetAssignments"]
    assert (assigned["count"], assigned["resourceUsage"]["nvidia.com/gpu"]) == (2, "16")


async def test_preempted_job_keeps_its_place_and_comes_back(quota: Quota) -> None:
    """Its pods are only deleted, so the Workload alone tells it. A Job that came later waits behind it."""
    await submit(quota, steady(quota))
    await quota.running("job", 2)
    uid = (await quota.job("job"))["metadata"]["uid"]
    await submit(quota, steady(quota, "urgent", labels=URGENT))
    said = await quota.told("job", "Evicted", "True", "Preempted")
    assert condition(said, "Preempted")[1] == "InClusterQueue"
    assert "Preempted to accommodate a workload" in condition(said, "Evicted")[2]
    types = {one["type"] for pod in await quota.leaving("job") for one in pod["status"]["conditions"]}
    assert "DisruptionTarget" not in types
    await quota.admitted("urgent")
    await submit(quota, steady(quota, "later"))
    await quota.told("later", "PodsReady", "False")
    await quota.admin.delete(JOB, "urgent", namespace=quota.namespace)
    await quota.running("job", 2)
    again = await quota.workload("job")
    assert (await quota.job("job"))["metadata"]["uid"] == uid
    assert again["metadata"]["uid"] == said["metadata"]["uid"]
    assert condition(again, "Evicted")[0] == "False"
    assert (await quota.job("later"))["spec"]["suspend"] is True
    failed = (await quota.job("job"))["status"].get("conditions", [])
    assert "Failed" not in [one["type"] for one in failed if one["status"] == "True"]


async def test_evictions_are_counted_on_the_workload(quota: Quota) -> None:
    """The count stays when the Workload is admitted again."""
    await submit(quota, steady(quota))
    await quota.admitted("job")
    await submit(quota, steady(quota, "urgent", labels=URGENT))
    await quota.admitted("urgent")
    await quota.admin.delete(JOB, "urgent", namespace=quota.namespace)

    async def look() -> bool:
        said = await quota.workload("job")
        counts = {one["reason"]: one["count"] for one in said["status"]["schedulingStats"]["evictions"]}
        return (condition(said, "Admitted")[0], counts) == ("True", {"Preempted": 1})

    await until(look)


async def test_workload_like_one_that_waits_says_nothing(quota: Quota) -> None:
    """Kueue does not look at it as long as an equal one cannot be admitted: it has no words of why it waits."""
    await submit(quota, steady(quota, "running"))
    await quota.admitted("running")
    await submit(quota, steady(quota, "first"))
    await quota.told("first", "QuotaReserved", "False", "WaitingForQuota")
    await submit(quota, steady(quota))
    said = await quota.told("job", "PodsReady", "False")
    assert [condition(said, type_) for type_ in ("QuotaReserved", "Admitted")] == [("", "", "")] * 2
