"""The API server takes what this version makes of an earlier version's children: see tests/golden/earlier/README.md."""

from datetime import datetime
from typing import Any

import pytest
from earlier import left_in, observed_in, states
from goldens import here
from jobs import a_job

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB
from torchctl.controllers.job.plan import plan
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.client.client import Client
from torchctl.runtime.intent import Operation, controlled_by, decide, with_immutable

GIVEN = ("creationTimestamp", "resourceVersion", "uid")
"""Metadata that the API server gives."""

pytestmark = pytest.mark.usefixtures("operator_account")


@pytest.mark.parametrize("state", states("running"))
async def test_a_job_of_an_earlier_version_takes_the_newer_intent(
    state: dict[str, Any], admin: Client, namespace: str
) -> None:
    steps = plan(observed_in(state), OperatorSettings(image="torchctl:newer"), datetime.fromisoformat(state["now"]))
    spec = state["observed"]["job"]["spec"]
    owner = await admin.create(TORCHRUN_JOB, a_job(namespace, "demo", **{"numNodes": None, **spec}))
    (child,) = [child for child in steps.actions.children if child.kind == JOB]
    (body,) = [one for (kind, _), one in left_in(state).items() if kind == JOB.kind]
    meta = {key: value for key, value in body["metadata"].items() if key not in GIVEN}
    applied = {"apiVersion": JOB.api_version, "kind": JOB.kind, "metadata": meta, "spec": body["spec"]}
    before, intent = here([applied, child.body], owner.metadata.uid, namespace)
    live = await admin.apply(JOB, before)
    there = await admin.get_raw(JOB, live.metadata.name, namespace)
    ours = controlled_by(owner.metadata.uid)
    decision = decide(
        intent,
        live.metadata,
        ours,
        manager=admin.field_manager,
        drifted=lambda: False,
    )
    assert decision.operation is Operation.UPDATE
    assert decision.body is not None
    await admin.apply(JOB, with_immutable(decision.body, there), force=True)
    after = await admin.get_raw(JOB, live.metadata.name, namespace)
    assert after["spec"]["template"] == there["spec"]["template"]
