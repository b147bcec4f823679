"""`torchctl workspace companion` as a process: later trees come by upload, and it may be killed at any time."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest_asyncio
from launchers import KEY, Crew, alive, crew
from waiting import until

from torchctl.client.tree import scan
from torchctl.client.upload import upload
from torchctl.launcher.launcher import tree_digest
from torchctl.testing.ports import reserve
from torchctl.workspace.launcherfile import put_launcher

TOKEN = "pod-uid"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Site:
    """A crew whose companion is a process."""

    def __init__(self, job: Crew, ports: tuple[int, int], source: Path) -> None:
        self.job, self.source = job, source
        job.port, self.upload_port = ports
        self.text = ""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.upload_port}"

    def begin(self) -> None:
        options = [f"--root={self.job.claim}", "--host=127.0.0.1", f"--port={self.job.port}", f"--key={KEY}"]
        command = [sys.executable, "-m", "torchctl", "workspace", "companion", *options]
        command.append(f"--upload-port={self.upload_port}")
        self.process = subprocess.Popen(command, env=os.environ | {"TORCHCTL_POD_UID": TOKEN})

    async def start(self) -> None:
        self.begin()
        await until(self.answers)

    async def answers(self) -> bool:
        return await self.get(f"http://127.0.0.1:{self.job.port}/readyz") != 0

    async def get(self, url: str, headers: dict[str, str] | None = None) -> int:
        try:
            async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def launchers(self) -> list[dict[str, object]]:
        async with aiohttp.ClientSession(headers=BEARER) as http, http.get(f"{self.url}/v1/launchers") as answer:
            found = (await answer.json())["launchers"]
            assert isinstance(found, list)
            return found

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    async def send(self, text: str, *, restart: bool = True) -> str:
        self.text = text
        (self.source / "train.py").write_text(text)
        tree = scan(self.source)
        if not restart:
            await self.wish(text, restart=False)
        return (await upload(self.url, TOKEN, tree)).revision

    async def wish(self, text: str, *, restart: bool) -> None:
        content = {"revision": tree_digest(str(self.source)), "restart": restart}
        url, data = f"{self.url}/v1/launchers", json.dumps(content)
        async with aiohttp.ClientSession(headers=BEARER) as http, http.put(url, data=data) as answer:
            assert answer.status == 204


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    (tmp_path / "source").mkdir()
    async with crew(tmp_path, {"train.py": "one"}) as job:
        await job.end_companion()
        with reserve(2) as ports:
            made = Site(job, (ports[0], ports[1]), tmp_path / "source")
        await made.start()
        try:
            yield made
        finally:
            made.kill()


async def test_an_upload_reaches_the_program_in_the_same_pods(site: Site) -> None:
    pods = await site.job.two()
    for pod in pods:
        await pod.started(1)
    for times, text in ((2, "two"), (3, "three")):
        revision = await site.send(text)
        assert [(await pod.started(times))["text"] for pod in pods] == [text, text]
        assert [entry["revision"] for entry in await site.launchers()] == [revision] * 2

    async def ready() -> bool:
        return await site.get(f"http://127.0.0.1:{site.job.port}/readyz") == 200

    await until(ready)


async def test_a_killed_companion_loses_nothing(site: Site) -> None:
    """Killed under a running world it touches nobody; killed after a commit, the next one goes on."""
    pods = await site.job.two()
    starts = [await pod.started(1) for pod in pods]
    site.kill()
    await site.start()

    async def known() -> bool:
        return len(await site.launchers()) == 2

    await until(known)
    assert all(alive(start["pid"]) for start in starts)
    await site.send("two")
    site.kill()
    await site.start()
    assert [(await pod.started(2))["text"] for pod in pods] == ["two", "two"]


async def test_files_may_change_without_a_restart(site: Site) -> None:
    pods = await site.job.two()
    starts = [await pod.started(1) for pod in pods]
    await site.send("two", restart=False)

    async def there() -> bool:
        return [(pod.workdir / "train.py").read_text() for pod in pods] == [site.text] * 2

    await until(there)
    site.kill()
    await site.start()  # it knows the wish from the claim
    assert all(alive(start["pid"]) for start in starts)
    await site.send("three", restart=False)  # the wish for it leaves alone what the first one asked for
    await until(there)
    assert all(alive(start["pid"]) for start in starts)
    await site.wish("three", restart=True)
    assert [(await pod.started(2))["text"] for pod in pods] == ["three", "three"]


async def test_who_does_not_know_the_token_or_key_gets_nothing(site: Site) -> None:
    assert await site.get(f"{site.url}/v1/launchers") == 401
    assert await site.get(f"{site.url}/v1/launchers", {"Authorization": "Bearer other"}) == 401
    assert await site.get(f"http://127.0.0.1:{site.job.port}/launcher/v1/other") == 404
    assert await site.get(f"http://127.0.0.1:{site.job.port}/launcher/v1/{KEY}") == 200


async def test_a_report_that_is_none_is_refused(site: Site) -> None:
    url = f"http://127.0.0.1:{site.job.port}/launcher/v1/{KEY}"
    async with aiohttp.ClientSession() as http:
        for body in (b"", b"{}", b"[1]", b'{"index": "x"}', b"x" * 100_000):
            async with http.post(url, data=body) as answer:
                assert answer.status in (400, 413)


def test_put_launcher_writes_a_file_that_everybody_can_read(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchctl", "workspace", "put-launcher", f"--to={tmp_path}"]
    subprocess.run([*command, "--termination-log=/dev/null"], check=True)
    assert os.listdir(tmp_path) == ["launcher.py"]
    assert (tmp_path / "launcher.py").stat().st_mode & 0o777 == 0o555
    put_launcher(tmp_path)  # again, as after a restart of the container
