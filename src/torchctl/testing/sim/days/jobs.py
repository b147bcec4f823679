"""The queues and jobs of a day, as their users write them, and the plays of their workers. Pure."""

from collections.abc import Mapping
from typing import Any

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.labels import ATTEMPT, JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.names import API_VERSION
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.testing.fleet import GPU
from torchctl.testing.nodekinds import Pod
from torchctl.testing.script import Play, Script
from torchctl.testing.sim.days.actions import Fate, Intrude, Submit
from torchctl.testing.sim.jobs.pods import INDEX

__all__ = [
    "AUTOSCALED",
    "COORDINATED",
    "ELASTIC",
    "GPUS",
    "KINDS",
    "MOST_NODES",
    "NAMESPACE",
    "OTHERS",
    "SHARED",
    "gpus_per_pod",
    "intruders",
    "job",
    "queues",
    "script",
]

Json = dict[str, Any]

NAMESPACE = "team"
OTHERS = "others"
"""The namespace of those who do not use the operator."""
MOST_NODES = 4
GIT = {"workspace": {"source": "git", "url": "https://git.example.com/team/code.git", "ref": "main"}}
CLAIM = {"enabled": True, "size": "1Gi", "accessModes": ["ReadWriteMany"]}
SETTINGS = {
    "name": "settings",
    "template": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"epochs": "3"}},
}
SERVED = {"enabled": True, "size": "1Gi", "accessModes": ["ReadWriteOnce"]}

ELASTIC = ("elastic", "elastic-gang")

KINDS: dict[str, Json] = {
    "plain": {},
    "shared": {"jobQueue": "code", "volumes": GIT},
    "served": {"jobQueue": "served", "volumes": GIT},
    "gang": {"jobQueue": "gang"},
    "elastic": {"elastic": {"minNodes": 1, "maxNodes": MOST_NODES}},
    "elastic-gang": {"jobQueue": "gang", "elastic": {"minNodes": 1, "maxNodes": MOST_NODES}},
    "never": {"runPolicy": {"restartPolicy": "Never"}},
    "by-code": {"runPolicy": {"restartPolicy": "ExitCode", "maxRestarts": 5}},
    "deadline": {"runPolicy": {"activeDeadlineSeconds": 900}},
    "short": {"runPolicy": {"ttlSecondsAfterFinished": 600}},
    "keeps-all": {"runPolicy": {"podRetention": "All", "maxRestarts": 1}},
    "chain": {},
}
"""The specs of jobs by kind, besides the queue, the nodes and the command."""

AUTOSCALED: dict[str, Json] = {
    "brought": {"jobQueue": "cloud"},
    "brought-urgent": {"jobQueue": "cloud", "priority": 10},
}
"""The same of those for which an autoscaler brings nodes."""

COORDINATED: dict[str, Json] = KINDS | {
    "modest": {"jobQueue": "ranked"},
    "urgent": {"jobQueue": "ranked", "priority": 10},
    "owner": {"jobQueue": "owner"},
    "borrower": {"jobQueue": "lender", "priority": 5},
    "never-again": {"jobQueue": "lender", "runPolicy": {"restartPolicy": "Never"}},
    **AUTOSCALED,
}
"""The same on a day with the coordinator."""

SHARED: dict[str, Json] = {
    "ranked": {"preemption": "WithinQueue", "quota": {"gpus": 48}},
    "owner": {"preemption": "Reclaim", "quota": {"gpus": 32}, "cohort": "shared"},
    "lender": {"preemption": "Reclaim", "quota": {"gpus": 16, "jobs": 3}, "cohort": "shared", "weight": 3},
    "cloud": {"capacity": "Autoscaled", "quota": {"gpus": 48}},
}
"""The queues that only a day with the coordinator has. Each of their pods takes a whole node."""


RUN_S = "run-s"
"""The annotation that says how long a pod runs that is not the operator's."""

GPUS = {"plain": 4, "gang": 8} | dict.fromkeys(SHARED, 8)
"""The GPUs of a pod by its queue, on a day with the coordinator; those of other queues have none."""


def queues(*, coordinated: bool = False) -> list[Json]:
    """Returns the queues, in which all jobs of a day run."""
    gpus = {"nodeResources": {"gpus": 8}}
    specs: dict[str, Json] = {
        "plain": {"nodeResources": {"gpus": GPUS["plain"]}} if coordinated else {},
        "code": {"storage": {"workspace": CLAIM}, "resources": [SETTINGS]},
        "served": {"storage": {"workspace": SERVED}},
        "gang": {"kaiQueue": "research", **gpus},
    }
    if coordinated:
        specs |= {name: {**gpus, **spec} for name, spec in SHARED.items()}
    return [_body(TORCHRUN_QUEUE.kind, name, {"image": "trainer:1", **spec}) for name, spec in specs.items()]


def job(submit: Submit) -> Json:
    """Returns the TorchrunJob that a person submits."""
    spec = {"jobQueue": "plain", "numNodes": submit.nodes, "command": "python train.py"}
    spec |= COORDINATED[submit.kind]
    if submit.after:
        spec["dependsOn"] = [{"job": submit.after}]
    return _body(TORCHRUN_JOB.kind, submit.job, spec)


def intruders(intrude: Intrude) -> list[Json]:
    """Returns the pods of somebody who does not use the operator."""
    trainer = {"name": "main", "image": "other:1", "resources": {"limits": {GPU: str(intrude.gpus)}}}
    meta = {"generateName": "other-", "annotations": {RUN_S: str(intrude.run_s)}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    pod |= {"spec": {"restartPolicy": "Never", "containers": [trainer]}}
    return [pod] * intrude.pods


def gpus_per_pod(pod: Json) -> int:
    """Returns the GPUs that a pod takes."""
    asked = (container.get("resources", {}).get("requests", {}) for container in pod["spec"]["containers"])
    return sum(int(amounts.get(GPU, 0)) for amounts in asked)


def script(fates: Mapping[str, Fate]) -> Script:
    """Returns the plays of workers by the fates of their jobs."""
    workers = Script().when(_is_worker, lambda pod: _play(pod, fates[pod.metadata.labels[JOB_NAME]]))
    return workers.when(_is_intruder, lambda pod: Play(run_s=float(pod.metadata.annotations[RUN_S])))


def _play(pod: Pod, fate: Fate) -> Play:
    attempt, index = int(pod.metadata.labels[ATTEMPT]), int(pod.metadata.annotations[INDEX])
    if attempt < fate.failing_attempts and index == fate.index:
        return Play(run_s=fate.after_s, exit_code=fate.exit_code, stop_s=fate.stop_s)
    return Play(start_delay_s=1.0 + index, run_s=fate.run_s, stop_s=fate.stop_s)


def _is_intruder(pod: Pod) -> bool:
    return RUN_S in pod.metadata.annotations


def _is_worker(pod: Pod) -> bool:
    return pod.metadata.labels.get(ROLE) == ROLE_WORKER


def _body(kind: str, name: str, spec: Json) -> Json:
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "spec": spec}
