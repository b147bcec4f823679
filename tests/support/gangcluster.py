"""What tests with the programs of gang schedulers share: nodes in racks, endless workers, free GPUs."""

from jobs import Place
from waiting import until

from torchctl.api import labels
from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD, Pod
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import Condition
from torchctl.testing.kubelet import NodeSpec
from torchctl.testing.script import Play, Script

__all__ = ["ENDLESS", "FEW_RIGHTS", "RACK", "URGENT", "clear", "node", "told", "workers"]

RACK = "topology.test/rack"
FEW_RIGHTS = "few rights"
"""Asks for a podgrouper that may not read TorchrunJobs."""
URGENT = "urgent"
"""A PriorityClass above all others of these tests."""
ENDLESS = Script().when(lambda pod: True, Play(run_s=None, stop_s=3.0))
"""Whoever is told to stop can be seen for a while."""


def node(name: str, rack: str) -> NodeSpec:
    """A node of eight GPUs."""
    return NodeSpec(name=name, labels={RACK: rack})


async def workers(place: Place, job: str = "job") -> list[Pod]:
    """The worker pods of a job, in the order of their names."""
    chosen = f"{labels.JOB_NAME}={job},{labels.ROLE}={labels.ROLE_WORKER}"
    pods = await place.admin.list(POD, namespace=place.namespace, labels=chosen)
    return sorted(pods, key=lambda pod: pod.metadata.name)


async def told(place: Place, type_: str, words: str, name: str = "job", *, timeout_s: float = 60.0) -> Condition:
    """A job's condition, once its message has these words."""

    async def look() -> Condition | None:
        job = await place.admin.get(TORCHRUN_JOB, name, place.namespace)
        found = find(job.status.conditions, type_)
        return found if found is not None and words in found.message else None

    found = await until(look, timeout_s=timeout_s)
    assert found is not None
    return found


async def clear(place: Place) -> None:
    """Deletes all jobs of a namespace and waits until their pods, and the GPUs that these hold, are gone.

    Their Jobs and pods too: the garbage collector of a new control plane looks only every 30 s which kinds there are.
    """
    for kind in (TORCHRUN_JOB, JOB, POD):
        await place.admin.delete_collection(kind, namespace=place.namespace)

    async def none_left() -> bool:
        return not await place.admin.list(POD, namespace=place.namespace)

    await until(none_left, timeout_s=60)
