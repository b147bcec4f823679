"""The verbs that look at jobs and queues, on a real API server. Nobody runs the jobs: their status is written here."""

import json
import os
from importlib.metadata import version

import anyio
import anyio.to_thread
import pytest
import yaml
from anyio.streams.text import TextReceiveStream
from click.shell_completion import ShellComplete
from clusters import CONFIG
from jobs import Place, become
from kubectl import Kubectl
from terminals import SCRIPTS
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.cli.kubectl import cli
from torchctl.cli.torchrun import suggestions
from torchctl.client import BlockingClient, Client, JobFailed, Target, TimedOut
from torchctl.client import NotFound as NoSuchJob
from torchctl.runtime.client.client import Client as ApiClient
from torchctl.testing.controlplane import ControlPlane

pytestmark = pytest.mark.usefixtures("operator_account")


@pytest.fixture
def place(admin: ApiClient, namespace: str) -> Place:
    return Place(admin, namespace)


@pytest.fixture
def kubectl(control_plane: ControlPlane, namespace: str) -> Kubectl:
    return Kubectl.as_admin(control_plane, namespace)


@pytest.fixture
def target(control_plane: ControlPlane, namespace: str) -> Target:
    return Target(kubeconfig=str(control_plane.admin_kubeconfig), namespace=namespace)


async def test_jobs_and_queues_are_listed(place: Place, kubectl: Kubectl) -> None:
    assert (await kubectl("list")).stderr == f"No jobs in namespace {place.namespace}.\n"
    await place.queue()
    await place.job("vit")
    await place.job("bert", numNodes=None, numGPUs=0)
    await become(place, "Running", "vit")
    shown = (await kubectl.says("list")).splitlines()
    assert [line.split()[:3] for line in shown] == [
        ["NAME", "QUEUE", "PHASE"],
        ["bert", "queue", "New"],
        ["vit", "queue", "Running"],
    ]
    assert f"{place.namespace}   vit" in await kubectl.says("list", "--all-namespaces", "-o", "wide")
    assert (await kubectl.says("queues")).splitlines()[1].startswith("queue   Unknown")


async def test_objects_are_printed_with_all_their_fields(place: Place, kubectl: Kubectl) -> None:
    await place.queue(env=[{"name": "A", "value": "1"}])
    await place.job()
    assert await kubectl.says("list", "-o", "name") == "torchrunjob.torchrun.ai/job\n"
    listed = json.loads(await kubectl.says("list", "-o", "json"))
    assert (listed["kind"], listed["items"][0]["kind"]) == ("List", "TorchrunJob")
    assert listed["items"][0]["spec"]["command"] == "python train.py"
    assert yaml.safe_load(await kubectl.says("queues", "-o", "yaml"))["items"][0]["spec"]["env"][0]["name"] == "A"
    shown = json.loads(await kubectl.says("status", "trj/job", "-o", "json"))["metadata"]
    assert (shown["name"], "managedFields" in shown) == ("job", False)


async def test_status_shows_conditions(place: Place, kubectl: Kubectl) -> None:
    await place.queue()
    await place.job()
    await become(place, "Queued", Admitted="False")
    shown = await kubectl.says("status", "job")
    assert f"job in namespace {place.namespace}" in shown
    assert "Admitted    False" in shown


async def test_who_sees_no_pods_sees_the_job(place: Place, control_plane: ControlPlane) -> None:
    await place.job()
    here = f"--namespace={place.namespace}"
    await control_plane.kubectl("create", "role", "jobs", "--verb=get", "--resource=torchrunjobs", here)
    await control_plane.kubectl("create", "rolebinding", "jobs", "--role=jobs", "--user=jobs-only", here)
    shown = await Kubectl(str(control_plane.kubeconfig("jobs-only")), place.namespace)("status", "job")
    assert (shown.exit_code, f"job in namespace {place.namespace}" in shown.stdout) == (0, True)
    assert "Remark: pods of TorchrunJob job" in shown.stderr
    assert 'User "jobs-only" cannot list resource "pods"' in shown.stderr


async def test_status_follows_a_job_to_its_end(place: Place, kubectl: Kubectl) -> None:
    """As a process with a pipe: a line for each change, and in the end the job's failure as exit status."""
    await place.queue()
    await place.job()
    await become(place, "Queued", Admitted="False")
    async with await anyio.open_process([*kubectl.program, "status", "-w", "job"]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told = TextReceiveStream(process.stdout)
        first = await anext(told)
        assert "job Queued\n" in first
        await become(place, "Running", Admitted="True")
        second = await anext(told)
        await become(place, "Failed", Failed="True")
        rest = "".join([second, *[text async for text in told]])
        why = "".join([text async for text in TextReceiveStream(process.stderr)])
    assert [line.split(" ", 2)[2] for line in rest.splitlines()] == [
        *(["Admitted=False Test: as written"] if "Admitted" not in first else []),
        "Running",
        "Admitted=True Test: as written",
        "Failed",
        "Failed=True Test: as written",
    ]
    assert (process.returncode, "has failed" in why, len(why.splitlines())) == (1, True, 1)


async def test_wait_ends_with_the_goal_or_says_why_not(place: Place, kubectl: Kubectl) -> None:
    await place.queue()
    await place.job()
    late = await kubectl("wait", "job", "--for=Running", "--timeout=200ms")
    assert (late.exit_code, "not yet Running after 0.2 s" in late.stderr) == (5, True)
    await become(place, "Running", Admitted="True")
    assert await kubectl.says("wait", "job", "--for=running") == "job is Running\n"
    assert await kubectl.says("wait", "job", "--for=condition=Admitted") == "job has condition Admitted=True\n"
    await become(place, "Failed", Failed="True")
    failed = await kubectl("wait", "job")
    assert (failed.exit_code, len(failed.stderr.splitlines())) == (1, 1)
    assert (await kubectl("wait", "job", "--for=Succeeded")).exit_code == 1


async def test_a_program_waits_for_jobs_asynchronously(place: Place, target: Target) -> None:
    await place.queue()
    await place.job()
    async with Client.connect(target) as client:
        assert [job.name for job in await client.jobs()] == ["job"]
        assert [queue.metadata.name for queue in await client.queues()] == ["queue"]
        job = await client.job("job")
        with pytest.raises(TimedOut):
            await job.wait("Running", timeout_s=0.1)
        await become(place, "Running")
        assert (await job.wait("Running")).phase == "Running"
        await place.admin.delete(TORCHRUN_JOB, "job", namespace=place.namespace)
        with pytest.raises(NoSuchJob, match="deleted"):
            await job.wait()
        await job.wait("deleted")


async def test_a_notebook_with_a_running_loop_uses_the_blocking_client(place: Place, target: Target) -> None:
    """The calls block the loop of the notebook, as any other call there does."""
    await place.queue()
    await place.job()
    await become(place, "Failed", Failed="True")
    with BlockingClient(target) as client:
        job = client.job("job")
        assert (job.phase, client.jobs()[0].name, client.queue("queue").spec.image) == ("Failed", "job", "trainer:1")
        with pytest.raises(JobFailed):
            job.wait()
        assert job.wait("failed").refresh().status.phase == "Failed"
        with pytest.raises(NoSuchJob, match="no TorchrunJob other"):
            client.job("other")
        with pytest.raises(NoSuchJob, match="Queues there: queue"):
            client.queue("other")


async def test_names_come_from_the_cluster_for_a_shell(
    place: Place, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suggestions, "PATIENCE_S", 30.0)  # this machine may be slow
    await place.queue("h100")
    await place.job("vit")
    await become(place, "Running", "vit")
    options = ["--kubeconfig", str(control_plane.admin_kubeconfig), "-n", place.namespace]

    def complete(*words: str) -> list[tuple[str, str | None]]:
        *before, incomplete = words
        completer = ShellComplete(cli, {}, "kubectl torchrun", "")
        return [(item.value, item.help) for item in completer.get_completions([*options, *before], incomplete)]

    for words in (["status", ""], ["wait", "v"], ["logs", "v"], ["delete", ""]):
        assert await anyio.to_thread.run_sync(complete, *words) == [("vit", "Running")]
    assert await anyio.to_thread.run_sync(complete, "status", "other") == []
    assert await anyio.to_thread.run_sync(complete, "submit", "--queue", "h") == [("h100", "0 GPUs a node")]
    body = {"status": {"gpus": 2}}
    await place.admin.merge_patch(TORCHRUN_JOB, "vit", body, namespace=place.namespace, subresource="status")
    assert await anyio.to_thread.run_sync(complete, "logs", "vit", "--rank", "") == [("0", None), ("1", None)]


async def test_kubectl_finds_the_plugin_and_what_completes_it(
    place: Place, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.job("bert")
    monkeypatch.setenv("PATH", f"{SCRIPTS}:{os.environ['PATH']}")
    assert (await control_plane.kubectl("torchrun", "version", "--client")).startswith("client: ")
    shown = await control_plane.kubectl("torchrun", "list", "-n", place.namespace)
    assert [line.split()[0] for line in shown.splitlines()] == ["NAME", "bert"]
    assert "completion\tPrint a script" in await control_plane.kubectl("__complete", "torchrun", "compl")

    async def completed() -> bool:
        names = await control_plane.kubectl("__complete", "torchrun", "-n", place.namespace, "status", "b")
        return names.startswith("bert")

    await until(completed)  # a slow machine may get none at first


async def test_versions_of_operator_and_server_are_told(
    control_plane: ControlPlane, admin: ApiClient, kubectl: Kubectl
) -> None:
    server = await admin.server_version()
    assert (await kubectl.says("version")).splitlines() == [
        f"client: {version('torchctl')}",
        "operator: unknown: there is no Deployment torchctl in namespace torchctl-system",
        f"apiServer: {server}",
    ]
    deployment = CONFIG / "manager" / "deployment.yaml"
    await control_plane.kubectl("apply", "-f", str(deployment))
    assert json.loads(await kubectl.says("version", "-o", "json"))["operator"].startswith("torchctl:")
    stranger = Kubectl(str(control_plane.kubeconfig("stranger")))
    assert "operator: unknown: you may not read Deployments" in (await stranger("version")).stdout
    await control_plane.kubectl("delete", "-f", str(deployment), "--wait=false")
