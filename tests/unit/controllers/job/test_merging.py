"""How podTemplate, queue and job become one: a property for each rule of the table, against a model of a few words."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api import effective, labels
from torchctl.api.casing import camel
from torchctl.api.job import JobSpec, TorchrunJob
from torchctl.api.model import Model
from torchctl.api.quantity import parse
from torchctl.api.queue import QueueSpec, TorchrunQueue
from torchctl.controllers.job.template import security
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.controllers.job.template.merging import ONLY_JOB, ONLY_QUEUE, RULES
from torchctl.controllers.job.template.render import render
from torchctl.controllers.queuespec.resources import object_name
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.kinds import ObjectMeta

SETTINGS = OperatorSettings(image="torchctl:test")
JOB = {"jobQueue": "research", "numNodes": 1, "command": "python train.py"}
PROVED: dict[str, str] = {}
"""The test of each rule."""

Json = dict[str, Any]
F = TypeVar("F", bound=Callable[..., None])


def merges(rule: str) -> Callable[[F], F]:
    """Says which row of the table a test proves."""

    def note(test: F) -> F:
        PROVED[rule] = test.__name__
        return test

    return note


def merged(*, pod: Json | None = None, trainer: Json | None = None, queue: Json | None = None, **job: Any) -> Any:
    """The frozen template of a job, from what each of the three says. What is None is not said."""
    template = {"spec": said(pod or {}) | {"containers": [{"name": "trainer", **said(trainer or {})}]}}
    spec = {"image": "queue:1", "podTemplate": template, **said(queue or {})}
    return rendered(spec, said(job))


def rendered(queue: Json, job: Json) -> FrozenTemplate:
    subject = JobSpec.model_validate({**said(JOB | ({"numNodes": None} if "numGPUs" in job else {})), **job})
    meta = ObjectMeta(name="demo", namespace="team", uid="u")
    base = TorchrunQueue(ObjectMeta(name="research"), QueueSpec.model_validate(queue))
    return render(TorchrunJob(meta, subject), base, SETTINGS)


def said(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def pod_of(template: FrozenTemplate) -> Json:
    spec: Json = template.pod["spec"]
    return spec


def trainer_of(template: FrozenTemplate) -> Json:
    trainer: Json = pod_of(template)["containers"][0]
    return trainer


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def three(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any, Any]]:
    """What podTemplate, queue and job say, if anything."""
    return st.tuples(maybe(values), maybe(values), maybe(values))


def last(*words: Any) -> Any:
    """The last word; None where nobody says one."""
    return next((word for word in reversed(words) if word is not None), None)


def together(*parts: Json | None) -> Json:
    """By key, the last wins."""
    return {key: value for part in parts for key, value in (part or {}).items()}


def each_once(*parts: Any) -> list[Any]:
    found: list[Any] = []
    for item in (item for part in parts for item in part or ()):
        if item not in found:
            found.append(item)
    return found


WORD = st.sampled_from(["a", "b", "c"])
MAP = st.dictionaries(WORD, WORD, max_size=3)
LIST = st.lists(WORD, max_size=3, unique=True)


@merges("labels")
@pytest.mark.proves("TorchrunJob.spec.labels")
@given(template=maybe(MAP), job=maybe(MAP), owned=st.sampled_from(labels.OWNED_KEYS))
def test_labels_merge_by_key_except_the_operators(template: Any, job: Any, owned: str) -> None:
    """The job has the last word."""
    queue = {"podTemplate": {"metadata": {"labels": {**(template or {}), owned: "theirs"}}}}
    found = merged(queue=queue, labels=job)
    assert found.pod["metadata"].get("labels", {}) == together(template, job)


@merges("annotations")
@pytest.mark.proves("TorchrunJob.spec.annotations")
@given(template=maybe(MAP), job=maybe(MAP), queue_key=st.booleans())
def test_annotations_merge_by_key(template: Any, job: Any, queue_key: bool) -> None:
    """KAI's keys are taken from the queue's administrator only."""
    key = labels.KAI_QUEUE if queue_key else "kai.scheduler/gpu-fraction-num-devices"
    queue = {"podTemplate": {"metadata": {"annotations": {**(template or {}), key: "1"}}}}
    found = merged(queue=queue, annotations=job).pod["metadata"].get("annotations", {})
    assert found == together(template, {} if queue_key else {key: "1"}, job)


@merges("image")
@pytest.mark.proves("TorchrunQueue.spec.image", "TorchrunJob.spec.image")
@given(words=three(WORD))
def test_of_the_image_the_last_word(words: tuple[Any, Any, Any]) -> None:
    template, queue, job = words
    if last(*words) is None:
        template = "a"
    trainer = said({"name": "trainer", "image": template})
    found = rendered(
        said({"image": queue}) | {"podTemplate": {"spec": {"containers": [trainer]}}}, said({"image": job})
    )
    assert trainer_of(found)["image"] == last(template, queue, job)


@merges("command")
@given(command=maybe(LIST), args=maybe(LIST))
def test_the_command_is_the_jobs(command: Any, args: Any) -> None:
    trainer = trainer_of(merged(trainer={"command": command, "args": args}, command="python a.py"))
    assert trainer["command"] == trainer_of(merged(command="python a.py"))["command"]
    assert trainer.get("args", []) == []


@merges("workingDir")
@given(template=maybe(WORD), mount=maybe(WORD), job=maybe(WORD), enabled=st.booleans())
def test_the_working_directory_is_the_last_word(template: Any, mount: Any, job: Any, enabled: bool) -> None:
    """A workspace has its own."""
    paths = [f"/{word}a" if word else None for word in (template, mount, job)]
    workspace = said({"enabled": enabled, "mountPath": paths[1], "accessModes": ["ReadWriteMany"]})
    found = merged(trainer={"workingDir": paths[0]}, queue={"storage": {"workspace": workspace}}, workingDir=paths[2])
    assert trainer_of(found).get("workingDir") == last(paths[0], (paths[1] or "/app") if enabled else None, paths[2])


@merges("env")
@pytest.mark.proves("TorchrunQueue.spec.env", "TorchrunJob.spec.env", "TorchrunQueue.spec.podTemplate")
@given(words=three(MAP), by_reference=st.booleans(), owned=st.sampled_from([*labels.OWNED_ENV, "PET_X"]))
def test_variables_by_name_whole_the_job_last(words: Any, by_reference: bool, owned: str) -> None:
    def listed(values: Json | None, **more: Any) -> Any:
        return None if values is None else [{"name": name, "value": value, **more} for name, value in values.items()]

    template, queue, job = words
    written = listed(job)
    if by_reference and written:
        written[0] = {"name": written[0]["name"], "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    env = [*(listed(template) or []), {"name": owned, "value": "theirs"}]
    found = trainer_of(merged(trainer={"env": env}, queue={"env": listed(queue)}, env=written))["env"]
    named = {item["name"]: item for item in found if item["name"] not in ("HOME", "USER")}
    wanted = {item["name"]: item for part in (listed(template), listed(queue), written) for item in part or ()}
    assert named == wanted
    assert [*named] == [*together(template, queue, job)], "in the place of the first"
    assert len(found) == len({item["name"] for item in found})


@merges("envFrom")
@pytest.mark.proves("TorchrunQueue.spec.envFrom", "TorchrunJob.spec.envFrom")
@given(words=three(LIST))
def test_sources_of_variables_all_in_order_each_once(words: Any) -> None:
    template, queue, job = ([{"secretRef": {"name": name}} for name in part or ()] or None for part in words)
    found = trainer_of(merged(trainer={"envFrom": template}, queue={"envFrom": queue}, envFrom=job))
    assert found.get("envFrom", []) == each_once(template, queue, job)


AMOUNT = st.sampled_from(["1", "2500m", "3Gi", "1e3"])


@merges("resources")
@pytest.mark.proves(
    "TorchrunQueue.spec.nodeResources.gpus",
    "TorchrunQueue.spec.nodeResources.cpus",
    "TorchrunQueue.spec.nodeResources.memory",
    "TorchrunQueue.spec.nodeResources.gpuResourceName",
)
@given(
    requests=maybe(st.dictionaries(st.sampled_from(["cpu", "memory", "x/y"]), AMOUNT)),
    cpus=maybe(AMOUNT),
    memory=maybe(AMOUNT),
    gpus=st.sampled_from([0, 4, 8]),
    part=st.booleans(),
    resource=st.sampled_from(["nvidia.com/gpu", "amd.com/gpu"]),
)
def test_resources_merge_by_name(requests: Any, cpus: Any, memory: Any, gpus: int, part: bool, resource: str) -> None:
    """A part of the GPUs has that part of all other resources."""
    node = said({"cpus": cpus, "memory": memory, "gpus": gpus, "gpuResourceName": resource})
    job: Json = {"numGPUs": gpus // 2} if part and gpus else {}
    base = {"requests": requests or {}}
    found = trainer_of(merged(trainer={"resources": base}, queue={"nodeResources": node}, **job)).get("resources", {})
    factor = 2 if part and gpus else 1
    own = said({"cpu": cpus, "memory": memory})
    for field, given_ in (("requests", requests or {}), ("limits", {})):
        wanted = together(given_, own)
        shown = {name: amount for name, amount in found.get(field, {}).items() if name != resource}
        assert set(shown) == set(wanted)
        for name, amount in wanted.items():
            exact, whole = parse(amount).value / factor, parse(shown[name]).value
            if name == "x/y":
                assert whole == math.ceil(exact)
            else:
                assert 0 <= exact - whole <= (1 if name == "memory" else Fraction(1, 1000))
    assert found.get("limits", {}).get(resource) == (str(gpus // factor) if gpus else None)


def datasets(names: Any, path: str) -> Any:
    return [{"name": name, "claimName": f"{name}-{path}", "mountPath": f"/{path}/{name}"} for name in names or ()]


@merges("volumes")
@pytest.mark.proves(
    "TorchrunQueue.spec.storage.shmSizePerGPU",
    "TorchrunJob.spec.volumes.additionalVolumes",
)
@given(template=maybe(LIST), queue=maybe(LIST), job=maybe(LIST), more=maybe(LIST), shm=st.booleans())
def test_volumes_by_name_the_jobs_own_last(template: Any, queue: Any, job: Any, more: Any, shm: bool) -> None:
    def volumes(names: Any, by: str) -> Any:
        return [{"name": name, "emptyDir": {"medium": by}} for name in names or ()]

    queue, job = ([f"{name}-set" for name in names or ()] for names in (queue, job))
    storage: Json = {"datasets": datasets(queue, "q")} | ({"shmSizePerGPU": "1Gi"} if shm else {})
    found = pod_of(
        merged(
            pod={"volumes": volumes(template, "t")},
            queue={"storage": storage},
            volumes={"datasets": datasets(job, "j"), "additionalVolumes": volumes(more, "m")},
        )
    ).get("volumes", [])
    claims = together(
        *({item["name"]: item["claimName"] for item in part} for part in (datasets(queue, "q"), datasets(job, "j")))
    )
    wanted = together(
        dict.fromkeys(template or (), "t"),
        claims,
        {"torchrun-shm": "Memory"} if shm else {},
        dict.fromkeys(more or (), "m"),
    )
    shown = {
        item["name"]: item.get("emptyDir", {}).get("medium") or item["persistentVolumeClaim"]["claimName"]
        for item in found
    }
    assert shown == wanted


@merges("mounts")
@pytest.mark.proves("TorchrunJob.spec.volumes.additionalMounts")
@given(words=three(LIST), shm=st.booleans())
def test_mounts_by_path_the_jobs_own_last(words: Any, shm: bool) -> None:
    template, queue, job = words

    def mounts(names: Any, by: str) -> Any:
        return [{"name": by, "mountPath": f"/{name}x"} for name in names or ()]

    sets = [{"name": f"q{name}", "claimName": "q", "mountPath": f"/{name}q"} for name in queue or ()]
    storage: Json = {"datasets": sets} | ({"shmSizePerGPU": "1Gi"} if shm else {})
    volumes: list[Json] = [{"name": name, "emptyDir": {}} for name in ("t", "j")]
    found = trainer_of(
        merged(
            pod={"volumes": volumes[:1]},
            trainer={"volumeMounts": mounts(template, "t")},
            queue={"storage": storage},
            volumes={"additionalVolumes": volumes[1:], "additionalMounts": mounts(job, "j")},
        )
    ).get("volumeMounts", [])
    wanted = together(
        {f"/{name}x": "t" for name in template or ()},
        {f"/{name}q": f"q{name}" for name in queue or ()},
        {"/dev/shm": "torchrun-shm"} if shm else {},
        {f"/{name}x": "j" for name in job or ()},
    )
    assert {item["mountPath"]: item["name"] for item in found} == wanted
    assert len(found) == len(wanted)


@merges("datasets")
@pytest.mark.proves(
    "TorchrunQueue.spec.storage.datasets[].name",
    "TorchrunQueue.spec.storage.datasets[].claimName",
    "TorchrunQueue.spec.storage.datasets[].mountPath",
    "TorchrunQueue.spec.storage.datasets[].readOnly",
    "TorchrunJob.spec.volumes.datasets[].name",
    "TorchrunJob.spec.volumes.datasets[].claimName",
    "TorchrunJob.spec.volumes.datasets[].mountPath",
    "TorchrunJob.spec.volumes.datasets[].readOnly",
)
@given(queue=maybe(LIST), job=maybe(LIST), read_only=st.booleans())
def test_a_jobs_dataset_takes_claim_and_path_from_the_queues(queue: Any, job: Any, read_only: bool) -> None:
    own = [{**item, "readOnly": read_only} for item in datasets(job, "j")]
    found = merged(queue={"storage": {"datasets": datasets(queue, "q")}}, volumes={"datasets": own})
    claims = {item["name"]: item["persistentVolumeClaim"] for item in pod_of(found).get("volumes", [])}
    paths = {item["name"]: item["mountPath"] for item in trainer_of(found).get("volumeMounts", [])}
    wanted = together(dict.fromkeys(queue or (), "q"), dict.fromkeys(job or (), "j"))
    assert {name: claim["claimName"] for name, claim in claims.items()} == {n: f"{n}-{by}" for n, by in wanted.items()}
    assert paths == {name: f"/{by}/{name}" for name, by in wanted.items()}
    assert {name for name, claim in claims.items() if claim.get("readOnly")} == {
        name for name, by in wanted.items() if by == "q" or read_only
    }


@merges("nodeSelector")
@pytest.mark.proves(
    "TorchrunQueue.spec.scheduling.nodeSelector",
    "TorchrunQueue.spec.nodeResources.gpuType",
    "TorchrunJob.spec.nodeSelector",
)
@given(words=three(MAP), gpu_type=maybe(WORD), gpus=st.sampled_from([0, 1]))
def test_node_labels_merge_by_key(words: Any, gpu_type: Any, gpus: int) -> None:
    """The GPU type is added if there are GPUs."""
    template, queue, job = words
    found = merged(
        pod={"nodeSelector": template},
        queue={"scheduling": said({"nodeSelector": queue}), "nodeResources": said({"gpus": gpus, "gpuType": gpu_type})},
        nodeSelector=job,
    )
    typed = {"nvidia.com/gpu.product": gpu_type} if gpu_type and gpus else {}
    assert pod_of(found).get("nodeSelector", {}) == together(template, queue, typed, job)


AFFINITY = st.fixed_dictionaries({}, optional={"nodeAffinity": st.just({"a": 1}), "podAffinity": st.just({"b": 2})})


@merges("affinity")
@pytest.mark.proves("TorchrunQueue.spec.scheduling.affinity")
@given(template=maybe(AFFINITY), queue=maybe(AFFINITY.filter(bool)))
def test_the_affinity_is_taken_whole_from_the_last(template: Any, queue: Any) -> None:
    found = merged(pod={"affinity": template}, queue={"scheduling": said({"affinity": queue})})
    assert pod_of(found).get("affinity") == last(template, queue)


@merges("tolerations")
@pytest.mark.proves("TorchrunQueue.spec.scheduling.tolerations", "TorchrunJob.spec.tolerations")
@given(words=three(LIST))
def test_tolerations_all_in_order_each_once(words: Any) -> None:
    template, queue, job = ([{"key": key, "operator": "Exists"} for key in part or ()] for part in words)
    found = merged(pod={"tolerations": template}, queue={"scheduling": {"tolerations": queue}}, tolerations=job)
    assert pod_of(found).get("tolerations", []) == each_once(template, queue, job)


@merges("priorityClassName")
@pytest.mark.proves("TorchrunQueue.spec.scheduling.priorityClassName", "TorchrunJob.spec.priorityClassName")
@given(words=three(WORD))
def test_of_the_priority_class_the_last_word(words: Any) -> None:
    template, queue, job = words
    scheduling = {"scheduling": said({"priorityClassName": queue})}
    found = merged(pod={"priorityClassName": template}, queue=scheduling, priorityClassName=job)
    assert pod_of(found).get("priorityClassName") == last(template, queue, job)


@merges("imagePullSecrets")
@pytest.mark.proves("TorchrunQueue.spec.imagePullSecrets")
@given(template=maybe(LIST), queue=maybe(LIST))
def test_pull_secrets_all_in_order_each_once(template: Any, queue: Any) -> None:
    there = [{"name": name} for name in template or ()]
    found = pod_of(merged(pod={"imagePullSecrets": there}, queue={"imagePullSecrets": queue}))
    assert [item["name"] for item in found.get("imagePullSecrets", [])] == each_once(template, queue)


@merges("serviceAccountName")
@pytest.mark.proves("TorchrunQueue.spec.serviceAccountName")
@given(template=maybe(WORD), queue=maybe(WORD), token=maybe(st.booleans()))
def test_the_service_account_is_the_last_word(template: Any, queue: Any, token: Any) -> None:
    """No token is mounted if nobody names an account."""
    pod = {"serviceAccountName": template, "automountServiceAccountToken": token}
    found = pod_of(merged(pod=pod, queue={"serviceAccountName": queue}))
    account = last(template, queue)
    assert found.get("serviceAccountName") == account
    assert found.get("automountServiceAccountToken") == (token if token is not None or account else False)


CONTEXT = st.fixed_dictionaries(
    {},
    optional={
        "runAsUser": st.sampled_from([1000, 2000]),
        "seccompProfile": st.just({"type": "Localhost", "localhostProfile": "x"}),
        "fsGroup": st.just(7),
    },
)


@merges("securityContext")
@given(pod=CONTEXT, container=st.fixed_dictionaries({}, optional={"readOnlyRootFilesystem": st.booleans()}))
def test_a_security_context_lies_over_the_defaults_at_every_depth(pod: Json, container: Json) -> None:
    found = merged(pod={"securityContext": pod}, trainer={"securityContext": container})
    assert pod_of(found)["securityContext"] == {**security.pod({}), **pod}
    assert trainer_of(found)["securityContext"] == {**security.container({}), **container}
    dropped = trainer_of(merged(trainer={"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}))
    assert dropped["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}


OWNED = ("restartPolicy", "subdomain", "hostname", "schedulerName", "schedulingGroup", "activeDeadlineSeconds")


@merges("the rest of the pod")
@given(
    rest=st.dictionaries(st.sampled_from(["hostIPC", "dnsPolicy", "runtimeClassName", "shareProcessNamespace"]), WORD),
    owned=st.dictionaries(st.sampled_from(OWNED), WORD),
    setup=st.booleans(),
)
def test_other_pod_fields_are_kept_except_the_operators(rest: Json, owned: Json, setup: bool) -> None:
    init = [{"name": "setup", "image": "setup:1", "command": ["sh"]}] if setup else []
    template = {"spec": {**rest, **owned, "containers": [{"name": "trainer"}], "initContainers": init}}
    found = pod_of(merged(queue={"podTemplate": template}))
    assert {key: found[key] for key in rest} == rest
    assert {key: found.get(key) for key in OWNED} == dict.fromkeys(OWNED) | {"restartPolicy": "Never"}
    assert without_context(found.get("initContainers", [])) == without_context(init)


def without_context(containers: list[Json]) -> list[Json]:
    return [{**container, "securityContext": None} for container in containers]


@pytest.mark.proves("TorchrunQueue.spec.podTemplate")
@pytest.mark.parametrize(("asked", "plain"), [("", ()), ("warm", ("warm",)), ("log, warm", ("log", "warm")), ("x", ())])
def test_containers_beside_the_trainer_become_native_sidecars_unless_named(asked: str, plain: tuple[str, ...]) -> None:
    others = [{"name": name, "image": f"{name}:1"} for name in ("log", "warm")]
    spec = {"containers": [{"name": "trainer"}, *others], "initContainers": [{"name": "setup", "image": "setup:1"}]}
    metadata = {"annotations": {"torchrun.ai/plain-containers": asked}} if asked else {}
    found = merged(queue={"podTemplate": {"metadata": metadata, "spec": spec}})
    kept = [container for container in others if container["name"] in plain]
    native = [{**container, "restartPolicy": "Always"} for container in others if container["name"] not in plain]
    assert without_context(pod_of(found)["containers"][1:]) == without_context(kept)
    assert without_context(pod_of(found)["initContainers"]) == without_context([*spec["initContainers"], *native])
    assert "annotations" not in found.pod["metadata"]


@merges("workspace")
@given(
    queue=maybe(st.booleans()),
    enabled=maybe(st.booleans()),
    source=st.booleans(),
    revision=st.booleans(),
    sizes=st.tuples(st.sampled_from([{}, {"size": "3Gi"}, {"sizePerGPU": "2Gi"}]), maybe(st.just("5Gi"))),
)
def test_the_job_overrides_the_queues_workspace(
    queue: Any, enabled: Any, source: bool, revision: bool, sizes: tuple[Json, Any]
) -> None:
    """The size of a workspace is one statement."""
    base = None if queue is None else {"workspace": {"enabled": queue, "mountPath": "/q", **sizes[0]}}
    own = said(
        {
            "enabled": enabled,
            "source": "zip" if source else None,
            "revision": "r1" if revision else None,
            "size": sizes[1],
        }
    )
    found = merged(queue={"storage": base}, volumes={"workspace": own} if own else None).workspace
    wanted = enabled if enabled is not None else source or sizes[1] is not None or bool(queue)
    assert (found is not None) == wanted
    if found is not None:
        of_queue = {} if base is None else sizes[0]
        assert found.size == (sizes[1] or of_queue.get("size") or of_queue.get("sizePerGPU") or "10Gi")
        assert found.mount_path == ("/app" if base is None else "/q")


ORIGIN = st.sampled_from([{}, {"size": "3Gi"}, {"sizePerGPU": "2Gi"}, {"claimName": "shared"}])


@merges("checkpoints")
@given(
    queue=maybe(st.booleans()),
    base=ORIGIN,
    enabled=maybe(st.booleans()),
    own=ORIGIN,
    paths=st.tuples(maybe(WORD), maybe(WORD)),
)
def test_checkpoints_merge_by_field(queue: Any, base: Json, enabled: Any, own: Json, paths: tuple[Any, Any]) -> None:
    """The origin of the claim is one statement."""
    there = {"enabled": queue, **base, **said({"mountPath": f"/{paths[0]}q" if paths[0] else None})}
    asked = {**said({"enabled": enabled, "mountPath": f"/{paths[1]}j" if paths[1] else None}), **own}
    storage = None if queue is None else {"checkpoints": there}
    found = merged(queue={"storage": storage}, volumes={"checkpoints": asked} if asked else None).checkpoints
    if queue is None:
        there = {}
    assert (found is not None) == (enabled is not False and bool(queue or asked))
    if found is not None:
        origin = own or ({} if queue is None else base)
        assert found.claim == origin.get("claimName", "")
        assert found.size == ("" if found.claim else origin.get("size") or origin.get("sizePerGPU") or "10Gi")
        assert found.mount_path == last("/checkpoints", there.get("mountPath"), asked.get("mountPath"))


DISTRIBUTED = st.fixed_dictionaries(
    {},
    optional={
        "backend": st.sampled_from(["gloo", "nccl"]),
        "rdzvBackend": st.sampled_from(["c10d", "etcd-v2", "static"]),
        "rdzvEndpoint": st.sampled_from(["one:1234", "two:1234"]),
        "port": st.sampled_from([2000, 3000]),
    },
)


@merges("distributed")
@pytest.mark.proves(
    "TorchrunQueue.spec.distributed.backend",
    "TorchrunQueue.spec.distributed.rdzvBackend",
    "TorchrunQueue.spec.distributed.rdzvEndpoint",
    "TorchrunQueue.spec.distributed.port",
)
@given(queue=DISTRIBUTED, job=DISTRIBUTED, gpus=st.sampled_from([0, 1]))
def test_distributed_settings_merge_by_field(queue: Json, job: Json, gpus: int) -> None:
    """An endpoint goes with its backend."""
    found = merged(queue={"distributed": queue, "nodeResources": {"gpus": gpus}}, distributed=job)
    assert found.backend == last("nccl" if gpus else "gloo", queue.get("backend"), job.get("backend"))
    backend = last("c10d", queue.get("rdzvBackend"), job.get("rdzvBackend"))
    assert (found.rendezvous.backend, found.rendezvous.port) == (
        backend,
        last(29500, queue.get("port"), job.get("port")),
    )
    of_queue = queue.get("rdzvEndpoint") if backend == queue.get("rdzvBackend", "c10d") else None
    computed = SETTINGS.etcd_endpoint if backend == "etcd-v2" else ""
    assert found.rendezvous.endpoint == last(computed, of_queue, job.get("rdzvEndpoint"))


@merges("rdzvConf")
@pytest.mark.proves("TorchrunQueue.spec.distributed.rdzvConf", "TorchrunJob.spec.distributed.rdzvConf")
@given(queue=maybe(MAP), job=maybe(MAP), other=st.booleans())
def test_rendezvous_settings_merge_by_key(queue: Any, job: Any, other: bool) -> None:
    """Rendezvous settings hold for the backend that they were written for."""
    asked = said({"rdzvConf": job, "rdzvBackend": "static" if other else None})
    found = merged(queue={"distributed": said({"rdzvConf": queue})}, distributed=asked)
    assert found.rendezvous.conf == together(None if other else queue, job)


POLICY = st.fixed_dictionaries(
    {},
    optional={
        "maxRestarts": st.sampled_from([0, 1, 9]),
        "maxInfrastructureRestarts": st.sampled_from([0, 1, 9]),
        "maxWorkerRestarts": st.sampled_from([0, 5]),
        "restartPolicy": st.sampled_from(["Never", "ExitCode"]),
        "ttlSecondsAfterFinished": st.sampled_from([0, 60]),
        "activeDeadlineSeconds": st.sampled_from([1, 60]),
        "startupTimeoutSeconds": st.sampled_from([1, 60]),
        "podRetention": st.sampled_from(["None", "All"]),
    },
)
DEFAULTS = {
    "maxRestarts": 3,
    "maxInfrastructureRestarts": None,
    "maxWorkerRestarts": 0,
    "restartPolicy": "OnFailure",
    "ttlSecondsAfterFinished": None,
    "activeDeadlineSeconds": None,
    "startupTimeoutSeconds": None,
    "podRetention": "Failed",
}


@merges("runPolicy")
@pytest.mark.proves(
    "TorchrunQueue.spec.runPolicy.maxRestarts",
    "TorchrunQueue.spec.runPolicy.maxInfrastructureRestarts",
    "TorchrunQueue.spec.runPolicy.maxWorkerRestarts",
    "TorchrunQueue.spec.runPolicy.restartPolicy",
    "TorchrunQueue.spec.runPolicy.ttlSecondsAfterFinished",
    "TorchrunQueue.spec.runPolicy.activeDeadlineSeconds",
    "TorchrunQueue.spec.runPolicy.startupTimeoutSeconds",
    "TorchrunQueue.spec.runPolicy.podRetention",
)
@given(queue=POLICY, job=POLICY)
def test_the_run_policy_merges_by_field(queue: Json, job: Json) -> None:
    """Zero and None are words too."""
    subject = JobSpec.model_validate({**JOB, "runPolicy": job})
    found = effective.run_policy(QueueSpec.model_validate({"runPolicy": queue}), subject)
    assert {camel(name): getattr(found, name) for name in found.__slots__} == DEFAULTS | queue | job
    assert merged(queue={"runPolicy": queue}, runPolicy=job).queue_run_policy == queue


# The table.


def test_every_rule_of_the_table_is_proved_and_no_other() -> None:
    assert sorted(PROVED) == sorted(rule.name for rule in RULES)


@pytest.mark.parametrize(
    ("spec", "column", "alone"), [(QueueSpec, "queue", ONLY_QUEUE), (JobSpec, "job", ONLY_JOB)], ids=["queue", "job"]
)
def test_every_field_is_in_the_table_unless_unshared(spec: type[Model], column: str, alone: tuple[str, ...]) -> None:
    """A field outside the table is said by the job or by the queue alone."""
    told = {*alone, *(field for rule in RULES for field in getattr(rule, column))}
    known = {*paths(spec)}
    assert told <= known
    for path in known:
        parts = path.split(".")
        above = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
        assert above & told or any(field.startswith(f"{path}.") for field in told), f"{path} is nowhere"


def paths(spec: type[Model], prefix: str = "") -> Iterator[str]:
    """Every field that is no item of a list."""
    for name, field in spec.model_fields.items():
        path = f"{prefix}{field.alias or camel(name)}"
        yield path
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, Model):
                yield from paths(kind, f"{path}.")


# References to objects of the queue.


@given(prefix=st.booleans(), name=st.sampled_from(["settings", "other"]))
def test_a_prefix_becomes_the_objects_name_everywhere(prefix: bool, name: str) -> None:
    """A pod template may name an object by its prefix."""
    entries = [
        {"name": "settings", "template": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}},
        {"name": "cache", "template": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {}}},
    ]
    entries = [{**entry, "nameMode": "prefix" if prefix else "exact"} for entry in entries]
    reference = {"name": name, "key": "a"}
    volumes = [
        {"name": "one", "configMap": {"name": name}},
        {"name": "two", "projected": {"sources": [{"configMap": {"name": name}}, {"secret": {"name": name}}]}},
    ]
    found = merged(
        pod={"volumes": volumes, "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": name}}]}]},
        queue={"resources": entries, "storage": {"datasets": [{"name": "d", "claimName": "cache", "mountPath": "/d"}]}},
        env=[{"name": "A", "valueFrom": {"configMapKeyRef": reference}}],
        volumes={"additionalVolumes": [{"name": "three", "secret": {"secretName": name}}]},
    )
    spec = QueueSpec.model_validate({"resources": entries})
    settings, cache = map(object_name, spec.resources)
    expected = settings if name == "settings" else name
    by_name = {volume["name"]: volume for volume in pod_of(found)["volumes"]}
    assert by_name["one"]["configMap"]["name"] == expected
    assert by_name["two"]["projected"]["sources"] == [{"configMap": {"name": expected}}, {"secret": {"name": name}}]
    assert by_name["three"]["secret"]["secretName"] == name
    assert by_name["d"]["persistentVolumeClaim"]["claimName"] == cache
    assert pod_of(found)["initContainers"][0]["envFrom"] == [{"configMapRef": {"name": expected}}]
    variables = {item["name"]: item for item in trainer_of(found)["env"]}
    assert variables["A"]["valueFrom"]["configMapKeyRef"] == {"name": expected, "key": "a"}
    assert (settings == "settings") == (not prefix)
