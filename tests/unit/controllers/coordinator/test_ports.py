"""Ports of nodes count as resources of which each node has one."""

import msgspec
import pytest
from gangobjects import NUMBERS, TEMPLATE, a_job, a_node, seen

from torchctl.api.capacity import BoundPod
from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Why

HOST = {"hostNetwork": True, "containers": [{"name": "trainer", "ports": [{"containerPort": 29500}]}]}


def on_host(node: str, port: int) -> BoundPod:
    containers = [{"ports": [{"containerPort": 1, "hostPort": port, "protocol": "TCP"}]}]
    body = {"metadata": {"uid": f"pod-{next(NUMBERS)}"}, "spec": {"nodeName": node, "containers": containers}}
    return msgspec.convert(body, BoundPod)


@pytest.mark.parametrize(("foreign", "pods"), [(29500, 1), (9100, 2)])
def test_a_port_of_a_node_is_taken_once(foreign: int, pods: int) -> None:
    """Pods of two jobs with hostNetwork never share a node, nor with a foreign pod that has taken their port."""
    nodes = (a_node("n0"), a_node("n1"))
    template = TEMPLATE | {"pod": {"metadata": {}, "spec": HOST}}
    decision = decide(seen(a_job(), template=template, nodes=nodes, pods=(on_host("n0", foreign),)))
    assert len(decision.let_in) == (1 if pods == 2 else 0)
    if pods == 1:
        said = "1 of 2 pods with host port 29500 each finds a node now, 1 short"
        assert (decision.told[0].why, decision.told[0].message) == (Why.NODES, said)


def test_two_jobs_never_share_a_port() -> None:
    nodes, template = (a_node("n0"), a_node("n1"), a_node("n2")), TEMPLATE | {"pod": {"metadata": {}, "spec": HOST}}
    decision = decide(seen(a_job("a"), a_job("b"), template=template, nodes=nodes))
    assert [given.key for given in decision.let_in] == ["team/a"]
    alone = decide(seen(a_job("c"), template=template, nodes=nodes[:1]))
    said = "the nodes take 1 pod with host port 29500 each even if nothing else runs, and the job has 2: numNodes 1"
    assert alone.told[0].message.startswith(said)
