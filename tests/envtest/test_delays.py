"""What `kubectl describe` says of a job whose workers have pods and do not come up."""

import functools
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from clusters import clear
from jobs import Place
from operators import operator_settings, running_operator
from waiting import until

from torchctl.api.kube import POD, PVC
from torchctl.api.labels import JOB_NAME, ROLE, ROLE_WORKER
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.kinds import EVENT
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Part, Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.script import labelled

pytestmark = pytest.mark.usefixtures("own_script")

Json = dict[str, Any]


class ClockAhead(SystemClock):
    """A minute ahead: a pod that was just made is late."""

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=65)


@dataclass(frozen=True)
class Stuck:
    """A job that hangs.

    Args:
        queue: The queue's spec.
        play: What its pods do.
        warning: The Warning Event that the kubelet would write: reason and message.
        says: What the condition says of the first worker.
    """

    queue: Json
    says: str
    play: Play = field(default_factory=lambda: Play(run_s=None))
    warning: tuple[str, str] = ("", "")


FAILED = "restarting failed container=log"
TRAINER, LOG = {"name": "trainer"}, {"name": "log", "image": "log:1"}
STUCK = {
    "claim": Stuck(
        {"storage": {"datasets": [{"name": "data", "claimName": "data", "mountPath": "/data"}]}},
        "not scheduled (Unschedulable): ",
    ),
    "mount": Stuck(
        {},
        "container trainer waits (ContainerCreating) since ",
        Play(blocked="ContainerCreating"),
        ("FailedMount", 'MountVolume.SetUp failed for volume "keys" : secret "keys" not found'),
    ),
    "init": Stuck(
        {"podTemplate": {"spec": {"containers": [TRAINER], "initContainers": [{"name": "setup", "image": "s:1"}]}}},
        "init container setup runs, and the others wait for it since ",
        Play(parts={"setup": Part(run_s=None)}),
    ),
    "sidecar": Stuck(
        {"podTemplate": {"spec": {"containers": [TRAINER, LOG]}}},
        f"container log waits (CrashLoopBackOff): back-off {FAILED} since ",
        Play(
            parts={
                "log": Part(blocked="CrashLoopBackOff", blocked_message="back-off 20s restarting failed container=log")
            }
        ),
        ("BackOff", "Back-off restarting failed container log"),
    ),
}
NEVER_BOUND = {
    "accessModes": ["ReadWriteMany"],
    "storageClassName": "nobodys",
    "resources": {"requests": {"storage": "1Gi"}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(operator_account: Connection, admin: Client) -> AsyncGenerator[Place]:
    namespace = fresh_name("delays")
    await create_namespace(admin, namespace)
    here = Place(admin, namespace)
    meta = {"name": "data", "namespace": namespace}
    await admin.create(
        PVC, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": NEVER_BOUND}
    )
    yield here
    await clear(admin, namespace)


async def test_describe_names_the_first_late_worker_and_why(
    place: Place, operator_account: Connection, control_plane: ControlPlane, kubelet: ScriptedKubelet
) -> None:
    for name, case in STUCK.items():
        kubelet.script = kubelet.script.when(labelled(**{"torchrun-job-name": name}), case.play)
        await place.queue(name, **case.queue)
        await place.job(name, jobQueue=name)
    async with running_operator(operator_account, place.namespace, operator_settings(place.namespace)) as running:
        running.manager.clock = ClockAhead()
        for name, case in STUCK.items():
            await until(functools.partial(has_warned, place, name, *case.warning))
            await place.condition("WorkersReady", "WorkersLate", name)
            words = filter(None, (case.says, case.warning[1]))
            await until(functools.partial(says, control_plane, place, name, *words))


async def has_warned(place: Place, name: str, reason: str, message: str) -> bool:
    """Writes the Event that a kubelet would write about the first worker, once that is there."""
    found = await place.admin.list(POD, namespace=place.namespace, labels=f"{JOB_NAME}={name},{ROLE}={ROLE_WORKER}")
    pod = next((pod for pod in found if pod.metadata.name.startswith(f"{name}-0-")), None)
    if pod is None or not reason:
        return pod is not None
    about = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "namespace": place.namespace}
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.metadata.name}.1", "namespace": place.namespace},
        "involvedObject": about | {"uid": pod.metadata.uid},
        "type": "Warning",
        "reason": reason,
        "message": message,
    }
    now = SystemClock().now()
    await place.admin.create(EVENT, body | {"lastTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ")})
    await place.admin.create(EVENT, as_scheduler(body, now))
    return True


def as_scheduler(body: Json, now: datetime) -> Json:
    """The Event that kube-scheduler writes while the pod has no node, which is over by now; the newest of all."""
    said = {"reason": "FailedScheduling", "message": "0/3 nodes are available", "action": "Scheduling"}
    writer = {"reportingComponent": "default-scheduler", "reportingInstance": "default-scheduler-a"}
    meta = body["metadata"] | {"name": body["metadata"]["name"] + "2"}
    return body | said | writer | {"metadata": meta, "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}


async def says(control_plane: ControlPlane, place: Place, name: str, *words: str) -> bool:
    """Whether `kubectl describe` has all of that; what is read live comes with a later pass."""
    await place.touch(name)
    told = " ".join((await control_plane.kubectl("describe", "trj", name, "-n", place.namespace)).split())
    return all(word in told for word in (f"pod {name}-0-", *words))
