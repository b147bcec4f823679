"""The control plane under test is real, can be broken part by part, and never outlives who started it."""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from waiting import until

from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.errors import ApiError, Forbidden
from torchctl.testing import controlplane
from torchctl.testing.assets import Settings
from torchctl.testing.audit import read_audit_log
from torchctl.testing.components import COMPONENTS
from torchctl.testing.controlplane import CommandFailed, ComponentFailed, ControlPlane, Options
from torchctl.testing.namespaces import NAMESPACE, SERVICE_ACCOUNT, create_namespace, fresh_name
from torchctl.testing.ports import reserve
from torchctl.testing.programs import programs_of, version

_STARTER = """
import asyncio
from torchctl.testing.controlplane import ControlPlane

async def main():
    async with ControlPlane() as cluster:
        print(*(cluster.process(name).pid for name in cluster.components), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
async def own(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """A control plane that may be broken without breaking a neighbour's test."""
    async with ControlPlane(directory=tmp_path_factory.mktemp("own")) as cluster:
        yield cluster


async def test_the_admin_reaches_the_api_by_kubectl_and_by_client(control_plane: ControlPlane, admin: Client) -> None:
    by_kubectl = await control_plane.kubectl("get", "namespaces", "--output=name")
    by_client = await admin.list(NAMESPACE)
    assert {f"namespace/{obj.metadata.name}" for obj in by_client} >= {"namespace/default", "namespace/kube-system"}
    assert "namespace/default" in by_kubectl.split()


@pytest.mark.skipif("TORCHCTL_ASSETS" in os.environ, reason="what $TORCHCTL_ASSETS holds may have any version")
async def test_the_api_server_has_the_version_that_was_asked_for(control_plane: ControlPlane) -> None:
    asked = programs_of(Settings.from_environment().kubernetes)["kube-apiserver"]
    said = json.loads(await control_plane.kubectl("get", "--raw=/version"))
    assert said["gitVersion"] == version(asked)


async def test_kubectl_passes_input_and_reports_what_it_was_refused(control_plane: ControlPlane) -> None:
    manifest = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}'
    answer = await control_plane.kubectl("apply", "--dry-run=server", "--filename=-", input=manifest)
    assert answer == "configmap/a created (server dry run)\n"
    with pytest.raises(CommandFailed, match='configmaps "none" not found') as failed:
        await control_plane.kubectl("get", "configmap", "none")
    assert failed.value.status == 1


async def test_a_certificate_makes_any_user_who_has_no_rights(control_plane: ControlPlane) -> None:
    kubeconfig = control_plane.kubeconfig("ada", ["dev", "ops"])
    identity = await control_plane.kubectl("auth", "whoami", kubeconfig=kubeconfig)
    assert "[dev ops system:authenticated]" in identity
    async with connect(control_plane.connection("ada")) as client:
        with pytest.raises(Forbidden, match='User "ada" cannot list resource "namespaces"'):
            await client.list(NAMESPACE)


async def test_token_of_a_service_account_has_its_rbac_rights(control_plane: ControlPlane, namespace: str) -> None:
    connection = await control_plane.service_account_connection(namespace, "default")
    async with connect(connection) as client:
        with pytest.raises(Forbidden):
            await client.get(SERVICE_ACCOUNT, "default", namespace)
        binding = ("create", "rolebinding", "view", "--clusterrole=view", f"--serviceaccount={namespace}:default")
        await control_plane.kubectl(*binding, f"--namespace={namespace}")

        async def may_read() -> bool:  # the authorizer hears of a binding a moment after it was made
            try:
                await client.get(SERVICE_ACCOUNT, "default", namespace)
            except Forbidden:
                return False
            return True

        await until(may_read)
    kubeconfig = await control_plane.service_account_kubeconfig(namespace, "default")
    identity = await control_plane.kubectl("auth", "whoami", kubeconfig=kubeconfig)
    assert f"system:serviceaccount:{namespace}:default" in identity


async def test_every_request_is_in_the_audit_log(control_plane: ControlPlane, namespace: str) -> None:
    """Of somebody who does nothing else: the scripted kubelet is admin too, and renews its nodes whenever it likes."""
    before = control_plane.audit_log.stat().st_size
    async with connect(control_plane.connection("auditor", ["system:masters"])) as auditor:
        await auditor.merge_patch(NAMESPACE, namespace, {"metadata": {"labels": {"a": "b"}}})
    mine = [
        (request.verb, request.object_ref.name if request.object_ref else "", request.response_status.code)
        for request in read_audit_log(control_plane.audit_log, before)
        if request.user.username == "auditor"
    ]
    assert mine == [("patch", namespace, 200)]


async def test_the_control_plane_deletes_what_belongs_to_a_namespace(
    control_plane: ControlPlane, namespace: str
) -> None:
    await control_plane.kubectl("delete", "namespace", namespace, "--wait", "--timeout=30s")


@pytest.mark.parametrize("component", COMPONENTS)
async def test_a_restarted_component_comes_back_with_what_was_written(own: ControlPlane, component: str) -> None:
    name = fresh_name(component)
    async with own.client() as client:
        await create_namespace(client, name)
        pid = own.process(component).pid
        await own.restart(component)
        assert own.process(component).pid != pid
        assert (await client.get(NAMESPACE, name)).metadata.name == name
        await create_namespace(client, fresh_name("after"))
    assert all(own.process(each).running for each in COMPONENTS)


async def test_restarted_component_keeps_its_flags_or_takes_others(own: ControlPlane) -> None:
    async def restarted(**how: Any) -> str:
        await own.restart("kube-scheduler", **how)
        command = await anyio.Path(f"/proc/{own.process('kube-scheduler').pid}/cmdline").read_text()
        return command.removesuffix("\0").rpartition("\0")[2]

    before = await restarted()
    assert [await restarted(flags=["--v=1"]), await restarted(), await restarted(flags=[])] == [
        "--v=1",
        "--v=1",
        before,
    ]


async def test_controllers_restart_with_the_api_server(own: ControlPlane) -> None:
    """Otherwise they would wait out their back-off after an outage."""
    watchers = ("kube-controller-manager", "kube-scheduler")
    before = [own.process(name).pid for name in watchers]
    await own.restart("kube-apiserver")
    assert not {own.process(name).pid for name in watchers} & set(before)
    async with own.client() as client:
        await create_namespace(client, fresh_name("after"))


async def test_stopped_component_stays_stopped_after_an_api_server_restart(own: ControlPlane) -> None:
    await own.stop("kube-scheduler")
    await own.restart("kube-apiserver")
    assert not own.process("kube-scheduler").running
    await own.start("kube-scheduler")


async def test_nobody_answers_while_the_api_server_is_paused(own: ControlPlane) -> None:
    own.pause("kube-apiserver")
    try:
        with pytest.raises(TimeoutError):
            await own.kubectl("get", "namespaces", timeout_s=0.5)
    finally:
        own.resume("kube-apiserver")
    assert "default" in await own.kubectl("get", "namespaces")


async def test_pods_wait_while_the_scheduler_is_stopped(own: ControlPlane) -> None:
    await own.stop("kube-scheduler")
    with pytest.raises(KeyError):
        own.process("kubelet")
    await own.kubectl("run", "pod", "--image=none.example/none", "--restart=Never")
    with pytest.raises(CommandFailed, match="timed out"):
        await own.kubectl("wait", "pod/pod", "--for=condition=PodScheduled=false", "--timeout=1s")
    await own.start("kube-scheduler")
    # There is no node, and the scheduler is the one to say so.
    await own.kubectl("wait", "pod/pod", "--for=condition=PodScheduled=false", "--timeout=20s")


async def test_component_that_cannot_start_quotes_its_log(tmp_path: Path) -> None:
    options = Options(flags={"kube-apiserver": ("--no-such-flag",)})
    with pytest.raises(ComponentFailed, match="unknown flag: --no-such-flag") as failed:
        async with ControlPlane(directory=tmp_path, options=options):
            pytest.fail("it started")
    assert failed.value.log == tmp_path / "logs" / "kube-apiserver.log"
    assert str(failed.value.log) in str(failed.value)


async def test_a_component_that_is_too_late_says_so(tmp_path: Path) -> None:
    components = ("etcd", "kube-apiserver")
    with pytest.raises(ComponentFailed, match=r"kube-apiserver was not ready after 0\.2 s"):
        async with ControlPlane(directory=tmp_path, components=components, options=Options(start_timeout_s=0.2)):
            pytest.fail("it started")


def test_without_etcd_there_is_no_control_plane() -> None:
    with pytest.raises(ValueError, match="at least etcd and kube-apiserver"):
        ControlPlane(components=("kube-apiserver",))


async def test_a_port_that_was_taken_meanwhile_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, ...]] = []

    @contextmanager
    def lose_the_first(count: int) -> Iterator[tuple[int, ...]]:
        with reserve(count) as ports:
            given.append((taken, *ports[1:]) if not given else ports)
            yield given[-1]

    monkeypatch.setattr(controlplane, "reserve", lose_the_first)
    with reserve(1) as (taken,):
        async with ControlPlane(directory=tmp_path, components=("etcd", "kube-apiserver")) as cluster:
            assert "default" in await cluster.kubectl("get", "--raw=/api/v1/namespaces/default")
    assert len(given) == 2


async def test_a_temporary_directory_stays_only_when_something_failed() -> None:
    components = ("etcd", "kube-apiserver")
    async with ControlPlane(components=components) as cluster:
        good = cluster.logs
    assert not good.exists()
    with pytest.raises(LookupError) as failed:
        async with ControlPlane(components=components) as cluster:
            raise LookupError
    assert failed.value.__notes__ == [f"The control plane's logs are kept in {cluster.logs}"]
    assert (cluster.logs / "etcd.log").exists()
    shutil.rmtree(cluster.logs.parent)


def test_no_process_survives_a_starter_that_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", _STARTER], stdout=subprocess.PIPE, env=environment) as starter:
        assert starter.stdout is not None
        handles = [os.pidfd_open(int(pid)) for pid in starter.stdout.readline().split()]
        assert len(handles) == len(COMPONENTS)
        starter.kill()
        for handle in handles:
            assert select.select([handle], [], [], 10)[0], "a component is still running"
            os.close(handle)


async def test_control_plane_may_be_left_in_another_task(tmp_path: Path) -> None:
    cluster = ControlPlane(directory=tmp_path, components=("etcd", "kube-apiserver"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.__aenter__)
    await cluster.kubectl("version")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.__aexit__, None, None, None)
    with pytest.raises((ApiError, CommandFailed)):
        await cluster.kubectl("version")
