"""A field that the API server cannot read is told of the TorchrunQueue or TorchrunJob that has it, and where it is."""

import time

import pytest
from world import World

from torchctl.controllers.complaints import complaints
from torchctl.controllers.finding import Refusal
from torchctl.controllers.refusals import refusal_reason
from torchctl.runtime.client.errors import Invalid, Unavailable
from torchctl.runtime.kinds import StatusCause, StatusDetails

UNREADABLE = "failed to create typed patch object (team/demo; batch/v1, Kind=Job): "
UNKNOWN = "field not declared in schema"
JOB = "{jobQueue: research, numNodes: 2, command: python train.py%s}"
QUEUE = "{image: a:1%s}"


def refused(world: type[World], said: str, job: str = "", queue: str = "", kind: str = "Job") -> World:
    """A job whose child the API server cannot read."""
    w = world(JOB % (job and f", {job}"), QUEUE % (queue and f", {queue}"))

    def answer(made: str, name: str) -> Refusal | None:
        error = Unavailable(UNREADABLE + said, code=500)
        if made != kind:
            return None
        return Refusal(made, name, *refusal_reason(error, f"{made} {name}"), fields=complaints(error, {}))

    w.refuse = answer
    w.settle()
    return w


@pytest.mark.parametrize(
    ("path", "job", "queue", "told"),
    [
        (
            ".spec.affinty",
            "",
            "podTemplate: {spec: {affinty: {}}}",
            "TorchrunQueue research: spec.podTemplate.spec.affinty",
        ),
        (
            '.spec.containers[name="trainer"].ports[containerPort=80,protocol="TCP"].protocl',
            "",
            "podTemplate: {spec: {containers: [{name: trainer, ports: [{containerPort: 80, protocl: UDP}]}]}}",
            "TorchrunQueue research: "
            'spec.podTemplate.spec.containers[name="trainer"].ports[containerPort=80,protocol="TCP"].protocl',
        ),
        (
            ".spec.affinity.nodeAfinity",
            "",
            "scheduling: {affinity: {nodeAfinity: {}}}",
            "TorchrunQueue research: spec.scheduling.affinity.nodeAfinity",
        ),
        (
            '.spec.volumes[name="big"].nsf',
            "volumes: {additionalVolumes: [{name: big, nsf: {}}]}",
            "podTemplate: {spec: {volumes: [{name: big, nsf: {}}]}}",
            'TorchrunJob demo: spec.volumes.additionalVolumes[name="big"].nsf',
        ),
        (
            '.spec.containers[name="trainer"].volumeMounts[mountPath="/big"].readonly',
            "volumes: {additionalMounts: [{name: big, mountPath: /big, readonly: true}]}",
            "",
            'TorchrunJob demo: spec.volumes.additionalMounts[mountPath="/big"].readonly',
        ),
        (
            '.spec.containers[name="trainer"].env[name="A"].valueFrom.secret',
            "env: [{name: B, valueFrom: {secret: a}}]",
            "env: [{name: A, valueFrom: {secret: a}}]",
            'TorchrunQueue research: spec.env[name="A"].valueFrom.secret',
        ),
        (
            '.spec.containers[name="trainer"].envFrom[0].secretref',
            "env: [{name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
            "podTemplate: {spec: {containers: [{name: trainer, envFrom: [{secretref: {}}]}]}}",
            'TorchrunQueue research: spec.podTemplate.spec.containers[name="trainer"].envFrom[0].secretref',
        ),
    ],
)
def test_a_field_is_told_where_it_was_written(world: type[World], path: str, job: str, queue: str, told: str) -> None:
    w = refused(world, f".spec.template{path}: {UNKNOWN}", job, queue)
    assert w.condition("WorkersReady") == (
        "False",
        "Refused",
        f"{told}: {UNKNOWN} (so the API server says of Job demo): correct it there and submit the job again",
    )


def test_of_several_fields_each_is_told(world: type[World]) -> None:
    wrong = {
        ".spec.template.spec.affinty": UNKNOWN,
        ".spec.template.spec.tolerations": "expected list",
        ".spec.x": "no",
    }
    said = "\n  ".join(("errors:", *(f"{path}: {what}" for path, what in wrong.items())))
    w = refused(world, said, queue="podTemplate: {spec: {affinty: {}, tolerations: [{key: a}]}}")
    assert w.message("WorkersReady").partition(" (so")[0] == (
        f"TorchrunQueue research: spec.podTemplate.spec.affinty: {UNKNOWN}; "
        "TorchrunQueue research: spec.podTemplate.spec.tolerations: expected list; "
        "Job demo: .spec.x: no"
    )


def test_a_sync_pod_has_the_field_at_another_place(world: type[World]) -> None:
    w = refused(
        world,
        f".spec.affinity.nodeAfinity: {UNKNOWN}",
        "volumes: {workspace: {source: zip}}",
        "scheduling: {affinity: {nodeAfinity: {}}}",
        kind="Pod",
    )
    message = w.message("WorkspaceReady")
    assert message.startswith(f"TorchrunQueue research: spec.scheduling.affinity.nodeAfinity: {UNKNOWN} (so")
    assert "Pod demo-sync-0" in message


@pytest.mark.parametrize("path", [".spec.template.spec.affinty", ".spec.paralelism", ".metadata.labls"])
def test_a_field_that_nobody_wrote_is_told_as_the_childs(world: type[World], path: str) -> None:
    w = refused(world, f"{path}: {UNKNOWN}")
    message = w.message("WorkersReady")
    assert message.startswith("Job demo: the API server cannot read it: ")
    assert f"{path}: {UNKNOWN}; correct this field" in message


@pytest.mark.parametrize("part", [".a", "[]", ".-", " [", " .", " .a[b=a"])
def test_a_name_of_any_length_is_read_in_no_time(world: type[World], part: str) -> None:
    """The name is a user's, and while it is read nothing else is done: no renewal of the lease either."""
    began = time.process_time()
    w = refused(world, f".spec.template.spec{part * 20_000}!: {UNKNOWN}")
    assert w.reason("WorkersReady") == "Refused"
    assert time.process_time() - began < 2


def test_a_refusal_for_another_reason_is_reported_unchanged(world: type[World]) -> None:
    w = world(JOB % "", QUEUE % "")
    w.refuse = lambda kind, name: (
        Refusal(kind, name, "Refused", ".spec.template.spec.affinty: no") if kind == "Job" else None
    )
    w.settle()
    assert w.message("WorkersReady") == "Job demo: .spec.template.spec.affinty: no"


BODY = {
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "trainer",
                        "env": [{"name": "PET_NNODES"}, {"name": "A"}],
                        "volumeMounts": [{"mountPath": "/x"}],
                    },
                    {"name": "side", "resources": {"requests": {"nvidia.com/gpu": 1}}},
                ],
                "volumes": [{"name": "torchrun-tmp"}, {"name": "big", "nfs": {}}],
            }
        }
    }
}
ENV = "env: [{name: A, valueFrom: {fieldRef: {fieldPath: no}}}]"
SIDE = "podTemplate: {spec: {containers: [{name: trainer}, {name: side, resources: {requests: {nvidia.com/gpu: 1}}}]}}"
VOLUMES = "volumes: {additionalVolumes: [{name: big, nfs: {}}], additionalMounts: [{name: none, mountPath: /x}]}"


@pytest.mark.parametrize(
    ("path", "wrong", "job", "queue", "told"),
    [
        (
            "containers[0].env[1].valueFrom.fieldRef.fieldPath",
            "Invalid value",
            ENV,
            "",
            'demo: spec.env[name="A"].valueFrom',
        ),
        (
            "containers[0].env[1].valueFrom.fieldRef.fieldPath",
            "Invalid value",
            "",
            ENV,
            'research: spec.env[name="A"].valueFrom',
        ),
        (
            "containers[1].resources.requests[nvidia.com/gpu]",
            "Invalid value",
            "",
            SIDE,
            'research: spec.podTemplate.spec.containers[name="side"].resources.requests[nvidia.com/gpu]',
        ),
        (
            "volumes[1].nfs.server",
            "Required value",
            VOLUMES,
            "",
            'spec.volumes.additionalVolumes[name="big"].nfs.server',
        ),
        (
            "containers[0].volumeMounts[0].name",
            "Not found",
            VOLUMES,
            "",
            'spec.volumes.additionalMounts[mountPath="/x"].name',
        ),
    ],
)
def test_an_invalid_field_is_named_where_it_was_written(
    world: type[World], path: str, wrong: str, job: str, queue: str, told: str
) -> None:
    message = invalid(world, path, wrong, job, queue)
    assert told in message
    assert f": {wrong} (so the API server says of Job demo): correct it there" in message
    assert "env[" not in message or "env[name=" in message


def invalid(world: type[World], path: str, wrong: str, job: str, queue: str) -> str:
    """What is told of a Job that validation refuses."""
    w = world(JOB % (job and f", {job}"), QUEUE % (queue and f", {queue}"))
    cause = StatusCause(field=f"spec.template.spec.{path}", message=wrong)
    error = Invalid('Job.batch "demo" is invalid', code=422, details=StatusDetails(causes=(cause,)))
    refusal = Refusal("Job", "demo", *refusal_reason(error, "Job demo"), fields=complaints(error, BODY))
    w.refuse = lambda kind, name: refusal if kind == "Job" else None
    w.settle()
    return str(w.message("WorkersReady"))


def test_an_invalid_field_of_the_operator_is_reported_unchanged(world: type[World]) -> None:
    """The message is the API server's."""
    message = invalid(world, "containers[0].env[0].name", "Invalid value", "", "")
    assert message.startswith('Job demo: the API server refused it: Job.batch "demo" is invalid')
