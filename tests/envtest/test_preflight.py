"""The preflight of workers that meet in etcd, against the control plane's own etcd: 3.6, which has no v2 API."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from torchctl.preflight.core import NotUsable, V2Off
from torchctl.preflight.etcd import Server, check
from torchctl.testing.assets import ensure
from torchctl.testing.certificates import Authority, Pair
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


async def test_an_etcd_that_has_no_v2_api_is_told_as_soon_as_it_answers(tmp_path: Path) -> None:
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
