"""The preflight of workers that meet in etcd, against the control plane's own etcd: 3.6, which has no v2 API."""

from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
import pytest_asyncio
from clusters import clear
from jobs import Place
from operators import background_operator
from waiting import until

from torchctl.api.phases import Phase
from torchctl.preflight.core import NotUsable, V2Off
from torchctl.preflight.etcd import Server, check
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.assets import ensure
from torchctl.testing.certificates import Authority, Pair
from torchctl.testing.kubelet import Part, Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod
from torchctl.testing.ports import reserve
from torchctl.testing.process import ManagedProcess

WAIT_S = 60.0


@contextmanager
def etcd(directory: Path, *flags: str, scheme: str = "http") -> Generator[str]:
    """A server with a disk of its own; its endpoint. It is not waited for."""
    directory.mkdir()
    with reserve(2) as (port, peers):
        listen = f"{scheme}://127.0.0.1:{port}"
        words = (
            f"--data-dir={directory / 'data'}",
            f"--listen-client-urls={listen}",
            f"--advertise-client-urls={listen}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=default=http://127.0.0.1:{peers}",
            "--unsafe-no-fsync",
        )
    program = ensure(["etcd"]).path("etcd")
    process = ManagedProcess("etcd", [str(program), *words, *flags], directory / "log")
    process.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()


async def test_etcd_without_a_v2_api_is_refused_at_once(tmp_path: Path) -> None:
    with etcd(tmp_path / "etcd") as endpoint, pytest.raises(V2Off) as raised:
        await check(Server(endpoint=endpoint), timeout_s=WAIT_S)
    said = str(raised.value)
    assert said.startswith("etcd 3.6.")
    assert f"at {endpoint} answers, but has no v2 API any more. Use etcd 3.4 or 3.5 started with --enable-v2" in said


def written(directory: Path, name: str, pair: Pair) -> tuple[Path, Path]:
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return certificate, key


async def test_the_certificates_that_torchrun_is_given_are_what_etcd_wants(tmp_path: Path) -> None:
    authority = Authority()
    ca = tmp_path / "ca.crt"
    await anyio.Path(ca).write_bytes(authority.certificate)
    certificate, key = written(tmp_path, "server", authority.server(["127.0.0.1"]))
    flags = (f"--cert-file={certificate}", f"--key-file={key}", "--client-cert-auth", f"--trusted-ca-file={ca}")
    certificate, key = written(tmp_path, "client", authority.client("trainer"))
    with etcd(tmp_path / "etcd", *flags, scheme="https") as endpoint:
        mine = Server(endpoint=endpoint, tls=True, ca=ca, certificate=certificate, key=key)
        with pytest.raises(V2Off):
            await check(mine, timeout_s=WAIT_S)
        with pytest.raises(NotUsable, match=f"no TLS connection to {endpoint}: .*certificate"):
            await check(Server(endpoint=endpoint, tls=True, ca=ca), timeout_s=WAIT_S)


OFF = "preflight: etcd 3.4.23 at etcd:2379 answers, but its v2 API is off. Start it with --enable-v2 (etcd 3.4 or 3.5)"
LATE = "preflight: etcd at etcd:2379 cannot be used after 300 s: Connect call failed. Check that it runs"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(operator_account: Connection, admin: Client, kubelet: ScriptedKubelet) -> AsyncGenerator[Place]:
    """A namespace whose queue meets in etcd, and in which the preflights of two jobs fail, of one only at first."""
    namespace = fresh_name("preflights")

    def in_job(pod: Pod, name: str) -> bool:
        labels = pod.metadata.labels
        return pod.metadata.namespace == namespace and labels.get("batch.kubernetes.io/job-name") == name

    before = kubelet.script
    kubelet.script = before.when(
        lambda pod: in_job(pod, "off"), Play(parts={"preflight": Part(exit_code=69)}, messages={"preflight": OFF})
    ).when(lambda pod: in_job(pod, "late"), Play(parts={"preflight": Part(exit_code=75)}, messages={"preflight": LATE}))
    await create_namespace(admin, namespace)
    here = Place(admin, namespace)
    await here.queue(distributed={"rdzvBackend": "etcd-v2", "rdzvEndpoint": "etcd:2379"})
    async with background_operator(operator_account, namespace):
        yield here
    kubelet.script = before
    await clear(admin, namespace)


async def test_job_with_etcd_v2_off_fails_at_once(place: Place) -> None:
    """The message says what to do."""
    await place.job("off")
    job = await place.reaches(Phase.FAILED, "off")
    failed = await place.condition("Failed", "EtcdV2Disabled", "off")
    assert "its v2 API is off. Start it with --enable-v2" in failed.message
    assert job.status.failure is not None
    assert (job.status.attempt, job.status.restarts.total, job.status.failure.rank) == (0, 0, None)

    async def has_told() -> bool:  # Events are written after the status, in the background
        return "EtcdV2Disabled" in [event.reason for event in await place.events("off")]

    await until(has_told)


async def test_next_attempt_asks_an_unreachable_server_again(place: Place) -> None:
    await place.job("late")
    job = await place.reaches(Phase.SUCCEEDED, "late", timeout_s=60)
    assert (job.status.attempt, job.status.restarts.by_cause) == (1, {"RendezvousUnreachable": 1})
