"""Commands and copies over a real connection to a node that runs them on this machine."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from torchctl.api.jobstatus import JobStatus, NodeCounts
from torchctl.client.cluster import Cluster
from torchctl.client.commands import MAX_OUTPUT, Done
from torchctl.client.copying import download, upload
from torchctl.client.errors import ClusterError, NotFound, RequestRefused, TimedOut, UsageError
from torchctl.client.execstream import pump
from torchctl.client.handles import JobHandle
from torchctl.client.jobs import Job
from torchctl.client.logs.workers import Worker
from torchctl.client.views import JobView
from torchctl.client.workers import missing, pick
from torchctl.runtime.client.channels import Channel, Output
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import StreamFailed
from torchctl.runtime.client.execstream import run_command
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.runtime.kinds import ObjectMeta
from torchctl.testing.podcommands import serve_command

WORKER = Worker(pod="vit-0", uid="1", has_started=True, node_rank=0, ranks=2)


async def list_pods(request: web.Request) -> web.Response:
    """One worker that runs."""
    labels = {"batch.kubernetes.io/job-completion-index": "0"}
    running = {"name": "trainer", "state": {"running": {}}}
    pod = {"metadata": {"name": "vit-0", "labels": labels}, "status": {"containerStatuses": [running]}}
    return web.json_response({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod]})


async def get_job(request: web.Request) -> web.Response:
    """By now it has failed."""
    metadata = {"name": "vit", "namespace": "team"}
    return web.json_response({"metadata": metadata, "spec": {}, "status": {"phase": "Failed"}})


@pytest.fixture
async def job() -> AsyncGenerator[Job]:
    """A job whose pods are this machine."""
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/{namespace}/pods/{pod}/exec", serve_command)
    app.router.add_get("/api/v1/namespaces/{namespace}/pods", list_pods)
    app.router.add_get("/apis/torchrun.ai/v1alpha1/namespaces/{namespace}/torchrunjobs/{name}", get_job)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    connection = Connection(f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        async with AiohttpTransport(connection) as transport:
            cluster = Cluster(Client(transport), connection, "team", "nobody")
            yield Job(cluster, JobView(ObjectMeta(name="vit", namespace="team")))
    finally:
        await runner.cleanup()


async def run(job: Job, *argv: str, source: AsyncIterator[bytes] | None = None) -> tuple[int, bytes, bytes]:
    said: dict[Channel, bytes] = {Channel.STDOUT: b"", Channel.STDERR: b""}

    def keep(output: Output) -> None:
        said[output.channel] += output.data

    stdin = source is not None
    async with run_command(job.cluster.client, "vit-0", "team", argv, stdin=stdin) as command:
        code = await pump(command, keep, source, silence_s=10.0)
    return code, said[Channel.STDOUT], said[Channel.STDERR]


async def chunks(*given: bytes) -> AsyncIterator[bytes]:
    for chunk in given:
        yield chunk


# Commands.


async def test_output_errors_and_exit_code_come_back(job: Job) -> None:
    assert await run(job, "sh", "-c", "echo out; echo err >&2; exit 5") == (5, b"out\n", b"err\n")


async def test_input_and_output_move_at_the_same_time(job: Job) -> None:
    data = os.urandom(2**22)
    assert await run(job, "cat", source=chunks(data[: 2**21], data[2**21 :])) == (0, data, b"")


async def test_a_command_may_end_before_its_input_does(job: Job) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(2**16)

    assert await run(job, "sh", "-c", "exit 3", source=endless()) == (3, b"", b"")


async def test_an_input_that_fails_ends_the_command_with_its_error(job: Job) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"one"
        raise UsageError("a file vanished")

    with pytest.raises(UsageError, match="vanished"):
        await run(job, "cat", source=broken())


async def test_a_program_that_is_missing_is_named(job: Job) -> None:
    with pytest.raises(StreamFailed, match="no-such-program"):
        await run(job, "no-such-program")


async def test_handle_runs_a_command_and_returns_what_it_wrote(job: Job) -> None:
    handle = JobHandle.of(job)
    done = await handle.run(["sh", "-c", "cat; echo err >&2; exit 5"], node=0, stdin=b"said")
    assert done == Done(5, b"said", b"err\n")
    assert await handle.run(["sh", "-c", "echo $1", "sh", "two words"]) == Done(0, b"two words\n", b"")


async def test_more_output_than_is_held_is_refused(job: Job) -> None:
    handle = JobHandle.of(job)
    assert len((await handle.run(["head", "-c", str(MAX_OUTPUT), "/dev/zero"])).out) == MAX_OUTPUT
    with pytest.raises(RequestRefused, match="head in pod vit-0 writes more than 16 MiB"):
        await handle.run(["head", "-c", str(MAX_OUTPUT + 1), "/dev/zero"])


async def test_command_that_is_missing_is_a_cluster_error(job: Job) -> None:
    with pytest.raises(ClusterError, match="no-such-program"):
        await JobHandle.of(job).run(["no-such-program"])


async def test_worker_that_does_not_run_is_told_of(job: Job) -> None:
    handle = JobHandle.of(job)
    with pytest.raises(NotFound, match=r"no worker 3 of .* runs: it is Failed"):
        await handle.run(["true"], node=3)
    with pytest.raises(NotFound, match=r"no worker 3 of .* runs: it is Failed"):
        await handle.download("/a", node=3)
    with pytest.raises(UsageError, match="there is no worker -1"):
        await handle.run(["true"], node=-1)
    with pytest.raises(UsageError, match="there is no rank -2"):
        await handle.run(["true"], rank=-2)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("hostname", "'hostname' is no list of words"),
        ([], "the command is empty"),
        ([""], "the command is empty"),
        (["echo", "a\0b"], "cannot be sent as a word of a command"),
        (["echo", "\udc80"], "cannot be sent as a word of a command"),
    ],
)
async def test_what_is_no_command_is_refused_here(argv: Sequence[str], said: str, job: Job) -> None:
    with pytest.raises(UsageError, match=said):
        await JobHandle.of(job).run(argv)


async def test_command_that_runs_too_long_is_left_alone(job: Job) -> None:
    with pytest.raises(TimedOut, match=r"cat in .* runs for more than 0\.5 s"):
        await JobHandle.of(job).run(["cat"], timeout_s=0.5)


# Files.


async def test_what_cannot_be_sent_is_an_error_of_who_sends(job: Job, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    os.mkfifo(tmp_path / "here" / "pipe")
    with pytest.raises(UsageError, match="'pipe' is a device, a socket or a pipe"):
        await JobHandle.of(job).upload(tmp_path / "here", "/there")


async def test_handle_copies_there_and_back(job: Job, tmp_path: Path) -> None:
    handle, data = JobHandle.of(job), os.urandom(2**20)
    (tmp_path / "here").write_bytes(data)
    there = await handle.upload(tmp_path / "here", f"{tmp_path}/there")
    back = await handle.download(there.path, tmp_path / "back", node=0)
    assert (there.bytes, back.bytes, (tmp_path / "back").read_bytes()) == (2**20, 2**20, data)


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A directory of the pod."""
    (tmp_path / "pod" / "ckpt").mkdir(parents=True)
    (tmp_path / "pod" / "ckpt" / "model.pt").write_bytes(os.urandom(2**20))
    return tmp_path / "pod"


async def test_a_directory_comes_out_and_goes_back_in(job: Job, pod: Path, tmp_path: Path) -> None:
    model = (pod / "ckpt" / "model.pt").read_bytes()
    copied = await download(job, WORKER, str(pod / "ckpt"), tmp_path / "here")
    assert (copied.files, copied.bytes, Path(copied.path)) == (1, 2**20, tmp_path / "here")
    assert (tmp_path / "here" / "model.pt").read_bytes() == model
    await upload(job, WORKER, tmp_path / "here", f"{pod}/")
    await upload(job, WORKER, tmp_path / "here" / "model.pt", str(pod / "again.pt"))
    assert (pod / "here" / "model.pt").read_bytes() == (pod / "again.pt").read_bytes() == model


async def test_an_existing_directory_takes_the_copy_under_its_name(job: Job, pod: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    copied = await download(job, WORKER, str(pod / "ckpt" / "model.pt"), tmp_path / "here")
    assert copied.path == str(tmp_path / "here" / "model.pt")
    with pytest.raises(UsageError, match="exists already"):
        await download(job, WORKER, str(pod / "ckpt" / "model.pt"), tmp_path / "here")


async def test_missing_path_is_the_pods_own_message(job: Job, pod: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestRefused, match="no-such-file"):
        await download(job, WORKER, str(pod / "no-such-file"), tmp_path / "here")
    with pytest.raises(RequestRefused, match="no-such-directory"):
        await upload(job, WORKER, pod / "ckpt", str(pod / "no-such-directory" / "x"))
    assert os.listdir(tmp_path) == ["pod"]


async def test_what_cannot_be_read_or_written_here_is_named(job: Job, pod: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        await download(job, WORKER, str(pod / "ckpt"), tmp_path / "no" / "such" / "place")
    with pytest.raises(UsageError, match="cannot be read"):
        await upload(job, WORKER, tmp_path / "nothing", "/tmp/x")


async def test_a_path_without_a_name_is_refused(job: Job, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no name of its own"):
        await download(job, WORKER, "/", tmp_path)


# Workers.


def made(index: int, *, attempt: int = 0, ended: bool = False, node_rank: int | None = 0) -> Worker:
    rank = None if node_rank is None else index
    uid = f"{attempt}/{index}"
    return Worker(
        pod=uid, uid=uid, attempt=attempt, index=index, node_rank=rank, ranks=2, has_started=True, has_ended=ended
    )


def test_the_worker_of_the_newest_attempt_is_picked() -> None:
    there = [made(0, ended=True), made(1, attempt=1), made(0, attempt=1)]
    assert pick(there) == there[2]
    assert pick(there, rank=3) == pick(there, node=1) == there[1]
    assert pick(there, rank=4) is None
    assert pick([]) is None


def test_a_rank_that_is_not_known_asks_for_the_node() -> None:
    with pytest.raises(UsageError, match="Name the worker by its node"):
        pick([made(0, node_rank=None)], rank=1)
    with pytest.raises(UsageError, match="exclude"):
        pick([made(0)], rank=1, node=1)


@pytest.mark.parametrize(
    ("phase", "wanted", "kind", "says"),
    [
        ("Running", {"rank": 4}, UsageError, "there is no rank 4: vit has 4 ranks."),
        ("Running", {"node": 2}, UsageError, "there is no worker 2: vit has 2 nodes."),
        ("Restarting", {"rank": 1}, NotFound, "no rank 1 of TorchrunJob vit in namespace ml runs: it is Restarting"),
        ("", {}, NotFound, "it is new. Wait with `kubectl torchrun wait vit --for=Running -n ml`."),
        ("Failed", {}, NotFound, "`kubectl torchrun logs vit -n ml` shows what its workers wrote."),
    ],
)
def test_worker_that_does_not_run_is_explained(
    phase: str, wanted: dict[str, int], kind: type[Exception], says: str
) -> None:
    status = JobStatus(phase=phase, nodes=NodeCounts(desired=2))
    seen = JobView(ObjectMeta(name="vit", namespace="ml"), status=status)
    error = missing(seen, [replace(made(0), nodes=2)], **wanted)
    assert type(error) is kind
    assert says in str(error)
