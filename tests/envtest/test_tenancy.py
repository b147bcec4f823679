"""Attacks of people who hold few rights, each refused by the API server itself: no operator runs here.

The numbers are those of docs/design/tenancy.md, which says for each attack what is done against it and why. What a job
does once it runs is in test_tenancy_running.py.
"""

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
import yaml
from clusters import CONFIG, OPERATOR, clear
from jobs import a_job, a_queue
from operators import operator_settings
from tenants import SECRET, Team, attempt, refusal, team
from waiting import until

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import CONFIG_MAP, CONTROLLER_REVISION, JOB, POD, PVC, SERVICE
from torchctl.api.labels import OWNED_KEY_PREFIXES, OWNED_KEYS
from torchctl.api.queue import TORCHRUN_QUEUE, QueueSpec, TorchrunQueue
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.children.sync import sync_pod
from torchctl.controllers.job.template.render import render
from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import Forbidden
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.testing.controlplane import CommandFailed, ControlPlane
from torchctl.testing.namespaces import create_namespace, fresh_name

Json = dict[str, Any]
HOST = {"name": "host", "hostPath": {"path": "/"}}
SCRATCH = {"name": "scratch", "emptyDir": {}}
Write = Callable[[Team], Awaitable[Any]]
GIT = {"source": "git", "url": "https://git.example.com/team/code.git"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def here(control_plane: ControlPlane, admin: Client, operator_account: Connection) -> AsyncGenerator[Team]:
    """A namespace with its people, once all policies are in force there."""
    namespace = fresh_name("tenancy")
    await create_namespace(admin, namespace)
    async with connect(operator_account) as operator, team(control_plane, admin, operator, namespace) as found:
        await admin.create(TORCHRUN_JOB, a_job(namespace, "there"))
        for write in PROBES:
            await until(partial(_refused, found, write))
        yield found
    await clear(admin, namespace)


async def _refused(here: Team, write: Write) -> str:
    return await refusal(write(here))


def submit(here: Team, role: str, **spec: Any) -> Any:
    """A job as that person would submit it; only tried."""
    return here[role].apply(TORCHRUN_JOB, a_job(here.namespace, "attack", **spec), dry_run=True)


def define(here: Team, role: str, **spec: Any) -> Any:
    """A queue as that person would write it; only tried."""
    return here[role].apply(TORCHRUN_QUEUE, a_queue(here.namespace, "attack", **spec), dry_run=True)


def make(client: Client, kind: Kind[Any], body: Json) -> Any:
    return client.apply(kind, body, dry_run=True)


PROBES: tuple[Write, ...] = (
    lambda here: submit(here, "submitter", volumes={"additionalVolumes": [HOST]}),
    lambda here: define(here, "author", serviceAccountName="admin"),
    lambda here: make(here["developer"], CONFIG_MAP, forged(here, CONFIG_MAP)),
    lambda here: here["developer"].merge_patch(
        TORCHRUN_JOB, "there", {"status": {}}, namespace=here.namespace, subresource="status"
    ),
)
"""One write for each policy that it refuses."""


# What a child of ours looks like, made by somebody else.

CONTENT: Mapping[Kind[Any], Json] = {
    CONFIG_MAP: {"data": {"a": "b"}},
    CONTROLLER_REVISION: {"data": {"nodes": 1}, "revision": 1},
    PVC: {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    POD: {"spec": {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "evil:1"}]}},
    SERVICE: {"spec": {"clusterIP": "None", "selector": {"a": "b"}}},
    JOB: {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "evil:1"}]}}}},
}
LABELS = {"app.kubernetes.io/managed-by": "torchctl", "torchrun.ai/job-uid": "0", "torchrun.ai/role": "worker"}
OWNER = {"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunJob", "name": "there", "uid": "0"}


def forged(here: Team, kind: Kind[Any], name: str = "forged", **metadata: Any) -> Json:
    """An object that says it is a child of a TorchrunJob, by its labels unless `metadata` says otherwise."""
    meta = {"name": name, "namespace": here.namespace, **(metadata or {"labels": LABELS})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **CONTENT[kind]}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["torchctl-children", "torchctl-jobs", "torchctl-queues", "torchctl-status"])
async def test_policy_type_checks_and_fails_closed(control_plane: ControlPlane, name: str) -> None:
    async def live() -> Json:
        policy: Json = json.loads(await control_plane.kubectl("get", "validatingadmissionpolicy", name, "-ojson"))
        return policy if "typeChecking" in policy.get("status", {}) else {}

    policy = await until(live)
    assert policy["status"]["typeChecking"] == {}
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert all({"reason", "message", "messageExpression"} <= set(rule) for rule in policy["spec"]["validations"])


async def test_people_do_what_they_are_there_for(here: Team) -> None:
    """Every account can submit what the queue has all for, and with its own right more."""
    plain = {"env": [{"name": "LR", "value": "0.1"}], "volumes": {"workspace": GIT, "additionalVolumes": [SCRATCH]}}
    for role in here.people:
        assert await refusal(submit(here, role, **plain)) == ""
    field = {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    assert await refusal(submit(here, "submitter", env=[{"name": "NODE", **field}])) == ""
    assert await refusal(define(here, "author", nodeResources={"gpus": 8}, env=[{"name": "A", "value": "b"}])) == ""


# KAI's queues.


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({"kaiQueue": "mine"}, "create queues.scheduling.run.ai"),
        ({"kaiQueue": "mine", "parentKaiQueue": "other"}, "use on queues.scheduling.run.ai other"),
        ({"kaiQueue": "default", "kaiQueuePolicy": "Reference"}, "use on queues.scheduling.run.ai default"),
    ],
)
async def test_s01_kai_queue_needs_the_right_to_use_it(here: Team, spec: Json, names: str) -> None:
    """Who writes queues in a namespace makes a KAI Queue with any quota, under any parent, or trains on that of others:
    KAI's queues belong to no namespace."""
    for role in ("author", "delegate", "developer"):
        said = await refusal(define(here, role, **spec))
        assert "TorchrunQueue attack: spec.kaiQueue" in said
        assert names in said
    assert await refusal(make(here.admin, TORCHRUN_QUEUE, a_queue(here.namespace, "attack", **spec))) == ""


async def test_s01_volcano_queue_needs_the_right_to_use_it(here: Team) -> None:
    """Volcano's Queues belong to no namespace either; the right to use one is given by name."""
    theirs, shared = ({"scheduling": {"volcanoQueue": name}} for name in ("other", "shared"))
    for role in ("author", "delegate", "developer"):
        said = await refusal(define(here, role, **theirs))
        assert "TorchrunQueue attack: spec.scheduling.volcanoQueue" in said
        assert "use on queues.scheduling.volcano.sh other" in said
    assert await refusal(define(here, "delegate", **shared)) == ""
    assert await refusal(define(here, "author", scheduling={"scheduler": "volcano"})) == ""


async def test_s01_making_a_volcano_queue_needs_the_right(here: Team) -> None:
    """Its weight is relative to that of every Queue of the cluster. The right to use one makes none."""
    mine = {"scheduling": {"volcanoQueue": "shared", "volcanoQueuePolicy": "Manage"}}
    for role in ("author", "delegate", "developer"):
        said = await refusal(define(here, role, **mine))
        assert "spec.scheduling.volcanoQueue, spec.scheduling.volcanoQueuePolicy" in said
        assert "create queues.scheduling.volcano.sh" in said
    assert await refusal(make(here.admin, TORCHRUN_QUEUE, a_queue(here.namespace, "attack", **mine))) == ""


async def test_s01_weight_of_a_volcano_queue_is_not_raised(here: Team) -> None:
    """A queue for which an admin had a Volcano Queue made: its users change what is theirs."""
    await here.queue(
        "weighed", scheduling={"volcanoQueue": "weighed", "volcanoQueuePolicy": "Manage"}, weight=2, quota={"gpus": 8}
    )

    async def edit(**change: Any) -> str:
        patch = {"spec": change}
        return await refusal(here["author"].merge_patch(TORCHRUN_QUEUE, "weighed", patch, namespace=here.namespace))

    assert await edit(image="trainer:2") == ""
    assert "spec.weight: volcanoQueuePolicy Manage takes" in await edit(weight=1000)
    assert "spec.quota: " in await edit(quota={"gpus": 1000})
    assert "spec.scheduling.volcanoQueue: " in await edit(scheduling={"volcanoQueue": "another"})
    other = {"gpuResourceName": "example.com/none"}
    assert "spec.nodeResources.gpuResourceName: " in await edit(nodeResources=other), "the quota would bound nothing"
    handed = {"volcanoQueue": "weighed", "volcanoQueuePolicy": "Reference"}
    assert "the verb use on queues.scheduling.volcano.sh weighed" in await edit(scheduling=handed)
    assert await edit(scheduling=None) == "", "to give it up takes no right"


async def test_s01_right_to_use_a_kai_queue_is_by_name(here: Team) -> None:
    """The right to use a KAI queue is given by name, in a namespace."""
    assert await refusal(define(here, "delegate", kaiQueue="mine", parentKaiQueue="department")) == ""
    assert await refusal(define(here, "delegate", kaiQueue="shared", kaiQueuePolicy="Reference")) == ""
    assert await refusal(define(here, "delegate", kaiQueue="department-2", kaiQueuePolicy="Reference"))


async def test_s01_a_quota_is_not_raised_by_an_edit(here: Team) -> None:
    """A queue that an admin has bounded: its users change what is theirs, and not what KAI grants."""
    spec = {"kaiQueue": "tenancy-bounded", "kaiResources": {"gpu": {"limit": 8}}}
    await here.queue("bounded", **spec)

    async def edit(role: str, **change: Any) -> str:
        return await refusal(
            here[role].merge_patch(TORCHRUN_QUEUE, "bounded", {"spec": change}, namespace=here.namespace)
        )

    assert await edit("author", image="trainer:2") == ""
    for change in (
        {"kaiResources": {"gpu": {"limit": -1}}},
        {"kaiQueue": "default"},
        {"kaiQueuePolicy": "Reference"},
        {"parentKaiQueue": "default"},
        {"kaiPriority": 1000},
        {"preemptMinRuntime": "1000h"},
        {"reclaimMinRuntime": "1000h"},
    ):
        assert f"spec.{next(iter(change))}" in await edit("author", **change)
    assert await edit("author", kaiQueue=None) == "", "to give it up takes no right"


async def test_s02_what_remembers_a_kai_queue_is_not_taken_away(here: Team) -> None:
    """Without the finalizer the KAI Queue would stay behind, claimed by a queue that nobody has."""
    await here.queue("kept")
    finalizers = {"metadata": {"finalizers": ["torchrun.ai/kai-queue", "team.example.com/theirs"]}}
    await here.admin.merge_patch(TORCHRUN_QUEUE, "kept", finalizers, namespace=here.namespace)

    async def keep(client: Client, *kept: str) -> str:
        body = {"metadata": {"finalizers": list(kept)}}
        return await refusal(client.merge_patch(TORCHRUN_QUEUE, "kept", body, namespace=here.namespace))

    assert "metadata.finalizers" in await keep(here["author"])
    assert await keep(here["author"], "torchrun.ai/kai-queue") == ""
    assert await keep(here.operator) == ""


# Objects of other kinds.


def kinds_to_try(listed: str) -> Iterator[str]:
    """Kinds of this server and what is like the two that are allowed, until there are 200."""
    allowed = ("PersistentVolumeClaim", "ConfigMap")
    kinds = sorted({line.split()[-1] for line in listed.splitlines()} - set(allowed))
    near = [
        change(kind)
        for kind in allowed
        for change in (str.lower, str.upper, "{}s".format, " {}".format, "{} ".format, "{}\n".format, "v1/{}".format)
    ]
    found = [*kinds, *near, "", "List", "*", "Secret\x00ConfigMap"]
    yield from (*found, *(f"{kind}{number}" for number, kind in enumerate([*kinds, *kinds, *kinds], 1)))


async def test_s03_a_queue_makes_no_object_of_another_kind(here: Team, control_plane: ControlPlane) -> None:
    """A RoleBinding, a webhook, a Secret or whatever the server knows, written by the operator for a tenant."""
    listed = await control_plane.kubectl("api-resources", "--no-headers")
    kinds = list(kinds_to_try(listed))[:200]
    assert len(kinds) == 200
    assert {"RoleBinding", "Secret", "Pod", "ValidatingWebhookConfiguration"} <= set(kinds)
    taken = []
    for kind in kinds:
        template = {"apiVersion": "v1", "kind": kind, "metadata": {}}
        said = await refusal(define(here, "developer", resources=[{"name": "made", "template": template}]))
        taken += [] if "spec.resources[0].template.kind" in said else [(kind, said)]
    assert taken == []


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "ConfigMap"])
async def test_s03_a_queue_makes_what_its_author_may_make(here: Team, kind: str) -> None:
    """Who may write queues and not ConfigMaps has the operator write one."""
    spec = {"resources": [{"name": "made", "template": {"apiVersion": "v1", "kind": kind}}]}
    said = await refusal(define(here, "author", **spec))
    assert "TorchrunQueue attack: spec.resources" in said
    assert f"create {kind.lower()}s" in said
    assert await refusal(define(here, "developer", **spec)) == ""


# What pods can do.

POD_PARTS: Mapping[str, Json] = {
    "serviceAccountName": {"serviceAccountName": "admin"},
    "imagePullSecrets": {"imagePullSecrets": ["of-others"]},
    "envFrom": {"envFrom": [{"secretRef": {"name": "of-others"}}]},
    "env": {"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "of-others", "key": "token"}}}]},
    "storage.datasets": {"storage": {"datasets": [{"name": "d", "claimName": "of-others", "mountPath": "/d"}]}},
    "storage.workspace.podTemplate": {"storage": {"workspace": {"podTemplate": {"spec": {"hostNetwork": True}}}}},
    "storage.checkpoints.claimName": {"storage": {"checkpoints": {"enabled": True, "claimName": "of-others"}}},
    "storage.workspace.cacheClaimName": {"storage": {"workspace": {"cacheClaimName": "of-others"}}},
    "podTemplate": {"podTemplate": {"spec": {"serviceAccountName": "admin"}}},
}


@pytest.mark.parametrize("field", POD_PARTS)
async def test_s05_queue_names_only_what_its_author_may_use(here: Team, field: str) -> None:
    """Who may write queues and not pods runs as a stronger account, or reads Secrets and claims of others."""
    said = await refusal(define(here, "author", **POD_PARTS[field]))
    assert f"TorchrunQueue attack: spec.{field}: " in said
    assert "create pods" in said
    assert await refusal(define(here, "developer", **POD_PARTS[field])) == ""


async def test_s05_author_edits_only_harmless_fields_of_an_admins_queue(here: Team) -> None:
    """An edit of another field is no reason to refuse; one of the account is."""
    await here.queue("named", serviceAccountName="trainer", podTemplate={"spec": {"hostNetwork": True}})

    async def edit(**change: Any) -> str:
        return await refusal(
            here["author"].merge_patch(TORCHRUN_QUEUE, "named", {"spec": change}, namespace=here.namespace)
        )

    assert await edit(image="trainer:2", runPolicy={"maxRestarts": 1}) == ""
    assert "spec.serviceAccountName" in await edit(serviceAccountName="admin")
    assert "spec.podTemplate" in await edit(podTemplate={"spec": {"hostPID": True}})


async def test_s05_a_job_cannot_name_an_account(here: Team) -> None:
    """TorchrunJobs have no such field: strictly an error, and else nothing that is kept."""
    body = a_job(here.namespace, "account", serviceAccountName="admin", automountServiceAccountToken=True)
    assert await refusal(here["submitter"].create(TORCHRUN_JOB, body)) == ""
    kept = await here.admin.get_raw(TORCHRUN_JOB, "account", here.namespace)
    assert {"serviceAccountName", "automountServiceAccountToken"} & set(kept["spec"]) == set()


ON_THE_HOST: Mapping[str, Json] = {
    "hostPath": {"volumes": [HOST]},
    "hostNetwork": {"hostNetwork": True},
    "hostPID": {"hostPID": True},
    "hostIPC": {"hostIPC": True},
    "hostProcess": {"securityContext": {"windowsOptions": {"hostProcess": True}}},
    "sysctls": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
    "seccomp": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    "appArmor": {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
    "seLinux": {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
    "root": {"securityContext": {"runAsUser": 0, "runAsNonRoot": False}},
    "nodeName": {"nodeName": "control-plane"},
    "runtimeClassName": {"runtimeClassName": "privileged"},
    "schedulerName": {"schedulerName": "mine"},
    "priorityClassName": {"priorityClassName": "system-node-critical"},
    "tolerations": {"tolerations": [{"operator": "Exists"}]},
    "privileged": {"containers": [{"name": "trainer", "securityContext": {"privileged": True}}]},
    "capabilities": {"containers": [{"name": "trainer", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
    "procMount": {"containers": [{"name": "trainer", "securityContext": {"procMount": "Unmasked"}}]},
    "hostPort": {"containers": [{"name": "trainer", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
    "initContainers": {"initContainers": [{"name": "a", "image": "a:1", "securityContext": {"privileged": True}}]},
}


@pytest.mark.parametrize("field", ON_THE_HOST)
async def test_s06_a_pod_template_takes_the_right_to_create_pods(here: Team, field: str) -> None:
    """The node's files, network, devices or priorities by way of a queue's podTemplate."""
    spec = {"podTemplate": {"spec": ON_THE_HOST[field]}}
    assert "TorchrunQueue attack: spec.podTemplate: " in await refusal(define(here, "author", **spec))
    assert await refusal(make(here.admin, TORCHRUN_QUEUE, a_queue(here.namespace, "attack", **spec))) == ""


VOLUMES: Mapping[str, Json] = {
    "hostPath": {"path": "/"},
    "nfs": {"server": "files.example.com", "path": "/"},
    "iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:a", "lun": 0},
    "csi": {"driver": "secrets-store.csi.k8s.io"},
    "cephfs": {"monitors": ["10.0.0.1"]},
    "flexVolume": {"driver": "a/b"},
    "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
    "ephemeral": {"volumeClaimTemplate": {"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "theirs"}}}},
    "ofTheFuture": {},
}


@pytest.mark.parametrize("source", VOLUMES)
async def test_s06_a_job_mounts_nothing_of_the_node(here: Team, source: str) -> None:
    """Further volumes of a job with a source that leads to the node, to a token, or to a copy of another claim; also
    beside a harmless one."""
    beside: tuple[Json, ...] = ({}, {"emptyDir": {}})
    for extra in beside:
        spec = {"volumes": {"additionalVolumes": [SCRATCH, {"name": "host", source: VOLUMES[source], **extra}]}}
        for role in ("submitter", "user", "author"):
            said = await refusal(submit(here, role, **spec))
            assert "TorchrunJob attack: spec.volumes.additionalVolumes of name host: " in said
            assert "create pods" in said
        assert await refusal(submit(here, "developer", **spec)) == ""


OF_OTHERS: Mapping[str, tuple[str, Json]] = {
    "a Secret as a volume": ("secrets", {"volumes": {"additionalVolumes": [{"name": "v", "secret": {}}]}}),
    "a Secret as variables": ("secrets", {"envFrom": [{"secretRef": {"name": "theirs"}}]}),
    "a Secret as a variable": ("secrets", {"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "theirs"}}}]}),
    "a Secret for the source": ("secrets", {"volumes": {"workspace": {**GIT, "secretRef": "theirs"}}}),
    "a ConfigMap as a volume": ("configmaps", {"volumes": {"additionalVolumes": [{"name": "v", "configMap": {}}]}}),
    "a ConfigMap as variables": ("configmaps", {"envFrom": [{"configMapRef": {"name": "theirs"}}]}),
    "a ConfigMap as a variable": (
        "configmaps",
        {"env": [{"name": "T", "valueFrom": {"configMapKeyRef": {"name": "theirs"}}}]},
    ),
    "another job's claim as a volume": (
        "persistentvolumeclaims",
        {
            "volumes": {
                "additionalVolumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "there-workspace"}}],
            }
        },
    ),
    "another job's claim as the workspace": (
        "persistentvolumeclaims",
        {"volumes": {"workspace": {"source": "existing", "claimName": "there-workspace"}}},
    ),
    "another job's claim as checkpoints": (
        "persistentvolumeclaims",
        {"volumes": {"checkpoints": {"claimName": "there-checkpoints"}}},
    ),
    "another job's claim as a dataset": (
        "persistentvolumeclaims",
        {"volumes": {"datasets": [{"name": "d", "claimName": "there-workspace", "mountPath": "/d"}]}},
    ),
}


@pytest.mark.parametrize("what", OF_OTHERS)
async def test_s07_job_reads_no_secret_or_claim_of_others(here: Team, what: str) -> None:
    """Who may submit jobs and neither create pods nor use such objects has a job read them."""
    resource, spec = OF_OTHERS[what]
    said = await refusal(submit(here, "submitter", **spec))
    assert "TorchrunJob attack: spec." in said
    assert f"the verb use on {resource}" in said
    for role in ("user", "developer"):
        assert await refusal(submit(here, role, **spec)) == ""
    assert await refusal(make(here.admin, TORCHRUN_JOB, a_job(here.namespace, "attack", **spec))) == ""


async def test_s07_a_long_job_is_judged_to_its_end(here: Team) -> None:
    """Lists as long as they may be: none is cut off, and none costs more than the policies may."""
    many: Json = {
        "env": [{"name": f"V{n}", "value": "x" * 100} for n in range(255)],
        "envFrom": [{"configMapRef": {"name": f"c{n}"}} for n in range(63)],
        "volumes": {"additionalVolumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(32)]},
    }
    many["env"].append({"name": "T", "valueFrom": {"secretKeyRef": {"name": "theirs", "key": "token"}}})
    assert "you may neither create pods nor use" in await refusal(submit(here, "submitter", **many))
    assert await refusal(submit(here, "developer", **many)) == ""


# What is said to the workspace program.

PIECES = (
    ";",
    "&&",
    "||",
    "|",
    "`id`",
    "$(id)",
    "${IFS}",
    "'",
    '"',
    "\\",
    "\n",
    "\r",
    "\x00",
    "\t",
    " ",
    "*",
    "~",
    "!",
    "<",
    ">",
)
SHAPES = ("{0}touch /tmp/marker", "main{0}touch /tmp/marker", "{0}", "a{0}b{0}c", "--x={0}")
FIELDS = (
    lambda text: {**GIT, "ref": text},
    lambda text: {**GIT, "url": f"https://git.example.com/{text}"},
    lambda text: {**GIT, "url": text},
    lambda text: {**GIT, "subPath": text},
    lambda text: {**GIT, "secretRef": text},
)


async def test_s08_no_text_of_a_user_becomes_a_script(here: Team) -> None:
    """500 texts that a shell would run, as url, ref, path and name. Whatever the API takes is a word of its own in the
    arguments of a program, and there is no shell."""
    taken = []
    for piece in PIECES:
        for shape in SHAPES:
            for field in FIELDS:
                workspace = field(shape.format(piece))
                body = a_job(here.namespace, "attack", volumes={"workspace": workspace})
                taken.append(await attempt(here["developer"].apply(TORCHRUN_JOB, body, dry_run=True)))
    jobs = [job for job in taken if not isinstance(job, str)]
    assert len(taken) == 500
    assert 0 < len(jobs) < 200
    for job in jobs:
        assert _words(job, _queue(here)) == []


def _queue(here: Team) -> TorchrunQueue:
    metadata = ObjectMeta(name="queue", namespace=here.namespace, uid="1")
    return TorchrunQueue(metadata=metadata, spec=QueueSpec(image="trainer:1"))


def _words(job: TorchrunJob, queue: TorchrunQueue) -> list[str]:
    """What in the sync pod of a job is a shell, or holds a user's text in another place than one option's value."""
    template = render(job, queue, operator_settings().operator)
    pod = sync_pod(Owner.of(job), template, 0)
    workspace = job.spec.volumes.workspace
    assert workspace is not None
    wrong = []
    for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
        if container["command"] != ["torchctl", "workspace"]:
            wrong.append(container["command"])
        options = [word for word in container["args"] if word.startswith("--")]
        if len(options) != len(container["args"]) - 1:
            wrong.append(container["args"])
        for text in filter(None, (workspace.url, workspace.ref)):
            holding = [word for word in container["args"] if text in word]
            wrong += [word for word in holding if not re.fullmatch(rf"--(url|ref)={re.escape(text)}", word)]
    return wrong


HOSTILE_SOURCES = (
    {"url": "ext::sh -c id"},
    {"url": "file:///etc/passwd"},
    {"url": "/etc/passwd"},
    {"url": "git://git.example.com/x"},
    {"url": "http://git.example.com/x"},
    {"url": "ssh://-oProxyCommand=id/x"},
    {"url": "ssh://git@-oProxyCommand=id/x"},
    {"url": "-u./payload"},
    {"url": "git.example.com:team/x"},
    {"ref": "--upload-pack=id"},
    {"ref": "-x"},
    {"ref": "a..b"},
    {"ref": "refs/heads/x:refs/heads/y"},
    {"ref": "main^{/x}"},
    {"subPath": "../../etc"},
    {"subPath": "/etc"},
)


@pytest.mark.parametrize("change", HOSTILE_SOURCES, ids=lambda change: "-".join(change.values()))
async def test_s09_git_is_given_no_option_and_no_other_transport(here: Team, change: Json) -> None:
    """Options, helpers and files instead of a repository, and paths out of it."""
    said = await refusal(submit(here, "submitter", volumes={"workspace": {**GIT, **change}}))
    assert f"spec.volumes.workspace.{next(iter(change))}" in said


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "METADATA.google.internal", "100.100.100.200", "[fd00:ec2::254]", "[fe80::1]"]
)
async def test_s10_no_source_is_a_machines_metadata(here: Team, host: str) -> None:
    """The sync pod is told to fetch the credentials of the node that it runs on."""
    for url in (f"https://{host}/latest/meta-data", f"ssh://git@{host}/x"):
        said = await refusal(submit(here, "submitter", volumes={"workspace": {"source": "git", "url": url}}))
        assert "spec.volumes.workspace.url" in said


@pytest.mark.parametrize("key", [*OWNED_KEYS, *(f"{prefix}anything" for prefix in OWNED_KEY_PREFIXES)])
async def test_s11_job_cannot_set_keys_of_the_operator(here: Team, key: str) -> None:
    """Labels and annotations by which the pods would be counted for another team, or as another job's."""
    for field in ("labels", "annotations"):
        for role in ("submitter", "developer"):
            said = await refusal(submit(here, role, **{field: {key: "other"}}))
            assert f"spec.{field}" in said
            assert "must not have keys of the operator" in said


@pytest.mark.parametrize(
    "key", ["k8s.v1.cni.cncf.io/networks", "sidecar.istio.io/inject", "io.kubernetes.cri-o.Devices/trainer"]
)
async def test_s11_a_job_speaks_to_no_network_and_no_runtime(here: Team, key: str) -> None:
    """Annotations by which a pod is put into another network, out of the mesh or onto devices."""
    said = await refusal(submit(here, "user", annotations={"note": "mine", key: "x"}))
    assert f"TorchrunJob attack: spec.annotations: {key}: " in said
    assert await refusal(submit(here, "submitter", annotations={"note": "mine"})) == ""
    assert await refusal(submit(here, "developer", annotations={key: "x"})) == ""


@pytest.mark.parametrize("kind", CONTENT, ids=str)
async def test_s12_nobody_makes_an_object_that_looks_like_ours(here: Team, kind: Kind[Any]) -> None:
    """A Job, pod, claim, template or Service with our labels or a TorchrunJob as its controller, to be adopted,
    believed, counted or routed to. One that only goes with the job, or has other labels, is theirs to make."""
    developer = here["developer"]
    said = await refusal(make(developer, kind, forged(here, kind)))
    assert f"{kind.kind} forged: metadata.labels: torchrun.ai/*" in said
    for label in ("torchrun.ai/job-uid", "torchrun.ai/anything"):
        assert await refusal(make(developer, kind, forged(here, kind, labels={label: "x"})))
    controlled = forged(here, kind, ownerReferences=[{**OWNER, "controller": True}])
    assert f"{kind.kind} forged: metadata.ownerReferences: " in await refusal(make(developer, kind, controlled))
    assert await refusal(make(developer, kind, forged(here, kind, ownerReferences=[OWNER]))) == ""
    assert await refusal(make(developer, kind, forged(here, kind, labels={"app.kubernetes.io/managed-by": "us"}))) == ""
    for client in (here.operator, here.admin):
        assert await refusal(make(client, kind, forged(here, kind))) == ""


@pytest.mark.parametrize("kind", CONTENT, ids=str)
async def test_s12_nobody_adds_or_removes_marks_of_the_operator(here: Team, kind: Kind[Any]) -> None:
    """Labels changed, taken off a child so that it is not seen any more, or put on afterwards."""
    there = await here.admin.get(TORCHRUN_JOB, "there", here.namespace)
    owners = [{**OWNER, "uid": there.metadata.uid, "controller": True}]
    await here.admin.create(
        kind, forged(here, kind, "ours", labels=LABELS | {"kai.scheduler/queue": "a"}, ownerReferences=owners)
    )
    await here["developer"].create(kind, forged(here, kind, "theirs", labels={"a": "b"}))

    async def change(client: Client, name: str, **metadata: Any) -> str:
        return await refusal(client.merge_patch(kind, name, {"metadata": metadata}, namespace=here.namespace))

    developer = here["developer"]
    for labels in (
        {"torchrun.ai/job-uid": None},
        {"torchrun.ai/job-uid": "1"},
        {"torchrun.ai/attempt": "7"},
        {"app.kubernetes.io/managed-by": None},
        {"kai.scheduler/queue": "b"},
    ):
        assert "metadata.labels" in await change(developer, "ours", labels=labels)
    said = await change(developer, "ours", annotations={"torchrun.ai/workspace-revision": "mine"})
    assert "metadata.annotations" in said
    assert "metadata.labels" in await change(developer, "theirs", labels={"torchrun.ai/role": "worker"})
    assert "metadata.ownerReferences" in await change(developer, "ours", ownerReferences=[])
    assert "metadata.ownerReferences" in await change(developer, "theirs", ownerReferences=owners)
    assert await change(developer, "ours", labels={"team": "vision"}, annotations={"note": "a"}) == ""
    assert await change(developer, "theirs", labels={"a": "c"}) == ""
    assert await change(here.operator, "ours", labels={"torchrun.ai/attempt": "1"}) == ""


async def test_s12_no_other_controller_makes_such_pods(here: Team) -> None:
    """Pods by way of a Job's template or a CronJob's: the Job controller is believed, whoever wrote the Job."""
    template = {"metadata": {"labels": {"torchrun.ai/job-uid": "0"}}, **CONTENT[POD]}
    body = forged(here, JOB, labels={"a": "b"}) | {"spec": {"template": template}}
    assert "Job forged: spec.template.metadata.labels: torchrun.ai/*" in await refusal(
        make(here["developer"], JOB, body)
    )
    suspended = forged(here, JOB, "turned", labels={"a": "b"})
    suspended["spec"] = {"suspend": True, **suspended["spec"]}
    await here["developer"].create(JOB, suspended)
    patch = {"spec": {"template": {"metadata": {"labels": {"torchrun.ai/job-uid": "0"}}}}}
    turned = here["developer"].merge_patch(JOB, "turned", patch, namespace=here.namespace)
    assert "spec.template.metadata.labels" in await refusal(turned)


async def test_s12_a_replica_set_gets_no_pods_with_our_labels(here: Team, control_plane: ControlPlane) -> None:
    """The ReplicaSet controller makes whatever pods it is told to make: it is none of those that are believed."""
    labels = {"a": "b", "torchrun.ai/job-uid": "0"}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": labels}, **CONTENT[POD]}}
    spec["template"]["spec"] = {**CONTENT[POD]["spec"], "restartPolicy": "Always"}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "forged"}, "spec": spec}
    await control_plane.kubectl("create", f"--namespace={here.namespace}", "-f-", input=json.dumps(body))
    fields = "--field-selector=involvedObject.name=forged,reason=FailedCreate"

    async def refused() -> str:
        return await control_plane.kubectl("get", "events", f"--namespace={here.namespace}", fields, "-oyaml")

    await until(lambda: _holds(refused, "torchctl-children"))
    assert await here.admin.list(POD, namespace=here.namespace, labels="a=b,torchrun.ai/job-uid") == []
    await control_plane.kubectl("delete", "replicaset", "forged", f"--namespace={here.namespace}")


async def _holds(look: Any, text: str) -> bool:
    return text in await look()


async def test_s12_nobody_else_writes_what_the_operator_remembers(here: Team) -> None:
    """With every right on torchrun.ai a person writes status: another template to run with, or an outcome."""
    await here.queue("remembered")
    for kind, name, status in (
        (TORCHRUN_JOB, "there", {"queueRevision": "there-0123456789", "phase": "Succeeded"}),
        (TORCHRUN_QUEUE, "remembered", {"templateHash": "0"}),
    ):
        for client, taken in ((here["developer"], False), (here.operator, True), (here.admin, True)):
            said = await refusal(
                client.merge_patch(kind, name, {"status": status}, namespace=here.namespace, subresource="status")
            )
            assert (said == "") == taken
            assert taken or f"{kind.kind} {name}: status is written by the operator alone" in said
    scaled = {"spec": {"suspend": True}, "status": {"phase": "Succeeded"}}
    await here["developer"].merge_patch(TORCHRUN_JOB, "there", scaled, namespace=here.namespace)
    assert (await here.admin.get(TORCHRUN_JOB, "there", here.namespace)).spec.suspend, "spec is theirs"


ACROSS: Mapping[str, Json] = {
    "jobQueue": {"jobQueue": "other/queue"},
    "volumes.workspace.secretRef": {"volumes": {"workspace": {**GIT, "secretRef": "other/secret"}}},
    "volumes.workspace.claimName": {"volumes": {"workspace": {"source": "existing", "claimName": "other/claim"}}},
    "volumes.checkpoints.claimName": {"volumes": {"checkpoints": {"claimName": "other/claim"}}},
    "volumes.datasets[0].claimName": {
        "volumes": {"datasets": [{"name": "d", "claimName": "other/claim", "mountPath": "/d"}]}
    },
    "dependsOn[0].job": {"dependsOn": [{"job": "other/job"}]},
    "priorityClassName": {"priorityClassName": "other/high"},
}
QUEUES_ACROSS: Mapping[str, Json] = {
    "kaiQueue": {"kaiQueue": "other/queue"},
    "parentKaiQueue": {"kaiQueue": "a", "parentKaiQueue": "other/queue"},
    "serviceAccountName": {"serviceAccountName": "other/admin"},
    "imagePullSecrets[0]": {"imagePullSecrets": ["other/secret"]},
    "resources[0].name": {"resources": [{"name": "other/map", "template": {"apiVersion": "v1", "kind": "ConfigMap"}}]},
    "storage.workspace.cacheClaimName": {"storage": {"workspace": {"cacheClaimName": "other/claim"}}},
    "storage.datasets[0].claimName": {
        "storage": {"datasets": [{"name": "d", "claimName": "other/claim", "mountPath": "/d"}]}
    },
}


async def test_s13_no_name_leads_into_another_namespace(here: Team) -> None:
    """Every name that a spec can have, with a namespace before it."""
    for field, spec in ACROSS.items():
        assert f"spec.{field}" in await refusal(submit(here, "developer", **spec))
    for field, spec in QUEUES_ACROSS.items():
        assert f"spec.{field}" in await refusal(define(here, "developer", **spec))


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward", "ephemeralcontainers"])
async def test_s19_to_submit_takes_no_right_to_enter_pods(
    here: Team, control_plane: ControlPlane, subresource: str
) -> None:
    """A role that lets people submit, and with it into every pod of the namespace; or an operator that could."""
    for user in (f"submitter@{here.namespace}", OPERATOR):
        for verb in ("create", "update"):
            may = ("auth", "can-i", verb, "pods", f"--subresource={subresource}", f"--as={user}")
            with pytest.raises(CommandFailed):
                await control_plane.kubectl(*may, f"--namespace={here.namespace}")


async def test_s21_spec_holds_no_credential_and_operator_reads_none(here: Team) -> None:
    """Passwords and tokens in a url, which everybody may read who may read the job."""
    for url in (
        "https://me:canary@git.example.com/x",
        "https://canary@git.example.com/x",
        "ssh://git:canary@a.example.com/x",
    ):
        said = await refusal(submit(here, "submitter", volumes={"workspace": {"source": "git", "url": url}}))
        assert "put them into a Secret and name it in secretRef" in said
    with pytest.raises(Forbidden):
        await here.operator.list(SECRET, namespace=here.namespace)


TOO_MUCH: Mapping[str, Json] = {
    "spec.numNodes": {"numNodes": 10**9},
    "spec.numGPUs": {"numNodes": None, "numGPUs": 10**12},
    "spec.nprocPerNode": {"nprocPerNode": 10**9},
    "spec.env": {"env": [{"name": f"V{n}", "value": ""} for n in range(10_000)]},
    "spec.env[0].value": {"env": [{"name": "V", "value": "x" * 10**5}]},
    "spec.envFrom": {"envFrom": [{"prefix": "a"}] * 1000},
    "spec.command": {"command": "x" * 10**5},
    "spec.annotations.a": {"annotations": {"a": "x" * 100_000}},
    "spec.labels": {"labels": {f"l{n}": "" for n in range(1000)}},
    "spec.volumes.additionalVolumes": {"volumes": {"additionalVolumes": [{"name": f"v{n}"} for n in range(1000)]}},
    "spec.dependsOn": {"dependsOn": [{"job": f"j{n}"} for n in range(1000)]},
    "spec.tolerations": {"tolerations": [{"operator": "Exists"}] * 1000},
}


@pytest.mark.parametrize("field", TOO_MUCH)
async def test_s24_a_spec_is_bounded_in_every_direction(here: Team, field: str) -> None:
    """A spec whose size the operator, or the cluster, pays for."""
    assert f"{field}: " in await refusal(submit(here, "submitter", **TOO_MUCH[field]))


async def test_s31_nothing_that_can_be_down_stands_before_a_write(control_plane: ControlPlane) -> None:
    """A webhook of ours that does not answer, and with it every write that it judges. There is none."""
    rendered = yaml.safe_load_all(await control_plane.kubectl("kustomize", str(CONFIG / "default")))
    kinds = {document["kind"] for document in rendered}
    assert {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} <= kinds
    assert not {kind for kind in kinds if "Webhook" in kind}
