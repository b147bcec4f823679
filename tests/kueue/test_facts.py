"""What the operator relies on of Kueue, shown with Jobs alone: who writes what of a Job, and when."""

from typing import Any

import pytest
from kueuejobs import ARCH, apply, steady, submit
from kueueobjects import LINUX, Quota, condition
from kueueprograms import Kueue
from waiting import until

from torchctl.api.kube import JOB
from torchctl.runtime.client.errors import ApiError, Invalid
from torchctl.testing.kubelet import ScriptedKubelet

RUN = "example.com/run"


async def test_steady_apply_changes_nothing_in_any_state(quota: Quota) -> None:
    """While it waits, is admitted and is paused; its own selector is kept, the flavor's comes and goes."""
    job = steady(quota)
    await quota.resize(gpus=0)
    await submit(quota, job)
    await quota.told("job", "QuotaReserved", "False")
    assert await _applied_in_vain(quota) == (True, ARCH)
    await quota.resize(gpus=16)
    await _suspended(quota, False)
    assert await _applied_in_vain(quota) == (False, ARCH | LINUX)
    await quota.activate("job", active=False)
    await _suspended(quota, True)
    await until(lambda: _selects(quota, ARCH))
    assert await _applied_in_vain(quota) == (True, ARCH)


async def test_apply_that_names_a_node_selector_is_refused(quota: Quota) -> None:
    """Of a Job that was admitted: it takes away what Kueue has merged in."""
    job = steady(quota)
    await submit(quota, job)
    await _suspended(quota, False)
    job["spec"]["template"]["spec"]["nodeSelector"] = ARCH
    with pytest.raises(Invalid, match="field is immutable"):
        await apply(quota, job)


async def test_job_has_one_workload_which_it_owns(quota: Quota) -> None:
    """Although the Job's own controller is of a kind that Kueue does not know."""
    await submit(quota, steady(quota))
    workload = await quota.admitted("job")
    live = await quota.job("job")
    (owner,) = workload["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", live["metadata"]["uid"], True)
    assert workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == live["metadata"]["uid"]
    assert [one["count"] for one in workload["spec"]["podSets"]] == [2]
    assert live["metadata"]["ownerReferences"][0]["kind"] == "ConfigMap"


async def test_annotations_of_a_template_stay_until_the_first_start(quota: Quota) -> None:
    """The Workload stays too, and so does the Job's place."""
    await quota.resize(gpus=0)
    await submit(quota, steady(quota))
    before = await quota.told("job", "QuotaReserved", "False")
    await apply(quota, annotated(quota, "1"))
    await quota.resize(gpus=16)
    after = await quota.admitted("job")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    pods = await quota.running("job", 2)
    assert {pod["metadata"]["annotations"][RUN] for pod in pods} == {"1"}


async def test_annotations_of_an_evicted_template_are_taken_back(quota: Quota) -> None:
    """Kueue restores what the template had when the Workload was made: it cannot tell one run from the next."""
    await submit(quota, annotated(quota, "0"))
    await quota.running("job", 2)
    await quota.activate("job", active=False)
    await until(lambda: _selects(quota, ARCH))
    await apply(quota, annotated(quota, "1"))
    await until(lambda: _is_run(quota, "0"))
    await quota.activate("job", active=True)
    pods = await quota.running("job", 2)
    assert {pod["metadata"]["annotations"][RUN] for pod in pods} == {"0"}


async def test_environment_of_an_evicted_template_cannot_change(quota: Quota) -> None:
    """Although the Job is suspended, and its start time is cleared."""
    await submit(quota, steady(quota))
    await quota.running("job", 2)
    await quota.activate("job", active=False)
    await until(lambda: _selects(quota, ARCH))
    job = steady(quota)
    job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "RUN", "value": "1"}]
    with pytest.raises(Invalid, match="field is immutable"):
        await apply(quota, job)


async def test_no_job_is_created_while_the_manager_is_down(quota: Quota, programs: Kueue) -> None:
    """Not even one without Kueue's label; the same request succeeds later."""
    await programs.stop()
    try:
        for queue in ("train", ""):
            with pytest.raises(ApiError, match=r"failed calling webhook \"mjob.kb.io\"") as refusal:
                await submit(quota, steady(quota, queue=queue))
            assert refusal.value.code == 500
    finally:
        await programs.start()
    await submit(quota, steady(quota))
    await quota.admitted("job")


async def test_a_paused_workload_stops_its_job_until_it_is_active(quota: Quota) -> None:
    await submit(quota, steady(quota))
    before = await quota.running("job", 2)
    uid = (await quota.job("job"))["metadata"]["uid"]
    await quota.activate("job", active=False)
    said = await quota.told("job", "QuotaReserved", "False", "Deactivated")
    assert condition(said, "Evicted")[:2] == ("True", "Deactivated")
    await quota.running("job", 0)
    await quota.activate("job", active=True)
    after = await quota.running("job", 2)
    assert not {pod["metadata"]["uid"] for pod in before} & {pod["metadata"]["uid"] for pod in after}
    assert (await quota.job("job"))["metadata"]["uid"] == uid


async def test_job_that_gives_up_as_it_is_evicted_cannot_fail(quota: Quota, nodes: ScriptedKubelet) -> None:
    """Kueue has taken its start time, and no Job ends without one. It fails as soon as it is admitted again."""
    await submit(quota, steady(quota))
    (pod, _) = await quota.running("job", 2)
    nodes.end(quota.namespace, pod["metadata"]["name"], 1)
    await until(lambda: _says(quota, "FailureTarget"))
    await quota.activate("job", active=False)
    await until(lambda: _has_no_start(quota))
    await until(lambda: _is_over(quota))
    job = await quota.job("job")
    failed = {**job["status"]["conditions"][-1], "type": "Failed"}
    with pytest.raises(Invalid, match="startTime is required for finished job"):
        await quota.admin.merge_patch(
            JOB,
            "job",
            {"status": {"conditions": [*job["status"]["conditions"], failed]}},
            namespace=quota.namespace,
            subresource="status",
        )
    await quota.activate("job", active=True)
    await until(lambda: _says(quota, "Failed"), timeout_s=60)


async def _says(quota: Quota, type_: str) -> bool:
    conditions = (await quota.job("job"))["status"].get("conditions", ())
    return any((one["type"], one["status"]) == (type_, "True") for one in conditions)


async def _is_over(quota: Quota) -> bool:
    return not {"Pending", "Running"} & {pod["status"]["phase"] for pod in await quota.pods("job")}


async def _has_no_start(quota: Quota) -> bool:
    job = await quota.job("job")
    return job["spec"]["suspend"] and "startTime" not in job["status"]


async def _applied_in_vain(quota: Quota) -> tuple[bool, dict[str, str]]:
    """Applies the Job twice, which changes nothing the second time; whether it is suspended, and its node selector.

    The first apply only makes `torchctl` an owner of what is there already.
    """
    before = await quota.job("job")
    for _ in range(2):
        await apply(quota, steady(quota))
    after = await quota.job("job")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    return after["spec"]["suspend"], after["spec"]["template"]["spec"]["nodeSelector"]


def annotated(quota: Quota, run: str) -> dict[str, Any]:
    """The Job with an annotation of its template."""
    job = steady(quota)
    job["spec"]["template"]["metadata"]["annotations"] = {RUN: run}
    return job


async def _is_run(quota: Quota, wanted: str) -> bool:
    annotations: dict[str, str] = (await quota.job("job"))["spec"]["template"]["metadata"].get("annotations", {})
    return annotations.get(RUN) == wanted


async def _selects(quota: Quota, wanted: dict[str, str]) -> bool:
    """Kueue takes its own back after it has suspended the Job, in another write."""
    selector: dict[str, str] = (await quota.job("job"))["spec"]["template"]["spec"]["nodeSelector"]
    return selector == wanted


async def _suspended(quota: Quota, wanted: bool) -> None:
    async def look() -> bool:
        return bool((await quota.job("job"))["spec"]["suspend"]) == wanted

    await until(look)
