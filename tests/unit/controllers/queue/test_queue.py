"""A TorchrunQueue's plan and status, from hand-made observations."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.job import JobSpec, JobStatus, TorchrunJob
from torchctl.api.kube import KaiQueue
from torchctl.api.kube import KaiQueueStatus as ReportedStatus
from torchctl.api.names import KAI_FINALIZER
from torchctl.api.phases import TERMINAL, Phase
from torchctl.api.quantity import parse
from torchctl.api.queue import KaiQueueStatus, QueueSpec, QueueStatus, TorchrunQueue
from torchctl.controllers.finding import Refusal
from torchctl.controllers.queue.claims import claimed_by, release
from torchctl.controllers.queue.kai import kai_queue
from torchctl.controllers.queue.observed import FREEZING
from torchctl.controllers.queue.plan import Observed, Plan, look_again
from torchctl.controllers.queue.plan import plan as plan_at
from torchctl.controllers.queue.status import derive, transitions
from torchctl.runtime.conditions import find
from torchctl.runtime.intent import INTENT_ANNOTATION
from torchctl.runtime.kinds import ObjectMeta

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def queue(*, finalizers: tuple[str, ...] = (KAI_FINALIZER,), deleting: bool = False, **spec: Any) -> TorchrunQueue:
    meta = ObjectMeta(
        name="gpu",
        namespace="team",
        uid="queue-uid",
        generation=1,
        finalizers=finalizers,
        deletion_timestamp=NOW if deleting else None,
    )
    return TorchrunQueue(meta, QueueSpec.model_validate(spec))


def kai(name: str, claim: str = "queue-uid") -> KaiQueue:
    return KaiQueue(ObjectMeta(name=name, uid=f"uid-{name}", annotations={"torchrun.ai/queue-uid": claim}))


def plan(seen: Observed) -> Plan:
    return plan_at(seen, NOW)


def job(name: str, phase: str, gpus: int = 8) -> TorchrunJob:
    spec = JobSpec.model_validate({"jobQueue": "gpu", "numNodes": 1, "command": "true"})
    status = JobStatus(phase=phase, gpus=gpus, queue_revision=f"{name}-1")
    return TorchrunJob(ObjectMeta(name=name, namespace="team"), spec, status)


def observed(subject: TorchrunQueue, *existing: KaiQueue, jobs: tuple[TorchrunJob, ...] = ()) -> Observed:
    return Observed(subject, jobs, True, {found.metadata.name: found for found in existing})


def condition(seen: Observed, type_: str, refusal: Refusal | None = None) -> tuple[str, str]:
    status = derive(seen, plan(seen), (refusal,) if refusal else (), NOW)
    found = find(status.conditions, type_)
    assert found is not None
    return found.status, found.reason


def test_a_queue_without_a_kai_queue_is_ready() -> None:
    """It needs nothing."""
    seen = observed(queue(finalizers=()))
    assert plan(seen) == Plan()
    assert condition(seen, "Ready") == ("True", "Ready")


def test_the_finalizer_comes_before_the_kai_queue() -> None:
    seen = observed(queue(finalizers=("other/finalizer",), kaiQueue="train"))
    assert plan(seen) == Plan(finalizers=("other/finalizer", KAI_FINALIZER))
    seen = observed(queue(kaiQueue="train"))
    assert plan(seen).finalizers is None
    assert plan(seen).apply == kai_queue(seen.queue)


def test_a_foreign_kai_queue_is_a_conflict_naming_its_owner() -> None:
    foreign = kai("train", claim="somebody-else")
    seen = observed(queue(kaiQueue="train"), foreign)
    assert plan(seen).apply is None
    assert condition(seen, "KaiQueueReady") == ("False", "Conflict")
    assert derive(seen, plan(seen), (), NOW).kai_queue is None
    assert not claimed_by("queue-uid")(foreign.metadata)


def test_a_kai_queue_by_reference_is_never_written() -> None:
    seen = observed(queue(finalizers=(), kaiQueue="train", kaiQueuePolicy="Reference"), kai("train", claim=""))
    assert plan(seen) == Plan()
    assert condition(seen, "KaiQueueReady") == ("True", "KaiQueueReady")
    assert condition(observed(seen.queue), "KaiQueueReady") == ("False", "KaiQueueNotFound")


def test_a_parent_that_is_missing_holds_the_kai_queue_back() -> None:
    subject = queue(kaiQueue="train", parentKaiQueue="root")
    assert plan(observed(subject)).apply is None
    assert condition(observed(subject), "KaiQueueReady") == ("False", "ParentNotFound")
    assert plan(observed(subject, kai("root", claim=""))).apply is not None


def test_a_parent_that_the_operator_does_not_allow_is_refused() -> None:
    seen = replace(observed(queue(kaiQueue="train", parentKaiQueue="root")), allowed_parents=frozenset({"dev"}))
    assert plan(seen).problem is not None
    assert condition(seen, "Accepted") == ("False", "ParentNotAllowed")


def test_a_kai_queue_that_was_renamed_leaves_none_behind() -> None:
    seen = observed(queue(kaiQueue="new"), kai("old"), kai("foreign", claim="x"))
    assert [found.metadata.name for found in plan(seen).delete] == ["old"]


@pytest.mark.parametrize("spec", [{"kaiQueue": "new"}, {"kaiQueue": "x", "kaiQueuePolicy": "Reference"}, {}])
def test_an_unwanted_kai_queue_stays_while_jobs_may_need_it(spec: dict[str, Any]) -> None:
    seen = observed(queue(**spec), kai("old"), jobs=(job("a", Phase.RUNNING),))
    assert plan(seen).delete == ()
    assert plan(seen).finalizers is None


def test_without_kai_nothing_fails_and_the_queue_looks_again() -> None:
    seen = replace(observed(queue(kaiQueue="train")), kai_available=False)
    assert plan(seen) == Plan()
    assert condition(seen, "KaiQueueReady") == ("False", "KaiNotInstalled")
    assert look_again(seen, (), NOW) == 10.0


@pytest.mark.parametrize("deleting", [False, True])
@pytest.mark.parametrize(
    "spec", [{"kaiQueue": "train", "kaiQueuePolicy": "Reference"}, {"kaiQueue": "new"}, {}], ids=["refers", "other", ""]
)
def test_kai_queues_out_of_sight_are_neither_touched_nor_forgotten(spec: dict[str, Any], deleting: bool) -> None:
    """KAI is gone, and with it the sight of what was seen before."""
    there = observed(queue(deleting=deleting, **spec), kai("train"))
    assert plan(there).release or plan(there).delete
    seen = replace(there, kai_available=False)
    todo = plan_at(seen, NOW + FREEZING)
    assert (todo.release, todo.delete) == ((), ())
    assert todo.finalizers == (() if deleting else None), "the API server is asked before they go"
    assert deleting or look_again(seen, (), NOW) == 10.0


@pytest.mark.parametrize("spec", [{"kaiQueue": "new"}, {}], ids=["other", ""])
def test_status_keeps_the_kai_queue_until_it_is_gone(spec: dict[str, Any]) -> None:
    seen = observed(queue(**spec), kai("train"), jobs=(job("a", Phase.RUNNING),))
    status = derive(seen, plan(seen), (), NOW)
    assert status.kai_queue is not None
    assert status.kai_queue.name == "train"
    assert derive(observed(queue()), Plan(), (), NOW).kai_queue is None


@pytest.mark.parametrize("spec", [{"kaiQueue": "new"}, {}], ids=["other", ""])
def test_without_kai_status_keeps_the_name_of_the_kai_queue(
    spec: dict[str, Any],
) -> None:
    """Nobody else remembers it."""
    recorded = QueueStatus(kai_queue=KaiQueueStatus(name="train", uid="uid"))
    seen = observed(msgspec.structs.replace(queue(**spec), status=recorded))
    blind = replace(seen, kai_available=False)
    assert derive(blind, plan(blind), (), NOW).kai_queue == recorded.kai_queue


def test_a_deleted_queue_keeps_its_kai_queue_for_its_jobs() -> None:
    """It goes once they are done."""
    subject = queue(deleting=True, kaiQueue="train")
    busy = observed(subject, kai("train"), jobs=(job("a", Phase.RUNNING), job("b", Phase.FAILED)))
    assert plan(busy) == Plan()
    assert "1 unfinished job ends: a" in derive(busy, plan(busy), (), NOW).conditions[1].message
    done = observed(subject, kai("train"), jobs=(job("a", Phase.SUCCEEDED),))
    assert [found.metadata.name for found in plan(done).delete] == ["train"]
    assert plan(done).finalizers is None
    assert plan(observed(subject)).finalizers == ()


@pytest.mark.parametrize("deleting", [False, True])
@pytest.mark.parametrize("jobs", [(), (job("a", Phase.RUNNING),)])
def test_from_manage_to_reference_the_kai_queue_is_handed_over(deleting: bool, jobs: tuple[TorchrunJob, ...]) -> None:
    """Then it is forgotten."""
    subject = queue(kaiQueue="train", kaiQueuePolicy="Reference", deleting=deleting)
    todo = plan(observed(subject, kai("train"), jobs=jobs))
    assert [found.metadata.name for found in todo.release] == ["train"]
    assert (todo.delete, todo.finalizers) == ((), None)
    assert plan(observed(subject, kai("train", claim=""))).finalizers == ()


def test_handing_over_keeps_the_values_and_removes_the_claim() -> None:
    made = kai_queue(queue(kaiQueue="train"))["metadata"]
    patch = release(kai("train"))
    assert set(patch) == {"metadata"}
    assert set(made["annotations"]) | {INTENT_ANNOTATION} == set(patch["metadata"]["annotations"])
    assert set(made["labels"]) == set(patch["metadata"]["labels"])
    assert {*patch["metadata"]["annotations"].values(), *patch["metadata"]["labels"].values()} == {None}
    assert patch["metadata"]["uid"] == "uid-train"


def test_an_unwanted_kai_queue_goes_before_the_finalizer() -> None:
    assert [found.metadata.name for found in plan(observed(queue(), kai("train"))).delete] == ["train"]
    assert plan(observed(queue())).finalizers == ()


def test_a_job_that_waits_does_not_hold_up_a_deletion() -> None:
    """It waits for a queue of this name, which can only come once this one is gone."""
    waiting = msgspec.structs.replace(job("waits", ""), status=JobStatus())
    seen = observed(queue(deleting=True, kaiQueue="train"), kai("train"), jobs=(waiting,))
    assert plan(seen) == Plan(), "it may just be freezing its template"
    assert look_again(seen, (), NOW) == FREEZING.total_seconds()
    assert [found.metadata.name for found in plan_at(seen, NOW + FREEZING).delete] == ["train"]
    assert look_again(seen, (), NOW + FREEZING) is None


def test_a_deletion_that_kais_webhook_refuses_says_so() -> None:
    seen = observed(queue(deleting=True, kaiQueue="train"), kai("train"))
    assert condition(seen, "KaiQueueReady") == ("False", "Deleting")
    assert condition(seen, "KaiQueueReady", Refusal("KAI Queue", "train", "Refused", "has child queues")) == (
        "False",
        "Refused",
    )


def test_a_kai_queue_below_itself_is_not_made() -> None:
    subject = queue(kaiQueue="a", parentKaiQueue="b")
    b, c = (msgspec.structs.replace(kai(name, claim=""), spec={"parentQueue": above}) for name, above in ("bc", "ca"))
    seen = observed(subject, b, c)
    assert plan(seen).apply is None
    assert condition(seen, "KaiQueueReady") == ("False", "ParentCycle")
    message = derive(seen, plan(seen), (), NOW).conditions[1].message
    assert "a under b under c under a" in message
    fine = observed(subject, b, msgspec.structs.replace(c, spec={"parentQueue": "c"}))
    assert plan(fine).apply is not None, "a circle of others is theirs"


def test_only_managed_queues_need_an_allowed_parent() -> None:
    """One at the root is under none; a reference needs none."""
    seen = replace(observed(queue(kaiQueue="train")), allowed_parents=frozenset({"dev"}))
    assert condition(seen, "Accepted") == ("False", "ParentNotAllowed")
    specs: tuple[dict[str, Any], ...] = ({"kaiQueue": "train", "kaiQueuePolicy": "Reference"}, {})
    for spec in specs:
        seen = replace(observed(queue(finalizers=(), **spec)), allowed_parents=frozenset({"dev"}))
        assert condition(seen, "Accepted") == ("True", "Accepted")


@pytest.mark.parametrize(
    ("containers", "reason"),
    [
        ([{"name": "main"}], "InvalidSpec"),
        ([{"name": "sidecar"}, {"name": "trainer"}], "InvalidSpec"),
        ([{"name": "trainer"}, {"name": "trainer"}], "InvalidSpec"),
        ([{"name": "trainer"}, {"name": "sidecar"}], "Accepted"),
    ],
)
def test_the_first_container_alone_is_the_trainer(containers: list[dict[str, str]], reason: str) -> None:
    seen = observed(queue(finalizers=(), podTemplate={"spec": {"containers": containers}}))
    assert condition(seen, "Accepted")[1] == reason


@pytest.mark.parametrize("levels", [200, 300, 900])
def test_too_deep_a_spec_is_a_condition(levels: int) -> None:
    """The status is written all the same."""
    deep: Any = 1
    for _ in range(levels):
        deep = {"a": deep}
    seen = observed(queue(finalizers=(), podTemplate={"spec": {"a": deep}}))
    assert condition(seen, "Accepted")[1] == ("Accepted" if levels < 250 else "InvalidSpec")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"weight": 2}, "spec.weight"),
        ({"maxNodes": 4}, "spec.maxNodes"),
        ({"quota": {"gpus": 8}}, "spec.quota.gpus"),
    ],
)
def test_a_field_without_its_behaviour_is_refused_by_name(spec: dict[str, Any], field: str) -> None:
    seen = observed(queue(finalizers=(), **spec))
    status = derive(seen, plan(seen), (), NOW)
    accepted = find(status.conditions, "Accepted")
    assert accepted is not None
    assert (accepted.status, accepted.reason) == ("False", "NotSupportedYet")
    assert field in accepted.message


@pytest.mark.parametrize("field", [{"weight": 2}, {"quota": {"gpus": 8}}, {"cohort": "lab"}, {"preemption": "Reclaim"}])
@pytest.mark.parametrize(
    ("spec", "who"),
    [
        ({"kaiQueue": "train"}, "kai-scheduler"),
        ({"scheduling": {"volcanoQueue": "train"}}, "volcano"),
        ({"scheduling": {"kueueQueue": "train"}}, "kueue"),
        ({"scheduling": {"scheduler": "kubernetes"}}, "kubernetes"),
        ({"scheduling": {"scheduler": "mine"}}, "mine"),
        ({"scheduling": {"scheduler": "auto"}}, ""),
        ({"scheduling": {"scheduler": "default-scheduler"}}, ""),
        ({}, ""),
    ],
)
def test_fields_of_the_coordinator_go_with_no_other_scheduler(
    spec: dict[str, Any], who: str, field: dict[str, Any]
) -> None:
    seen = replace(observed(queue(finalizers=(), **spec, **field)), coordinated=True)
    accepted = find(derive(seen, plan(seen), (), NOW).conditions, "Accepted")
    assert accepted is not None
    assert accepted.reason == ("NotSupportedYet" if who else "Accepted")
    assert who in accepted.message


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({}, "set spec.kaiQueue"),
        ({"kaiQueue": "train", "scheduling": {"scheduler": "other"}}, "no other spec.scheduling.scheduler"),
        ({"kaiQueue": "train", "scheduling": {"gang": False}}, "set spec.scheduling.gang to true"),
        ({"kaiQueue": "train", "scheduling": {"topology": {"name": "net"}}}, "set required or preferred"),
        ({"kaiQueue": "train", "scheduling": {"scheduler": "kai-scheduler"}}, ""),
        ({"kaiQueue": "train", "scheduling": {"topology": {"name": "net", "preferred": "rack"}}}, ""),
    ],
)
def test_a_topology_needs_a_gang_of_kai_and_a_level(spec: dict[str, Any], says: str) -> None:
    scheduling = {"topology": {"name": "net", "required": "rack"}} | spec.pop("scheduling", {})
    seen = observed(queue(finalizers=(), scheduling=scheduling, **spec))
    status = derive(seen, plan(seen), (), NOW)
    accepted = find(status.conditions, "Accepted")
    assert accepted is not None
    assert (accepted.status == "True") is (not says)
    if says:
        assert (accepted.reason, "spec.scheduling.topology: " in accepted.message) == ("InvalidSpec", True)
        assert says in accepted.message


def test_a_resource_left_out_is_unbounded() -> None:
    """What is given is in KAI's units."""
    spec = {"cpu": {"quota": 96, "limit": "128500m"}, "memory": {"quota": "1Gi"}}
    resources = kai_queue(queue(kaiQueue="train", kaiResources=spec))["spec"]["resources"]
    assert resources["gpu"] == {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    assert resources["cpu"] == {"quota": 96_000, "limit": 128_500, "overQuotaWeight": 1}
    assert resources["memory"] == {"quota": 1073.741824, "limit": -1, "overQuotaWeight": 1}


@given(amount=st.integers(0, 10**15), suffix=st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_kais_units_lose_less_than_a_millicore_or_a_byte(amount: int, suffix: str) -> None:
    text = f"{amount}{suffix}"
    spec = {"cpu": {"quota": text}, "memory": {"quota": text}}
    resources = kai_queue(queue(kaiQueue="train", kaiResources=spec))["spec"]["resources"]
    exact = parse(text).value
    assert 0 <= resources["cpu"]["quota"] - exact * 1000 < 1
    if exact < 10**15:  # a petabyte
        assert abs(Fraction(resources["memory"]["quota"]) * 10**6 - exact) < 1


def test_optional_fields_of_a_kai_queue_appear_only_when_asked() -> None:
    asked: dict[str, Any] = {
        "parentKaiQueue": "root",
        "kaiPriority": 7,
        "preemptMinRuntime": "10m",
        "reclaimMinRuntime": "1h30m",
    }
    assert set(kai_queue(queue(kaiQueue="train"))["spec"]) == {"resources"}
    found = kai_queue(queue(kaiQueue="train", **asked))["spec"]
    assert {key: value for key, value in found.items() if key != "resources"} == {
        "parentQueue": "root",
        "priority": 7,
        "preemptMinRuntime": "10m",
        "reclaimMinRuntime": "1h30m",
    }


def test_kais_amounts_are_shown_as_quantities() -> None:
    """KAI writes numbers and text."""
    reported = ReportedStatus(allocated={"gpu": 0.5, "cpu": 4, "memory": "2048Mi"}, requested={"odd": "a lot"})
    there = msgspec.structs.replace(kai("train"), status=reported)
    seen = observed(queue(kaiQueue="train"), there)
    told = derive(seen, plan(seen), (), NOW).kai_queue
    assert told is not None
    assert told.allocated == {"gpu": "500m", "cpu": "4", "memory": "2Gi"}
    assert told.requested == {"odd": "a lot"}


def test_a_refusal_is_the_condition_and_is_tried_again() -> None:
    seen, refusal = observed(queue(kaiQueue="train")), Refusal("KAI Queue", "train", "Refused", "KAI Queue train: no")
    assert condition(seen, "KaiQueueReady", refusal) == ("False", "Refused")
    assert look_again(seen, (refusal,), NOW) == 60.0


@given(st.lists(st.sampled_from(["", *Phase]), max_size=20))
def test_every_job_is_counted_once(phases: list[str]) -> None:
    jobs = tuple(job(f"j{number}", phase) for number, phase in enumerate(phases))
    seen = observed(queue(finalizers=()), jobs=jobs)
    status = derive(seen, plan(seen), (), NOW)
    counts = Counter(msgspec.to_builtins(status.jobs))
    assert sum(msgspec.structs.astuple(status.jobs)) == len(phases) == sum(counts.values())
    assert status.gpus.requested == 8 * sum(phase not in (*TERMINAL, Phase.SUSPENDED) for phase in phases)


@given(st.booleans(), st.booleans(), st.sampled_from([None, "train"]))
def test_a_second_reconcile_writes_nothing_and_says_nothing(kai_there: bool, foreign: bool, name: str | None) -> None:
    spec: dict[str, Any] = {"kaiQueue": name} if name else {}
    subject = queue(finalizers=(KAI_FINALIZER,) if name else (), **spec)
    existing = (kai("train", claim="x" if foreign else "queue-uid"),) if kai_there else ()
    seen = observed(subject, *existing)
    status = derive(seen, plan(seen), (), NOW)
    again = replace(seen, queue=msgspec.structs.replace(subject, status=status))
    later = derive(again, plan(again), (), NOW.replace(year=2027))
    assert later == status
    assert transitions(status, later) == ()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"volumes": {"a": 1}}, "spec.podTemplate.spec.volumes must be a list of objects with name"),
        ({"volumes": [{"emptyDir": {}}]}, "spec.podTemplate.spec.volumes must be a list of objects with name"),
        ({"nodeSelector": ["a"]}, "spec.podTemplate.spec.nodeSelector must be an object"),
        ({"containers": [{"name": "trainer", "resources": "all"}]}, "containers[0].resources must be an object"),
        (
            {"containers": [{"name": "trainer", "resources": {"limits": {"cpu": "lots"}}}]},
            "containers[0].resources.limits must be an object of quantities",
        ),
        (
            {"containers": [{"name": "trainer"}, {"name": "log", "securityContext": 1}]},
            "containers[1].securityContext must be an object",
        ),
    ],
)
def test_a_misshapen_pod_template_is_refused_by_its_field(spec: dict[str, Any], says: str) -> None:
    seen = observed(queue(podTemplate={"spec": spec}))
    problem = plan(seen).problem
    assert problem is not None
    assert problem[0] == "InvalidSpec"
    assert says in problem[1]


def test_a_rule_younger_than_the_queue_is_a_condition() -> None:
    seen = observed(queue(kaiQueue="train", parentKaiQueue="train"))
    assert plan(seen).problem == (
        "InvalidSpec",
        "spec.parentKaiQueue: parentKaiQueue must differ from kaiQueue",
    )
