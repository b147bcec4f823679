"""The life of a job: attempts and their incidents, suspension, elastic workers, deadlines, what is kept."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from torchctl.api.causes import Cause
from torchctl.api.common import PodRetention, RestartPolicy
from torchctl.api.effective import EffectiveRunPolicy
from torchctl.api.job import Failure
from torchctl.api.jobstatus import Restarts
from torchctl.controllers.finding import Refusal
from torchctl.controllers.job.failure.budgets import next_attempt_time, refused
from torchctl.controllers.job.plan import Idle, again_s
from torchctl.controllers.settings import Restarting

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TWO = "{jobQueue: research, numNodes: 2, command: python train.py%s}"
ELASTIC = "{jobQueue: research, numNodes: %d, command: python train.py, elastic: {minNodes: 2, maxNodes: 4}%s}"
TOLD = {"deletionGracePeriodSeconds": 30}
HELD = {"finalizers": ["batch.kubernetes.io/job-tracking"]}
"""What a Job controller has not counted yet."""


def job(more: str = "") -> str:
    return TWO % (f", {more}" if more else "")


def elastic(nodes: int = 3, more: str = "") -> str:
    return ELASTIC % (nodes, f", {more}" if more else "")


def running(world: Any, text: str, nodes: int = 2, **more: Any) -> Any:
    w = world(text, **more)
    w.settle()
    return runs(w, nodes)


def runs(w: Any, nodes: int = 2) -> Any:
    for index in range(nodes):
        w.worker(index)
    w.settle()
    assert w.phase == "Running"
    return w


def told(w: Any) -> dict[str, Any]:
    """The metadata of a pod that is told to stop now."""
    return {"deletionTimestamp": w.now + timedelta(seconds=30), **TOLD}


def over(w: Any, attempt: int = 0) -> None:
    """The pods of an attempt are gone."""
    for pod in w.seen.old_pods:
        w.remove("Pod", pod.metadata.name)
    w.settle()
    assert w.seen.job.status.attempt > attempt


def edit(w: Any, **spec: Any) -> None:
    found = w.seen.job
    changed = found.spec.model_copy(update=spec)
    w.seen = replace(w.seen, job=msgspec.structs.replace(found, spec=changed))


class TestIncidents:
    @pytest.mark.proves("TorchrunJob.status.restarts.total", "TorchrunJob.status.nextAttemptTime")
    def test_an_incident_settles_is_counted_once_and_the_next_attempt_follows_the_back_off(self, world: Any) -> None:
        w = running(world, job())
        w.worker_fails(1, 42, "boom", after_s=1)
        w.settle()
        assert (w.phase, w.seen.job.status.restarts.total) == ("Restarting", 0)
        assert w.last.actions.look_again_s == 5
        w.worker_fails(0, 1, "lost connection", after_s=2)
        w.settle()
        status = w.seen.job.status
        assert (status.attempt, status.restarts.total, status.restarts.by_cause) == (1, 1, {"Error": 1})
        assert (status.failure.pod, status.failure.exit_code) == ("demo-1-x", 42)
        assert (status.next_attempt_time - w.now).total_seconds() == 10
        assert ("Job", "demo-r1") not in w.objects
        w.later(10)
        w.settle()
        assert ("Job", "demo-r1") in w.objects
        runs(w)
        assert w.seen.job.status.rendezvous_id.endswith("-1")

    def test_the_pod_that_failed_first_is_the_root_in_whatever_order_the_failures_are_seen(self, world: Any) -> None:
        w = running(world, job())
        w.worker_fails(0, 1, "lost connection", after_s=2)
        w.settle()
        assert w.seen.job.status.failure.pod == "demo-0-x"
        w.worker_fails(1, 42, "boom", after_s=1)
        w.settle()
        assert (w.seen.job.status.failure.pod, w.seen.job.status.attempt) == ("demo-1-x", 1)

    def test_pods_that_are_lost_later_than_the_first_do_not_open_another_incident(self, world: Any) -> None:
        w = running(world, job())
        w.worker_fails(1, 42)
        w.settle()
        w.later(5)
        w.settle()
        assert w.seen.job.status.attempt == 1
        w.old_worker("demo-0-x", phase="Failed")
        w.later(10)
        w.settle()
        assert (w.seen.job.status.attempt, w.seen.job.status.restarts.total) == (1, 1)

    def test_the_next_attempt_waits_until_no_pod_of_an_earlier_one_runs(self, world: Any) -> None:
        w = running(world, job())
        w.worker_fails(1, 42)
        w.worker(0, metadata=told(w))
        w.settle()
        w.later(6)
        w.settle()
        w.later(11)
        w.settle()
        assert (w.phase, ("Job", "demo-r1") in w.objects) == ("Restarting", False)
        w.remove("Pod", "demo-0-x")
        w.settle()
        assert ("Job", "demo-r1") in w.objects

    def test_a_pod_on_a_node_that_does_not_answer_is_removed_by_force_after_its_grace(self, world: Any) -> None:
        w = running(world, job())
        w.worker(0, metadata=told(w))
        w.settle()
        w.later(5)
        w.settle()
        w.later(54)
        w.step()
        assert [removal for removal in w.last.actions.remove if removal.force] == []
        w.later(1)
        w.step()
        assert [(r.key.name, r.force) for r in w.last.actions.remove if r.kind.kind == "Pod"] == [("demo-0-x", True)]
        w.remove("Pod", "demo-1-x")
        w.settle()
        assert ("Job", "demo-r1") in w.objects

    @pytest.mark.parametrize("text", [job(), elastic(2)])
    def test_a_pod_that_was_deleted_by_force_and_that_somebody_holds_is_not_deleted_again_and_again(
        self, world: Any, text: str
    ) -> None:
        w = running(world, text)
        lost = 0 if "elastic" not in text else 1
        held = {"deletionTimestamp": w.now, "deletionGracePeriodSeconds": 0, "finalizers": ["example.test/audit"]}
        w.worker(lost, metadata=held, conditions=[])
        w.settle()
        w.later(5)
        w.settle()
        w.later(60)
        w.step()
        assert [removal for removal in w.last.actions.remove if removal.force] == []

    @pytest.mark.parametrize("text", [job(), elastic(2)])
    def test_a_pod_that_may_not_be_deleted_by_force_is_tried_again_when_what_is_refused_is(
        self, world: Any, text: str
    ) -> None:
        w = running(world, text)
        w.worker(0, metadata=told(w))
        w.settle()
        w.later(5)
        w.settle()
        w.later(60)
        w.step()
        assert [removal.key.name for removal in w.last.actions.remove if removal.force] == ["demo-0-x"]
        assert again_s(w.last, [Refusal("Pod", "demo-0-x", "Refused", "no", stays=True)]) == 60

    def test_a_job_that_would_not_let_its_stuck_pod_go_is_not_kept_to_be_read(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        w.worker(2, metadata=told(w))
        w.worker_fails(1, 42, after_s=0)
        w.settle()
        w.later(5)
        w.settle()
        assert w.spec("Job", "demo")["activeDeadlineSeconds"] == 1
        w.later(54)
        w.settle()
        assert ("Job", "demo") in w.objects
        w.later(1)
        w.step()
        assert [(r.kind.kind, r.key.name, r.force) for r in w.last.actions.remove] == [
            ("Job", "demo", False),
            ("Pod", "demo-2-x", True),
        ]

    def test_a_trainer_that_saves_and_exits_0_while_it_is_evicted_is_an_incident(self, world: Any) -> None:
        w = running(world, job())
        ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 0, "finishedAt": w.now}}}]
        target = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
        w.worker(0, "Succeeded", containerStatuses=ended, metadata=told(w), conditions=target)
        w.worker(1, "Succeeded", containerStatuses=ended)
        w.job_is("Complete")
        w.settle()
        assert w.seen.job.status.restarts.by_cause == {"Evicted": 1}
        assert w.seen.job.status.attempt == 1

    @pytest.mark.parametrize("end", ["Complete", "Failed"])
    def test_an_attempt_that_came_and_went_unseen_has_its_start_all_the_same(self, world: Any, end: str) -> None:
        """The operator was away from the creation of the Job to its end."""
        w = world(job("runPolicy: {maxRestarts: 1}"))
        while ("Job", "demo") not in w.objects:
            w.step()
        made = w.now
        w.later(60)
        w.job_is(end)
        w.settle()
        assert w.seen.job.status.start_time == made
        w.later(60)
        w.settle()
        assert w.seen.job.status.start_time == made

    def test_an_incident_that_was_seen_is_no_success_however_its_pod_ends_afterwards(self, world: Any) -> None:
        w = running(world, job())
        w.worker(0, metadata=told(w))
        w.settle()
        w.remove("Pod", "demo-0-x")
        w.remove("Pod", "demo-1-x")
        w.job_is("Complete")
        w.settle()
        w.later(5)
        w.settle()
        assert w.seen.job.status.restarts.by_cause == {"Deleted": 1}

    def test_a_job_that_only_its_pods_tell_of_was_there_and_is_not_made_again(self, world: Any) -> None:
        """The operator died between creating it and noting that; a person deleted it; the next operator looks."""
        w = running(world, job())
        status = w.seen.job.status
        unnoted = msgspec.structs.replace(status, attempt_start_time=None, start_time=None, attempt_ready_time=None)
        w.seen = replace(w.seen, job=msgspec.structs.replace(w.seen.job, status=unnoted))
        for index in range(2):
            w.worker(index, metadata=told(w))
        w.remove("Job", "demo")
        w.settle()
        assert w.condition("Failed")[:2] == ("True", "JobDisappeared")
        assert ("Job", "demo") not in w.objects
        assert (w.seen.job.status.nodes.ready, w.seen.job.status.workers_status) == (0, "0/2 running")

    def test_pods_that_are_seen_to_go_before_their_job_go_with_it_all_the_same(self, world: Any) -> None:
        """Pods and Jobs are watched separately: which of the two changes comes first is chance."""
        w = running(world, job())
        for index in range(2):
            w.worker(index, metadata=told(w))
        w.settle()
        assert w.phase == "Restarting"
        w.remove("Job", "demo")
        w.settle()
        w.later(5)
        w.settle()
        assert w.condition("Failed")[:2] == ("True", "JobDisappeared")
        assert w.seen.job.status.attempt == 0

    def test_a_program_that_failed_before_its_job_was_deleted_is_started_again(self, world: Any) -> None:
        w = running(world, job())
        w.worker_fails(1, 42, after_s=0)
        w.settle()
        w.remove("Job", "demo")
        w.later(5)
        w.settle()
        assert (w.seen.job.status.attempt, w.seen.job.status.restarts.by_cause) == (1, {"Error": 1})

    def test_a_clock_that_was_set_back_holds_nothing_up(self, world: Any) -> None:
        w = running(world, job())
        w.worker(1, metadata=told(w))
        w.settle()
        w.now -= timedelta(hours=1)
        w.settle()
        assert w.seen.job.status.attempt == 1
        w.now -= timedelta(hours=1)
        over(w)
        runs(w)

    def test_a_back_off_doubles_up_to_its_limit(self) -> None:
        settings = Restarting()
        now = datetime(2026, 1, 1, tzinfo=UTC)
        waits = [(next_attempt_time(settings, n, now) - now).total_seconds() for n in (1, 2, 3, 4, 5, 6, 7, 1000)]
        assert waits == [10, 20, 40, 80, 160, 300, 300, 300]

    @pytest.mark.proves("TorchrunJob.status.restarts.consecutive")
    def test_after_a_long_stable_run_the_back_off_begins_anew(self, world: Any) -> None:
        w = running(world, job())
        for attempt in (1, 2):
            w.worker_fails(0, 42, after_s=0)
            w.settle()
            w.later(5)
            w.settle()
            w.later(20)
            over(w)
            runs(w)
            assert w.seen.job.status.restarts.consecutive == attempt
        w.later(600)
        w.worker(0, metadata=told(w))
        w.settle()
        w.later(5)
        w.settle()
        assert w.seen.job.status.restarts.consecutive == 1
        assert w.seen.job.status.restarts.total == 3

    def test_used_up_restarts_end_the_job_and_say_so(self, world: Any) -> None:
        w = running(world, job("runPolicy: {maxRestarts: 1}"))
        for _ in range(2):
            w.worker_fails(1, 42, after_s=0)
            w.settle()
            w.later(5)
            w.settle()
            if w.phase == "Failed":
                break
            w.later(10)
            over(w)
            runs(w)
        assert w.condition("Failed")[:2] == ("True", "RestartsExhausted")
        assert "the one restart is used (runPolicy.maxRestarts)" in w.condition("Failed")[2]
        assert (w.seen.job.status.attempt, w.seen.job.status.restarts.total) == (1, 2)
        assert not w.step()

    def test_the_faults_of_the_cluster_do_not_use_up_the_restarts_of_the_program(self, world: Any) -> None:
        w = running(world, job("runPolicy: {maxRestarts: 1}"))
        for number in range(1, 5):
            w.worker(0, metadata=told(w))
            w.settle()
            w.later(5)
            w.settle()
            assert w.seen.job.status.restarts.by_cause == {"Deleted": number}
            w.later(300)
            over(w)
            runs(w)
        assert w.phase == "Running"

    def test_a_gang_that_came_and_went_while_nobody_looked_was_admitted(self, world: Any) -> None:
        """However little is left of it: its end is the same as that of one that was watched."""
        for gone in (False, True):
            w = world(job(), "{image: a, kaiQueue: x}")
            w.settle()
            assert w.phase == "Queued"
            for index in range(2):
                w.worker(index, "Succeeded")
            if gone:
                w.remove("Pod", "demo-0-x")
                w.remove("Pod", "demo-1-x")
            w.job_is("Complete")
            w.settle()
            assert w.phase == "Succeeded"
            assert w.condition("Admitted") == ("True", "Admitted", "all 2 pods are placed")

    def test_a_job_that_was_complete_is_never_run_again_when_its_job_is_deleted(self, world: Any) -> None:
        w = running(world, job())
        w.worker(0, "Succeeded")
        w.worker(1, "Succeeded")
        w.job_is("Complete")
        w.settle()
        assert w.phase == "Succeeded"
        w.remove("Job", "demo")
        w.settle()
        assert (w.phase, ("Job", "demo") in w.objects, ("Job", "demo-r1") in w.objects) == ("Succeeded", False, False)

    @pytest.mark.proves("TorchrunJob.spec.queueUpdatePolicy")
    def test_the_next_attempt_takes_the_queue_as_it_is_only_where_the_job_asks_for_it(self, world: Any) -> None:
        for policy, image in (("Frozen", "trainer:1"), ("NextAttempt", "trainer:2")):
            w = running(world, job(f"queueUpdatePolicy: {policy}"))
            w.has_queue("image: trainer:2")
            w.settle()
            assert w.spec("Job", "demo")["template"]["spec"]["containers"][0]["image"] == "trainer:1"
            w.worker_fails(1, 42)
            w.settle()
            w.later(5)
            w.settle()
            w.later(10)
            w.remove("Pod", "demo-0-x")
            w.settle()
            assert w.spec("Job", "demo-r1")["template"]["spec"]["containers"][0]["image"] == image

    def test_an_attempt_that_is_to_take_the_queue_as_it_is_waits_for_one_that_is_gone(self, world: Any) -> None:
        w = running(world, job("queueUpdatePolicy: NextAttempt"))
        w.has_queue(None)
        w.worker_fails(1, 42)
        w.settle()
        w.later(5)
        w.settle()
        w.later(10)
        over(w)
        assert w.condition("WorkersReady") == ("False", "NotStarted", "waits for the queue")
        for wanted in (True, False):
            edit(w, suspend=wanted)
            w.settle()
        w.has_queue("image: trainer:2")
        w.settle()
        assert w.spec("Job", "demo-r1")["template"]["spec"]["containers"][0]["image"] == "trainer:2"
        runs(w)


class TestTemplatesOfEarlierAttempts:
    def fails(self, w: Any) -> None:
        """The attempt fails, and the next one is about to begin."""
        attempt = w.seen.job.status.attempt
        w.worker_fails(1, 42, after_s=(w.now - EPOCH).total_seconds())
        w.worker(0, "Failed")
        w.settle()
        w.later(400)
        w.settle()
        assert w.seen.job.status.attempt == attempt + 1

    def templates(self, w: Any) -> list[str]:
        return [name for kind, name in w.objects if kind == "ControllerRevision"]

    def test_only_the_template_in_force_stays_however_often_the_queue_is_edited(self, world: Any) -> None:
        w = running(world, job("queueUpdatePolicy: NextAttempt, runPolicy: {maxRestarts: 9}"))
        for image in (2, 3, 3, 2):
            w.has_queue(f"image: trainer:{image}")
            self.fails(w)
            runs(w)
            assert self.templates(w) == [w.seen.job.status.queue_revision]
            trainer = w.spec("Job", f"demo-r{w.seen.job.status.attempt}")["template"]["spec"]["containers"][0]
            assert trainer["image"] == f"trainer:{image}"

    def test_the_earlier_one_goes_only_when_status_names_another_that_is_there(self, world: Any) -> None:
        w = running(world, job("queueUpdatePolicy: NextAttempt"))
        first = w.seen.job.status.queue_revision
        w.has_queue("image: trainer:2")
        w.worker_fails(1, 42)
        w.worker(0, "Failed")
        states = []
        for _ in range(12):
            w.later(5)
            w.step()
            states.append((w.seen.job.status.queue_revision, *self.templates(w)))
        second = w.seen.job.status.queue_revision
        assert list(dict.fromkeys(states)) == [
            (first, first),
            ("", first),
            (second, first),
            (second, first, second),
            (second, second),
        ]

    def test_it_goes_by_its_uid_also_after_the_end(self, world: Any) -> None:
        w = running(world, job("queueUpdatePolicy: NextAttempt"))
        w.has_queue("image: trainer:2")
        self.fails(w)
        runs(w)
        named = w.seen.revision
        older = msgspec.structs.replace(
            named, metadata=msgspec.structs.replace(named.metadata, name="demo-older", uid="uid-older"), revision=1
        )
        for index in range(2):
            w.worker(index, "Succeeded")
        w.job_is("Complete")
        w.settle()
        assert w.phase == "Succeeded"
        w.seen = replace(w.seen, old_revisions=(older,))
        w.step()
        assert ("ControllerRevision", "demo-older", "uid-older") in [
            (removal.kind.kind, removal.key.name, removal.uid) for removal in w.last.actions.remove
        ]


class TestWhatIsKept:
    def incident(self, world: Any, policy: str) -> Any:
        w = running(world, job(f"runPolicy: {{podRetention: {policy}}}"))
        w.worker_fails(1, 42)
        w.settle()
        w.later(5)
        w.settle()
        w.remove("Pod", "demo-0-x")
        w.later(10)
        w.settle()
        return runs(w)

    @pytest.mark.proves("TorchrunJob.spec.runPolicy.podRetention")
    @pytest.mark.parametrize(("policy", "kept"), [("Failed", True), ("None", False), ("All", True)])
    def test_the_last_failed_attempt_stays_to_be_read_as_the_policy_says(
        self, world: Any, policy: str, kept: bool
    ) -> None:
        w = self.incident(world, policy)
        assert (("Job", "demo") in w.objects) is kept

    @pytest.mark.parametrize(
        ("policy", "first", "second"), [("Failed", False, True), ("None", False, False), ("All", True, True)]
    )
    def test_the_outcome_decides_what_stays(self, world: Any, policy: str, first: bool, second: bool) -> None:
        w = self.incident(world, policy)
        w.worker(0, "Succeeded")
        w.worker(1, "Succeeded")
        w.job_is("Complete")
        w.settle()
        assert w.phase == "Succeeded"
        assert (("Job", "demo") in w.objects, ("Job", "demo-r1") in w.objects) == (first, second)
        assert w.seen.job.status.failure is None

    @pytest.mark.proves("TorchrunJob.spec.runPolicy.ttlSecondsAfterFinished")
    def test_a_job_goes_when_its_time_to_live_is_over_and_not_before(self, world: Any) -> None:
        w = running(world, job("runPolicy: {ttlSecondsAfterFinished: 60}"))
        w.succeeds()
        w.settle()
        assert (w.last.actions.look_again_s, w.last.actions.remove) == (60, ())
        w.later(59)
        w.settle()
        w.later(1)
        w.step()
        meta = w.seen.job.metadata
        assert [(r.kind.kind, r.key.name, r.uid, r.version) for r in w.last.actions.remove] == [
            ("TorchrunJob", "demo", meta.uid, meta.resource_version)
        ]


class TestSidecarsThatRunOn:
    """A trainer has failed, and its pod has not ended because of another container of it."""

    def fails(self, w: Any, index: int = 1, **more: Any) -> None:
        ended = {"exitCode": 42, "reason": "Error", "finishedAt": EPOCH + timedelta(seconds=10 + index)}
        trainer = {"name": "trainer", "state": {"terminated": ended}}
        goes_on = {"name": "logs", "state": {"running": {}}}
        statuses = {"containerStatuses": [trainer, goes_on]} | more
        w.worker(index, "Running", startTime=EPOCH, **statuses)

    def natively(self, w: Any) -> None:
        """With a sidecar that Kubernetes ends after the trainer."""
        ended = {"exitCode": 42, "reason": "Error", "finishedAt": EPOCH + timedelta(seconds=10)}
        trainer = [{"name": "trainer", "state": {"terminated": ended}}]
        goes_on = [{"name": "logs", "state": {"running": {}}}]
        self.fails(w, containerStatuses=trainer, initContainerStatuses=goes_on)

    def settled(self, w: Any, attempt: int = 1) -> Any:
        w.settle()
        w.later(6)
        w.settle()
        assert w.seen.job.status.attempt == attempt
        return w

    def halted(self, w: Any) -> list[str]:
        return [pod.metadata.name for pod in (*w.seen.pods, *w.seen.old_pods) if pod.spec.active_deadline_seconds]

    def ends(self, w: Any, name: str) -> None:
        """The pod has come to its end and stays; its Job is over, and the pods that ran are deleted."""
        w.old_worker(name, phase="Failed", reason="DeadlineExceeded")
        for pod in w.seen.old_pods:
            if pod.status.phase == "Running":
                w.remove("Pod", pod.metadata.name)
        w.later(20)
        w.settle()

    def test_the_pod_is_ended_and_stays_to_be_read(self, world: Any) -> None:
        w = running(world, job())
        self.fails(w)
        w.later(20)
        self.settled(w)
        assert self.halted(w) == ["demo-1-x"]
        (pod,) = (pod for pod in w.seen.old_pods if pod.metadata.name == "demo-1-x")
        assert pod.spec.active_deadline_seconds == 26, "as old as it is: it is over now"
        assert not w.spec("Job", "demo").get("suspend", False)
        assert not w.step(), "it is told once"
        self.ends(w, "demo-1-x")
        assert ("Job", "demo") in w.objects
        assert ("Job", "demo-r1") in w.objects

    def test_of_several_the_one_that_failed_first_is_ended_and_takes_the_others_with_it(self, world: Any) -> None:
        w = running(world, job())
        self.fails(w, 1)
        self.fails(w, 0)
        self.settled(w)
        assert w.seen.job.status.failure.pod == "demo-0-x"
        assert self.halted(w) == ["demo-0-x"]
        w.old_worker("demo-0-x", phase="Failed")
        w.settle()
        assert self.halted(w) == ["demo-0-x"], "the Job controller ends the other one"

    def test_a_sidecar_that_kubernetes_ends_is_waited_for(self, world: Any) -> None:
        w = running(world, job())
        self.natively(w)
        self.settled(w)
        assert (self.halted(w), w.last.actions.remove) == ([], ())
        assert not w.spec("Job", "demo").get("suspend", False)
        self.ends(w, "demo-1-x")
        assert ("Job", "demo") in w.objects
        assert ("Job", "demo-r1") in w.objects

    def test_a_pod_that_does_not_end_goes_by_force_with_its_job(self, world: Any) -> None:
        w = running(world, job())
        self.fails(w)
        self.settled(w)
        w.later(59)
        w.settle()
        assert ("Job", "demo") in w.objects
        w.later(2)
        w.step()
        assert [(r.kind.kind, r.key.name, r.force) for r in w.last.actions.remove] == [
            ("Job", "demo", False),
            ("Pod", "demo-1-x", True),
        ]

    def test_a_job_that_keeps_nothing_deletes_it(self, world: Any) -> None:
        w = running(world, job("runPolicy: {podRetention: None}"))
        self.fails(w)
        self.settled(w)
        assert (self.halted(w), ("Job", "demo") in w.objects) == ([], False)

    def test_a_pod_that_is_told_to_stop_keeps_nothing(self, world: Any) -> None:
        w = running(world, job())
        self.fails(w, metadata=told(w))
        self.settled(w)
        assert (self.halted(w), ("Job", "demo") in w.objects) == ([], False)

    def test_the_last_attempt_is_ended_the_same_way(self, world: Any) -> None:
        for policy, halted in (("Failed", ["demo-1-x"]), ("None", [])):
            w = running(world, job(f"runPolicy: {{maxRestarts: 0, podRetention: {policy}}}"))
            self.fails(w)
            self.settled(w, 0)
            assert w.phase == "Failed"
            assert self.halted(w) == halted
            assert (("Job", "demo") in w.objects) is bool(halted)
            if halted:
                assert not w.spec("Job", "demo").get("suspend", False)

    def test_an_elastic_job_stops_all_of_its_pods_and_would_replace_one_that_ended(self, world: Any) -> None:
        w = running(world, elastic(2), 2)
        self.fails(w)
        self.settled(w)
        assert self.halted(w) == []
        assert w.spec("Job", "demo")["activeDeadlineSeconds"] == 1


class TestSuspension:
    def test_it_is_written_down_before_the_pods_are_stopped(self, world: Any) -> None:
        w = running(world, job())
        edit(w, suspend=True)
        w.step()
        assert (w.phase, w.last.actions.children) == ("Suspended", ())
        w.step()
        assert w.spec("Job", "demo").get("suspend", False) is True
        for index in range(2):
            w.worker_fails(index, 143, metadata=told(w))
        w.job_is("Failed", "BackoffLimitExceeded")
        w.settle()
        assert (w.phase, w.seen.job.status.restarts.total) == ("Suspended", 0)

    def test_a_job_that_is_suspended_before_anybody_saw_it_run_has_its_start_all_the_same(self, world: Any) -> None:
        w = world(job())
        while ("Job", "demo") not in w.objects:
            w.step()
        made = w.now
        w.later(60)
        edit(w, suspend=True)
        w.settle()
        edit(w, suspend=False)
        w.settle()
        assert (w.seen.job.status.attempt, w.seen.job.status.start_time) == (1, made)

    @pytest.mark.proves("TorchrunJob.spec.suspend")
    def test_resuming_is_a_new_attempt_and_no_incident(self, world: Any) -> None:
        w = running(world, job())
        w.later(100)
        edit(w, suspend=True)
        w.settle()
        w.later(1000)
        w.worker(0, metadata=told(w))
        edit(w, suspend=False)
        w.settle()
        assert (w.phase, w.seen.job.status.attempt) == ("Restarting", 1)
        assert ("Job", "demo-r1") not in w.objects
        over(w)
        runs(w)
        assert (w.seen.job.status.attempt, w.seen.job.status.restarts.total) == (1, 0)
        assert w.seen.job.status.active_seconds == 100
        assert ("Job", "demo") not in w.objects

    def test_a_job_that_is_suspended_from_the_start_has_only_its_workspace_prepared(self, world: Any) -> None:
        w = world(job("suspend: true, volumes: {workspace: {source: git, url: 'https://git.test/a'}}"))
        w.settle()
        assert {kind for kind, _ in w.objects} <= {"ControllerRevision", "PersistentVolumeClaim", "Pod", "Service"}
        assert ("Pod", "demo-sync-0") in w.objects
        assert ("Job", "demo") not in w.objects
        edit(w, suspend=False)
        w.settle()
        w.sync_serves()
        w.settle()
        assert w.seen.job.status.attempt == 0
        assert ("Job", "demo") in w.objects

    def test_a_suspended_job_too_names_its_template_before_anything_is_made_from_it(self, world: Any) -> None:
        w = world(job("suspend: true"), queue=None)
        w.settle()
        assert w.phase == "Suspended"
        w.has_queue("image: trainer:1")
        w.step()
        assert w.last.actions.children == ()
        w.settle()
        assert [kind for kind, _ in w.objects] == ["ControllerRevision"]

    def test_without_a_gang_scheduler_no_attempt_is_ever_queued(self, world: Any) -> None:
        w = running(world, job())
        edit(w, suspend=True)
        w.settle()
        edit(w, suspend=False)
        w.settle()
        over(w)
        runs(w)
        w.worker_fails(1, 42)
        w.settle()
        w.later(5)
        w.settle()
        w.later(10)
        over(w, 1)
        runs(w)
        later = world(job("suspend: true"))
        later.settle()
        edit(later, suspend=False)
        later.settle()
        assert "Queued" not in w.log + later.log
        assert "Restarting" not in later.log

    def test_workers_that_cannot_be_stopped_are_not_said_to_be_suspended(self, world: Any) -> None:
        """Somebody deleted the template, and the queue is another one by now."""
        w = running(world, job())
        w.has_queue("image: trainer:2")
        w.remove("ControllerRevision", w.seen.job.status.queue_revision)
        edit(w, suspend=True)
        w.settle()
        assert (w.phase, w.spec("Job", "demo").get("suspend", False)) == ("Running", False)

    def test_flips_within_a_moment_end_as_the_last_one_says(self, world: Any) -> None:
        w = running(world, job())
        for wanted in (True, False, True, False, True):
            edit(w, suspend=wanted)
            w.step()
        w.settle()
        assert w.phase == "Suspended"
        edit(w, suspend=False)
        w.settle()
        over(w)
        runs(w)
        assert w.seen.job.status.restarts.total == 0

    def test_trainers_that_exit_0_because_they_are_suspended_have_not_succeeded(self, world: Any) -> None:
        w = running(world, job())
        edit(w, suspend=True)
        w.settle()
        w.later(3)
        w.remove("Pod", "demo-0-x")
        w.remove("Pod", "demo-1-x")
        w.job_is("Complete")
        w.settle()
        assert w.phase == "Suspended"

    def test_workers_that_nobody_came_to_stop_and_that_succeeded_are_believed(self, world: Any) -> None:
        """The operator died after it had written Suspended, and before it told the Job."""
        w = running(world, job())
        edit(w, suspend=True)
        w.step()
        assert (w.phase, w.spec("Job", "demo").get("suspend", False)) == ("Suspended", False)
        w.later(3600)
        w.worker(0, "Succeeded")
        w.worker(1, "Succeeded")
        w.job_is("Complete")
        w.settle()
        assert w.phase == "Succeeded"

    @pytest.mark.parametrize(("text", "done"), [(job(), 2), (elastic(2), 1)])
    def test_a_job_whose_workers_are_done_is_not_suspended(self, world: Any, text: str, done: int) -> None:
        w = running(world, text)
        for index in range(done):
            w.worker(index, "Succeeded")
        edit(w, suspend=True)
        w.settle()
        assert (w.phase, w.spec("Job", "demo").get("suspend", False)) == ("Succeeded", False)

    @pytest.mark.parametrize("resumed", [False, True])
    @pytest.mark.parametrize(("text", "done"), [(job(), 2), (elastic(2), 1)])
    def test_workers_that_succeeded_before_their_job_was_told_to_stop_them_are_believed(
        self, world: Any, text: str, done: int, resumed: bool
    ) -> None:
        w = running(world, text)
        edit(w, suspend=True)
        w.settle()
        assert w.phase == "Suspended"
        for index in range(done):
            w.worker(index, "Succeeded")
        edit(w, suspend=not resumed)
        w.settle()
        w.later(2)
        w.job_is("Complete")
        w.settle()
        assert (w.phase, w.seen.job.status.attempt) == ("Succeeded", 0)

    def test_workers_of_which_only_one_had_succeeded_before_have_not(self, world: Any) -> None:
        w = running(world, job())
        w.worker(0, "Succeeded")
        edit(w, suspend=True)
        w.settle()
        w.later(3)
        w.remove("Pod", "demo-1-x")
        w.job_is("Complete")
        w.settle()
        assert w.phase == "Suspended"

    def test_workers_that_had_succeeded_before_are_believed(self, world: Any) -> None:
        w = running(world, job())
        w.later(10)
        edit(w, suspend=True)
        w.settle()
        w.remove("Pod", "demo-0-x")
        w.remove("Pod", "demo-1-x")
        w.now -= timedelta(seconds=5)
        w.job_is("Complete")
        w.settle()
        assert w.phase == "Succeeded"


def test_a_job_that_succeeded_runs_no_workers_though_the_cache_is_late_with_their_ends(world: Any) -> None:
    w = running(world, elastic(2))
    w.worker(0, "Succeeded", conditions=[])
    w.job_is("Complete")
    w.settle()
    status = w.seen.job.status
    assert (w.phase, status.workers_status) == ("Succeeded", "2/2 succeeded")
    assert (status.workers.succeeded, status.workers.running, status.nodes.ready) == (2, 0, 0)


@pytest.mark.parametrize(("text", "worker"), [(job(), 1), (elastic(2), 0)])
@pytest.mark.parametrize("evicted", [False, True])
def test_a_success_that_is_heard_of_before_a_workers_end_is_believed_once_it_is_seen_how_that_one_ended(
    world: Any, text: str, worker: int, evicted: bool
) -> None:
    """Pods and Jobs are watched separately. The Job controller counts a trainer that exits 0 as it is evicted."""
    w = running(world, text)
    w.worker(1 - worker, "Succeeded")
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Running"
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 0, "finishedAt": w.now}}}]
    w.worker(worker, "Succeeded", containerStatuses=ended, metadata=told(w) if evicted else {})
    w.settle()
    assert w.phase == ("Restarting" if evicted else "Succeeded")


class TestElastic:
    def test_the_job_replaces_what_it_loses_and_ends_with_worker_0(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        spec = w.spec("Job", "demo")
        assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (3, 3, 2**31 - 1)
        assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}

    def test_scaling_changes_both_numbers_of_the_running_job(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        edit(w, num_nodes=4)
        w.settle()
        assert [w.spec("Job", "demo")[field] for field in ("completions", "parallelism")] == [4, 4]
        assert (w.phase, w.seen.job.status.nodes.desired, w.seen.job.status.attempt) == ("Running", 4, 0)
        edit(w, num_nodes=2)
        w.worker(2, metadata=told(w))
        w.settle()
        assert [w.spec("Job", "demo")[field] for field in ("completions", "parallelism")] == [2, 2]
        assert (w.phase, w.seen.job.status.restarts.total) == ("Running", 0)

    def test_a_pod_that_the_cluster_takes_is_no_incident_while_enough_are_left(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        w.worker(2, metadata=told(w))
        w.settle()
        assert (w.phase, w.seen.job.status.incident) == ("Running", None)

    @pytest.mark.parametrize(
        ("more", "phase"), [({}, "Running"), ({"num_nodes": 2}, "Running"), ({"suspend": True}, "Suspended")]
    )
    def test_a_stuck_worker_goes_by_force(self, world: Any, more: dict[str, Any], phase: str) -> None:
        """Whatever the job is about: its node ends it no more, and its Job has counted it."""
        w = running(world, elastic(), 3)
        edit(w, **more)
        w.worker(2, metadata=told(w), conditions=[])
        w.settle()
        assert (w.phase, w.last.actions.look_again_s) == (phase, 60)
        w.later(59)
        w.settle()
        assert ("demo-2-x" in {pod.metadata.name for pod in w.seen.pods}, w.last.actions.remove) == (True, ())
        w.later(1)
        w.step()
        assert [(removal.key.name, removal.force) for removal in w.last.actions.remove] == [("demo-2-x", True)]
        assert (w.seen.job.status.attempt, w.seen.job.status.incident) == (0, None)

    def test_workers_that_take_long_to_stop_when_worker_0_has_succeeded_are_not_missed(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        w.worker(0, "Succeeded")
        for index in (1, 2):
            w.worker(index, metadata=told(w), conditions=[])
        w.settle()
        w.later(200)
        w.settle()
        assert (w.phase, w.seen.job.status.incident) == ("Succeeded", None)

    def test_a_worker_whose_node_does_not_answer_does_not_hold_up_the_success_of_worker_0(self, world: Any) -> None:
        """The Job itself is not Complete while pods of it have yet to end."""
        w = running(world, elastic(), 3)
        w.worker(0, "Succeeded")
        for index in (1, 2):
            w.worker(index, metadata=told(w), conditions=[])
        w.settle()
        assert w.phase == "Succeeded"

    @pytest.mark.proves("TorchrunJob.spec.elastic.minNodes")
    def test_a_job_below_its_minimum_waits_and_then_counts_one_incident(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        for index in (1, 2):
            w.remove("Pod", f"demo-{index}-x")
        w.settle()
        assert w.condition("WorkersReady")[:2] == ("False", "BelowMinimum")
        assert w.last.life.look_again_s == 120
        w.later(120)
        w.settle()
        w.later(5)
        w.settle()
        assert w.seen.job.status.restarts.by_cause == {"BelowMinimum": 1}

    def test_a_change_of_size_that_is_refused_costs_no_worker(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        w.refuse = lambda kind, name: Refusal("Job", name, "Refused", "no") if kind == "Job" else None
        edit(w, num_nodes=4)
        w.settle()
        assert (w.phase, w.condition("WorkersReady")[:2]) == ("Running", ("True", "Refused"))
        w.later(10_000)
        w.settle()
        assert w.seen.job.status.incident is None
        assert w.seen.job.status.attempt == 0

    def test_a_change_of_size_that_is_refused_does_not_shorten_the_time_below_the_minimum(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        w.refuse = lambda kind, name: Refusal("Job", name, "Refused", "no") if kind == "Job" else None
        edit(w, num_nodes=4)
        w.settle()
        w.later(10_000)
        for index in (1, 2):
            w.remove("Pod", f"demo-{index}-x")
        w.settle()
        assert (w.seen.job.status.incident, w.last.life.look_again_s) == (None, 120)

    def test_the_time_below_the_minimum_begins_anew_when_enough_workers_are_back(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        for _ in range(2):
            for index in (1, 2):
                w.worker(index, conditions=[])
            w.settle()
            assert w.last.life.look_again_s == 120
            w.later(119)
            w.settle()
            assert w.last.life.look_again_s == 1
            w.worker(1)
            w.settle()
        w.later(119)
        w.settle()
        assert (w.phase, w.seen.job.status.incident) == ("Running", None)

    def test_a_clock_that_was_set_back_does_not_prolong_the_time_below_the_minimum(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        for index in (1, 2):
            w.worker(index, metadata=told(w), conditions=[])
        w.settle()
        w.now -= timedelta(hours=1)
        w.settle()
        assert w.seen.job.status.incident.cause == "BelowMinimum"

    def test_the_loss_of_the_stores_host_is_an_incident(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        w.worker(0, metadata=told(w))
        w.settle()
        w.later(5)
        w.settle()
        assert w.seen.job.status.restarts.by_cause == {"Deleted": 1}

    @pytest.mark.proves("TorchrunJob.status.hostUid")
    @pytest.mark.parametrize(("more", "lost"), [("", {"Vanished": 1}), ("distributed: {rdzvBackend: etcd-v2}", {})])
    def test_a_host_that_was_replaced_while_nobody_watched_is_an_incident(
        self, world: Any, more: str, lost: dict[str, int]
    ) -> None:
        w = running(world, elastic(more=more), 3)
        assert w.seen.job.status.host_uid == "uid-of-demo-0-x"
        w.later(20)
        w.worker(0, metadata={"uid": "another", "creationTimestamp": w.now})
        w.settle()
        w.later(5)
        w.settle()
        assert w.seen.job.status.restarts.by_cause == lost

    def test_with_a_store_elsewhere_worker_0_is_one_of_many(self, world: Any) -> None:
        w = running(world, elastic(more="distributed: {rdzvBackend: etcd-v2}"), 3)
        w.worker(0, metadata=told(w))
        w.settle()
        assert (w.phase, w.seen.job.status.incident) == ("Running", None)

    def test_worker_0_that_exits_0_because_it_was_told_to_stop_is_an_incident_wherever_the_store_is(
        self, world: Any
    ) -> None:
        """Its Job takes that for the success of all, and would not make another one in its place."""
        w = running(world, elastic(more="distributed: {rdzvBackend: etcd-v2}"), 3)
        w.worker(0, metadata=told(w))
        w.settle()
        ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 0, "finishedAt": w.now}}}]
        w.worker(0, "Succeeded", containerStatuses=ended, metadata=told(w))
        w.settle()
        assert w.phase == "Restarting"
        w.remove("Pod", "demo-0-x")
        w.job_is("Complete")
        w.settle()
        w.later(5)
        w.settle()
        assert (w.phase, w.seen.job.status.restarts.by_cause) == ("Restarting", {"Deleted": 1})

    def test_a_program_that_fails_is_an_incident_whatever_its_index(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        w.worker_fails(2, 42)
        w.settle()
        w.later(5)
        w.settle()
        assert w.seen.job.status.restarts.by_cause == {"Error": 1}
        assert w.spec("Job", "demo")["activeDeadlineSeconds"] == 1

    def test_how_the_others_end_is_of_no_account_once_worker_0_has_succeeded(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        w.worker(0, "Succeeded")
        w.worker_fails(1, 143)
        w.settle()
        assert (w.seen.job.status.incident, w.seen.job.status.restarts.total) == (None, 0)
        w.job_is("Complete")
        w.settle()
        assert w.phase == "Succeeded"

    def test_the_next_attempt_waits_until_the_earlier_job_cannot_make_pods_any_more(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        w.refuse = lambda kind, name: Refusal("Job", name, "Refused", "no") if kind == "Job" else None
        for index in range(3):
            w.worker_fails(index, 42)
        w.settle()
        w.later(100)
        w.settle()
        status = w.seen.job.status
        assert (status.attempt, status.next_attempt_time is not None) == (1, True)
        w.refuse = lambda kind, name: None
        w.settle()
        assert w.spec("Job", "demo")["activeDeadlineSeconds"] == 1
        assert ("Job", "demo-r1") in w.objects

    def test_the_success_of_worker_0_counts_also_where_it_is_told_of_after_another_workers_end(
        self, world: Any
    ) -> None:
        w = running(world, elastic(), 3)
        w.worker_fails(2, 1, "lost", after_s=10)
        w.settle()
        assert w.phase == "Restarting"
        ended = {"exitCode": 0, "finishedAt": EPOCH + timedelta(seconds=9)}
        w.worker(0, "Succeeded", containerStatuses=[{"name": "trainer", "state": {"terminated": ended}}])
        w.settle()
        assert (w.phase, w.seen.job.status.restarts.total, w.seen.job.status.failure) == ("Succeeded", 0, None)

    def test_the_others_that_are_stopped_for_the_success_of_worker_0_are_no_loss_without_a_template(
        self, world: Any
    ) -> None:
        w = running(world, elastic(), 3)
        w.has_queue("image: trainer:2")
        w.remove("ControllerRevision", w.seen.job.status.queue_revision)
        w.worker(0, "Succeeded")
        w.settle()
        for index in (1, 2):
            w.worker(index, metadata=told(w), conditions=[])
        w.settle()
        assert (w.phase, w.seen.job.status.incident) == ("Succeeded", None)

    def test_a_complete_job_is_not_below_its_minimum_before_it_is_heard_how_worker_0_ended(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        for index in (1, 2):
            w.remove("Pod", f"demo-{index}-x")
        w.settle()
        w.job_is("Complete")
        w.later(200)
        w.settle()
        assert (w.phase, w.seen.job.status.incident) == ("Starting", None)
        w.worker(0, "Succeeded")
        w.settle()
        assert w.phase == "Succeeded"

    def test_a_job_whose_worker_0_has_succeeded_is_never_below_its_minimum(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        for index in (1, 2):
            w.remove("Pod", f"demo-{index}-x")
        w.settle()
        w.later(200)
        w.worker(0, "Succeeded")
        w.step()
        assert (w.phase, w.seen.job.status.incident) == ("Succeeded", None)

    def test_a_success_of_worker_0_that_comes_after_its_job_is_given_up_does_not_hide_the_failure(
        self, world: Any
    ) -> None:
        w = running(world, elastic(), 3)
        w.worker_fails(1, 42)
        w.settle()
        w.job_is("FailureTarget")
        w.worker(0, "Succeeded", metadata=told(w))
        w.settle()
        w.later(5)
        w.settle()
        assert w.seen.job.status.restarts.by_cause == {"Error": 1}

    def test_a_job_that_failed_while_it_stood_still_goes_on_where_it_is_resumed(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        edit(w, suspend=True)
        w.settle()
        w.worker(0, "Succeeded", metadata=told(w))
        w.job_is("Failed")
        w.settle()
        edit(w, suspend=False)
        w.settle()
        assert w.seen.job.status.attempt == 1

    def test_a_workspace_that_cannot_be_served_again_does_not_end_workers_that_have_it(self, world: Any) -> None:
        source = "volumes: {workspace: {source: git, url: 'https://git.test/a'}}"
        w = world(elastic(more=source))
        w.settle()
        w.sync_serves()
        w.settle()
        runs(w, 3)
        w.remove("Pod", "demo-sync-0")
        w.settle()
        for number in range(3):
            w.sync_fails(number)
            w.settle()
        assert w.condition("WorkspaceReady")[:2] == ("False", "SyncFailed")
        assert w.phase == "Running"
        w.worker_fails(1, 42)
        w.settle()
        w.later(5)
        w.settle()
        w.later(10)
        over(w)
        assert w.condition("Failed")[:2] == ("True", "WorkspaceSyncFailed")

    def test_a_worker_that_is_stopped_because_worker_0_has_succeeded_has_not_failed(self, world: Any) -> None:
        """Whether its pod is still seen when the Job is Complete is chance."""
        w = running(world, elastic(), 3)
        w.worker(0, "Succeeded")
        w.worker_fails(1, 143, metadata=told(w))
        w.worker_fails(2, 1, "lost", after_s=1)
        w.job_is("Complete")
        w.settle()
        workers = w.seen.job.status.workers
        assert (w.phase, workers.succeeded, workers.failed) == ("Succeeded", 1, 1)

    def test_surplus_pods_that_are_stopped_when_worker_0_has_ended_do_not_hold_success_up(self, world: Any) -> None:
        w = running(world, elastic(), 3)
        w.worker(0, "Succeeded")
        w.worker(1, metadata=told(w))
        w.job_is("Complete")
        w.settle()
        assert w.phase == "Succeeded"


class TestDeadlines:
    @pytest.mark.proves("TorchrunJob.status.activeSeconds", "TorchrunJob.spec.runPolicy.activeDeadlineSeconds")
    def test_only_active_time_counts_over_all_attempts(self, world: Any) -> None:
        w = running(world, job("runPolicy: {activeDeadlineSeconds: 300}"))
        assert w.last.actions.look_again_s == 300
        w.later(200)
        edit(w, suspend=True)
        w.settle()
        w.later(5000)
        assert w.last.actions.look_again_s is None
        edit(w, suspend=False)
        w.settle()
        over(w)
        runs(w)
        w.later(99)
        w.settle()
        assert w.phase == "Running"
        w.later(1)
        w.settle()
        assert w.condition("Failed")[:2] == ("True", "DeadlineExceeded")
        assert w.seen.job.status.active_seconds == 300
        assert w.spec("Job", "demo-r1")["activeDeadlineSeconds"] == 1

    @pytest.mark.proves("TorchrunJob.spec.runPolicy.startupTimeoutSeconds")
    def test_time_in_a_gang_schedulers_queue_is_not_active(self, world: Any) -> None:
        w = world(
            job("runPolicy: {activeDeadlineSeconds: 300, startupTimeoutSeconds: 60}"), queue="{image: a, kaiQueue: x}"
        )
        w.settle()
        w.later(10_000)
        w.settle()
        assert w.phase == "Queued"
        for index in range(2):
            w.worker(index, "Pending")
        w.settle()
        assert w.phase == "Starting"
        w.later(60)
        w.settle()
        assert w.condition("Failed")[:2] == ("True", "StartupTimeout")

    def test_without_a_gang_scheduler_time_is_active_as_soon_as_the_job_is_made(self, world: Any) -> None:
        w = world(job("runPolicy: {startupTimeoutSeconds: 60}"))
        w.settle()
        w.worker(0)
        w.worker(1, "Pending")
        w.later(59)
        w.settle()
        assert w.phase == "Starting"
        w.later(1)
        w.settle()
        assert w.condition("Failed")[:2] == ("True", "StartupTimeout")

    @pytest.mark.parametrize("phase", ["Running", "Succeeded"])
    def test_workers_that_became_ready_while_nobody_looked_are_not_late(self, world: Any, phase: str) -> None:
        w = world(job("runPolicy: {startupTimeoutSeconds: 60}"))
        w.settle()
        w.later(120)
        w.worker(0, phase)
        w.worker(1)
        w.settle()
        assert w.phase == "Running"

    def test_a_deadline_is_looked_at_in_time_where_kai_was_removed(self, world: Any) -> None:
        w = world(job("runPolicy: {activeDeadlineSeconds: 20}"), queue="{image: a, kaiQueue: x}")
        w.settle()
        runs(w)
        w.kai(False)
        w.settle()
        assert w.last.actions.look_again_s == 20

    def test_a_deadline_is_looked_at_in_time_where_something_is_refused(self, world: Any) -> None:
        w = running(world, elastic(more="runPolicy: {activeDeadlineSeconds: 20}"), 3)
        refusal = Refusal("Job", "demo", "Refused", "no")
        w.refuse = lambda kind, name: refusal if kind == "Job" else None
        edit(w, num_nodes=4)
        w.settle()
        assert again_s(w.last, [refusal]) == 20
        assert again_s(Idle(), [refusal]) == 60
        assert again_s(w.last, []) == w.last.actions.look_again_s

    def test_the_time_from_a_loss_to_the_operators_return_is_not_active(self, world: Any) -> None:
        w = running(world, job("runPolicy: {activeDeadlineSeconds: 300}"))
        w.later(3600)
        w.worker_fails(1, 42, after_s=100)
        w.settle()
        w.later(5)
        w.settle()
        assert (w.seen.job.status.attempt, w.seen.job.status.active_seconds) == (1, 100)
        w.later(10)
        over(w)
        runs(w)

    def test_no_attempt_follows_once_the_active_time_is_used_up(self, world: Any) -> None:
        w = running(world, job("runPolicy: {activeDeadlineSeconds: 300}"))
        w.later(300)
        w.worker_fails(1, 42, after_s=300)
        w.settle()
        w.later(5)
        w.settle()
        assert w.condition("Failed")[:2] == ("True", "DeadlineExceeded")
        assert w.seen.job.status.active_seconds == 300
        assert ("Job", "demo") in w.objects, "the attempt that failed stays to be read"
        w.later(1000)
        w.settle()
        assert ("Job", "demo-r1") not in w.objects

    @pytest.mark.parametrize("text", [job, lambda more: elastic(2, more)])
    def test_workers_whose_template_is_lost_are_stopped_by_the_deadline_all_the_same(
        self, world: Any, text: Any
    ) -> None:
        """Somebody deleted the template, and the queue is another one by now."""
        w = running(world, text("runPolicy: {activeDeadlineSeconds: 300}"))
        w.has_queue("image: trainer:2")
        w.remove("ControllerRevision", w.seen.job.status.queue_revision)
        w.later(300)
        w.settle()
        assert w.condition("Failed")[:2] == ("True", "DeadlineExceeded")
        assert ("Job", "demo") not in w.objects

    def test_a_failed_worker_whose_template_is_lost_stays_to_be_read(self, world: Any) -> None:
        w = running(world, job("runPolicy: {restartPolicy: Never}"))
        w.has_queue("image: trainer:2")
        w.remove("ControllerRevision", w.seen.job.status.queue_revision)
        w.worker_fails(1, 42)
        w.settle()
        w.later(5)
        w.settle()
        assert w.phase == "Failed"
        assert ("Job", "demo") in w.objects
        status = w.seen.job.status
        assert (status.workers.running, status.workers.failed, status.nodes.ready) == (0, 1, 0)
        assert status.workers_status == "1/2 failed"

    def test_a_sidecar_that_runs_on_in_a_pod_whose_template_is_lost_is_stopped_all_the_same(self, world: Any) -> None:
        w = running(world, job("runPolicy: {restartPolicy: Never}"))
        w.has_queue("image: trainer:2")
        w.remove("ControllerRevision", w.seen.job.status.queue_revision)
        ended = {"exitCode": 42, "reason": "Error", "finishedAt": w.now}
        goes_on = {"name": "logs", "state": {"running": {}}}
        statuses = [{"name": "trainer", "state": {"terminated": ended}}, goes_on]
        w.worker(1, "Running", startTime=w.now, containerStatuses=statuses)
        w.settle()
        w.later(5)
        w.settle()
        assert (w.phase, ("Job", "demo") in w.objects) == ("Failed", True)
        assert [pod.metadata.name for pod in w.seen.pods if pod.spec.active_deadline_seconds] == ["demo-1-x"]

    def test_no_worker_is_counted_that_an_attempt_without_a_template_does_not_have(self, world: Any) -> None:
        w = running(world, job())
        w.has_queue(None)
        w.remove("ControllerRevision", w.seen.job.status.queue_revision)
        w.worker_fails(1, 42)
        w.settle()
        w.later(5)
        w.settle()
        status = w.seen.job.status
        assert (status.attempt, status.workers.running, status.nodes.ready) == (1, 0, 0)
        assert status.workers_status == "0/2 running"

    @pytest.mark.parametrize("lost", [False, True], ids=["", "template lost"])
    def test_workers_that_are_done_at_the_deadline_have_succeeded(self, world: Any, lost: bool) -> None:
        w = running(world, job("runPolicy: {activeDeadlineSeconds: 300}"))
        if lost:
            w.has_queue("image: trainer:2")
            w.remove("ControllerRevision", w.seen.job.status.queue_revision)
        w.later(300)
        for index in range(2):
            w.worker(index, "Succeeded")
        w.settle()
        assert w.phase == "Succeeded"

    def test_a_deadline_that_passes_before_it_is_heard_how_the_workers_of_a_complete_job_ended_ends_nothing(
        self, world: Any
    ) -> None:
        w = running(world, job("runPolicy: {activeDeadlineSeconds: 300}"))
        w.later(299)
        w.job_is("Complete")
        w.settle()
        w.later(1)
        w.settle()
        assert w.phase == "Running"
        w.succeeds()
        w.settle()
        assert w.phase == "Succeeded"

    def test_a_deadline_that_passes_while_the_others_stop_after_worker_0_has_succeeded_ends_nothing(
        self, world: Any
    ) -> None:
        """That another worker had failed was heard first, and had opened an incident."""
        w = running(world, elastic(more="runPolicy: {activeDeadlineSeconds: 300}"), 3)
        w.later(298)
        w.worker_fails(1, 1, after_s=298)
        w.settle()
        assert w.phase == "Restarting"
        w.worker(0, "Succeeded")
        w.settle()
        w.later(2)
        w.settle()
        w.job_is("Complete")
        w.worker(2, "Succeeded")
        w.settle()
        assert (w.phase, w.seen.job.status.restarts.total) == ("Succeeded", 0)

    def test_earlier_attempts_that_are_kept_are_stopped_by_the_end_too(self, world: Any) -> None:
        w = running(world, elastic(more="runPolicy: {activeDeadlineSeconds: 300, podRetention: All}"), 3)
        w.later(300)
        w.worker_fails(1, 42, after_s=300)
        w.step()
        w.later(5)
        w.settle()
        assert w.phase == "Failed"
        assert w.spec("Job", "demo")["activeDeadlineSeconds"] == 1

    def test_workers_that_were_ready_once_are_not_late(self, world: Any) -> None:
        w = running(world, job("runPolicy: {startupTimeoutSeconds: 60}"))
        w.later(100)
        w.worker(0, conditions=[])
        w.settle()
        assert w.phase == "Starting"


POLICY = EffectiveRunPolicy(3, None, 0, RestartPolicy.ON_FAILURE, None, None, None, PodRetention.FAILED)


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("OnFailure", 1, True),
        ("Never", 143, False),
        *(("ExitCode", code, False) for code in (1, 2, 126, 127, 128, 139, 42)),
        *(("ExitCode", code, True) for code in (130, 137, 138, 143, -9, -15, 134)),
    ],
)
def test_the_code_decides_where_the_policy_says_so(policy: str, code: int, again: bool) -> None:
    asked = replace(POLICY, restart_policy=RestartPolicy(policy))
    found = refused(asked, Restarting(), Cause.ERROR, Failure(exit_code=code), Restarts())
    assert (found is None) is again


@pytest.mark.parametrize(("cause", "limit"), [(Cause.OOM_KILLED, 3), (Cause.NODE_LOST, 20), (Cause.PREEMPTED, 100)])
def test_each_cause_is_paid_from_its_own_budget(cause: Cause, limit: int) -> None:
    for used, again in ((limit - 1, True), (limit, False)):
        counts = {cause: used + 1, "Unheard": 500}
        restarts = Restarts(total=used + 1, by_cause=counts, recent_by_cause=counts)
        assert (refused(POLICY, Restarting(), cause, Failure(), restarts) is None) is again


def test_no_restart_at_all_is_a_plain_failure() -> None:
    once = Restarts(total=1, by_cause={Cause.ERROR: 1})
    found = refused(replace(POLICY, max_restarts=0), Restarting(), Cause.ERROR, Failure(), once)
    assert found is not None
    assert (found.reason, found.why) == ("WorkerFailed", "no restart is allowed (runPolicy.maxRestarts)")
