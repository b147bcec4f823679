"""A real S3 server over a directory: a bucket is a directory in it, and an object a file.

It is versitygw, built from its pinned Go module; `python -m torchctl.testing.objectstore` does so ahead of time. It
checks signatures, so that a client's own are tested.
"""

import hashlib
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import anyio

from torchctl.testing.assets import Settings, prepared
from torchctl.testing.certificates import Authority
from torchctl.testing.ports import reserve
from torchctl.testing.process import ManagedProcess
from torchctl.testing.programs import Program

__all__ = ["DOMAIN", "VERSITYGW", "ObjectStore", "object_store"]

_MODULE = "github.com/versity/versitygw"
VERSITYGW = Program("versitygw", "versitygw", f"{_MODULE}/cmd/versitygw", _MODULE)
DOMAIN = "s3.localhost"
_HEALTH = "/healthz"
_START_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class ObjectStore:
    """A running server and the keys of its only account."""

    endpoint: str
    ca: bytes
    access_key_id: str
    secret_access_key: str
    root: Path

    def bucket(self, name: str) -> None:
        (self.root / name).mkdir()

    def put(self, bucket: str, key: str, data: bytes) -> str:
        """Writes an object. Returns its SHA-256, hexadecimal."""
        path = self.root / bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return hashlib.sha256(data).hexdigest()

    def secret(self, directory: Path, **more: str) -> Path:
        """Writes the files of a Secret for this server into a new directory; empty keys are left out."""
        keys = {
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_ENDPOINT_URL": self.endpoint,
            "ca.crt": self.ca.decode(),
        }
        directory.mkdir()
        for key, value in (keys | more).items():
            if value:
                (directory / key).write_text(value)
        return directory


@asynccontextmanager
async def object_store(region: str = "us-east-1") -> AsyncIterator[ObjectStore]:
    """Runs a server on https://localhost, with the bucket in the path, or in the host name below `DOMAIN`.

    Raises:
        BuildFailed: Go is missing and cannot be installed, or the build failed.
        TimeoutError: the server did not come up.
    """
    program = await anyio.to_thread.run_sync(prepared, VERSITYGW)
    with tempfile.TemporaryDirectory(prefix="torchctl-s3-") as directory:
        place = Path(directory)
        store, argv = _prepare(place, program, region)
        process = ManagedProcess("versitygw", argv, place / "log", _environment(store))
        process.start()
        try:
            await _healthy(store.endpoint, process)
            yield store
        finally:
            process.kill()


def _prepare(place: Path, program: Path, region: str) -> tuple[ObjectStore, list[str]]:
    root, metadata = place / "buckets", place / "metadata"
    root.mkdir()
    metadata.mkdir()
    authority = Authority()
    pair = authority.server(["localhost", DOMAIN, f"*.{DOMAIN}"])
    (place / "tls.crt").write_bytes(pair.certificate)
    (place / "tls.key").write_bytes(pair.key)
    with reserve(1) as (port,):
        pass
    store = ObjectStore(
        f"https://localhost:{port}", authority.certificate, "AK" + secrets.token_hex(8), secrets.token_hex(20), root
    )
    options = {
        "--port": f"127.0.0.1:{port}",
        "--region": region,
        "--cert": place / "tls.crt",
        "--key": place / "tls.key",
        "--health": _HEALTH,
        "--virtual-domain": f"{DOMAIN}:{port}",
    }
    flat = [str(word) for option in options.items() for word in option]
    return store, [str(program), *flat, "--quiet", "posix", "--sidecar", str(metadata), str(root)]


def _environment(store: ObjectStore) -> Mapping[str, str]:
    keys = {"ROOT_ACCESS_KEY": store.access_key_id, "ROOT_SECRET_KEY": store.secret_access_key}
    return {**os.environ, **keys}


async def _healthy(endpoint: str, process: ManagedProcess) -> None:
    async with aiohttp.ClientSession() as http:
        with anyio.fail_after(_START_TIMEOUT_S):
            while not await _answers(http, endpoint + _HEALTH):
                if not process.running:
                    raise RuntimeError(f"versitygw ended with status {process.returncode}:\n{process.tail()}")
                await anyio.sleep(0.05)


async def _answers(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url, ssl=False) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


if __name__ == "__main__":
    print(f"versitygw\t{prepared(VERSITYGW, Settings.from_environment())}", file=sys.stdout)
