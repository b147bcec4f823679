"""Names are short enough, legal, and belong to one thing."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api import names

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
RESERVED = re.compile(r"-(r[0-9]+|sync-[0-9]+|workspace)\Z")
"""What no job's name may end in."""
ENDS = ("-workspace", "-checkpoints", "-r1", "-sync-0", "-0", "-0123456789", "-0-abcde", "")

job_names = st.from_regex(r"[a-z][-a-z0-9]{0,48}[a-z0-9]", fullmatch=True).filter(
    lambda name: not RESERVED.search(name)
)


@given(job_names, st.integers(0, 9999))
def test_every_name_of_a_legal_job_is_a_dns_label(job: str, attempt: int) -> None:
    derived = [
        names.worker_job(job, attempt),
        names.sync_pod(job, attempt),
        names.service(job),
        names.workspace_service(job),
        names.workspace_claim(job),
        names.checkpoints_claim(job),
        names.pod_host(names.worker_job(job, attempt), 99_999, job, "ns", "cluster.local").partition(".")[0],
    ]
    assert all(LABEL.fullmatch(name) and len(name) <= 63 for name in derived)


@given(job_names, job_names, st.integers(0, 99), st.integers(0, 99))
def test_attempts_of_two_jobs_never_share_a_name(one: str, other: str, n: int, m: int) -> None:
    if (one, n) != (other, m):
        assert names.worker_job(one, n) != names.worker_job(other, m)
        assert names.sync_pod(one, n) != names.sync_pod(other, m)


CHILDREN: dict[str, Callable[[str, int], set[str]]] = {
    "Service": lambda job, _: {names.service(job), names.workspace_service(job)},
    "PersistentVolumeClaim": lambda job, _: {names.workspace_claim(job), names.checkpoints_claim(job)},
    "Job": lambda job, number: {names.worker_job(job, number)},
    "Pod": lambda job, number: {names.sync_pod(job, number), f"{names.worker_job(job, number)}-0-abcde"},
    "ControllerRevision": lambda job, _: {names.revision(job, "0123456789")},
}


@pytest.mark.parametrize("kind", CHILDREN)
@given(job=job_names, ends=st.lists(st.sampled_from(ENDS), max_size=2), n=st.integers(0, 2), m=st.integers(0, 2))
def test_no_child_of_a_job_has_the_name_of_anothers(kind: str, job: str, ends: list[str], n: int, m: int) -> None:
    other = job + "".join(ends)
    if other != job and not RESERVED.search(other):
        assert not CHILDREN[kind](job, n) & CHILDREN[kind](other, m)


@pytest.mark.parametrize("derived", [names.workspace_service("x"), names.worker_job("x", 1), names.sync_pod("x", 1)])
def test_a_derived_name_is_no_name_for_a_job(derived: str) -> None:
    assert RESERVED.search(derived)


def test_hosts_are_fully_qualified() -> None:
    assert names.master_host("job-r1", "job", "team", "cluster.local") == "job-r1-0.job.team.svc.cluster.local"


def test_an_attempt_is_told_from_another_everywhere() -> None:
    assert names.worker_job("job") == "job"
    assert names.worker_job("job", 2) == "job-r2"
    assert names.rendezvous_id("uid", 2) == "uid-2"
    assert names.pod_group("job-r2", "uid") == "pg-job-r2-uid"
