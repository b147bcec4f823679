"""How queue and job become one pod template."""

from typing import Any

import pytest
from world import World

from torchctl.controllers.job.template import security


def pod(world: type[World], job: str, queue: str) -> dict[str, Any]:
    w = world(f"{{jobQueue: research, command: python a.py, {job}}}", queue)
    w.settle()
    if w.seen.sync_pods:
        w.sync_succeeds()
        w.settle()
    spec: dict[str, Any] = w.spec("Job", "demo")["template"]["spec"]
    return spec


def test_cpus_and_memory_follow_the_share_of_gpus(world: type[World]) -> None:
    """A part of a node's GPUs gets that part of the node."""
    queue = "{image: a:1, nodeResources: {gpus: 8, cpus: 7, memory: 10Gi}}"
    spec = pod(world, "numGPUs: 3", queue)
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "2625m", "memory": "3840Mi"},
        "limits": {"cpu": "2625m", "memory": "3840Mi", "nvidia.com/gpu": "3"},
    }


def test_gpus_that_only_the_pod_template_has_count(world: type[World]) -> None:
    queue = """
    podTemplate: {spec: {containers: [{name: trainer, image: a:1, resources:
      {requests: {nvidia.com/gpu: 4, cpu: 8}, limits: {nvidia.com/gpu: 4}}}]}}
    """
    spec = pod(world, "numGPUs: 2", queue)
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "4"}, "limits": {"nvidia.com/gpu": "2"}}


def test_the_job_overrides_the_queue_and_its_pod_template(world: type[World]) -> None:
    """The queue overrides the pod template."""
    queue = """
    image: queue:1
    serviceAccountName: queue
    imagePullSecrets: [one]
    scheduling:
      nodeSelector: {a: queue, b: queue}
      tolerations: [{key: t, operator: Exists}]
      priorityClassName: low
    env: [{name: A, value: queue}, {name: B, value: queue}]
    podTemplate:
      spec:
        serviceAccountName: template
        imagePullSecrets: [{name: one}, {name: two}]
        nodeSelector: {a: template, c: template}
        containers:
          - {name: trainer, image: template:1, env: [{name: A, value: template}, {name: C, value: template}]}
    """
    job = """numNodes: 1, image: job:1, nodeSelector: {b: job}, priorityClassName: high,
        tolerations: [{key: t, operator: Exists}, {key: u}], env: [{name: B, value: job}]"""
    spec = pod(world, job, queue)
    trainer = spec["containers"][0]
    assert trainer["image"] == "job:1"
    assert spec["nodeSelector"] == {"a": "queue", "b": "job", "c": "template"}
    assert spec["tolerations"] == [{"key": "t", "operator": "Exists"}, {"key": "u"}]
    assert (spec["priorityClassName"], spec["serviceAccountName"]) == ("high", "queue")
    assert spec["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    values = {variable["name"]: variable.get("value") for variable in trainer["env"]}
    assert (values["A"], values["B"], values["C"]) == ("queue", "job", "template")


def test_a_pod_template_cannot_set_the_operators_fields(world: type[World]) -> None:
    queue = """
    image: a:1
    podTemplate: {spec: {restartPolicy: Always, hostname: me, subdomain: there, schedulerName: mine,
      activeDeadlineSeconds: 1, containers: [{name: trainer, command: [sleep], args: [inf]}]}}
    """
    spec = pod(world, "numNodes: 1", queue)
    assert (spec["restartPolicy"], spec["subdomain"]) == ("Never", "demo")
    assert not {"hostname", "schedulerName", "activeDeadlineSeconds"} & set(spec)
    assert spec["containers"][0]["command"] == ["sh", "-c", "exec torchrun a.py"]
    assert spec["containers"][0]["args"] == []


def test_a_jobs_mount_replaces_the_queues_at_its_path(world: type[World]) -> None:
    job = """numNodes: 1, volumes: {additionalVolumes: [{name: mem, emptyDir: {}}],
        additionalMounts: [{name: mem, mountPath: /dev/shm}]}"""
    spec = pod(world, job, "{image: a:1, storage: {shmSizePerGPU: 1Gi}}")
    assert spec["containers"][0]["volumeMounts"] == [{"name": "mem", "mountPath": "/dev/shm"}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"runAsNonRoot": True, "runAsUser": 65532}),
        ({"runAsUser": 0}, {"runAsUser": 0}),
        ({"runAsUser": 0, "runAsNonRoot": True}, {"runAsNonRoot": True, "runAsUser": 0}),
        ({"runAsUser": 1000}, {"runAsNonRoot": True, "runAsUser": 1000}),
    ],
)
def test_who_chooses_root_gets_a_pod_that_can_be_root(given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = security.pod(given)
    assert {key: found[key] for key in ("runAsNonRoot", "runAsUser") if key in found} == expected


def test_container_defaults_never_conflict_with_the_users_fields() -> None:
    """The API server would refuse some combinations."""
    assert "allowPrivilegeEscalation" not in security.container({"privileged": True})
    assert "allowPrivilegeEscalation" not in security.container({"capabilities": {"add": ["SYS_ADMIN"]}})
    assert security.container({"runAsUser": 0})["runAsNonRoot"] is False
    assert security.container({})["capabilities"] == {"drop": ["ALL"]}


def test_defaults_are_not_shared_between_pods() -> None:
    security.pod({})["seccompProfile"]["type"] = "Unconfined"
    assert security.pod({})["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_sync_pod_writes_as_the_workers_user() -> None:
    """The sync pod never writes as root."""
    assert security.sync_pod(security.pod({"runAsUser": 1000, "fsGroup": 7}))["runAsUser"] == 1000
    root = security.sync_pod(security.pod({"runAsUser": 0}))
    assert (root["runAsUser"], root["runAsNonRoot"]) == (65532, True)


OPENSHIFT = """
image: a:1
podTemplate:
  spec:
    securityContext: {runAsUser: null, runAsGroup: null, fsGroup: null, seccompProfile: null}
    containers: [{name: trainer, securityContext: {capabilities: null}}]
"""


def test_a_null_takes_a_default_of_the_workers_security_away(world: type[World]) -> None:
    spec = pod(world, "numNodes: 1", OPENSHIFT)
    assert spec["securityContext"] == {"runAsNonRoot": True, "fsGroupChangePolicy": "OnRootMismatch"}
    assert spec["containers"][0]["securityContext"] == {"allowPrivilegeEscalation": False}
    assert {"name": "HOME", "value": "/tmp"} in spec["containers"][0]["env"]


def test_a_null_removes_a_security_default_of_the_sync_pod(world: type[World]) -> None:
    w = world("{jobQueue: research, numNodes: 1, command: a, volumes: {workspace: {source: zip}}}", OPENSHIFT)
    w.settle()
    found = w.spec("Pod", "demo-sync-0")["securityContext"]
    assert found == {"runAsNonRoot": True, "fsGroupChangePolicy": "OnRootMismatch"}


def test_a_security_context_of_null_has_no_defaults(world: type[World]) -> None:
    queue = """
    image: a:1
    podTemplate: {spec: {securityContext: null, containers: [{name: trainer, securityContext: null}]}}
    """
    spec = pod(world, "numNodes: 1", queue)
    assert (spec["securityContext"], spec["containers"][0]["securityContext"]) == ({}, {})


def test_a_null_elsewhere_in_a_pod_template_is_ignored(world: type[World]) -> None:
    queue = """
    image: a:1
    podTemplate: {spec: {volumes: null, hostNetwork: null, containers: [{name: trainer, env: null}]}}
    """
    assert "hostNetwork" not in pod(world, "numNodes: 1", queue)
