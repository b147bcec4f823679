"""A job's attempts on the real control plane: what ends them, what follows, and what is left of them."""

import functools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from jobs import Place
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD, SERVICE, Pod
from torchctl.api.labels import ATTEMPT, JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.controllers.job.pods import is_tracked
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import fresh_name
from torchctl.testing.nodekinds import Pod as PlayedPod

pytestmark = pytest.mark.usefixtures("own_script")

FOR_EVER = Play(run_s=None)
ROOT_CAUSE = """
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 0)
  exitcode  : {code} (pid: 7)
"""


def worker(pod: PlayedPod, job: str, attempt: int | None = None, index: int | None = None) -> bool:
    """Whether a pod is that worker."""
    labels = pod.metadata.labels
    return (
        labels.get(JOB_NAME) == job
        and labels.get(ROLE) == ROLE_WORKER
        and (attempt is None or labels.get(ATTEMPT) == str(attempt))
        and (index is None or labels.get("batch.kubernetes.io/job-completion-index") == str(index))
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(place: Place) -> Place:
    await place.queue()
    return place


@pytest.fixture
def plays(kubelet: ScriptedKubelet) -> Callable[..., None]:
    """Writes what happens to a worker into the script; the script is what it was when the test is over."""

    def play(what: Play, job: str, attempt: int | None = None, index: int | None = None) -> None:
        kubelet.script = kubelet.script.when(functools.partial(worker, job=job, attempt=attempt, index=index), what)

    return play


async def workers(place: Place, job: str) -> list[Pod]:
    return await place.admin.list(POD, namespace=place.namespace, labels=f"{JOB_NAME}={job},{ROLE}={ROLE_WORKER}")


class TestIncidents:
    @pytest.mark.proves(
        "TorchrunJob.status.restarts.byCause",
        "TorchrunJob.status.attempt",
        "TorchrunJob.status.restarts.total",
        "TorchrunJob.status.rendezvousID",
    )
    async def test_program_failure_is_one_incident_and_one_more_attempt(
        self, place: Place, plays: Callable[..., None]
    ) -> None:
        plays(FOR_EVER, "again", 0)
        plays(Play(exit_code=42, log="boom"), "again", 0, 1)
        await place.job("again", numNodes=3)
        job = await place.reaches(Phase.SUCCEEDED, "again")
        assert (job.status.attempt, job.status.restarts.total, job.status.restarts.by_cause) == (1, 1, {"Error": 1})
        assert job.status.failure is None
        assert job.status.rendezvous_id == f"{job.metadata.uid}-1"
        await until(lambda: has_told(place, "again", {"Incident", "Restarting", "Succeeded"}))
        service = await place.admin.get_raw(SERVICE, "again", place.namespace)
        assert service["spec"]["selector"][ATTEMPT] == "1"
        await place.gone(JOB, "again")
        await until(lambda: only_of_attempt(place, "again", "1"))

    async def test_failed_pod_stays_readable_during_the_next_attempt(
        self, place: Place, plays: Callable[..., None]
    ) -> None:
        plays(FOR_EVER, "read")
        plays(Play(exit_code=42, log="boom"), "read", 0, 1)
        await place.job("read")
        job = await place.in_attempt(1, "read")
        assert job.status.failure is not None
        assert (job.status.failure.pod[:7], job.status.failure.exit_code) == ("read-1-", 42)
        found = {pod.metadata.name[:7]: pod.status.phase for pod in await workers(place, "read")}
        assert found["read-1-"] == "Failed"
        await place.admin.delete(TORCHRUN_JOB, "read", namespace=place.namespace)

    @pytest.mark.proves("TorchrunJob.spec.runPolicy.maxRestarts")
    async def test_restarts_that_are_used_up_end_the_job(self, place: Place, plays: Callable[..., None]) -> None:
        plays(Play(exit_code=3), "used-up", index=0)
        await place.job("used-up", runPolicy={"maxRestarts": 2})
        job = await place.reaches(Phase.FAILED, "used-up", timeout_s=60)
        await place.condition("Failed", "RestartsExhausted", "used-up")
        assert (job.status.attempt, job.status.restarts.by_cause) == (2, {"Error": 3})
        assert await place.exists(JOB, "used-up-r2")
        await place.gone(JOB, "used-up-r1")

    @pytest.mark.proves(
        "TorchrunJob.spec.runPolicy.restartPolicy",
        "TorchrunJob.status.failure.exitCode",
        "TorchrunJob.status.failure.rank",
    )
    @pytest.mark.parametrize(("code", "attempts"), [(1, 0), (143, 2)])
    async def test_the_first_ranks_code_decides_where_the_policy_says_so(
        self, place: Place, plays: Callable[..., None], code: int, attempts: int
    ) -> None:
        name = f"code-{code}"
        plays(Play(exit_code=1, log=ROOT_CAUSE.format(code=code)), name, index=1)
        await place.job(name, runPolicy={"maxRestarts": 2, "restartPolicy": "ExitCode"})
        job = await place.reaches(Phase.FAILED, name, timeout_s=60)
        assert job.status.failure is not None
        assert (job.status.attempt, job.status.failure.exit_code, job.status.failure.rank) == (attempts, code, 1)

    @pytest.mark.proves("TorchrunJob.status.restarts.byCause")
    @pytest.mark.parametrize(
        ("name", "play", "cause"),
        [
            ("oom", Play(exit_code=137, reason="OOMKilled"), "OOMKilled"),
            ("evicted", Play(evicted="The node was low on resource: memory."), "Evicted"),
        ],
    )
    async def test_each_loss_is_counted_under_its_cause(
        self, place: Place, plays: Callable[..., None], name: str, play: Play, cause: str
    ) -> None:
        plays(FOR_EVER, name)
        plays(play, name, 0, 1)
        await place.job(name)
        job = await place.in_attempt(1, name)
        assert job.status.restarts.by_cause == {cause: 1}
        await place.admin.delete(TORCHRUN_JOB, name, namespace=place.namespace)

    async def test_pod_deleted_by_a_person_is_one_incident(self, place: Place, plays: Callable[..., None]) -> None:
        """A trainer that catches SIGTERM, saves and exits 0 has not succeeded."""
        plays(Play(run_s=None, stop_exit_code=0, stop_s=0.5), "saved")
        await place.job("saved")
        await place.in_attempt(0, "saved")
        for pod in await workers(place, "saved"):
            await place.admin.delete(POD, pod.metadata.name, namespace=place.namespace)
        job = await place.in_attempt(1, "saved")
        assert job.status.restarts.by_cause == {"Deleted": 1}
        await place.admin.delete(TORCHRUN_JOB, "saved", namespace=place.namespace)

    async def test_succeeded_job_does_not_recreate_its_deleted_child(self, place: Place) -> None:
        await place.job("done")
        await place.reaches(Phase.SUCCEEDED, "done")
        await place.admin.delete(JOB, "done", namespace=place.namespace)
        await place.gone(JOB, "done")
        await place.touch("done")
        job = await place.reaches(Phase.SUCCEEDED, "done")
        assert (job.status.attempt, await place.exists(JOB, "done"), await place.exists(JOB, "done-r1")) == (
            0,
            False,
            False,
        )

    async def test_worker_displaced_by_a_higher_priority_was_preempted(
        self, control_plane: ControlPlane, place: Place, plays: Callable[..., None]
    ) -> None:
        """By kube-scheduler itself: the pod that comes asks for all GPUs of the node that the worker is on."""
        plays(FOR_EVER, "weaker")
        await place.queue("whole-nodes", nodeResources={"gpus": 8})
        await place.job("weaker", jobQueue="whole-nodes", numNodes=1)
        await place.in_attempt(0, "weaker")
        (pod,) = await workers(place, "weaker")
        async with more_important(control_plane, place.namespace, pod.spec.node_name):
            job = await place.in_attempt(1, "weaker")
        assert job.status.restarts.by_cause == {"Preempted": 1}
        await place.admin.delete(TORCHRUN_JOB, "weaker", namespace=place.namespace)

    @pytest.mark.proves("TorchrunJob.spec.queueUpdatePolicy")
    @pytest.mark.parametrize(("policy", "image"), [("Frozen", "trainer:1"), ("NextAttempt", "trainer:2")])
    async def test_next_attempt_follows_queue_edits_only_on_request(
        self, place: Place, plays: Callable[..., None], kubelet: ScriptedKubelet, policy: str, image: str
    ) -> None:
        name = f"edited-{policy.lower()}"
        plays(FOR_EVER, name)
        await place.queue(name)
        await place.job(name, jobQueue=name, queueUpdatePolicy=policy)
        await place.in_attempt(0, name)
        patch = {"spec": {"image": "trainer:2"}}
        await place.admin.merge_patch(TORCHRUN_QUEUE, name, patch, namespace=place.namespace)
        await until(lambda: has_seen_edit(place, name))
        kubelet.end(place.namespace, (await workers(place, name))[0].metadata.name, exit_code=1)
        await place.in_attempt(1, name)
        assert [await image_of(place, job) for job in (name, f"{name}-r1")] == ["trainer:1", image]
        await place.admin.delete(TORCHRUN_JOB, name, namespace=place.namespace)


class TestSuspension:
    @pytest.mark.proves("TorchrunJob.spec.suspend")
    async def test_a_job_is_suspended_and_resumed_without_an_incident(
        self, place: Place, plays: Callable[..., None]
    ) -> None:
        plays(FOR_EVER, "pause", 0)
        await place.job("pause")
        await place.in_attempt(0, "pause")
        await suspend(place, "pause", True)
        await place.reaches(Phase.SUSPENDED, "pause")
        await until(lambda: no_workers(place, "pause"))
        assert await place.exists(SERVICE, "pause")
        await suspend(place, "pause", False)
        job = await place.reaches(Phase.SUCCEEDED, "pause")
        assert (job.status.attempt, job.status.restarts.total) == (1, 0)

    async def test_job_created_suspended_starts_when_resumed(self, place: Place) -> None:
        await place.job("later", suspend=True)
        await place.condition("Suspended", "Suspended", "later")
        assert not await place.exists(JOB, "later")
        assert not await place.exists(SERVICE, "later")
        await suspend(place, "later", False)
        job = await place.reaches(Phase.SUCCEEDED, "later")
        assert job.status.attempt == 0

    async def test_a_finalizer_tells_whose_suspension_or_deletion_it_is(
        self, place: Place, plays: Callable[..., None]
    ) -> None:
        """The Job's controller takes it off the pods that it stops, before it does; nobody else does."""
        for name in ("stopped", "deleted"):
            plays(Play(run_s=None, stop_s=5.0), name, 0)
            await place.job(name, numNodes=1)
        for name in ("stopped", "deleted"):
            await place.in_attempt(0, name)
        (deleted,) = await workers(place, "deleted")
        await place.admin.delete(POD, deleted.metadata.name, namespace=place.namespace)
        await place.admin.merge_patch(JOB, "stopped", {"spec": {"suspend": True}}, namespace=place.namespace)
        assert await until(lambda: told(place, "deleted")) == [True]
        assert await until(lambda: told(place, "stopped")) == [False]
        job = await place.in_attempt(1, "deleted")
        assert job.status.restarts.by_cause == {"Deleted": 1}
        job = await place.reaches(Phase.QUEUED, "stopped")
        assert (job.status.attempt, job.status.restarts.total) == (0, 0)
        for name in ("stopped", "deleted"):
            await place.admin.delete(TORCHRUN_JOB, name, namespace=place.namespace)

    async def test_fast_flips_converge(self, place: Place, plays: Callable[..., None]) -> None:
        plays(FOR_EVER, "flip")
        await place.job("flip")
        await place.in_attempt(0, "flip")
        for wanted in (True, False, True, False, True):
            await suspend(place, "flip", wanted)
        await place.reaches(Phase.SUSPENDED, "flip")
        await until(lambda: no_workers(place, "flip"))
        await suspend(place, "flip", False)
        job = await place.reaches(Phase.RUNNING, "flip")
        assert job.status.restarts.total == 0
        await place.admin.delete(TORCHRUN_JOB, "flip", namespace=place.namespace)


class TestElastic:
    @pytest.mark.proves(
        "TorchrunJob.spec.elastic.minNodes", "TorchrunJob.spec.elastic.maxNodes", "TorchrunJob.spec.numNodes"
    )
    async def test_scaling_a_running_job_changes_only_its_workers(
        self, control_plane: ControlPlane, place: Place, plays: Callable[..., None]
    ) -> None:
        plays(FOR_EVER, "grow")
        await place.job("grow", numNodes=2, elastic={"minNodes": 1, "maxNodes": 4})
        await place.in_attempt(0, "grow")
        for wanted in (4, 1, 3):
            await control_plane.kubectl("scale", "trj/grow", f"--replicas={wanted}", f"--namespace={place.namespace}")
            await until(functools.partial(has_workers, place, "grow", wanted))
        job = await place.reaches(Phase.RUNNING, "grow")
        assert (job.status.attempt, job.status.restarts.total) == (0, 0)
        child = await place.admin.get_raw(JOB, "grow", place.namespace)
        environment = child["spec"]["template"]["spec"]["containers"][0]["env"]
        assert {"name": "PET_NNODES", "value": "1:4"} in environment
        await place.admin.delete(TORCHRUN_JOB, "grow", namespace=place.namespace)

    async def test_a_lost_worker_is_replaced_without_an_incident(
        self, place: Place, plays: Callable[..., None]
    ) -> None:
        plays(FOR_EVER, "heals")
        await place.job("heals", numNodes=3, elastic={"minNodes": 2, "maxNodes": 3})
        await place.in_attempt(0, "heals")
        await until(lambda: has_workers(place, "heals", 3))  # two of them make it Running
        lost = next(pod for pod in await workers(place, "heals") if pod.metadata.name.startswith("heals-2-"))
        await place.admin.delete(POD, lost.metadata.name, namespace=place.namespace)
        await until(lambda: is_replaced(place, "heals", lost))
        job = await place.reaches(Phase.RUNNING, "heals")
        assert (job.status.attempt, job.status.restarts.total) == (0, 0)
        await place.admin.delete(TORCHRUN_JOB, "heals", namespace=place.namespace)

    async def test_job_below_its_minimum_is_one_incident_after_waiting(
        self, place: Place, plays: Callable[..., None]
    ) -> None:
        plays(FOR_EVER, "too-few")
        await place.job("too-few", elastic={"minNodes": 2, "maxNodes": 3})
        await place.in_attempt(0, "too-few")
        plays(Play(start_delay_s=600), "too-few", 0)  # nothing replaces what is lost
        lost = next(pod for pod in await workers(place, "too-few") if pod.metadata.name.startswith("too-few-1-"))
        await place.admin.delete(POD, lost.metadata.name, namespace=place.namespace)
        found = await place.condition("WorkersReady", "BelowMinimum", "too-few")
        assert "1 worker of Job too-few is ready, at least 2 have to be" in found.message
        job = await place.in_attempt(1, "too-few")
        assert job.status.restarts.by_cause == {"BelowMinimum": 1}
        await place.admin.delete(TORCHRUN_JOB, "too-few", namespace=place.namespace)

    async def test_elastic_job_ends_with_worker_0(self, place: Place, plays: Callable[..., None]) -> None:
        plays(FOR_EVER, "enough")
        plays(Play(run_s=0.5), "enough", 0, 0)
        await place.job("enough", numNodes=3, elastic={"minNodes": 1, "maxNodes": 3})
        job = await place.reaches(Phase.SUCCEEDED, "enough")
        assert job.status.restarts.total == 0


class TestLostNodes:
    """What a node that does not answer has, stays Terminating: nobody there says that it has ended."""

    @pytest.fixture
    async def impatient(self, place: Place) -> str:
        """A queue with one worker a node, whose workers do not wait for a node to come back."""
        unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
        trainer = {"name": "trainer"}
        pod = {
            "containers": [trainer],
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{**unreachable, "tolerationSeconds": 1}],
        }
        name = fresh_name("impatient")
        await place.queue(name, nodeResources={"gpus": 8}, podTemplate={"spec": pod})
        return name

    async def test_elastic_worker_is_replaced_without_an_incident(
        self, place: Place, plays: Callable[..., None], kubelet: ScriptedKubelet, impatient: str
    ) -> None:
        plays(FOR_EVER, "stranded")
        elastic = {"minNodes": 2, "maxNodes": 3}
        await place.job("stranded", jobQueue=impatient, numNodes=3, elastic=elastic)
        await place.in_attempt(0, "stranded")
        await until(lambda: has_workers(place, "stranded", 3))  # two of them make it Running
        lost = next(pod for pod in await workers(place, "stranded") if pod.metadata.name.startswith("stranded-2-"))
        await kubelet.lose(lost.spec.node_name)
        try:
            # The node's taint takes 5 s, up to 15 s after another node's; the Job controller's back-off another 10 s.
            await until(lambda: is_replaced(place, "stranded", lost), timeout_s=60)
            await place.gone(POD, lost.metadata.name)
        finally:
            await kubelet.restore(lost.spec.node_name)
        job = await place.reaches(Phase.RUNNING, "stranded")
        assert (job.status.attempt, job.status.restarts.total) == (0, 0)
        await place.admin.delete(TORCHRUN_JOB, "stranded", namespace=place.namespace)

    async def test_next_attempt_does_not_wait_for_a_lost_node(
        self, place: Place, plays: Callable[..., None], kubelet: ScriptedKubelet, impatient: str
    ) -> None:
        """A job of fixed size cannot replace the pod on the lost node within the attempt."""
        plays(FOR_EVER, "cut-off")
        await place.job("cut-off", jobQueue=impatient)
        await place.in_attempt(0, "cut-off")
        lost = next(pod for pod in await workers(place, "cut-off") if pod.metadata.name.startswith("cut-off-1-"))
        await kubelet.lose(lost.spec.node_name)
        try:
            job = await place.in_attempt(1, "cut-off")
            await place.gone(POD, lost.metadata.name)
        finally:
            await kubelet.restore(lost.spec.node_name)
        assert job.status.restarts.by_cause == {"NodeLost": 1}
        await place.admin.delete(TORCHRUN_JOB, "cut-off", namespace=place.namespace)


class TestEnds:
    @pytest.mark.proves("TorchrunJob.spec.runPolicy.activeDeadlineSeconds", "TorchrunJob.status.activeSeconds")
    async def test_active_time_is_limited(self, place: Place, plays: Callable[..., None]) -> None:
        plays(FOR_EVER, "long")
        await place.job("long", runPolicy={"activeDeadlineSeconds": 2})
        job = await place.reaches(Phase.FAILED, "long")
        await place.condition("Failed", "DeadlineExceeded", "long")
        assert job.status.active_seconds >= 2
        await until(lambda: no_workers(place, "long"))

    @pytest.mark.proves("TorchrunJob.spec.runPolicy.startupTimeoutSeconds")
    async def test_starting_is_limited(self, place: Place, plays: Callable[..., None]) -> None:
        plays(Play(blocked="ImagePullBackOff", blocked_message="no such image"), "slow")
        await place.job("slow")
        await place.condition("WorkersReady", "ImagePullBackOff", "slow")
        patch = {"spec": {"runPolicy": {"startupTimeoutSeconds": 1}}}
        await place.admin.merge_patch(TORCHRUN_JOB, "slow", patch, namespace=place.namespace)
        await place.reaches(Phase.FAILED, "slow")
        found = await place.condition("Failed", "StartupTimeout", "slow")
        assert "no such image" in found.message

    @pytest.mark.proves("TorchrunJob.spec.runPolicy.ttlSecondsAfterFinished")
    async def test_finished_job_and_its_children_go_after_the_ttl(self, place: Place) -> None:
        await place.job("short", runPolicy={"ttlSecondsAfterFinished": 1})
        await place.gone(TORCHRUN_JOB, "short")
        await place.gone(JOB, "short", timeout_s=60)

    @pytest.mark.proves("TorchrunJob.spec.runPolicy.podRetention")
    async def test_nothing_of_the_workers_stays_where_the_policy_says_none(self, place: Place) -> None:
        await place.job("tidy", runPolicy={"podRetention": "None"})
        await place.reaches(Phase.SUCCEEDED, "tidy")
        await place.gone(JOB, "tidy")
        await until(lambda: no_pods(place, "tidy"))


@asynccontextmanager
async def more_important(control_plane: ControlPlane, namespace: str, node: str) -> AsyncIterator[None]:
    """A pod of high priority that asks for all GPUs of a node.

    Of a class that was always there: kube-apiserver refuses a pod of a class that it has not heard of yet.
    """
    name = fresh_name("important")
    container = {"name": "main", "image": "main:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [container],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    await control_plane.kubectl("create", "-f-", input=json.dumps(body))
    try:
        yield
    finally:
        await control_plane.kubectl("delete", "pod", name, f"--namespace={namespace}", "--wait=false")


async def has_seen_edit(place: Place, queue: str) -> bool:
    found = await place.admin.get(TORCHRUN_QUEUE, queue, place.namespace)
    return found.status.observed_generation == found.metadata.generation == 2


async def image_of(place: Place, job: str) -> str:
    child = await place.admin.get_raw(JOB, job, place.namespace)
    image: str = child["spec"]["template"]["spec"]["containers"][0]["image"]
    return image


async def has_told(place: Place, name: str, reasons: set[str]) -> bool:
    """Whether there are such Events; they follow the status."""
    return reasons <= {event.reason for event in await place.events(name)}


async def suspend(place: Place, name: str, wanted: bool) -> None:
    await place.admin.merge_patch(TORCHRUN_JOB, name, {"spec": {"suspend": wanted}}, namespace=place.namespace)


async def no_workers(place: Place, name: str) -> bool:
    return not [pod for pod in await workers(place, name) if pod.status.phase == "Running"]


async def told(place: Place, name: str) -> list[bool]:
    """Whether the pods that are told to stop have the finalizer of their Job's controller."""
    return [is_tracked(pod) for pod in await workers(place, name) if pod.metadata.deletion_timestamp is not None]


async def no_pods(place: Place, name: str) -> bool:
    return not await workers(place, name)


async def only_of_attempt(place: Place, name: str, attempt: str) -> bool:
    return {pod.metadata.labels[ATTEMPT] for pod in await workers(place, name)} == {attempt}


async def has_workers(place: Place, name: str, wanted: int) -> bool:
    running = [pod for pod in await workers(place, name) if pod.status.phase == "Running"]
    return len([pod for pod in running if pod.metadata.deletion_timestamp is None]) == wanted


async def is_replaced(place: Place, name: str, lost: Pod) -> bool:
    running = [pod for pod in await workers(place, name) if pod.status.phase == "Running"]
    return len(running) == 3 and lost.metadata.uid not in {pod.metadata.uid for pod in running}
