"""What Kueue does with Jobs whose size may change: partial admission, and elastic Jobs by slices."""

from typing import Any

from kueuejobs import apply, steady, submit
from kueueobjects import Quota, condition
from waiting import until

PARTIAL = {"kueue.x-k8s.io/job-min-parallelism": "1", "kueue.x-k8s.io/job-completions-equal-parallelism": "true"}
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}


async def test_partial_admission_writes_the_size_into_the_job(quota: Quota) -> None:
    """The steady intent must name neither field then: an apply would restart all pods each time."""
    await submit(quota, steady(quota, pods=4, annotations=PARTIAL))
    await quota.running("job", 2)
    live = await quota.job("job")
    assert (live["spec"]["parallelism"], live["spec"]["completions"]) == (2, 2)
    steadier = steady(quota, pods=4, annotations=PARTIAL)
    for field in ("parallelism", "completions"):
        del steadier["spec"][field]
    await apply(quota, steadier)
    after = await quota.job("job")
    assert (after["metadata"]["generation"], after["spec"]) == (live["metadata"]["generation"], live["spec"])


async def test_fixed_job_that_is_resized_starts_all_over(quota: Quota) -> None:
    """So a fixed Job's size is never changed."""
    await submit(quota, steady(quota, pods=2))
    before = _uids(await quota.running("job", 2))
    await apply(quota, steady(quota, pods=1))

    async def look() -> bool:
        pods = await quota.pods("job")
        return bool(pods) and not _uids(pods) & before

    await until(look)


async def test_elastic_job_grows_by_a_slice_and_restarts_nothing(quota: Quota) -> None:
    await submit(quota, steady(quota, pods=1, annotations=ELASTIC))
    first = _uids(await quota.running("job", 1))
    await apply(quota, steady(quota, pods=2, annotations=ELASTIC))
    both = _uids(await quota.running("job", 2))
    assert first < both
    await until(lambda: _counts(quota, [2]))
    await apply(quota, steady(quota, pods=1, annotations=ELASTIC))
    assert _uids(await quota.running("job", 1)) < both
    await until(lambda: _counts(quota, [1]))


async def test_elastic_job_beyond_its_quota_keeps_what_runs(quota: Quota) -> None:
    """The pod that is added waits at a gate, and the new slice says why."""
    await submit(quota, steady(quota, pods=2, annotations=ELASTIC))
    before = _uids(await quota.running("job", 2))
    await apply(quota, steady(quota, pods=3, annotations=ELASTIC))
    said = await quota.told("job", "QuotaReserved", "False")
    assert "nvidia.com/gpu" in condition(said, "QuotaReserved")[2]
    gated = [one for one in await quota.pods("job") if one["spec"].get("schedulingGates")]
    assert [one["name"] for pod in gated for one in pod["spec"]["schedulingGates"]] == ["kueue.x-k8s.io/elastic-job"]
    assert _uids(await quota.pods("job")) > before
    assert len(await quota.workloads("job")) == 2


def _uids(pods: list[dict[str, Any]]) -> set[str]:
    return {str(pod["metadata"]["uid"]) for pod in pods}


async def _counts(quota: Quota, wanted: list[int]) -> bool:
    """Whether the Workloads that are not finished have these sizes."""
    return [one["spec"]["podSets"][0]["count"] for one in await quota.workloads("job")] == wanted
