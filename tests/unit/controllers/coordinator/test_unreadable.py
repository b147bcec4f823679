"""What is wrong with one job stops no decision about the others."""

from typing import Any

import msgspec
import pytest
from gangobjects import NOW, QUEUED, TEMPLATE, a_job, a_node, a_queue, is_told, record

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Decision, Why
from torchctl.controllers.coordinator.observed import Observed
from torchctl.controllers.coordinator.plan import state_of
from torchctl.controllers.coordinator.records import records
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.kinds import Key


def with_requests(**requests: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "trainer", "resources": {"requests": requests}}]}
    return TEMPLATE | {"pod": {"metadata": {}, "spec": spec}}


@pytest.mark.proves("TorchrunJob.status.admission.reason")
@pytest.mark.parametrize(
    ("template", "why"),
    [
        (with_requests(cpu="lots"), "ValueError: "),
        ({"coordinated": True}, "KeyError: 'pod'"),
        ({"coordinated": True, "nodes": "many", "pod": TEMPLATE["pod"]}, "ValueError: "),
        (TEMPLATE | {"pod": {"metadata": {}, "spec": {"tolerations": ["all"]}}}, "AttributeError: "),
    ],
)
def test_a_template_that_is_none_stops_no_other_job(template: dict[str, Any], why: str) -> None:
    bad = (a_job("bad"), a_job("worse", QUEUED | {"admission": record()}))
    good = a_job("good", QUEUED | {"queueRevision": "job-2"})
    observed = Observed(
        jobs=(*bad, good),
        templates={Key("team", "job-1"): template, Key("team", "job-2"): TEMPLATE},
        queues=(a_queue(),),
        nodes=(a_node("n0"), a_node("n1")),
    )
    decision = decide(state_of(observed, CoordinatorSettings(), NOW))
    assert [given.key for given in decision.let_in] == ["team/good"]
    (told,) = decision.told
    assert (told.key, told.place, told.why) == ("team/bad", 0, Why.UNREADABLE)
    assert told.message.startswith(f"the job's pods cannot be read ({why}")
    written = records(decision, observed.jobs, NOW, words=True)
    assert [(job.metadata.name, record.reason) for job, record in written] == [
        ("good", ""),
        ("bad", "TemplateUnreadable"),
    ]
    known = a_job("bad", QUEUED | {"admission": msgspec.to_builtins(written[1][1])})
    assert records(Decision(told=(told,)), [known], NOW, words=True) == []


@pytest.mark.parametrize("estimate_s", [1e12, 1e300, float("inf"), -1e12])
def test_an_estimate_far_from_now_stops_no_decision(estimate_s: float) -> None:
    """A queue that starts a job in a year, and in which ten thousand wait; or a clock that is set wrong."""
    decision = Decision(told=(is_told("team/job", 1, Why.NODES, "short", estimate_s=estimate_s),))
    ((_, written),) = records(decision, [a_job()], NOW, words=True)
    assert written.estimated_start_time == (NOW if estimate_s < 0 else None)
