"""Jobs whose pods have more than a trainer: proxies that a mesh injects, log shippers that die, helpers that end."""

import functools
import json
from collections.abc import AsyncGenerator, Callable

import pytest
import pytest_asyncio
from clusters import clear
from jobs import Place
from mutating import mutating_policy
from operators import background_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD, Pod
from torchctl.api.labels import JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.conditions import find, is_true
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Part, Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod as PlayedPod

pytestmark = pytest.mark.usefixtures("own_script")

Plays = Callable[..., None]

FOR_EVER = Part(run_s=None)
INJECTS = 'Object{spec: Object.spec{containers: [Object.spec.containers{name: "proxy", image: "proxy:1"}]}}'
MESHED = "has(object.metadata.labels) && 'mesh' in object.metadata.labels"


def worker(pod: PlayedPod, job: str, index: int | None = None) -> bool:
    labels = pod.metadata.labels
    is_it = labels.get(JOB_NAME) == job and labels.get(ROLE) == ROLE_WORKER
    return is_it and (index is None or labels.get("batch.kubernetes.io/job-completion-index") == str(index))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(control_plane: ControlPlane, operator_account: Connection, admin: Client) -> AsyncGenerator[Place]:
    namespace = fresh_name("sidecars")
    await create_namespace(admin, namespace)
    policy = mutating_policy(namespace, INJECTS, condition=MESHED)
    await control_plane.kubectl("apply", "-f", "-", input=policy)
    await until(functools.partial(injects, control_plane, namespace))
    here = Place(admin, namespace)
    trainer, log = {"name": "trainer"}, {"name": "log", "image": "log:1"}
    spec = {"containers": [trainer, log]}
    plain = {"annotations": {"torchrun.ai/plain-containers": "log"}}
    await here.queue("mesh", podTemplate={"metadata": {"labels": {"mesh": "yes"}}})
    await here.queue("plain", podTemplate={"metadata": plain, "spec": spec})
    await here.queue("native", podTemplate={"spec": spec})
    async with background_operator(operator_account, namespace):
        yield here
    await control_plane.kubectl("delete", "-f", "-", input=policy)
    await clear(admin, namespace)


async def injects(control_plane: ControlPlane, namespace: str) -> bool:
    """Whether the API server knows of the policy by now."""
    asked = ("run", "x", "--image=x", "--labels=mesh=yes", f"--namespace={namespace}", "--dry-run=server", "-ojson")
    made = json.loads(await control_plane.kubectl(*asked))
    return len(made["spec"]["containers"]) == 2


@pytest.fixture
def plays(kubelet: ScriptedKubelet) -> Plays:
    def play(what: Play, job: str, index: int | None = None) -> None:
        kubelet.script = kubelet.script.when(functools.partial(worker, job=job, index=index), what)

    return play


async def workers(place: Place, job: str) -> list[Pod]:
    return await place.admin.list(POD, namespace=place.namespace, labels=f"{JOB_NAME}={job},{ROLE}={ROLE_WORKER}")


async def no_workers_run(place: Place, job: str) -> bool:
    return all(pod.status.phase in ("Succeeded", "Failed") for pod in await workers(place, job))


@pytest.mark.parametrize(
    ("name", "elastic"), [("fixed", None), ("elastic", {"minNodes": 2, "maxNodes": 2})], ids=["fixed", "elastic"]
)
async def test_a_training_beside_an_injected_proxy_succeeds_once(
    place: Place, plays: Plays, name: str, elastic: dict[str, int] | None
) -> None:
    plays(Play(run_s=0.2, parts={"proxy": FOR_EVER}), name)
    await place.job(name, jobQueue="mesh", elastic=elastic)
    job = await place.reaches(Phase.SUCCEEDED, name)
    assert (job.status.restarts.total, job.status.workers.succeeded, job.status.workers.failed) == (0, 2, 0)
    await until(functools.partial(no_workers_run, place, name))
    await until(functools.partial(is_ended, place, name))


async def test_job_is_running_without_a_helper_that_has_ended(place: Place, plays: Plays) -> None:
    plays(Play(run_s=None, parts={"log": Part(ready=False)}), "helped")
    await place.job("helped", jobQueue="plain", runPolicy={"startupTimeoutSeconds": 30})
    job = await place.reaches(Phase.RUNNING, "helped")
    assert (job.status.nodes.ready, job.status.workers_status) == (2, "2/2 running")


@pytest.mark.parametrize(
    ("name", "elastic"), [("dead", None), ("dead-elastic", {"minNodes": 2, "maxNodes": 2})], ids=["fixed", "elastic"]
)
async def test_a_training_beside_a_dead_sidecar_succeeds(
    place: Place, plays: Plays, name: str, elastic: dict[str, int] | None
) -> None:
    """Of a fixed size it has one worker: a second that ends a moment later is lost with the Job, by right."""
    plays(Play(run_s=1.0, parts={"log": Part(run_s=0.1, exit_code=3)}), name)
    await place.job(name, jobQueue="plain", numNodes=2 if elastic else 1, elastic=elastic)
    job = await place.reaches(Phase.SUCCEEDED, name)
    assert (job.status.restarts.total, job.status.failure) == (0, None)
    if elastic:
        await until(functools.partial(is_ended, place, name))
    await until(functools.partial(no_workers_run, place, name))


async def is_ended(place: Place, name: str) -> bool:
    """Whether the child Job was ended for good, so that no queueing system releases it again."""
    failed = find((await place.admin.get(JOB, name, place.namespace)).status.conditions, "Failed")
    return failed is not None and (failed.status, failed.reason) == ("True", "DeadlineExceeded")


async def test_containers_become_native_sidecars_that_end_with_the_trainer(place: Place, plays: Plays) -> None:
    plays(Play(run_s=0.2), "native")
    await place.job("native", jobQueue="native")
    await place.reaches(Phase.SUCCEEDED, "native")
    spec = (await place.admin.get_raw(JOB, "native", place.namespace))["spec"]
    await until(functools.partial(is_complete, place, "native"))
    (sidecar,) = spec["template"]["spec"]["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"], spec.get("suspend")) == ("log", "Always", False)


async def is_complete(place: Place, name: str) -> bool:
    return is_true((await place.admin.get(JOB, name, place.namespace)).status.conditions, "Complete")


async def test_a_worker_that_succeeded_and_is_gone_is_not_missed(
    place: Place, plays: Plays, kubelet: ScriptedKubelet
) -> None:
    """Its node was scaled down; worker 0 exports the model."""
    plays(Play(run_s=None), "exports", 0)
    plays(Play(run_s=0.5), "exports", 1)
    await place.job("exports", jobQueue="plain", elastic={"minNodes": 2, "maxNodes": 2})
    await until(functools.partial(completed, place, "exports", "1"))
    gone = next(pod for pod in await workers(place, "exports") if pod.status.phase == "Succeeded")
    await place.admin.delete(POD, gone.metadata.name, namespace=place.namespace, grace_seconds=0)
    await place.gone(POD, gone.metadata.name)
    await place.touch("exports")
    job = await place.reaches(Phase.RUNNING, "exports")
    ready = find(job.status.conditions, "WorkersReady")
    assert ready is not None
    assert ready.status == "True"
    await until(functools.partial(has_succeeded, place, "exports", 1))
    (first,) = await workers(place, "exports")
    kubelet.end(place.namespace, first.metadata.name)
    job = await place.reaches(Phase.SUCCEEDED, "exports")
    assert job.status.restarts.total == 0


async def has_succeeded(place: Place, name: str, count: int) -> bool:
    """Whether status counts so many workers as done; counts may lag."""
    return (await place.admin.get(TORCHRUN_JOB, name, place.namespace)).status.workers.succeeded == count


async def completed(place: Place, name: str, indexes: str) -> bool:
    try:
        return (await place.admin.get(JOB, name, place.namespace)).status.completed_indexes == indexes
    except NotFound:
        return False
