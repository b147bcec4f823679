"""From observed objects to the state of a decision, and from its outcome to what is written."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from gangobjects import GPU, NOW, QUEUED, TEMPLATE, a_class, a_job, a_node, a_pod, is_told, record, seen

from torchctl.api.capacity import PriorityClass
from torchctl.api.job import TorchrunJob
from torchctl.api.jobstatus import Admission
from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Decision, LetIn, Preempt, TakeBack, Told, Why
from torchctl.controllers.coordinator.observed import Observed
from torchctl.controllers.coordinator.plan import state_of
from torchctl.controllers.coordinator.readings import Readings
from torchctl.controllers.coordinator.records import records
from torchctl.controllers.coordinator.values import NOBODY, Demand, Requirement, Turn
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.kinds import Key

MINE = {"torchrun.ai/job-uid": "job", "torchrun.ai/attempt": "0", "torchrun.ai/role": "worker"}


def test_a_job_with_nothing_left_but_admission_waits() -> None:
    (waiting,) = seen(a_job()).waiting
    assert (waiting.key, waiting.queue, waiting.pods) == ("team/job", "team/queue", 2)
    assert waiting.since_s == (NOW - timedelta(hours=1)).timestamp()
    assert waiting.demand == Demand(gpus=16)
    assert waiting.lasts_s is None


@pytest.mark.parametrize("phase", ["Pending", "Syncing", "Restarting", "Suspended", "Succeeded", "Failed", "Running"])
def test_other_jobs_do_not_wait(phase: str) -> None:
    assert seen(a_job(status=QUEUED | {"phase": phase})).waiting == ()


@pytest.mark.parametrize(
    ("job", "template"),
    [
        (a_job(suspend=True), TEMPLATE),
        (a_job(), TEMPLATE | {"coordinated": False}),
        (a_job(status=QUEUED | {"queueRevision": "other"}), TEMPLATE),
    ],
)
def test_a_job_that_is_nobody_s_concern_does_not_wait(job: TorchrunJob, template: dict[str, Any]) -> None:
    assert seen(job, template=template).waiting == ()


def test_what_has_not_changed_is_not_read_again() -> None:
    readings, node, pod = Readings(), a_node(), a_pod("n0")
    observed = Observed(jobs=(a_job(),), templates={Key("team", "job-1"): TEMPLATE}, nodes=(node,), pods=(pod,))
    first = state_of(observed, CoordinatorSettings(), NOW, readings)
    again = state_of(observed, CoordinatorSettings(), NOW, readings)
    assert again == first
    assert again.waiting[0] is first.waiting[0]
    assert again.nodes[0] is first.nodes[0]


def test_what_was_read_goes_with_its_object() -> None:
    readings = Readings()
    observed = Observed(
        jobs=(a_job(),), templates={Key("team", "job-1"): TEMPLATE}, nodes=(a_node(),), pods=(a_pod("n0"),)
    )
    first = state_of(observed, CoordinatorSettings(), NOW, readings)
    state_of(Observed(templates={}), CoordinatorSettings(), NOW, readings)
    again = state_of(observed, CoordinatorSettings(), NOW, readings)
    assert again.waiting[0] is not first.waiting[0]
    assert again.waiting[0].shape is not first.waiting[0].shape
    assert again.nodes[0] is not first.nodes[0]


def test_a_job_that_was_let_in_holds_its_place() -> None:
    """From the record on, before any of its pods exists."""
    state = seen(a_job(status=QUEUED | {"admission": record(avoidNodes=["n9"])}))
    (holding,) = state.holdings
    assert (state.waiting, holding.missing, holding.has_run) == ((), 2, False)
    assert holding.shape.affinity == ((Requirement("metadata.name", "NotIn", ("n9",)),),)
    assert [(start.queue, start.turn) for start in state.starts] == [("team/queue", Turn(3, 2))]


def test_placed_pods_count_for_node_and_job() -> None:
    state = seen(
        a_job(status=QUEUED | {"phase": "Starting", "admission": record()}),
        nodes=(a_node("n0"), a_node("n1")),
        pods=(a_pod("n0", MINE), a_pod("n1", gpus=2)),
    )
    (holding,) = state.holdings
    assert (holding.placed, holding.missing) == ((("n0", 1),), 1)
    assert [dict(node.used) for node in state.nodes] == [{GPU: 8, "pods": 1}, {GPU: 2, "pods": 1}]


def test_the_next_attempt_waits_again_and_keeps_its_age() -> None:
    state = seen(a_job(status=QUEUED | {"attempt": 1, "admission": record()}))
    assert (len(state.waiting), state.holdings, len(state.starts)) == (1, (), 1)


TAKEN_BACK = record(takenBackTime="2026-03-01T07:59:00Z")


@pytest.mark.parametrize(("preemptor", "leaving_for"), [("team/urgent", "team/urgent"), ("", NOBODY)])
@pytest.mark.parametrize("phase", ["Running", "Restarting", "Suspended", "Failed"])
def test_room_taken_back_is_held_until_the_pods_go(phase: str, preemptor: str, leaving_for: str) -> None:
    """Nobody is told to leave once more for the same room, and no quota is given twice."""
    attempt = int(phase == "Restarting")
    admission = TAKEN_BACK | {"preemptedFor": preemptor}
    job = a_job(status=QUEUED | {"phase": phase, "attempt": attempt, "admission": admission})
    (holding,) = seen(job, nodes=(a_node(),), pods=(a_pod("n0", MINE),)).holdings
    assert (holding.leaving_for, holding.placed, holding.demand) == (leaving_for, (("n0", 1),), Demand(gpus=16))
    assert holding.missing == (1 if phase == "Running" else 0)
    assert bool(seen(job, nodes=(a_node(),)).holdings) is (phase == "Running")


CLASSES = (a_class("high", 100), a_class("usual", 7, default=True), a_class("low", 3, default=True))


@pytest.mark.proves("TorchrunJob.spec.priority")
@pytest.mark.parametrize(
    ("own", "named", "classes", "priority"),
    [
        (None, "", (), 0),
        (None, "", CLASSES, 3),
        (None, "high", CLASSES, 100),
        (None, "gone", CLASSES, 0),
        (0, "high", CLASSES, 0),
        (-5, "", CLASSES, -5),
    ],
)
def test_a_job_ranks_by_itself_or_by_its_priority_class(
    own: int | None, named: str, classes: tuple[PriorityClass, ...], priority: int
) -> None:
    pod = {**TEMPLATE["pod"], "spec": {**TEMPLATE["pod"]["spec"], "priorityClassName": named}}
    waits = a_job("waits", priority=own)
    holds = a_job("holds", QUEUED | {"admission": record()}, priority=own)
    state = seen(waits, holds, template=TEMPLATE | {"pod": pod}, priorities=classes)
    assert (state.waiting[0].priority, state.holdings[0].priority) == (priority, priority)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Suspended"])
def test_a_job_that_is_over_holds_nothing(phase: str) -> None:
    assert seen(a_job(status=QUEUED | {"phase": phase, "admission": record()})).holdings == ()


def test_a_deadline_says_when_a_job_ends() -> None:
    own = seen(a_job(runPolicy={"activeDeadlineSeconds": 100}))
    of_queue = seen(a_job(), template=TEMPLATE | {"queueRunPolicy": {"activeDeadlineSeconds": 200}})
    status = QUEUED | {"phase": "Running", "activeSeconds": 40, "admission": record()}
    running = seen(a_job(status=status, runPolicy={"activeDeadlineSeconds": 100}))
    assert (own.waiting[0].lasts_s, of_queue.waiting[0].lasts_s) == (100.0, 200.0)
    assert running.holdings[0].ends_s == (NOW - timedelta(minutes=30)).timestamp() + 60


def test_a_tainted_node_keeps_pods_away() -> None:
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    state = seen(a_job(numNodes=1), template=TEMPLATE | {"nodes": 1}, nodes=(a_node(taints=taints),))
    assert decide(state).told[0].why is Why.NEVER_FITS


@pytest.mark.proves("TorchrunJob.status.admission.reserved", "TorchrunJob.status.admission.estimatedStartTime")
def test_who_is_let_in_is_written_first() -> None:
    decision = Decision(
        let_in=(LetIn("team/b", "team/queue", Turn(5, 4), only=("n0",)),),
        told=(is_told("team/a", 1, Why.NODES, "short", estimate_s=NOW.timestamp() + 90),),
        reserved=("team/a",),
    )
    found = records(decision, [a_job("a"), a_job("b")], NOW, CoordinatorSettings(), words=False)
    assert [(job.metadata.name, written) for job, written in found] == [
        ("b", Admission(attempt=0, let_in_time=NOW, clock=5, position=4, only_nodes=("n0",))),
        (
            "a",
            Admission(
                reserved=True,
                place=1,
                reason="NodesShort",
                message="short",
                estimated_start_time=NOW + timedelta(minutes=1),
            ),
        ),
    ]


@pytest.mark.proves("TorchrunJob.status.admission.waitsFor")
@pytest.mark.parametrize(
    ("told", "words", "written"),
    [
        (is_told("team/job", 2, Why.NODES, "3 short"), False, False),
        (is_told("team/job", 2, Why.NODES, "3 short"), True, True),
        (is_told("team/job", 1, Why.NODES, "4 short"), True, False),
        (is_told("team/job", 1, Why.QUOTA, "4 short"), False, True),
        (is_told("team/job", 1, Why.NODES, "4 short", waits_for="team/x"), False, True),
    ],
)
def test_words_are_written_when_they_matter_or_are_due(told: Told, words: bool, written: bool) -> None:
    """Each start changes the place of all others: to write all that at once would be a write for each job and start."""
    before = {"attempt": 0, "place": 1, "reason": "NodesShort", "message": "4 short"}
    job = a_job(status=QUEUED | {"admission": before})
    assert bool(records(Decision(told=(told,)), [job], NOW, CoordinatorSettings(), words=words)) is written


@pytest.mark.parametrize(
    ("before", "told", "written"),
    [
        ({"place": 50}, {"place": 46}, False),
        ({"place": 50}, {"place": 44}, True),
        ({"place": 50, "message": "4 short"}, {"place": 50, "message": "3 short"}, False),
        ({"place": 10, "message": "4 short"}, {"place": 10, "message": "3 short"}, True),
        ({"place": 50}, {"place": 50, "estimate_s": 3600.0}, True),
        ({"place": 50, "estimatedStartTime": "2026-03-01T09:00:00Z"}, {"place": 50, "estimate_s": 3000.0}, False),
        ({"place": 50, "estimatedStartTime": "2026-03-01T09:00:00Z"}, {"place": 50, "estimate_s": 1800.0}, True),
        ({"place": 50, "estimatedStartTime": "2026-03-01T08:02:00Z"}, {"place": 50, "estimate_s": 400.0}, False),
    ],
)
def test_what_nobody_would_notice_is_not_written(before: dict[str, Any], told: dict[str, Any], written: bool) -> None:
    """Thousands wait, and each start moves them all."""
    job = a_job(status=QUEUED | {"admission": {"reason": "NodesShort", "message": "4 short"} | before})
    given: dict[str, Any] = {"message": "4 short"} | told
    if "estimate_s" in given:
        given["estimate_s"] += NOW.timestamp()
    decision = Decision(told=(is_told("team/job", why=Why.NODES, **given),))
    assert bool(records(decision, [job], NOW, CoordinatorSettings(), words=True)) is written


@pytest.mark.proves("TorchrunJob.status.admission.takenBackTime", "TorchrunJob.status.admission.preemptedFor")
def test_a_preempted_job_is_told_for_whom() -> None:
    job = a_job(status=QUEUED | {"phase": "Running", "admission": record(misses=2)})
    ((_, written),) = records(
        Decision(preempt=(Preempt("team/job", "team/urgent"),)), [job], NOW, CoordinatorSettings(), words=False
    )
    assert (written.preempted_for, written.taken_back_time, written.not_before_time) == ("team/urgent", NOW, None)
    assert (written.let_in_time is not None, written.clock, written.position) == (True, 3, 2)


def misses(job: TorchrunJob, settings: CoordinatorSettings | None = None) -> Admission:
    decision = Decision(take_back=(TakeBack("team/job", 1),))
    ((_, written),) = records(decision, [job], NOW, settings or CoordinatorSettings(), words=False)
    return written


@pytest.mark.proves("TorchrunJob.status.admission.misses", "TorchrunJob.status.admission.notBeforeTime")
@pytest.mark.parametrize(("before", "minutes"), [(0, 1), (1, 2), (3, 8), (9, 60), (10**6, 60)])
def test_the_pause_doubles_with_each_let_in_for_nothing(before: int, minutes: int) -> None:
    written = misses(a_job(status=QUEUED | {"admission": record(misses=before)}))
    assert (written.misses, written.taken_back_time) == (before + 1, NOW)
    assert written.not_before_time == NOW + timedelta(minutes=minutes)


def test_the_pause_is_a_setting_of_the_coordinator() -> None:
    job = a_job(status=QUEUED | {"admission": record(misses=1)})
    assert misses(job, CoordinatorSettings(pause_s=5.0)).not_before_time == NOW + timedelta(seconds=10)


def test_what_was_missed_is_known_until_an_attempt_starts() -> None:
    """Through what the next attempt is told while it waits, and its own let-in; the attempt after that starts anew."""

    def with_record(admission: Admission, attempt: int) -> TorchrunJob:
        return a_job(status=QUEUED | {"attempt": attempt, "admission": msgspec.to_builtins(admission)})

    def next_record(decision: Decision, job: TorchrunJob) -> Admission:
        ((_, written),) = records(decision, [job], NOW, CoordinatorSettings(), words=False)
        return written

    told = Decision(told=(is_told("team/job", 1, Why.BACK_OFF, "later"),))
    let_in = Decision(let_in=(LetIn("team/job", "team/queue", Turn()),))
    waits = next_record(told, with_record(misses(a_job(status=QUEUED | {"admission": record()})), 1))
    assert (waits.attempt, waits.misses, waits.not_before_time) == (1, 1, NOW + timedelta(minutes=1))
    again = next_record(let_in, with_record(waits, 1))
    assert (again.attempt, again.misses, again.not_before_time) == (1, 1, None)
    assert misses(with_record(again, 1)).misses == 2
    assert next_record(told, with_record(again, 2)).misses == 0


def test_a_job_without_nodes_waits_for_a_while() -> None:
    admission = TAKEN_BACK | {"notBeforeTime": "2026-03-01T08:01:00Z", "misses": 1}
    job = a_job(status=QUEUED | {"attempt": 1, "admission": admission})
    state = seen(job, nodes=(a_node("n0"), a_node("n1")))
    decision = decide(state)
    assert decision.let_in == ()
    assert (decision.told[0].why, "until 08:01:00 UTC" in decision.told[0].message) == (Why.BACK_OFF, True)
    assert len(decide(replace(state, now_s=NOW.timestamp() + 60)).let_in) == 1
