"""Rules of new code for jobs that run, and what a real companion says of its workers."""

import time
from pathlib import Path

import msgspec
import pytest
from aiohttp.test_utils import TestServer

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.jobstatus import JobStatus, WorkspaceStatus
from torchctl.api.labels import REVISIONS
from torchctl.client.delivery import Interrupted
from torchctl.client.errors import UsageError
from torchctl.client.reloading import (
    Launcher,
    Launchers,
    check_reload,
    earlier,
    had,
    has_code,
    late,
    said,
)
from torchctl.client.sync import ask
from torchctl.client.views import JobSpecView, JobView
from torchctl.runtime.kinds import Condition, ObjectMeta
from torchctl.workspace.companion import Companion
from torchctl.workspace.companionserver import application
from torchctl.workspace.core import Limits
from torchctl.workspace.membership.core import Settings, Target
from torchctl.workspace.membership.messages import Report, State

OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64
BUSY = Launcher(1, "busy", behind=True)
STUCK = Launcher(0, "running", behind=True, trouble="disk full")


def a_job(hot_reload: str = "Restart", *conditions: Condition, phase: str = "Running") -> JobView:
    status = JobStatus(phase=phase, conditions=conditions)
    return JobView(ObjectMeta(name="x", namespace="ml"), JobSpecView(hot_reload=hot_reload), status)


def test_job_without_hot_reload_takes_no_new_code() -> None:
    with pytest.raises(UsageError, match=r"x in namespace ml takes no new code: it was submitted without --hot-reload"):
        check_reload(a_job("Off"), restart=False)
    with pytest.raises(UsageError, match="has ended"):
        check_reload(a_job(phase="Failed"), restart=True)
    refused = Condition(JobCondition.ACCEPTED, "False", JobReason.IMPOSSIBLE_WORKSPACE, "the distribution is shared")
    with pytest.raises(UsageError, match="cannot take new code: the distribution is shared"):
        check_reload(a_job("Restart", refused), restart=True)
    check_reload(a_job("WarmStart"), restart=True)


def test_shared_files_change_without_a_restart_only() -> None:
    with pytest.raises(UsageError, match="its workers share one tree") as refused:
        check_reload(a_job("Files"), restart=True)
    assert "Add --no-restart" in str(refused.value)
    check_reload(a_job("Files"), restart=False)


def test_first_code_comes_before_the_workspace_is_ready() -> None:
    ready = Condition(JobCondition.WORKSPACE_READY, "True", JobReason.WORKSPACE_READY)
    assert has_code(a_job("Off", ready))
    assert not has_code(a_job("Off"))


def test_workers_that_do_not_have_it_are_named() -> None:
    found = Launchers(NEW, (BUSY, STUCK, Launcher(2, "running")))
    assert late(found, NEW)
    assert said(found) == "worker 0 (disk full), worker 1 (busy)"
    assert late(Launchers(OLD), NEW)
    assert late(Launchers(NEW, whole=False), NEW)
    assert not late(Launchers(NEW, (Launcher(2, "running"),)), NEW)
    many = Launchers(NEW, tuple(Launcher(index, "busy", behind=True) for index in range(20)))
    assert said(many).endswith("worker 7 (busy) and 12 more")


async def test_companion_says_who_has_which_revision(tmp_path: Path) -> None:
    companion = Companion(lambda: Target(NEW), time.monotonic, Settings(learn_s=0))
    app = application(tmp_path, companion, limits=Limits(), key="the-uid")
    async with TestServer(app) as server:
        url = str(server.make_url("/launcher/v1/the-uid"))
        assert not late(await ask(url), NEW)
        report = Report(
            index=3,
            incarnation="i",
            started=1,
            attempt=0,
            seq=1,
            state=State.RUNNING,
            nodes=1,
            least=1,
            address="127.0.0.1",
            port=29500,
            revision=OLD,
            runs=OLD,
        )
        companion.membership.heard(report, time.monotonic())
        found = await ask(url)
        assert late(found, NEW)
        assert said(found) == "worker 3 (running)"
        companion.membership.heard(msgspec.structs.replace(report, seq=2, revision=NEW, runs=NEW), time.monotonic())
        assert not late(await ask(url), NEW)
    with pytest.raises(Interrupted, match="cannot be asked"):
        await ask(url)
    with pytest.raises(Interrupted, match="the job's companion cannot be asked: nothing listens on port 8080"):
        await ask(url, lambda: "nothing listens on port 8080")


def test_earlier_revision_is_the_one_before() -> None:
    first, second, third = (f"sha256:{letter * 64}" for letter in "abc")
    there = JobStatus(workspace=WorkspaceStatus(digest=first))
    job = JobView(ObjectMeta(name="x", namespace="ml"), status=there)
    assert had(job, second) == [first, second]
    with pytest.raises(UsageError, match=r"has no earlier revision. Those that it has had: none."):
        earlier(job)
    noted = ObjectMeta(name="x", namespace="ml", annotations={REVISIONS: " ".join(had(job, second))})
    job = JobView(noted, status=there)
    assert earlier(job) == first
    assert had(job, first) == [second, first]
    assert had(job, third) == [first, second, third]
    assert earlier(job, "aaa") == first
    assert earlier(job, "bbb") == second, "a line that is repeated has nothing to do"
    with pytest.raises(UsageError, match=r"has no earlier revision ccc. Those that it has had: aaaaaaaaaaaa."):
        earlier(job, "ccc")
