"""What becomes of a training that fails, is killed, evicted, suspended or scaled: real torchrun on a real kubelet."""

import functools
import json
import re
from typing import Any

from jobs import Place
from trainings import NAMESPACE, log, submit
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import POD, Pod
from torchctl.api.labels import ATTEMPT, JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.testing.controlplane import CommandFailed
from torchctl.testing.node import LocalNode
from torchctl.testing.node.training import IMAGE

LONG = "python ddp.py --steps=200 --save-every=5 --pause=0.2"
FAILS = "import os, sys, time; sys.exit(42) if os.environ['RANK'] == '1' else time.sleep(600)"


async def test_status_names_the_first_failed_rank_and_its_exit_code(operator: LocalNode, place: Place) -> None:
    """torchrun itself ends with 1, whatever its ranks did."""
    command = ["torchrun", "--no-python", "python", "-c", FAILS]
    await place.job("fails", command=None, args=command, runPolicy={"maxRestarts": 0})
    job = await place.reaches(Phase.FAILED, "fails", timeout_s=180)
    failure = job.status.failure
    assert failure is not None
    assert (failure.rank, failure.exit_code) == (1, 42)
    assert job.status.restarts.by_cause == {"Error": 1}


async def test_log_of_a_failed_trainer_beside_a_sidecar_stays(
    operator: LocalNode, place: Place, queue_spec: dict[str, Any]
) -> None:
    pod = queue_spec["podTemplate"]["spec"]
    sidecar = {"name": "sidecar", "image": IMAGE.name, "command": ["sleep", "3600"]}
    template = {"spec": pod | {"containers": [*pod["containers"], sidecar], "terminationGracePeriodSeconds": 2}}
    await place.queue("beside", **(queue_spec | {"podTemplate": template}))
    command = {"command": "echo what went wrong; exit 3", "launcher": "none"}
    await place.job("beside", jobQueue="beside", numNodes=1, runPolicy={"maxRestarts": 1}, **command)

    async def can_be_read(attempt: int) -> bool:
        pods = [pod for pod in await workers(place, "beside") if pod.metadata.labels[ATTEMPT] == str(attempt)]
        ended = [pod for pod in pods if pod.status.phase == "Failed"]
        return bool(ended) and "what went wrong" in await log(operator, "beside", attempt=attempt)

    await until(lambda: can_be_read(0), timeout_s=120)
    job = await place.reaches(Phase.FAILED, "beside", timeout_s=120)
    assert job.status.attempt == 1
    await until(lambda: can_be_read(1), timeout_s=60)


async def test_attempt_after_a_killed_worker_continues_from_the_checkpoint(
    operator: LocalNode, place: Place, repository: tuple[str, str]
) -> None:
    await submit(place, "killed", repository[0], LONG)
    await until(lambda: has_said(operator, "killed", "saved step"), timeout_s=180)
    pod = (await workers(place, "killed"))[1]
    await place.admin.delete(POD, pod.metadata.name, namespace=NAMESPACE, grace_seconds=1)
    job = await place.reaches(Phase.SUCCEEDED, "killed", timeout_s=240)
    assert (job.status.attempt, job.status.restarts.by_cause) == (1, {"Deleted": 1})
    assert first_step(await log(operator, "killed", attempt=1)) >= 5


async def test_evicted_trainer_that_exits_0_has_not_succeeded(
    operator: LocalNode, place: Place, repository: tuple[str, str]
) -> None:
    """A trainer that saves on SIGTERM and exits 0 goes on in the next attempt."""
    await submit(place, "evicted", repository[0], "exec python saving.py 150", numNodes=1, launcher="none")
    await until(lambda: has_said(operator, "evicted", "counted 10"), timeout_s=180)
    (pod,) = await workers(place, "evicted")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.metadata.name}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod.metadata.name}/eviction"
    await operator.control_plane.kubectl("create", f"--raw={path}", "--filename=-", input=json.dumps(eviction))
    job = await place.reaches(Phase.SUCCEEDED, "evicted", timeout_s=240)
    assert (job.status.attempt, job.status.restarts.by_cause) == (1, {"Evicted": 1})
    began = re.search(r"begins at (\d+)", await log(operator, "evicted", attempt=1))
    assert began is not None
    assert int(began.group(1)) >= 10


async def test_a_training_is_suspended_and_goes_on_from_its_checkpoint(
    operator: LocalNode, place: Place, repository: tuple[str, str]
) -> None:
    await submit(place, "paused", repository[0], LONG)
    await until(lambda: has_said(operator, "paused", "saved step"), timeout_s=180)
    await suspend(place, "paused", True)
    await place.reaches(Phase.SUSPENDED, "paused", timeout_s=60)
    await until(lambda: has_no_workers(place, "paused"), timeout_s=90)
    await suspend(place, "paused", False)
    job = await place.reaches(Phase.SUCCEEDED, "paused", timeout_s=240)
    assert (job.status.attempt, job.status.restarts.total) == (1, 0)
    assert first_step(await log(operator, "paused", attempt=1)) >= 5


async def test_an_elastic_training_grows_and_shrinks_without_a_new_attempt(
    operator: LocalNode, place: Place, repository: tuple[str, str]
) -> None:
    command = "python ddp.py --steps=100000 --save-every=5 --pause=0.2"
    conf = {"rdzvConf": {"last_call_timeout": "2"}}
    elastic = {"minNodes": 1, "maxNodes": 3}
    await submit(place, "elastic", repository[0], command, numNodes=1, elastic=elastic, distributed=conf)
    for nodes in (1, 3, 1):
        await operator.control_plane.kubectl("scale", "trj/elastic", f"--replicas={nodes}", f"--namespace={NAMESPACE}")
        await until(functools.partial(trains_on, operator, "elastic", nodes), timeout_s=240)
    job = await place.admin.get(TORCHRUN_JOB, "elastic", NAMESPACE)
    assert (job.status.attempt, job.status.restarts.total, job.status.phase) == (0, 0, Phase.RUNNING)
    await place.admin.delete(TORCHRUN_JOB, "elastic", namespace=NAMESPACE)


async def test_workspace_on_a_single_node_claim_is_served(
    operator: LocalNode, place: Place, repository: tuple[str, str], queue_spec: dict[str, Any]
) -> None:
    once = {"workspace": {"accessModes": ["ReadWriteOnce"], "size": "1Gi"}}
    await place.queue("once", **{**queue_spec, "storage": once})
    await submit(place, "served", repository[0], jobQueue="once")
    await place.reaches(Phase.SUCCEEDED, "served", timeout_s=180)
    assert "world size 2" in await log(operator, "served")


async def workers(place: Place, job: str) -> list[Pod]:
    selector = f"{JOB_NAME}={job},{ROLE}={ROLE_WORKER}"
    pods = await place.admin.list(POD, namespace=NAMESPACE, labels=selector)
    return sorted(pods, key=lambda pod: (pod.metadata.labels[ATTEMPT], pod.metadata.name))


async def has_no_workers(place: Place, job: str) -> bool:
    return not [pod for pod in await workers(place, job) if pod.status.phase in ("Pending", "Running")]


async def suspend(place: Place, job: str, wanted: bool) -> None:
    await place.admin.merge_patch(TORCHRUN_JOB, job, {"spec": {"suspend": wanted}}, namespace=NAMESPACE)


async def has_said(node: LocalNode, job: str, text: str) -> bool:
    return text in await said(node, job)


async def said(node: LocalNode, job: str) -> str:
    """What the first worker has printed; nothing before it runs."""
    try:
        return await log(node, job)
    except CommandFailed:
        return ""


async def trains_on(node: LocalNode, job: str, nodes: int) -> bool:
    """Whether the world that the first worker formed last has that many, and trains."""
    text = await said(node, job)
    worlds = list(re.finditer(r"rank \d+ of (\d+)", text))
    return bool(worlds) and int(worlds[-1].group(1)) == nodes and "saved step" in text[worlds[-1].end() :]


def first_step(text: str) -> int:
    """The step with which a training began, as it says in the end."""
    found = re.search(r"steps (\d+) to", text)
    assert found is not None, text
    return int(found.group(1))
