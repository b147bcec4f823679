"""Reaching into a training on the real node: logs by true ranks over a crash, commands, files."""

import json
import subprocess
import sys
from pathlib import Path

import anyio
from jobs import Place
from trainings import NAMESPACE, submit
from waiting import until

from torchctl.api.phases import Phase
from torchctl.client import BlockingClient, Done, Target
from torchctl.testing.node import LocalNode


def torchrun(node: LocalNode, *arguments: str) -> list[str]:
    """The plugin's command line, as a person types it."""
    plugin = str(Path(sys.executable).with_name("kubectl-torchrun"))
    kubeconfig = str(node.control_plane.admin_kubeconfig)
    return [plugin, arguments[0], f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}", *arguments[1:]]


async def run(node: LocalNode, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    with anyio.fail_after(60):
        return await anyio.run_process(torchrun(node, *arguments), check=check)


def reach_in(target: Target, scratch: Path) -> None:
    with BlockingClient(target) as client:
        job = client.job("reach")
        assert job.run(["hostname"], rank=1) == Done(0, b"reach-1\n", b"")
        job.download("/tmp/there/data.bin", scratch / "data.bin", rank=1)
        job.upload(scratch / "data.bin", "/tmp/again.bin", rank=1)
        assert job.run(["cmp", "/tmp/there/data.bin", "/tmp/again.bin"], rank=1).exit_code == 0
        assert (scratch / "data.bin").read_bytes() == (scratch / "here" / "data.bin").read_bytes()


async def test_logs_commands_and_files_of_a_training_that_fails(
    operator: LocalNode, place: Place, repository: tuple[str, str], tmp_path: Path
) -> None:
    await submit(place, "reach", repository[0], "python ranks.py", runPolicy={"maxRestarts": 0})
    await place.reaches(Phase.RUNNING, "reach", timeout_s=120)

    async def all_talk() -> bool:
        done = await run(operator, "logs", "reach")
        return {b"[rank 0]", b"[rank 1]"} <= {line[:8] for line in done.stdout.splitlines() if b"I am" in line}

    await until(all_talk, timeout_s=60)
    async with await anyio.open_process(torchrun(operator, "logs", "reach", "-f")) as follower:
        # Commands: exit status, output, input.
        done = await run(operator, "exec", "reach", "--rank=1", "--", "sh", "-c", "hostname; exit 7", check=False)
        assert (done.returncode, done.stdout) == (7, b"reach-1\n")
        # Files, there and back.
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "data.bin").write_bytes(bytes(range(256)) * 2**15)
        await run(operator, "cp", str(tmp_path / "here"), "reach:/tmp/there", "--rank=1")
        await run(operator, "cp", "reach:/tmp/there", str(tmp_path / "back"), "--rank=1")
        assert (tmp_path / "back" / "data.bin").read_bytes() == (tmp_path / "here" / "data.bin").read_bytes()
        done = await run(operator, "cp", "reach:/no/such/file", str(tmp_path), check=False)
        assert (done.returncode, b"/no/such" in done.stderr) == (3, True)
        # The same from a program.
        target = Target(kubeconfig=str(operator.control_plane.admin_kubeconfig), namespace=NAMESPACE)
        await anyio.to_thread.run_sync(reach_in, target, tmp_path)
        # The crash.
        await run(operator, "exec", "reach", "--rank=1", "--", "touch", "/tmp/fail")
        assert follower.stdout is not None
        followed = b"".join([chunk async for chunk in follower.stdout]).decode().splitlines()
        assert await follower.wait() == 1
    for rank in range(2):
        own = [line for line in followed if line.startswith(f"[rank {rank}] I am")]
        assert own == [f"[rank {rank}] I am rank {rank} for the {number}th time" for number in range(len(own))]
    done = await run(operator, "logs", "reach", "--failed", "--tail=3")
    first = done.stdout.decode().splitlines()[0]
    assert "rank 1 (pod reach-1-" in first
    assert "failed first with exit code 42" in first
    failure = json.loads(await operator.control_plane.kubectl("get", "trj", "reach", f"-n{NAMESPACE}", "-ojson"))
    assert failure["status"]["failure"]["rank"] == 1
    print(done.stdout.decode())
