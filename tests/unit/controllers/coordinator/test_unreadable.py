"""What is wrong with one job stops no decision about the others."""

from typing import Any

import msgspec
import pytest
from gangobjects import NOW, QUEUED, TEMPLATE, a_job, a_node, a_queue, is_told, record

from torchctl.api.job import TorchrunJob
from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.deciding import Deciding
from torchctl.controllers.coordinator.decision import Decision, Why
from torchctl.controllers.coordinator.observed import Observed
from torchctl.controllers.coordinator.plan import state_of
from torchctl.controllers.coordinator.records import records
from torchctl.controllers.coordinator.standing import standing
from torchctl.controllers.coordinator.values import State
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.kinds import Key

ODD = "a field has another form than pods have it"


def with_requests(**requests: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "trainer", "resources": {"requests": requests}}]}
    return TEMPLATE | {"pod": {"metadata": {}, "spec": spec}}


@pytest.mark.proves("TorchrunJob.status.admission.reason")
@pytest.mark.parametrize(
    ("template", "why"),
    [
        (with_requests(cpu="lots"), "'lots' is not a quantity such as 4, 500m or 10Gi"),
        ({"coordinated": True}, ODD),
        ({"coordinated": True, "nodes": "many", "pod": TEMPLATE["pod"]}, ODD),
        (TEMPLATE | {"pod": {"metadata": {}, "spec": {"tolerations": ["all"]}}}, ODD),
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
    assert told.message == (
        f"nobody can tell what the job's pods ask for: {why}; correct podTemplate or nodeResources of "
        "the job or its queue (`kubectl explain pod.spec` says how), and submit the job again"
    )
    written = records(decision, observed.jobs, NOW, CoordinatorSettings(), words=True)
    assert [(job.metadata.name, record.reason) for job, record in written] == [
        ("good", ""),
        ("bad", "TemplateUnreadable"),
    ]
    known = a_job("bad", QUEUED | {"admission": msgspec.to_builtins(written[1][1])})
    assert records(Decision(told=(told,)), [known], NOW, CoordinatorSettings(), words=True) == []


RUNNING = QUEUED | {"phase": "Running", "admission": record(), "attemptStartTime": "2026-03-01T07:40:00Z"}
PLAIN = TEMPLATE | {"coordinated": False}
UNKNOWN = (
    "job team/bad holds a place in the same queue, and nobody knows how large a one, because its template is gone or "
    "cannot be read: delete job team/bad, or wait until it ends"
)


def beside(bad: TorchrunJob, none: dict[str, Any] | None, *jobs: TorchrunJob, **more: Any) -> State:
    """Returns the state in which further jobs wait beside one whose template is none."""
    templates = {Key("team", "job-2"): more.pop("template", TEMPLATE)}
    templates |= {} if none is None else {Key("team", "job-1"): none}
    more.setdefault("queues", (a_queue(quota={"gpus": 32}),))
    nodes = tuple(a_node(f"n{at}") for at in range(4))
    observed = Observed(jobs=(bad, *jobs), templates=templates, nodes=nodes, **more)
    return state_of(observed, CoordinatorSettings(), NOW)


def good(**spec: Any) -> TorchrunJob:
    return a_job("good", QUEUED | {"queueRevision": "job-2"}, **spec)


@pytest.mark.parametrize("template", [None, with_requests(cpu="lots"), {"coordinated": True}])
@pytest.mark.parametrize("status", [RUNNING, QUEUED | {"admission": record()}])
def test_a_queue_stands_still_while_a_place_is_unknown(template: dict[str, Any] | None, status: dict[str, Any]) -> None:
    """What the job holds may be all that the queue has. The next leader reads the same from the same objects."""
    before = beside(a_job("bad", status), template, good())
    decision = decide(before)
    assert decision.let_in == ()
    ((key, place, answer, _),) = decision.told
    assert (key, place, answer.why, answer.message) == ("team/good", 1, Why.QUOTA, UNKNOWN)
    assert standing(before).let_in == {"team/queue": 1}


@pytest.mark.parametrize(("quota", "starts"), [({}, True), ({"jobs": 2}, True), ({"jobs": 1}, False)])
def test_an_unknown_place_is_one_job_and_no_more(quota: dict[str, Any], starts: bool) -> None:
    """A queue without a quota of amounts has nothing that the job could hold too much of."""
    decision = decide(beside(a_job("bad", RUNNING), None, good(), queues=(a_queue(quota=quota),)))
    assert bool(decision.let_in) is starts


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Suspended"])
def test_a_job_that_has_ended_needs_no_template(phase: str) -> None:
    decision = decide(beside(a_job("bad", RUNNING | {"phase": phase}), None, good()))
    assert [given.key for given in decision.let_in] == ["team/good"]


def test_a_job_of_a_gang_scheduler_needs_no_template_here() -> None:
    job = a_job("bad", {name: given for name, given in RUNNING.items() if name != "admission"})
    for template in (None, PLAIN):
        assert [given.key for given in decide(beside(job, template, good())).let_in] == ["team/good"]


def test_a_started_job_without_record_and_readable_template_is_unknown() -> None:
    job = a_job("bad", {name: given for name, given in RUNNING.items() if name != "admission"})
    assert decide(beside(job, {"coordinated": True}, good())).let_in == ()


def test_an_unknown_place_stops_no_other_queue() -> None:
    """In a cohort its queue lends nothing meanwhile, and each other queue has what it owns."""
    queues = (a_queue("other", cohort="c", quota={"gpus": 16}), a_queue(cohort="c", quota={"gpus": 32}))
    own = beside(a_job("bad", RUNNING), None, good(jobQueue="other"), queues=queues)
    assert [given.key for given in decide(own).let_in] == ["team/good"]
    more = beside(a_job("bad", RUNNING), None, good(jobQueue="other"), queues=queues, template=TEMPLATE | {"nodes": 3})
    assert decide(more).let_in == ()
    assert decide(more).told[0].message == "the job takes 24 GPUs, and cohort c has 16 GPUs of its quota left"


def test_the_error_is_for_the_log_and_said_once() -> None:
    bad = {"coordinated": True}
    observed = Observed(jobs=(a_job("bad"), a_job("worse", RUNNING)), templates={Key("team", "job-1"): bad})
    deciding = Deciding(CoordinatorSettings())
    first = deciding.decide(observed, NOW, words=True)
    assert [(gang.key, gang.error, gang.holds) for gang in first.newly_unreadable] == [
        ("team/bad", "KeyError: 'pod'", False),
        ("team/worse", "KeyError: 'pod'", True),
    ]
    assert deciding.decide(observed, NOW, words=True).newly_unreadable == ()


@pytest.mark.parametrize("estimate_s", [1e12, 1e300, float("inf"), -1e12])
def test_an_estimate_far_from_now_stops_no_decision(estimate_s: float) -> None:
    """A queue that starts a job in a year, and in which ten thousand wait; or a clock that is set wrong."""
    decision = Decision(told=(is_told("team/job", 1, Why.NODES, "short", estimate_s=estimate_s),))
    ((_, written),) = records(decision, [a_job()], NOW, CoordinatorSettings(), words=True)
    assert written.estimated_start_time == (NOW if estimate_s < 0 else None)
