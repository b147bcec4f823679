"""What queues and ResourceQuotas allow, and whose pods these govern."""

from typing import Any

import msgspec
import pytest
from gangobjects import QUEUED, TEMPLATE, a_class, a_job, a_node, a_queue, record, seen

from torchctl.api.capacity import ResourceQuota
from torchctl.api.queue import Preemption
from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.values import Limits


@pytest.mark.proves("TorchrunQueue.spec.capacity")
@pytest.mark.parametrize(("spec", "autoscaled"), [({}, False), ({"capacity": "Autoscaled"}, True)])
def test_nodes_come_for_the_jobs_of_an_autoscaled_queue(spec: dict[str, Any], autoscaled: bool) -> None:
    state = seen(a_job("waits"), a_job("holds", QUEUED | {"admission": record()}), queues=(a_queue(**spec),))
    assert (state.waiting[0].autoscaled, state.holdings[0].autoscaled) == (autoscaled, autoscaled)


@pytest.mark.proves("TorchrunQueue.spec.preemption")
def test_settings_of_a_queue_are_read_in_units() -> None:
    bounds = {"gpus": 8, "cpus": "1500m", "memory": "1Gi", "jobs": 2}
    (queue,) = seen(
        queues=(
            a_queue(weight=3, maxNodes=4, quota=bounds, cohort="c", borrowingLimit={"gpus": 1}, preemption="Reclaim"),
        )
    ).queues
    assert (queue.key, queue.weight, queue.max_nodes, queue.cohort) == ("team/queue", 3, 4, "c")
    assert queue.preemption is Preemption.RECLAIM
    assert (queue.quota, queue.borrowing) == (Limits(8, 1500, 2**30, 2), Limits(gpus=1))


@pytest.mark.parametrize(("spec", "cohort"), [({}, "c"), ({"kaiQueue": "train"}, "")])
def test_a_queue_of_another_scheduler_lends_nothing(spec: dict[str, Any], cohort: str) -> None:
    """Nobody here knows what its jobs hold."""
    (queue,) = seen(queues=(a_queue(cohort="c", quota={"gpus": 8}, **spec),)).queues
    assert queue.cohort == cohort


def a_quota(pods: int = 10, **spec: Any) -> ResourceQuota:
    status = {"hard": {"requests.cpu": "4", "pods": str(pods)}, "used": {"requests.cpu": "500m"}}
    return msgspec.convert(
        {"metadata": {"name": "quota", "namespace": "team"}, "spec": spec, "status": status}, ResourceQuota
    )


def test_a_resource_quota_is_read_in_units() -> None:
    (found,) = seen(quotas=(a_quota(),)).namespace_quotas
    assert (found.name, dict(found.left)) == ("quota", {"requests.cpu": 3500, "pods": 10})
    assert dict(found.hard) == {"requests.cpu": 4000, "pods": 10}


def scope(operator: str, *names: str) -> dict[str, Any]:
    given = {"scopeName": "PriorityClass", "operator": operator, "values": list(names)}
    return {"scopeSelector": {"matchExpressions": [given]}}


@pytest.mark.parametrize(
    ("spec", "named", "governs"),
    [
        ({}, "", True),
        ({"scopes": ["BestEffort"]}, "", True),
        ({"scopes": ["NotBestEffort"]}, "", False),
        ({"scopes": ["NotTerminating", "BestEffort"]}, "", True),
        ({"scopes": ["NotTerminating", "NotBestEffort"]}, "", False),
        ({"scopes": ["Terminating"]}, "", False),
        ({"scopes": ["AScopeOfLater"]}, "", False),
        (scope("In", "high", "low"), "high", True),
        (scope("In", "high"), "low", False),
        (scope("In", "high"), "", False),
        (scope("In", "usual"), "", True),
        (scope("NotIn", "high"), "high", False),
        (scope("NotIn", "high"), "low", True),
        (scope("Exists"), "high", True),
        (scope("DoesNotExist"), "high", False),
    ],
)
def test_a_resource_quota_governs_the_pods_in_its_scopes(spec: dict[str, Any], named: str, governs: bool) -> None:
    """Pods of which nothing names a class have the cluster's default one, here: usual."""
    pod = {**TEMPLATE["pod"], "spec": {**TEMPLATE["pod"]["spec"], "priorityClassName": named}}
    usual = (a_class("usual", 7, default=True),)
    nodes, template = (a_node("n0"), a_node("n1")), TEMPLATE | {"pod": pod}
    state = seen(a_job(), template=template, nodes=nodes, quotas=(a_quota(pods=1, **spec),), priorities=usual)
    assert (decide(state).let_in == ()) is governs
