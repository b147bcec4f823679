"""Random histories of a Job and its pods, lived through in the simulator and on a real control plane.

The simulator goes first: it says how Job and pods stand when each step has come to rest. The real control plane has to
arrive at the same.
"""

import random
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from torchctl.api.kube import JOB, POD
from torchctl.api.names import JOB_TRACKING
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.kinds import Key
from torchctl.testing import virtualtime
from torchctl.testing.fake.objects import key_of
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.script import Play, Script, inside
from torchctl.testing.sim import Cluster
from torchctl.testing.sim.jobs.pods import INDEX

__all__ = ["History", "drawn", "real_differences", "simulated"]

Json = dict[str, Any]
State = Json | None

NAME = "job"
NAMESPACE = "team"
REST_S = 120.0
PATIENCE_S = 45.0
SUFFIX = re.compile(r"/job-(\d+-)?[a-z0-9]{5}\b")
COUNTS = ("active", "ready", "terminating", "succeeded", "failed")

FOREVER = Play(run_s=None)


@dataclass(frozen=True)
class Step:
    """One thing that is done: `end` (index, exit code), `delete` (index), `edit` (fields of the spec), `remove`."""

    what: str
    index: int = 0
    code: int = 0
    spec: Json = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """A Job and what is done to it."""

    seed: int
    spec: Json
    steps: tuple[Step, ...]

    @property
    def body(self) -> Json:
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": NAME}, "spec": self.spec}


def drawn(seed: int) -> History:
    """Returns the history of a seed."""
    chance = random.Random(f"job {seed}")
    pods = chance.randint(1, 4)
    container = {"name": "trainer", "image": "trainer:1"}
    spec: Json = {
        "completions": pods,
        "parallelism": pods if chance.random() < 0.7 else chance.randint(1, 4),
        "backoffLimit": chance.choice((0, 0, 1, 6)),
        "completionMode": "Indexed" if chance.random() < 0.8 else "NonIndexed",
        "podReplacementPolicy": chance.choice(("Failed", "TerminatingOrFailed")),
        "template": {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]}},
    }
    if spec["completionMode"] == "Indexed" and chance.random() < 0.3:
        spec["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    if chance.random() < 0.25:
        spec["podReplacementPolicy"] = "Failed"
        rules = [
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
        ]
        spec["podFailurePolicy"] = {"rules": rules}
    if chance.random() < 0.15:
        spec["suspend"] = True
    if chance.random() < 0.15:
        return History(seed, spec | {"activeDeadlineSeconds": 4}, ())
    if chance.random() < 0.1:
        spec["ttlSecondsAfterFinished"] = 1
    return History(seed, spec, tuple(_steps(chance, spec)))


def _steps(chance: random.Random, spec: Json) -> Iterator[Step]:
    failures = 0
    elastic = spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
    for _ in range(chance.randint(1, 6)):
        match chance.choice(("end", "end", "end", "fail", "fail", "delete", "pause", "scale", "remove")):
            case "end":
                yield Step("end", chance.randrange(4), 0)
            case "fail" if failures < 2:
                failures += 1
                yield Step("end", chance.randrange(4), chance.choice((1, 7, 42)))
            case "delete" if failures < 2:
                failures += 1
                yield Step("delete", chance.randrange(4))
            case "pause":
                yield Step("edit", spec={"suspend": chance.random() < 0.5})
            case "scale" if elastic:
                nodes = chance.randint(1, 4)
                yield Step("edit", spec={"completions": nodes, "parallelism": nodes})
            case "remove":
                yield Step("remove", spec={"policy": chance.choice(("Background", "Foreground", "Orphan"))})
                return


def simulated(history: History) -> list[State]:
    """Returns how things stand in the simulator at first and after each step."""

    async def main() -> list[State]:
        cluster = Cluster(history.seed, (), script=Script().when(inside(NAMESPACE), FOREVER))
        async with cluster.run(replicas=0):
            client = cluster.client("tester")

            def ends(key: Key, code: int) -> None:
                pod = cluster.world.find(POD, key)
                assert pod is not None
                cluster.kubelets.fail(pod["metadata"]["uid"], code)

            side = _Side(client, NAMESPACE, ends)
            await client.create(JOB, history.body, NAMESPACE)
            await anyio.sleep(REST_S)
            states = [await side.state()]
            for step in history.steps:
                await side.do(step)
                await anyio.sleep(REST_S)
                states.append(await side.state())
            return states

    return virtualtime.run(main)


async def real_differences(
    history: History, expected: list[State], client: Client, namespace: str, kubelet: ScriptedKubelet
) -> list[str]:
    """Returns the first step after which the real control plane does not arrive at what the simulator says."""
    side = _Side(client, namespace, lambda key, code: kubelet.end(key.namespace, key.name, code))
    await client.create(JOB, history.body, namespace)
    steps: list[Step | None] = [None, *history.steps]
    for step, state in zip(steps, expected, strict=True):
        if step is not None:
            await side.do(step)
        found = await _arrived(side, state)
        if found != state:
            return [f"seed {history.seed} after {step}: simulated {state}, real {found}, spec {history.spec}"]
    return []


async def _arrived(side: "_Side", state: State) -> State:
    found: State = None
    with anyio.move_on_after(PATIENCE_S):
        while (found := await side.state()) != state:  # noqa: ASYNC110 - another program acts
            await anyio.sleep(0.3)
    return found


@dataclass(frozen=True)
class _Side:
    """One of the two control planes."""

    client: Client
    namespace: str
    ends: Callable[[Key, int], None]

    async def do(self, step: Step) -> None:
        acts: dict[str, Callable[[Step], Awaitable[None]]] = {
            "end": self._end,
            "delete": self._delete,
            "edit": self._edit,
            "remove": self._remove,
        }
        await acts[step.what](step)

    async def _end(self, step: Step) -> None:
        pod = await self._chosen(step.index)
        if pod is not None:
            self.ends(key_of(pod), step.code)

    async def _delete(self, step: Step) -> None:
        pod = await self._chosen(step.index)
        if pod is not None:
            await self.client.delete(POD, pod["metadata"]["name"], namespace=self.namespace)

    async def _edit(self, step: Step) -> None:
        with suppress(NotFound):
            await self.client.merge_patch(JOB, NAME, {"spec": step.spec}, namespace=self.namespace)

    async def _remove(self, step: Step) -> None:
        with suppress(NotFound):
            await self.client.delete(JOB, NAME, namespace=self.namespace, propagation=step.spec["policy"])

    async def _chosen(self, index: int) -> Json | None:
        """Returns a pod that runs: that of the index, or without indexes any, as all are alike."""
        for pod in await self._pods():
            meta = pod["metadata"]
            runs = pod["status"].get("phase") == "Running" and "deletionTimestamp" not in meta
            if runs and meta.get("annotations", {}).get(INDEX, str(index)) == str(index):
                return pod
        return None

    async def _pods(self) -> list[Json]:
        names = [pod.metadata.name for pod in await self.client.list(POD, namespace=self.namespace)]
        found = []
        for name in names:
            with suppress(NotFound):
                found.append(await self.client.get_raw(POD, name, self.namespace))
        return found

    async def state(self) -> State:
        pods = sorted(_told_pod(pod) for pod in await self._pods())
        try:
            job = await self.client.get_raw(JOB, NAME, self.namespace)
        except NotFound:
            return {"pods": pods}
        return {"pods": pods, **_told_job(job)}


def _told_job(job: Json) -> Json:
    status = job.get("status", {})
    namespace = job["metadata"]["namespace"]
    conditions = [
        [one["type"], one["status"], one["reason"], SUFFIX.sub("/pod", one.get("message", "")).replace(namespace, "")]
        for one in status.get("conditions", ())
    ]
    return {
        **{name: status.get(name, 0) for name in COUNTS},
        "indexes": status.get("completedIndexes", ""),
        "uncounted": sum(map(len, status.get("uncountedTerminatedPods", {}).values())),
        "conditions": conditions,
        "started": "startTime" in status,
        "completed": "completionTime" in status,
    }


def _told_pod(pod: Json) -> tuple[str, ...]:
    meta = pod["metadata"]
    return (
        meta.get("annotations", {}).get(INDEX, ""),
        pod["status"].get("phase", ""),
        "leaves" if "deletionTimestamp" in meta else "",
        "tracked" if JOB_TRACKING in meta.get("finalizers", ()) else "",
        meta.get("generateName", ""),
        pod["spec"].get("hostname", ""),
    )
