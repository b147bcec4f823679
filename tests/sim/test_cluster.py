"""The whole operator in a simulated cluster: what it makes of jobs there, and that a seed is a history."""

from functools import partial
from pathlib import Path

import anyio
import pytest
import yaml
from goldens import compared, here
from jobs import Place, a_job, a_queue

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import POD, PVC
from torchctl.api.labels import ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.kinds import key_of
from torchctl.testing import virtualtime
from torchctl.testing.script import Play, Script, named, role
from torchctl.testing.sim import Cluster
from torchctl.testing.sim.journal import Journal
from torchctl.testing.sim.operators import operator
from torchctl.testing.sim.replica import NAME

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "jobs").glob("*.yaml"))
MY_CODE = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "my-code"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_jobs_become_what_the_golden_manifests_say(path: Path) -> None:
    """Every child, field by field; and no further ones of these kinds."""
    documents = [*yaml.safe_load_all(path.read_text())]
    settings = OperatorSettings(image="torchctl:test")

    async def main() -> None:
        script = Script().when(role(ROLE_WORKER), Play(run_s=None))
        async with Cluster(1, operator(settings), script=script).run() as cluster:
            place = Place(cluster.client("user"), "team")
            await place.admin.create(PVC, MY_CODE, "team")
            await place.admin.create(TORCHRUN_QUEUE, documents[0])
            await place.admin.create(TORCHRUN_JOB, documents[1])
            uid = (await place.admin.get(TORCHRUN_JOB, "demo", "team")).metadata.uid
            expected = here(documents[2:], uid, "team")
            await anyio.sleep(300)
            assert await compared(place, expected) == []
            assert made_by_operator(cluster) == {(one["kind"], one["metadata"]["name"]) for one in expected}

    virtualtime.run(main)


def made_by_operator(cluster: Cluster) -> set[tuple[str, str]]:
    """All objects in the namespace that the operator has applied."""
    objects = [found for uid in cluster.world.objects.uids() if (found := cluster.world.objects.by_uid(uid))]
    return {
        (str(served.kind), body["metadata"]["name"])
        for served, body in objects
        if served.kind not in (TORCHRUN_JOB, TORCHRUN_QUEUE) and body["metadata"].get("namespace") == "team"
        if (NAME, "Apply") in {(one["manager"], one["operation"]) for one in body["metadata"].get("managedFields", ())}
    }


GIT = {"workspace": {"source": "git", "url": "https://git.example.com/team/code.git", "ref": "main"}}
CLAIM = {"enabled": True, "size": "1Gi", "accessModes": ["ReadWriteMany"]}
FAILS_ONCE = Play(run_s=30, exit_code=42)


async def _story(seed: int, told: list[str]) -> None:
    """A job with a workspace whose second worker fails once while the leader is killed."""
    script = Script().when(role(ROLE_WORKER), Play(run_s=60)).when(named("^job-1-"), FAILS_ONCE)
    cluster = Cluster(seed, operator(), script=script)
    journal = Journal(cluster.world)
    async with cluster.run(replicas=2):
        place = Place(cluster.client("user"), "team")
        await place.admin.create(TORCHRUN_QUEUE, a_queue("team", storage={"workspace": CLAIM}))
        await place.admin.create(TORCHRUN_JOB, a_job("team", volumes=GIT))
        await anyio.sleep(31)
        next(replica for replica in cluster.replicas if replica.leads).kill()
        job = await place.reaches(Phase.SUCCEEDED, timeout_s=600)
        assert (job.status.attempt, job.status.restarts.by_cause) == (1, {"Error": 1})
    told.append(journal.digest)


def test_same_seed_gives_the_same_history() -> None:
    told: list[str] = []
    for seed in (7, 7, 8):
        virtualtime.run(partial(_story, seed, told))
    assert told[0] == told[1]
    assert told[0] != told[2]


def test_deleted_job_leaves_nothing() -> None:
    async def main() -> None:
        script = Script().when(role(ROLE_WORKER), Play(run_s=None))
        async with Cluster(1, operator(), script=script).run() as cluster:
            user = cluster.client("user")
            place = Place(user, "team")
            await user.create(TORCHRUN_QUEUE, a_queue("team", storage={"workspace": CLAIM}))
            await user.create(TORCHRUN_JOB, a_job("team", volumes=GIT))
            job = await place.reaches(Phase.RUNNING)
            await user.delete(TORCHRUN_JOB, "job", namespace="team")
            await anyio.sleep(300)
            assert cluster.world.objects.dependents(job.metadata.uid) == []
            assert [key_of(pod) for pod in await user.list(POD, namespace="team")] == []

    virtualtime.run(main)
