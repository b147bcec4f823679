"""Submitting and changing jobs as a person does, against the real API server and the operator."""

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio
from click.testing import CliRunner
from clusters import clear, quota_noted
from jobs import Place
from operators import background_operator, running_operator
from plugin import interrupted
from waiting import until
from webhooks import VALIDATING, Rule, in_force, registered, serving_webhook

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import PVC
from torchctl.api.phases import Phase
from torchctl.cli.kubectl import cli
from torchctl.client import changes
from torchctl.client.cluster import Cluster
from torchctl.client.code import read_code
from torchctl.client.delivery import Interrupted
from torchctl.client.errors import NotAllowed, NotFound, RequestRefused, TimedOut, UsageError
from torchctl.client.jobs import Job, get_job
from torchctl.client.receiving import Receiver
from torchctl.client.submission import Request, Submission, build
from torchctl.client.submit import submit
from torchctl.client.sync import Synced, sync
from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import Key, Kind
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod
from torchctl.testing.script import SYNC_MESSAGE, named

PROBES: dict[str, dict[str, Any]] = {
    "PersistentVolumeClaim": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    "TorchrunJob": {"jobQueue": "queue", "numNodes": 1, "command": "true"},
}
"""Specs of objects that a webhook is tried with."""
DIGEST = "sha256:00"
"""The digest in SYNC_MESSAGE."""


@dataclass
class Sent:
    """A tree whose sync pod ends as soon as it has it; the way there breaks `cuts` times, or it is refused."""

    kubelet: ScriptedKubelet
    namespace: str
    digest: str = DIGEST
    cuts: int = 0
    refusal: str = ""
    pods: list[str] = field(default_factory=list)

    async def send(self, receiver: Receiver) -> None:
        self.pods.append(receiver.pod)
        if len(self.pods) <= self.cuts:
            raise Interrupted("connection reset")
        if self.refusal:
            raise RequestRefused(self.refusal, "Leave out large files.")
        self.kubelet.end(self.namespace, receiver.pod)


@dataclass
class Told:
    """Keeps what a person is told."""

    lines: list[str] = field(default_factory=list)

    def making(self, name: str) -> None:
        """Tells nothing."""

    def made(self, name: str, *, again: bool) -> None:
        self.lines.append(f"{name} again" if again else f"{name} made")

    def waiting(self, why: str) -> None:
        self.lines.append(why)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(operator_account: Connection, admin: Client, kubelet: ScriptedKubelet) -> AsyncGenerator[Place]:
    namespace = fresh_name("submit")

    def is_sync(pod: Pod) -> bool:
        return pod.metadata.namespace == namespace and "-sync-" in pod.metadata.name

    before = kubelet.script
    uploads = Play(run_s=None, messages={"fetch": SYNC_MESSAGE})
    kubelet.script = before.when(named("^lives"), Play(run_s=None)).when(is_sync, uploads)
    await create_namespace(admin, namespace)
    here = Place(admin, namespace)
    await here.queue()
    async with background_operator(operator_account, namespace):
        yield here
    kubelet.script = before
    await clear(admin, namespace)


@pytest.fixture
def cluster(place: Place, control_plane: ControlPlane) -> Cluster:
    return Cluster(place.admin, control_plane.connection(), place.namespace, "the admin")


@pytest.fixture
def send(place: Place, kubelet: ScriptedKubelet) -> Callable[..., Sent]:
    """Makes a tree that can be sent."""
    return lambda **said: Sent(kubelet, place.namespace, **said)


def asked(namespace: str, name: str, **said: Any) -> Submission:
    words = {"queue": "queue", "nodes": 1, "command": "python train.py", "name": name, "namespace": namespace}
    return build(Request(**{**words, **said}), random.Random(1).choice)


async def submitted(cluster: Cluster, name: str, **said: Any) -> Job:
    """A job without a workspace."""
    return (await submit(cluster, asked(cluster.namespace, name, workspace=False, **said), None, Told())).job


async def test_object_first_and_code_second_trains(place: Place, cluster: Cluster, send: Callable[..., Sent]) -> None:
    told, code = Told(), send(cuts=2)
    made = await submit(cluster, asked(place.namespace, "trains"), code, told)
    assert (made.ours, code.pods) == (True, ["trains-sync-0"] * 3)
    assert told.lines[0] == "trains made"
    assert "the connection to pod trains-sync-0 broke: connection reset" in told.lines
    await made.job.wait(timeout_s=30)
    assert made.job.phase == Phase.SUCCEEDED


async def test_same_line_again_doubles_nothing(place: Place, cluster: Cluster, send: Callable[..., Sent]) -> None:
    with anyio.move_on_after(0.01):  # an interruption leaves the job
        await submit(cluster, asked(place.namespace, "again"), send(refusal="never reached"), Told())
    first = await submit(cluster, asked(place.namespace, "again"), send(), Told())
    await first.job.wait(timeout_s=30)
    unsent = send()
    second = await submit(cluster, asked(place.namespace, "again"), unsent, Told())
    assert (second.ours, second.job.uid, unsent.pods) == (False, first.job.uid, [])
    with pytest.raises(UsageError, match=r"spec.numNodes is 1, and 2 was asked for. Choose another --name"):
        await submit(cluster, asked(place.namespace, "again", nodes=2), send(), Told())
    with pytest.raises(UsageError, match="runs other code already"):
        await submit(cluster, asked(place.namespace, "again"), send(digest="sha256:11"), Told())
    assert await place.exists(TORCHRUN_JOB, "again")


async def test_code_that_is_refused_leaves_nothing(place: Place, cluster: Cluster, send: Callable[..., Sent]) -> None:
    with pytest.raises(RequestRefused, match=r"disk full. Leave out large files. Nothing of the job is left."):
        await submit(cluster, asked(place.namespace, "full"), send(refusal="disk full"), Told())
    await place.gone(TORCHRUN_JOB, "full")
    await place.job("theirs", numNodes=1, volumes={"workspace": {"source": "zip"}})
    with pytest.raises(RequestRefused, match=r"disk full. Leave out large files.$"):
        await submit(cluster, asked(place.namespace, "theirs"), send(refusal="disk full"), Told())
    assert await place.exists(TORCHRUN_JOB, "theirs")


async def test_sync_brings_the_first_code(place: Place, cluster: Cluster, send: Callable[..., Sent]) -> None:
    await place.job("lives-sent", numNodes=1, volumes={"workspace": {"source": "zip"}})
    job = await get_job(cluster, Key(place.namespace, "lives-sent"))
    assert await sync(job, send(), Told()) == Synced(DIGEST, first=True)
    await job.wait("Running", timeout_s=30)
    with pytest.raises(UsageError, match="takes no new code: it was submitted without --hot-reload"):
        await sync(job, send(), Told())


async def test_what_cannot_run_is_told_at_once(place: Place, cluster: Cluster, send: Callable[..., Sent]) -> None:
    with pytest.raises(NotFound, match=r"TorchrunQueue h100 .*Queues there: queue."):
        await submit(cluster, asked(place.namespace, "x", queue="h100"), send(), Told())
    with pytest.raises(RequestRefused, match=r"cannot take the code: .*Submit the job with one of the two totals"):
        await submit(cluster, asked(place.namespace, "x", nodes=None, gpus=9), send(), Told())
    with pytest.raises(TimedOut, match=r"last: .*Nothing of the job is left."):
        await submit(cluster, asked(place.namespace, "x"), send(cuts=99), Told(), patience_s=0.5)
    await place.gone(TORCHRUN_JOB, "x")


@pytest.mark.parametrize(
    ("kind", "group"), [(PVC, ""), (TORCHRUN_JOB, "torchrun.ai")], ids=["of the claim", "of the job"]
)
async def test_denial_by_a_webhook_leaves_nothing(
    place: Place, cluster: Cluster, send: Callable[..., Sent], kind: Kind[Any], group: str
) -> None:
    metadata = {"name": "denied-probe", "namespace": place.namespace}
    probe = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": PROBES[kind.kind]}
    said = r"denied the request: it needs a cost centre\. Correct "
    async with (
        serving_webhook() as webhook,
        registered(
            place.admin,
            VALIDATING,
            place.namespace,
            Rule(group=group, resource=kind.plural, starting="denied"),
            "cost.centre.test",
            url=webhook.url,
            authority=webhook.authority,
        ),
    ):
        webhook.denial = "it needs a cost centre."
        webhook.open.set()
        await in_force(place.admin, kind, probe)
        with pytest.raises(RequestRefused, match=said) as raised:
            await submit(cluster, asked(place.namespace, "denied"), send(), Told())
    assert "it is tried again" not in str(raised.value)
    await place.gone(TORCHRUN_JOB, "denied")


async def test_quota_that_refuses_the_claim_leaves_nothing(
    operator_account: Connection,
    control_plane: ControlPlane,
    cluster: Cluster,
    send: Callable[..., Sent],
    namespace: str,
) -> None:
    here, there = Place(cluster.client, namespace), replace(cluster, namespace=namespace)
    await here.queue()
    await control_plane.kubectl("create", "quota", "small", "--hard=requests.storage=1", f"--namespace={namespace}")
    await quota_noted(control_plane, namespace, "small")
    said = r"exceeded quota: small.*\. Raise the quota or free some of it, then submit again\. Nothing of"
    async with running_operator(operator_account, namespace):
        with pytest.raises(RequestRefused, match=said):
            await submit(there, asked(namespace, "large"), send(), Told())
        await here.gone(TORCHRUN_JOB, "large")


async def test_person_without_rights_is_told_which(place: Place, control_plane: ControlPlane) -> None:
    connection = control_plane.connection("nobody")
    async with connect(connection) as client:
        with pytest.raises(NotAllowed, match=r"you lack a right"):
            await submitted(Cluster(client, connection, place.namespace, "nobody"), "x")


async def test_missing_right_to_send_code_is_named(place: Place, control_plane: ControlPlane, tmp_path: Path) -> None:
    verbs = ("--verb=get,list,create,delete", "--resource=torchrunjobs,torchrunqueues,pods")
    await control_plane.kubectl("create", "role", "looks", *verbs, f"--namespace={place.namespace}")
    binding = ("create", "rolebinding", "looks", "--role=looks", "--user=looker", f"--namespace={place.namespace}")
    await control_plane.kubectl(*binding)
    connection = control_plane.connection("looker")
    async with connect(connection) as client:
        cluster = Cluster(client, connection, place.namespace, "looker")
        code = await read_code(cluster, place.namespace, tmp_path)
        with pytest.raises(NotAllowed, match=r"port-forward to pod lives-unsent-sync-0 .*Nothing of the job is left"):
            await submit(cluster, asked(place.namespace, "lives-unsent"), code, Told())
    await place.gone(TORCHRUN_JOB, "lives-unsent")


async def test_suspended_job_is_resumed_and_restarted(place: Place, cluster: Cluster) -> None:
    job = await submitted(cluster, "lives")
    await place.in_attempt(0, "lives")
    assert await changes.suspend(job)
    assert not await changes.suspend(job)
    await job.wait("Suspended", timeout_s=30)
    with pytest.raises(UsageError, match=r"is suspended. `kubectl torchrun resume lives` starts it"):
        await changes.restart(job)
    assert await changes.resume(job)
    await place.in_attempt(1, "lives")
    await changes.restart(job)
    restarted = await place.in_attempt(2, "lives")
    assert restarted.status.restarts.total == 0
    with pytest.raises(UsageError, match="has a fixed size"):
        await changes.scale(job, 2)


async def test_elastic_job_is_scaled_within_its_bounds(place: Place, cluster: Cluster) -> None:
    job = await submitted(cluster, "lives-elastic", nodes=2, elastic=(1, 3))
    await place.in_attempt(0, "lives-elastic")
    with pytest.raises(UsageError, match="can have 1 to 3 nodes, not 4"):
        await changes.scale(job, 4)
    assert await changes.scale(job, 3)
    await changes.has_nodes(job, 3, timeout_s=30)
    assert job.status.nodes.ready == 3


async def test_checkpoints_stay_unless_they_are_named(place: Place, cluster: Cluster) -> None:
    checkpoints = {"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunJob"}
    spec = {"volumes": {"checkpoints": {"size": "1Gi"}}, "runPolicy": {"podRetention": "None"}}
    manifest = checkpoints | {"spec": spec}
    job = await submitted(cluster, "saves", manifest=manifest)
    await job.wait(timeout_s=30)
    kept = await changes.delete(job)
    assert kept is not None
    assert kept.claim == "saves-checkpoints"
    other = await submitted(cluster, "saves-too", manifest=manifest)
    await other.wait(timeout_s=30)
    assert await changes.delete(other, checkpoints=True) is None
    await place.gone(PVC, "saves-too-checkpoints")
    assert await place.exists(PVC, "saves-checkpoints")
    assert await changes.delete_left(cluster, Key(place.namespace, "saves")) == "saves-checkpoints"
    await place.gone(PVC, "saves-checkpoints")
    assert await changes.delete_left(cluster, Key(place.namespace, "saves")) is None


async def test_restart_ends_right_without_an_operator(
    operator_account: Connection, place: Place, cluster: Cluster, namespace: str
) -> None:
    """Without an operator nothing is restarted and nothing stays suspended; with one that comes back it is."""
    here, there = Place(place.admin, namespace), replace(cluster, namespace=namespace)
    await here.queue()
    async with running_operator(operator_account, namespace):
        job = await submitted(there, "lives")
        await here.in_attempt(0, "lives")
    with pytest.raises(TimedOut, match=r"was not restarted: the operator did not stop it within 0.1 s; it goes on"):
        await changes.restart(job, timeout_s=0.1)
    assert not (await job.refresh()).object.spec.suspend

    async def is_asked() -> bool:
        return (await get_job(there, job.key)).object.spec.suspend

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(changes.restart, job)
        await until(is_asked)
        async with running_operator(operator_account, namespace):
            await here.in_attempt(1, "lives")


async def test_verbs_change_jobs_one_after_another(place: Place, control_plane: ControlPlane) -> None:
    kubeconfig = control_plane.kubeconfig("person", ["system:masters"])

    async def said(*line: str, told: Sequence[str], status: int = 0) -> None:
        """Runs a line in this process, whose operator may write its log in between."""
        arguments = ["--kubeconfig", str(kubeconfig), "-n", place.namespace, *line]
        done = await anyio.to_thread.run_sync(lambda: CliRunner().invoke(cli, arguments))
        assert done.exit_code == status, done.output
        assert [one for one in told if one not in done.output] == []

    line = ["submit", "--queue", "queue", "--elastic", "1:2", "--no-workspace", "--label", "team=a"]
    await said(*line, "--name", "lives-1", "--", "python", "train.py", told=["lives-1 created\n"])
    await said(*line, "--name", "lives-2", "python train.py", "-o", "name", told=["torchrun.ai/lives-2\n"])
    both = ("-l", "team=a")
    await said("suspend", *both, "--wait", told=["lives-1 suspended\n", "lives-2 suspended\n"])
    await said("resume", "lives-1", "lives-2", "--wait", told=["lives-1 resumed\n", "lives-2 resumed\n"])
    await said("scale", "lives-1", "--nodes", "1", "--wait", told=["lives-1 scaled to 1 node\n"])
    await said("restart", "lives-2", "absent", status=4, told=["there is no TorchrunJob absent"])
    await said("restart", "lives-2", "--wait", told=["lives-2 restarted\n"])
    await said("delete", *both, "--wait", told=["lives-1 deleted\n", "lives-2 deleted\n"])
    await said("delete", *both, told=["No jobs found."])


async def test_interrupted_follower_leaves_the_job(place: Place, control_plane: ControlPlane, tmp_path: Path) -> None:
    line = ["submit", "--queue", "queue", "--nodes", "1", "--no-workspace", "--name", "lives-on", "--follow", "true"]
    kubeconfig = control_plane.kubeconfig("person", ["system:masters"])
    ended = await interrupted(
        *line, "-n", place.namespace, after="lives-on is Running", kubeconfig=kubeconfig, directory=tmp_path
    )
    assert ended.status == 130
    assert ended.err.endswith(f"Come back with: kubectl torchrun logs lives-on -n {place.namespace} -f\n")
    assert "Traceback" not in ended.err
    assert await place.exists(TORCHRUN_JOB, "lives-on")
