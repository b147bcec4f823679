"""A job that is deleted and submitted again under its name waits quietly for what the earlier one left."""

from typing import Any

from jobs import Place
from operators import running_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONTROLLER_REVISION, JOB, SERVICE
from torchctl.api.labels import JOB_NAME
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import Kind
from torchctl.testing.kubelet import ScriptedKubelet

HOLD = "resubmitted.test/hold"
COLLECTED_S = 120.0
"""The garbage collector hears of new kinds every 30 s, and only then of children whose owner is gone."""


async def test_resubmitted_job_waits_quietly_for_the_earlier_ones_children(
    admin: Client, operator_account: Connection, kubelet: ScriptedKubelet, namespace: str
) -> None:
    """A finalizer holds the earlier Job, as a slow garbage collector or a pod with a long grace period would."""
    place = Place(admin, namespace)
    async with running_operator(operator_account, namespace):
        await place.queue()
        await place.job()
        earlier = await place.reaches(Phase.SUCCEEDED, timeout_s=60)
        await hold(place, HOLD)
        await admin.delete(TORCHRUN_JOB, "job", namespace=namespace)
        await place.gone(TORCHRUN_JOB, "job", timeout_s=COLLECTED_S)
        await place.job()

        async def names_the_finalizer() -> bool:
            said = await place.condition("WorkersReady", "StillDeleting", timeout_s=COLLECTED_S)
            return HOLD in said.message

        await until(names_the_finalizer, timeout_s=COLLECTED_S)
        assert [event.reason for event in await place.events() if event.type == "Warning"] == []
        await hold(place)
        again = await place.reaches(Phase.SUCCEEDED, timeout_s=COLLECTED_S)
        assert again.metadata.uid != earlier.metadata.uid
        assert [event.reason for event in await place.events() if event.type == "Warning"] == []


async def test_orphans_of_an_earlier_job_are_named_and_kept(
    admin: Client, operator_account: Connection, kubelet: ScriptedKubelet, namespace: str
) -> None:
    """Who deletes with --cascade=orphan wants to keep the children: they are nobody's, and never taken over."""
    place = Place(admin, namespace)
    async with running_operator(operator_account, namespace):
        await place.queue()
        await place.job()
        await place.reaches(Phase.SUCCEEDED, timeout_s=60)
        kept = await admin.get(JOB, "job", namespace)
        await admin.delete(TORCHRUN_JOB, "job", namespace=namespace, propagation="Orphan")
        await place.gone(TORCHRUN_JOB, "job", timeout_s=COLLECTED_S)
        await place.job()
        said = await place.condition("Accepted", "ForeignObject")
        assert "ControllerRevision" in said.message
        assert "delete or rename it" in said.message
        orphan = await admin.get(JOB, "job", namespace)
        assert orphan.metadata.uid == kept.metadata.uid
        assert orphan.metadata.owner_references == ()

        kinds: tuple[Kind[Any], ...] = (JOB, SERVICE, CONTROLLER_REVISION)
        for kind in kinds:
            for child in await admin.list(kind, namespace=namespace, labels=f"{JOB_NAME}=job"):
                await admin.delete(kind, child.metadata.name, namespace=namespace)
        await place.touch()
        again = await place.reaches(Phase.SUCCEEDED, timeout_s=90)
        assert (await admin.get(JOB, "job", namespace)).metadata.owner_references[0].uid == again.metadata.uid


async def hold(place: Place, *finalizers: str) -> None:
    patch = {"metadata": {"finalizers": list(finalizers) or None}}
    await place.admin.merge_patch(JOB, "job", patch, namespace=place.namespace)
