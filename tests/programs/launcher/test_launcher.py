"""The launcher as a process: with it a program runs as without it, and takes up new code when the companion says so."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from launchers import Crew, alive, crew
from waiting import until

from torchctl.launcher.launcher import descendants
from torchctl.workspace.companion import Companion
from torchctl.workspace.membership.messages import State


@pytest_asyncio.fixture
async def job(tmp_path: Path) -> AsyncIterator[Crew]:
    async with crew(tmp_path, {"train.py": "one"}) as made:
        yield made


async def gone(*pids: int) -> None:
    async def look() -> bool:
        return not any(map(alive, pids))

    await until(look)


async def test_a_world_is_handed_out_before_torchrun_starts(job: Crew) -> None:
    first, second = [await pod.started(1) for pod in await job.two()]
    assert first["argv"] == ["train.py", "--epochs", "3"]
    ours, theirs = first["env"], second["env"]
    assert (ours["PET_NODE_RANK"], theirs["PET_NODE_RANK"]) == ("0", "1")
    assert ours["PET_RDZV_ID"] == theirs["PET_RDZV_ID"]
    assert ours["PET_RDZV_BACKEND"] == "static"
    assert ours["PET_RDZV_ENDPOINT"] == theirs["PET_RDZV_ENDPOINT"] == "127.0.0.2:29501"
    assert (ours["PET_NNODES"], ours["PET_MASTER_ADDR"], ours["PET_MASTER_PORT"]) == ("2", "127.0.0.2", "29501")
    assert "PET_RDZV_CONF" not in ours


async def test_new_code_is_taken_up_repeatedly_in_the_same_pods(job: Crew) -> None:
    pods = await job.two()
    before = [await pod.started(1) for pod in pods]
    for times, text in enumerate(("two", "three", "four"), start=2):
        await job.commit({"train.py": text})
        after = [await pod.started(times) for pod in pods]
        assert [start["text"] for start in after] == [text, text]
        assert after[0]["env"]["PET_RDZV_ID"] == after[1]["env"]["PET_RDZV_ID"] != before[0]["env"]["PET_RDZV_ID"]
        assert after[0]["env"]["PET_MASTER_PORT"] != before[0]["env"]["PET_MASTER_PORT"]
        await gone(*(pid for start in before for pid in (start["pid"], *start["ranks"])))
        before = after
    assert [pod.log.read_text() for pod in pods] == ["", ""]
    for pod in pods:
        pod.tell_program(0)
    assert [await pod.ended() for pod in pods] == [0, 0]


@pytest.mark.parametrize("code", [0, 3, 77])
async def test_an_exit_code_is_kept(job: Crew, code: int) -> None:
    pod = await job.pod(0, nodes=1)
    await pod.started(1)
    pod.tell_program(code)
    assert await pod.ended() == code
    assert pod.log.read_text() == ""


async def test_a_killed_torchrun_leaves_no_orphan(job: Crew) -> None:
    pod = await job.pod(0, nodes=1)
    start = await pod.started(1)
    os.kill(start["pid"], signal.SIGKILL)
    assert await pod.ended() == 128 + signal.SIGKILL
    await gone(*start["ranks"])


async def test_a_signal_is_handed_on_once(job: Crew) -> None:
    pod = await job.pod(0, nodes=1)
    start = await pod.started(1)
    os.kill(pod.pid, signal.SIGUSR1)  # torchrun has no handler: it would die of it
    os.kill(pod.pid, signal.SIGTERM)
    assert await pod.ended() == 1
    assert [note["signal"] for note in pod.notes() if "signal" in note] == [signal.SIGTERM]
    await gone(*start["ranks"])


async def test_a_launcher_that_waits_ends_by_a_signal(job: Crew) -> None:
    pod = await job.pod(0)
    await job.until(lambda companion: companion.membership.seen)
    os.kill(pod.pid, signal.SIGTERM)
    assert await pod.ended() == 128 + signal.SIGTERM


async def test_without_a_companion_the_program_runs_as_today(job: Crew) -> None:
    await job.end_companion()
    pods = await job.two(options=["--patience", "1"])
    starts = [await pod.started(1) for pod in pods]
    assert {start["env"]["PET_RDZV_ENDPOINT"] for start in starts} == {"resnet-0:29500"}
    assert {start["env"]["PET_RDZV_CONF"] for start in starts} == {"read_timeout=600"}
    assert all(pod.log.read_text().count("\n") == 1 for pod in pods)
    assert "cannot be reached" in pods[0].log.read_text()
    await job.begin_companion()
    await job.commit({"train.py": "two"})  # it takes part as soon as there is one
    assert [(await pod.started(2))["text"] for pod in pods] == ["two", "two"]


async def test_a_companion_of_another_version_is_done_without(job: Crew) -> None:
    pod = await job.pod(0, options=[f"--companion=http://127.0.0.1:{job.port}/other"])
    start = await pod.started(1)
    assert start["env"]["PET_RDZV_BACKEND"] == "c10d"
    assert pod.log.read_text().count("\n") == 1
    assert "refused" in pod.log.read_text()


async def test_a_companion_may_die_under_a_running_world(job: Crew) -> None:
    pods = await job.two()
    before = [await pod.started(1) for pod in pods]
    await job.end_companion()
    await job.begin_companion()
    await job.until(lambda companion: len(companion.membership.current(float("-inf"))) == 2)
    assert all(alive(start["pid"]) for start in before)
    assert [len(pod.starts()) for pod in pods] == [1, 1]
    await job.commit({"train.py": "two"})
    assert [(await pod.started(2))["text"] for pod in pods] == ["two", "two"]


async def test_a_companion_that_died_during_a_reload_is_replaced(job: Crew) -> None:
    pods = await job.two()
    for pod in pods:
        await pod.started(1)
    await job.end_companion()
    await job.commit({"train.py": "two"})
    with pods[1].stopped():  # so that the other one waits with the new tree
        await job.begin_companion()
        await job.until(some_have_it)
        await job.end_companion()
    await job.begin_companion()
    assert [(await pod.started(2))["text"] for pod in pods] == ["two", "two"]
    assert pods[0].starts()[-1]["env"]["PET_RDZV_ID"] == pods[1].starts()[-1]["env"]["PET_RDZV_ID"]


async def test_a_worker_lost_during_a_reload_is_waited_for(job: Crew) -> None:
    pods = await job.two()
    for pod in pods:
        await pod.started(1)
    await job.commit({"train.py": "two"})
    pods[1].kill()
    replaced = await job.pod(1)
    start = await replaced.started(1)
    assert start["text"] == "two"

    async def together() -> bool:
        worlds = {pod.starts()[-1]["env"]["PET_RDZV_ID"] for pod in (pods[0], replaced)}
        return len(worlds) == 1

    await until(together)
    assert pods[0].starts()[-1]["text"] == "two"


async def test_a_damaged_tree_is_never_put_in_place(job: Crew) -> None:
    pods = await job.two()
    for pod in pods:
        await pod.started(1)
    companion, job.companion = job.companion, None
    assert companion
    await job.commit({"train.py": "two"})
    (job.claim / "train.py").write_text("bad")
    companion.committed()
    job.companion = companion
    await job.until(lambda companion: all(entry["trouble"] for entry in launchers_of(companion)))
    assert all(entry["behind"] for entry in launchers_of(companion))
    assert not companion.settled()
    assert [(pod.workdir / "train.py").read_text() for pod in pods] == ["one", "one"]
    assert [len(pod.starts()) for pod in pods] == [1, 1]
    (job.claim / "train.py").write_text("two")
    assert [(await pod.started(2))["text"] for pod in pods] == ["two", "two"]


def launchers_of(companion: Companion) -> list[dict[str, object]]:
    found = companion.state()["launchers"]
    assert isinstance(found, list)
    return found


def some_have_it(companion: Companion) -> bool:
    return any(seen.report.staged or seen.report.state is State.BUSY for seen in companion.membership.seen.values())


async def test_a_volume_that_cannot_be_written_stops_no_training(job: Crew) -> None:
    pods = await job.two()
    starts = [await pod.started(1) for pod in pods]
    (pods[1].workdir / ".torchctl-staging" / "tree").write_text("in the way")
    await job.commit({"train.py": "two"})
    await job.until(lambda companion: [bool(entry["trouble"]) for entry in launchers_of(companion)] == [False, True])
    assert all(alive(start["pid"]) for start in starts)
    assert "cannot take the revision" in pods[1].log.read_text()
    (pods[1].workdir / ".torchctl-staging" / "tree").unlink()
    assert [(await pod.started(2))["text"] for pod in pods] == ["two", "two"]


async def test_what_the_program_wrote_stays_and_old_code_goes(job: Crew) -> None:
    await job.commit({"train.py": "one", "model/net.py": "1", "model/old.py": "1", "alone/gone.py": "1"})
    pod = await job.pod(0, nodes=1)
    await pod.started(1)
    (pod.workdir / "model" / "weights").write_text("w")
    (pod.workdir / "model" / "__pycache__").mkdir()
    (pod.workdir / "model" / "__pycache__" / "net.pyc").write_text("compiled")
    (pod.workdir / "out").mkdir()
    (pod.workdir / "out" / "log").write_text("l")
    await job.commit({"train.py": "two", "model/net.py": "2"})
    await pod.started(2)
    left = sorted(str(path.relative_to(pod.workdir)) for path in pod.workdir.rglob("*") if path.is_file())
    assert [name for name in left if not name.startswith(".torchctl-staging")] == [
        ".sync_success",
        "model/net.py",
        "model/weights",
        "out/log",
        "train.py",
    ]
    assert (pod.workdir / "model" / "net.py").read_text() == "2"


async def test_elastic_members_come_and_go(job: Crew) -> None:
    elastic = ["--min", "1"]
    first = await job.pod(0, options=elastic)
    assert (await first.started(1))["env"]["PET_NNODES"] == "1"
    second = await job.pod(1, options=elastic)
    assert (await second.started(1))["env"]["PET_NNODES"] == "2"
    assert (await first.started(2))["env"]["PET_NNODES"] == "2"
    second.kill()
    assert (await first.started(3))["env"]["PET_NNODES"] == "1"


async def test_a_failed_world_is_started_again_as_often_as_allowed(job: Crew) -> None:
    pods = await job.two(environ={"PET_MAX_RESTARTS": "1"})
    for pod in pods:
        await pod.started(1)
    pods[0].tell_program(9)
    again = [await pod.started(2) for pod in pods]
    assert again[0]["env"]["PET_RDZV_ID"] == again[1]["env"]["PET_RDZV_ID"]
    pods[0].tell_program(9)
    assert await pods[0].ended() == 9


async def test_the_message_of_a_stopped_program_is_taken_back(job: Crew) -> None:
    pod = await job.pod(0, nodes=1)
    await pod.started(1)
    pod.termination_log.write_text("SignalException")
    await job.commit({"train.py": "two"})
    await pod.started(2)
    assert pod.termination_log.read_text() == ""


async def test_a_shell_line_runs_as_it_is(job: Crew) -> None:
    pod = await job.pod(0, nodes=1, program=["sh", "-c", "torchrun a.py; exit 5"])
    start = await pod.started(1)
    assert start["env"]["PET_RDZV_BACKEND"] == "static"
    await job.commit({"train.py": "two"})
    second = await pod.started(2)
    await gone(start["pid"], *start["ranks"])
    assert second["text"] == "two"
    pod.tell_program(0)
    assert await pod.ended() == 5


async def test_a_program_that_does_not_exist_is_named(job: Crew) -> None:
    pod = await job.pod(0, nodes=1, program=["nowhere", "train.py"])
    assert await pod.ended() == 127
    assert pod.log.read_text() == "nowhere: No such file or directory\n"


async def test_it_is_small(job: Crew) -> None:
    """Less than 20 MiB, together with the child that waits for an order."""
    pod = await job.pod(0, nodes=1)
    start = await pod.started(1)
    programs = {start["pid"], *start["ranks"]}
    ours = [pod.pid, *(pid for pid in descendants(pod.pid, set()) if pid not in programs)]
    assert 0 < sum(map(proportional_kib, ours)) < 20 * 1024


def proportional_kib(pid: int) -> int:
    """Memory of a process, in which what several share counts once."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
