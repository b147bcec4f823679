"""What is wrong with a job or a queue is said in a condition with the next step, once, and is nobody else's problem.

All the troubles below happen at the same time in one namespace, under one operator, beside a job that is well.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import anyio
import pytest
import pytest_asyncio
import yaml
from clusters import quota_noted
from jobs import Place, a_job, a_queue
from operators import background_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, KAI_QUEUE, PVC
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.controllers.job.steps import workers as steps_workers
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import Invalid
from torchctl.runtime.kinds import Kind
from torchctl.testing.controlplane import CommandFailed, ControlPlane
from torchctl.testing.faults import is_watch
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod
from torchctl.testing.proxy import FaultProxy
from torchctl.testing.volumes import PROVISIONER

WORKSPACE = {"workspace": {"enabled": True}}
WINDOW_S = 5.0
REQUESTS_IN_WINDOW = 2
"""Of all troubles together; a missing pod is asked about every 30 s."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A job, or a queue where `job` is None, that cannot go on.

    Attributes:
        says: Parts of the condition's message: the object's name, and the next step.
        queue: Spec of a queue of its own, of the same name.
        play: What happens to its pods.
    """

    name: str
    condition: str
    reason: str
    says: tuple[str, ...]
    job: Mapping[str, Any] | None = field(default_factory=dict)
    queue: Mapping[str, Any] | None = None
    play: Play | None = None

    @property
    def kind(self) -> Kind[Any]:
        return TORCHRUN_QUEUE if self.job is None else TORCHRUN_JOB


TROUBLES = (
    Trouble(
        name="gpus",
        condition="Accepted",
        reason="ImpossibleGPUCount",
        says=("spec.numGPUs", "16 and 18 work"),
        queue={"nodeResources": {"gpus": 8}},
        job={"numNodes": None, "numGPUs": 17},
    ),
    Trouble(
        name="taken",
        condition="WorkersReady",
        reason="ForeignObject",
        says=("Job", "taken", "delete or rename it"),
    ),
    Trouble(
        name="claimed",
        condition="WorkspaceReady",
        reason="ForeignObject",
        says=("PersistentVolumeClaim", "claimed-workspace", "delete or rename it"),
        queue={"storage": WORKSPACE},
    ),
    Trouble(
        name="over-quota",
        condition="WorkspaceReady",
        reason="QuotaExceeded",
        says=("PersistentVolumeClaim over-quota-workspace", "exceeded quota: tight", "raise the quota"),
        queue={"storage": {"workspace": {"enabled": True, "storageClass": "tight"}}},
    ),
    Trouble(
        name="no-pods",
        condition="WorkersReady",
        reason="PodsNotCreated",
        says=("Job no-pods", "0 of 2 pods", "no pods of that name here"),
    ),
    Trouble(
        name="no-job",
        condition="WorkersReady",
        reason="Refused",
        says=("Job no-job", "no jobs of that name here"),
    ),
    Trouble(
        name="unknown-field",
        condition="WorkersReady",
        reason="Refused",
        says=(
            'TorchrunQueue unknown-field: spec.podTemplate.spec.containers[name="trainer"].prots: field not declared',
            "Job unknown-field",
            "submit the job again",
        ),
        queue={"podTemplate": {"spec": {"containers": [{"name": "trainer", "prots": []}]}}},
    ),
    Trouble(
        name="invalid-field",
        condition="WorkersReady",
        reason="Refused",
        says=(
            'TorchrunJob invalid-field: spec.env[name="A"].valueFrom.fieldRef.fieldPath',
            "spec.nope",
            "submit the job again",
        ),
        job={"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}}]},
    ),
    Trouble(
        name="no-image",
        condition="WorkersReady",
        reason="ImagePullBackOff",
        says=("pod no-image-0", "container trainer", "trainer:2: not found", "check the image's name"),
        play=Play(
            blocked="ImagePullBackOff", blocked_message='Back-off pulling image "trainer:2": trainer:2: not found'
        ),
        job={"numNodes": 1},  # of two pods either may be told of first
    ),
    Trouble(
        name="no-secret",
        condition="WorkersReady",
        reason="CreateContainerConfigError",
        says=("pod no-secret-0", 'secret "token" not found', "check the Secrets"),
        play=Play(blocked="CreateContainerConfigError", blocked_message='secret "token" not found'),
        job={"numNodes": 1},
    ),
    Trouble(
        name="no-node",
        condition="WorkersReady",
        reason="Unschedulable",
        says=("pod no-node-0", "node affinity/selector", "free or add such nodes"),
        job={"numNodes": 1, "nodeSelector": {"disk": "none-has-this"}},
    ),
    Trouble(
        name="of-others",
        condition="KaiQueueReady",
        reason="Conflict",
        says=("KAI Queue bad-input-of-others", "left as it is", "choose another kaiQueue", "Reference"),
        queue={"kaiQueue": "bad-input-of-others"},
        job=None,
    ),
)

OF_OTHERS = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: bad-input-of-others, annotations: {theirs: "yes"}}
spec: {resources: {gpu: {quota: 1, limit: 1, overQuotaWeight: 1}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: taken, namespace: NAMESPACE, labels: {theirs: "yes"}}
spec:
  suspend: true
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: "main:1"}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claimed-workspace, namespace: NAMESPACE, labels: {theirs: "yes"}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: tight}
provisioner: PROVISIONER
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: tight, namespace: NAMESPACE}
spec: {hard: {tight.storageclass.storage.k8s.io/requests.storage: 1Gi}}
"""


def policy(name: str, namespace: str, group: str, resource: str) -> str:
    """Refuses objects of one resource whose name begins so."""
    meta = {"name": f"{namespace}-{name}"}
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}
    refusal = {
        "expression": f"!(has(object.metadata.name) ? object.metadata.name : object.metadata.generateName)"
        f".startsWith('{name}')",
        "message": f"no {resource} of that name here",
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    group_version = "admissionregistration.k8s.io/v1"
    return yaml.safe_dump_all(
        (
            {
                "apiVersion": group_version,
                "kind": "ValidatingAdmissionPolicy",
                "metadata": meta,
                "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [refusal]},
            },
            {
                "apiVersion": group_version,
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": meta,
                "spec": {"policyName": meta["name"], "validationActions": ["Deny"], "matchResources": here},
            },
        )
    )


async def in_force(control_plane: ControlPlane, namespace: str, kind: str, name: str) -> None:
    """Waits until the policy against objects of that name is in force."""

    async def refused() -> bool:
        arguments = ("create", kind, name, "--image=main:1") if kind == "job" else ("run", name, "--image=main:1")
        try:
            await control_plane.kubectl(*arguments, f"--namespace={namespace}", "--dry-run=server")
        except CommandFailed:
            return True
        return False

    await until(refused)


@dataclass(frozen=True)
class Troubled(Place):
    """The namespace, and the proxy that counts what its operator asks for."""

    proxy: FaultProxy


@pytest.fixture(scope="module")
def soon() -> Iterator[None]:
    """Pods that the Job controller does not create are missed sooner than after half a minute."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(steps_workers, "OVERDUE", timedelta(seconds=8))
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(
    control_plane: ControlPlane, admin: Client, operator_account: Connection, kubelet: ScriptedKubelet, soon: None
) -> AsyncGenerator[Troubled]:
    """Every trouble, and a neighbour."""
    namespace = fresh_name("bad-input")
    await create_namespace(admin, namespace)
    objects = OF_OTHERS.replace("NAMESPACE", namespace).replace("PROVISIONER", PROVISIONER)
    policies = (policy("no-pods", namespace, "", "pods"), policy("no-job", namespace, "batch", "jobs"))
    await control_plane.kubectl("apply", "-f-", input="\n---\n".join((objects, *policies)))
    await in_force(control_plane, namespace, "pod", "no-pods")
    await in_force(control_plane, namespace, "job", "no-job")
    await quota_noted(control_plane, namespace, "tight")
    before = kubelet.script
    for trouble in TROUBLES:
        if trouble.play is not None:
            kubelet.script = kubelet.script.when(belongs_to(namespace, trouble.name), trouble.play)
    async with (
        FaultProxy(control_plane.connection()) as proxy,
        background_operator(proxy.connection(operator_account), namespace),
    ):
        here = Troubled(admin, namespace, proxy)
        await submit(here)
        yield here
    kubelet.script = before
    await control_plane.kubectl("delete", "-f-", "--wait=false", input="\n---\n".join((objects, *policies)))


def belongs_to(namespace: str, job: str) -> Any:
    def matches(pod: Pod) -> bool:
        return pod.metadata.namespace == namespace and pod.metadata.labels.get("torchrun.ai/job-name") == job

    return matches


async def submit(place: Place) -> None:
    await place.queue()
    for trouble in TROUBLES:
        if trouble.queue is not None:
            await place.queue(trouble.name, **trouble.queue)
        if trouble.job is not None:
            queue = "queue" if trouble.queue is None else trouble.name
            await place.job(trouble.name, **{"jobQueue": queue, **trouble.job})
    await place.job("neighbour")


async def told(place: Place, trouble: Trouble) -> str:
    """The message, once the trouble is a condition."""
    found = await place.condition(trouble.condition, trouble.reason, trouble.name, kind=trouble.kind, timeout_s=60)
    assert found.status == "False"
    return found.message


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name)
async def test_trouble_is_a_condition_and_one_event(place: Troubled, trouble: Trouble) -> None:
    """Both have the next step in their message."""
    message = await told(place, trouble)
    assert [part for part in trouble.says if part not in message] == [], message

    async def events() -> list[tuple[str, str, int]]:
        events = await place.events(trouble.name)
        return [(event.type, event.message, event.count) for event in events if event.reason == trouble.reason]

    assert await until(events) == [("Warning", message, 1)]


async def test_job_in_trouble_has_not_ended(place: Troubled) -> None:
    for trouble in TROUBLES:
        await told(place, trouble)
        if trouble.job is not None:
            job = await place.admin.get(TORCHRUN_JOB, trouble.name, place.namespace)
            assert job.status.phase in (Phase.PENDING, Phase.SYNCING, Phase.QUEUED, Phase.STARTING), trouble.name


async def test_the_neighbour_succeeds(place: Troubled) -> None:
    await place.reaches(Phase.SUCCEEDED, "neighbour")


async def test_nothing_of_it_is_tried_hotly(place: Troubled) -> None:
    for trouble in TROUBLES:
        await told(place, trouble)
    before = len(place.proxy.exchanges)
    await anyio.sleep(WINDOW_S)
    asked = [f"{it.method} {it.path} {it.status}" for it in place.proxy.exchanges[before:] if not is_watch(it)]
    assert len(asked) <= REQUESTS_IN_WINDOW, asked


async def test_what_belongs_to_others_is_left_as_it_was(place: Troubled) -> None:
    for trouble in TROUBLES:
        await told(place, trouble)
    for kind, name in ((JOB, "taken"), (PVC, "claimed-workspace"), (KAI_QUEUE, "bad-input-of-others")):
        live = await place.admin.get_raw(kind, name, place.namespace if kind.namespaced else "")
        assert not any(entry["manager"] == "torchctl" for entry in live["metadata"]["managedFields"]), name


async def test_job_does_not_run_in_a_foreign_kai_queue(place: Troubled) -> None:
    await place.job("guest", jobQueue="guest")
    await place.queue("guest", kaiQueue="bad-input-of-others")
    found = await place.condition("QueueFound", "QueueNotReady", "guest")
    assert "KAI Queue bad-input-of-others" in found.message
    assert not await place.exists(JOB, "guest")


async def test_a_quota_that_is_raised_lets_the_job_go_on(place: Troubled, control_plane: ControlPlane) -> None:
    quota = yaml.safe_load(
        "{apiVersion: v1, kind: ResourceQuota, metadata: {name: narrow}, "
        "spec: {hard: {narrow.storageclass.storage.k8s.io/requests.storage: 1Gi}}}"
    )
    here = f"--namespace={place.namespace}"
    class_ = (
        f"{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: narrow}}, provisioner: {PROVISIONER}}}"
    )
    await control_plane.kubectl("apply", here, "-f-", input=f"{yaml.safe_dump(quota)}\n---\n{class_}")
    await quota_noted(control_plane, place.namespace, "narrow")
    storage = {"workspace": {"enabled": True, "storageClass": "narrow", "size": "5Gi"}}
    await place.queue("narrow", storage=storage)
    await place.job("narrow", jobQueue="narrow", numNodes=1)
    await place.condition("WorkspaceReady", "QuotaExceeded", "narrow")
    quota["spec"]["hard"] = {"narrow.storageclass.storage.k8s.io/requests.storage": "10Gi"}
    await control_plane.kubectl("apply", here, "-f-", input=yaml.safe_dump(quota))
    await quota_noted(control_plane, place.namespace, "narrow")
    await place.touch("narrow")
    await place.reaches(Phase.SUCCEEDED, "narrow")


async def test_job_continues_when_the_admission_policy_is_removed(place: Troubled, control_plane: ControlPlane) -> None:
    refusal = policy("later", place.namespace, "batch", "jobs")
    await control_plane.kubectl("apply", "-f-", input=refusal)
    await in_force(control_plane, place.namespace, "job", "later")
    await place.job("later")
    await place.condition("WorkersReady", "Refused", "later")
    await control_plane.kubectl("delete", "-f-", input=refusal)

    async def helped() -> bool:
        await place.touch("later")
        job = await place.admin.get(TORCHRUN_JOB, "later", place.namespace)
        return job.status.phase == Phase.SUCCEEDED

    await until(helped)


REFUSED = (
    ("spec.podTemplate.spec", a_queue("", podTemplate={"spec": {"containers": [{"name": "main"}]}})),
    ("numNodes and numGPUs", a_job("", numNodes=None)),
    ("numNodes and numGPUs", a_job("", numNodes=2, numGPUs=16)),
    ("spec.distributed.rdzvBackend", a_job("", distributed={"rdzvBackend": "zookeeper"})),
)


@pytest.mark.parametrize(("named", "body"), REFUSED)
async def test_what_no_cluster_could_make_work_is_refused_at_once(
    place: Troubled, named: str, body: dict[str, Any]
) -> None:
    kind: Kind[Any] = TORCHRUN_QUEUE if body["kind"] == TORCHRUN_QUEUE.kind else TORCHRUN_JOB
    with pytest.raises(Invalid, match=named):
        await place.admin.create(kind, body, place.namespace)
