"""What holds for every job and queue, and in whatever order things happen."""

import json
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from world import World

from torchctl.api import labels, quantity
from torchctl.api.causes import Budget, Cause
from torchctl.api.conditions import JobReason
from torchctl.api.job import JobSpec
from torchctl.api.names import worker_job
from torchctl.api.phases import TERMINAL
from torchctl.api.volcano import VolcanoPodGroup
from torchctl.controllers.finding import Refusal
from torchctl.controllers.job.pods import NEXT_STEPS
from torchctl.controllers.job.template.errors import Impossible
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.controllers.job.template.sizing import Node, shape

STANDS_IN = {str(reason): reason.conditions for reason in JobReason}
OWNED_KEYS = st.sampled_from(
    [*labels.OWNED_KEYS, labels.KAI_QUEUE, labels.JOB_UID, labels.ATTEMPT, "torchrun.ai/x", "scheduling.volcano.sh/x"]
)
OWNED_ENV = st.sampled_from([*labels.OWNED_ENV, "PET_NNODES", "PET_RDZV_ID", "TORCHRUN_JOB_ID", "PET_X"])


@given(total=st.integers(1, 500), per_node=st.integers(1, 16))
def test_gpus_are_spread_evenly_over_the_fewest_nodes(total: int, per_node: int) -> None:
    """If the GPUs cannot be spread evenly, two totals that work are named."""
    job = JobSpec(job_queue="q", num_gpus=total, command="a")
    fewest = -(-total // per_node)
    try:
        found = shape(job, Node(per_node), "q")
    except Impossible as error:
        assert total % fewest
        less, more = (int(word) for word in error.message.rpartition(": ")[2].replace(" work", "").split(" and "))
        assert less < total < more
        for near in (less, more):
            assert shape(JobSpec(job_queue="q", num_gpus=near, command="a"), Node(per_node), "q").nodes >= 1
        return
    assert (found.nodes, found.nodes * found.gpus) == (fewest, total)
    assert 1 <= found.gpus <= per_node
    assert found.share == found.gpus / per_node or found.share * per_node == found.gpus


@given(keys=st.lists(OWNED_KEYS, max_size=5), names=st.lists(OWNED_ENV, max_size=5))
def test_nobody_but_the_operator_sets_what_is_the_operators(
    world: type[World], keys: list[str], names: list[str]
) -> None:
    theirs = dict.fromkeys(keys, "theirs")
    trainer = {"name": "trainer", "image": "a:1", "env": [{"name": name, "value": "theirs"} for name in set(names)]}
    queue = {"podTemplate": {"metadata": {"labels": theirs, "annotations": theirs}, "spec": {"containers": [trainer]}}}
    w = world("{jobQueue: research, numNodes: 2, command: python a.py}", json.dumps(queue | {"kaiQueue": "gpus"}))
    w.settle()
    template = w.spec("Job", "demo")["template"]
    said = {**template["metadata"].get("annotations", {}), **template["metadata"]["labels"]}
    assert "theirs" not in said.values()
    assert said[labels.KAI_QUEUE] == "gpus"
    environment = template["spec"]["containers"][0]["env"]
    assert "theirs" not in [variable.get("value") for variable in environment]
    assert len({variable["name"] for variable in environment}) == len(environment)


AMOUNT = st.sampled_from(["1024Mi", "0.5Gi", "1000m", "2", 3, "1500M", "1e3", "1024Gi", "0.1", "4096Ki"])


def amounts(value: Any) -> list[str]:
    if isinstance(value, dict):
        found = [str(item) for key in ("requests", "limits") for item in dict(value.get(key, {})).values()]
        found += [str(value["sizeLimit"])] if "sizeLimit" in value else []
        return found + [amount for item in value.values() for amount in amounts(item)]
    return [amount for item in value for amount in amounts(item)] if isinstance(value, list) else []


@given(cpu=AMOUNT, memory=AMOUNT, size=AMOUNT, per_gpu=AMOUNT, gpus=st.integers(1, 8))
def test_every_quantity_is_canonical(
    world: type[World], cpu: Any, memory: Any, size: Any, per_gpu: Any, gpus: int
) -> None:
    """The API server writes it back as it is."""
    other = {"name": "other", "image": "b:1", "resources": {"requests": {"cpu": cpu}, "limits": {"memory": memory}}}
    queue = {
        "image": "a:1",
        "nodeResources": {"gpus": 8, "cpus": cpu, "memory": memory},
        "podTemplate": {"spec": {"containers": [{"name": "trainer"}, other]}},
        "storage": {
            "shmSizePerGPU": per_gpu,
            "workspace": {"enabled": True, "size": size, "accessModes": ["ReadWriteMany"]},
            "checkpoints": {"enabled": True, "sizePerGPU": per_gpu},
        },
    }
    w = world(f"{{jobQueue: research, numGPUs: {gpus}, command: python a.py}}", json.dumps(queue))
    w.settle()
    w.sync_succeeds()
    w.settle()
    found = amounts(list(w.objects.values()))
    assert len(found) > 10
    assert found == [quantity.canonical(amount) for amount in found]


def test_a_template_survives_its_revision(world: type[World]) -> None:
    """The name of a template does not depend on the order of keys."""
    w = world("{jobQueue: research, numNodes: 1, command: python a.py}")
    w.settle()
    template = w.steps.template
    assert template is not None
    assert template is not None
    data = json.loads(json.dumps(template.data()))
    assert FrozenTemplate.load(data) == template
    turned = {key: data[key] for key in reversed(data)}
    assert FrozenTemplate.load(turned).digest() == template.digest()


def test_a_templates_name_is_the_same_in_every_process(world: type[World]) -> None:
    w = world("{jobQueue: research, numNodes: 1, command: python a.py}", "image: trainer:1")
    w.step()
    w.step()
    again = world("{command: python a.py, numNodes: 1, jobQueue: research}", "image: trainer:1")
    again.step()
    assert again.status.queue_revision == w.status.queue_revision


HAPPENINGS = (
    "step",
    "settle",
    "forget",
    "later",
    "queue edited",
    "queue gone",
    "queue back",
    "kai gone",
    "kai back",
    "volcano gone",
    "volcano back",
    "volcano waits",
    "volcano is short of a member",
    "volcano queue closed",
    "volcano queue open",
    "worker 1 preempted",
    "group gone",
    "refuse",
    "accept",
    "sync ok",
    "sync serves",
    "sync fails",
    "sync pod gone",
    "sync pod deleted",
    "worker 0 runs",
    "worker 1 runs",
    "worker 0 ends",
    "worker 1 fails",
    "worker 1 fails beside a sidecar",
    "worker 1 deleted",
    "worker 1 evicted",
    "worker gone",
    "earlier pods end",
    "earlier pods gone",
    "complete",
    "failed",
    "revision gone",
    "job gone",
    "earlier job gone",
    "suspend asked",
    "resume asked",
    "scaled",
    "long later",
)


def _is_volcanos(w: World) -> bool:
    return isinstance(w.seen.podgroup, VolcanoPodGroup)


class Walk:
    """Things happen to a world in any order; what must always hold is checked after each."""

    def __init__(self, world: type[World], job: str, queue: str) -> None:
        self.w = world(job, queue)
        self.gone: set[str] = set()
        self.bodies: dict[str, Any] = {}
        self.outcome: Any = None
        self.before = self.w.status

    def happen(self, what: str) -> None:
        w, job = self.w, self.w.seen.worker_job
        sync = w.seen.sync_pods[-1].metadata.name if w.seen.sync_pods else ""
        match what:
            case "step":
                w.step()
            case "settle":
                w.settle()
            case "forget":
                w.forget()
            case "later":
                w.later(31)
            case "queue edited":
                w.has_queue("{image: other:9, nodeResources: {cpus: 3}}")
            case "queue gone":
                w.has_queue(None)
            case "queue back":
                w.has_queue("image: trainer:1")
            case "kai gone" | "kai back":
                w.kai(what == "kai back")
            case "volcano gone" | "volcano back":
                w.volcano(what == "volcano back")
            case "volcano waits" if _is_volcanos(w):
                w.volcano_says("Inqueue", {"type": "Unschedulable", "status": "True", "message": "1 Pending"})
            case "volcano is short of a member" if _is_volcanos(w):
                w.volcano_says("Unknown", {"type": "Scheduled", "status": "True"})
            case "volcano queue closed" | "volcano queue open" if _is_volcanos(w):
                w.volcano_queue_is("Closed" if what == "volcano queue closed" else "Open")
            case "worker 1 preempted" if job:
                preempted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                w.told_to_stop(1, conditions=[preempted])
            case "group gone" if w.seen.podgroup is not None:
                w.remove("PodGroup", w.seen.podgroup.metadata.name)
            case "refuse":
                w.refuse = lambda kind, name: (
                    Refusal(kind, name, "Refused", "no") if kind in ("Pod", "Job", "PodGroup") else None
                )
            case "accept":
                w.refuses_nothing()
            case "sync ok" if sync:
                w.sync_succeeds(int(sync[-1]))
            case "sync serves" if sync:
                w.sync_serves(int(sync[-1]))
            case "sync fails" if sync:
                w.sync_fails(int(sync[-1]))
            case "sync pod gone" if sync:
                w.remove("Pod", sync)
            case "sync pod deleted" if sync:
                w.play(sync, phase="Running", metadata={"deletionTimestamp": w.now})
            case "worker 0 runs" | "worker 1 runs" if job:
                w.worker(int(what[7]))
            case "worker 0 ends" if job:
                w.worker(0, "Succeeded")
            case "worker 1 fails" if job:
                w.worker_fails(1)
            case "worker 1 fails beside a sidecar" if job:
                trainer = {"name": "trainer", "state": {"terminated": {"exitCode": 1, "finishedAt": w.now}}}
                others = [{"name": "logs", "state": {"running": {}}}]
                w.worker(1, startTime=w.now, containerStatuses=[trainer, *others])
            case "worker 1 deleted" if job:
                w.worker(1, metadata={"deletionTimestamp": w.now})
            case "complete" | "failed" if job and not job.status.conditions:
                w.job_is(what.capitalize())
            case "revision gone":
                w.remove("ControllerRevision", w.status.queue_revision)
            case "job gone" if job:
                if w.status.attempt_start_time is not None:
                    self.gone.add(job.metadata.name)
                self.bodies.pop(job.metadata.name, None)
                w.remove("Job", job.metadata.name)
            case "earlier job gone":
                for old in w.seen.old_jobs:
                    w.remove("Job", old.metadata.name)
            case "suspend asked" | "resume asked":
                w.edit(suspend=what == "suspend asked")
            case "worker 1 evicted" if job:
                target = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
                w.worker(1, metadata={"deletionTimestamp": w.now}, conditions=target)
            case "worker gone" if w.seen.pods:
                w.remove("Pod", w.seen.pods[0].metadata.name)
            case "earlier pods end" | "earlier pods gone":
                for pod in w.seen.old_pods:
                    if what.endswith("gone"):
                        w.remove("Pod", pod.metadata.name)
                    else:
                        w.old_worker(pod.metadata.name, phase="Failed")
            case "scaled" if w.seen.job.spec.elastic:
                w.edit(num_nodes=5 - w.nodes)
            case "long later":
                w.later(700)

    def check(self) -> None:
        w, status, before = self.w, self.w.status, self.before
        jobs = {name: body["spec"]["template"] for (kind, name), body in w.objects.items() if kind == "Job"}
        assert set(jobs) <= {worker_job("demo", number) for number in range(status.attempt + 1)}
        assert not self.gone & set(jobs), "a Job that was seen is never made again"
        for name in set(jobs) & set(self.bodies):
            assert jobs[name] == self.bodies[name], "the template of a Job never changes"
        if set(jobs) - set(self.bodies):
            assert all(pod.status.phase in ("Succeeded", "Failed") for pod in w.seen.old_pods), "one gang at a time"
        self.bodies = {**jobs}
        if w.objects:
            assert status.queue_revision or status.attempt
        self._check_restarts(before, status)
        if self.outcome is not None:
            assert (status.phase, status.conditions, status.failure) == self.outcome
            assert not any(child.kind.kind != "Job" for child in w.last.actions.children)
        if status.phase in TERMINAL and self.outcome is None:
            self.outcome = (status.phase, status.conditions, status.failure)
        assert len({condition.type for condition in status.conditions}) == len(status.conditions) in (0, 9)
        for condition in status.conditions:
            assert condition.message
            assert condition.reason in NEXT_STEPS or condition.type in STANDS_IN[condition.reason]
        self.before = status

    @staticmethod
    def _check_restarts(before: Any, status: Any) -> None:
        restarts = status.restarts
        assert status.attempt - before.attempt >= 0, "attempts never go back"
        assert restarts.total - before.restarts.total >= 0
        assert restarts.total == sum(restarts.by_cause.values())
        assert restarts.total <= status.attempt + 1, "an attempt has one incident at most"
        of_user = sum(restarts.by_cause.get(cause, 0) for cause in Cause if cause.budget is Budget.USER)
        assert of_user <= MAX_RESTARTS + 1
        if status.phase in TERMINAL:
            assert (status.incident, status.next_attempt_time) == (None, None)
            assert status.completion_time is not None


MAX_RESTARTS = 2
SHAPES = ("", ", elastic: {minNodes: 1, maxNodes: 3}", ", queueUpdatePolicy: NextAttempt", ", suspend: true")


QUEUES = (
    "image: trainer:1",
    "{image: trainer:1, kaiQueue: gpus}",
    "{image: trainer:1, scheduling: {volcanoQueue: train}}",
    "{image: trainer:1, scheduling: {scheduler: auto}}",
)


@pytest.mark.parametrize("queue", QUEUES)
@given(
    happenings=st.lists(st.sampled_from(HAPPENINGS), max_size=60),
    workspace=st.sampled_from(["", "zip", "git"]),
    shaped=st.sampled_from(SHAPES),
)
@settings(max_examples=examples(200))
def test_whatever_happens_in_whatever_order(
    world: type[World], queue: str, happenings: list[str], workspace: str, shaped: str
) -> None:
    """One incident for one cause, attempts only go forward, budgets hold, an end is an end, rest is rest."""
    source = {"": "", "zip": "{workspace: {source: zip}}", "git": "{workspace: {source: git, url: 'https://g/a'}}"}
    volumes = f", volumes: {source[workspace]}" if workspace else ""
    policy = f", runPolicy: {{maxRestarts: {MAX_RESTARTS}}}"
    walk = Walk(world, f"{{jobQueue: research, numNodes: 2, command: python a.py{volumes}{shaped}{policy}}}", queue)
    for what in happenings:
        walk.happen(what)
        walk.check()
    walk.w.settle()
    walk.check()
    assert not walk.w.step(), "at rest nothing is written"
