"""Names are short enough, legal, and belong to one thing."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api import names

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

job_names = st.from_regex(r"[a-z][-a-z0-9]{0,48}[a-z0-9]", fullmatch=True).filter(
    lambda name: names.job_name_problem(name) is None
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
        names.revision(job, "0123456789"),
        names.pod_host(names.worker_job(job, attempt), 99_999, job, "ns", "cluster.local").partition(".")[0],
    ]
    assert all(LABEL.fullmatch(name) and len(name) <= 63 for name in derived)


@given(job_names, job_names, st.integers(0, 99), st.integers(0, 99))
def test_attempts_of_two_jobs_never_share_a_name(one: str, other: str, n: int, m: int) -> None:
    if (one, n) != (other, m):
        assert names.worker_job(one, n) != names.worker_job(other, m)
        assert names.sync_pod(one, n) != names.sync_pod(other, m)


@pytest.mark.parametrize("name", ["", "1job", "-a", "a-", "A", "a.b", "x" * 51, "a\n"])
def test_a_name_that_is_no_label_is_refused(name: str) -> None:
    assert "DNS label" in (names.job_name_problem(name) or "")


@pytest.mark.parametrize("name", ["train-r0", "train-r12", "train-sync-0"])
def test_a_name_of_anothers_attempt_is_refused(name: str) -> None:
    assert "must not end in" in (names.job_name_problem(name) or "")


def test_hosts_are_fully_qualified() -> None:
    assert names.master_host("job-r1", "job", "team", "cluster.local") == "job-r1-0.job.team.svc.cluster.local"


def test_an_attempt_is_told_from_another_everywhere() -> None:
    assert names.worker_job("job") == "job"
    assert names.worker_job("job", 2) == "job-r2"
    assert names.rendezvous_id("uid", 2) == "uid-2"
    assert names.kai_pod_group("job-r2", "uid") == "pg-job-r2-uid"
