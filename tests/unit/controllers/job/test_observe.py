"""What belongs to a job is told by owner and uid; labels and names alone anyone can write."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import anyio
import msgspec
import pytest

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONTROLLER_REVISION, JOB, KAI_PODGROUP, POD, PVC, SERVICE
from torchctl.api.kueue import KUEUE_WORKLOAD, KueueWorkload
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.api.volcano import VOLCANO_PODGROUP, VOLCANO_QUEUE
from torchctl.controllers.indexes import JOBS_BY_DEPENDENCY, dependencies_of
from torchctl.controllers.job.observe import BY_JOB, BY_WORKER_JOB, by_job, by_worker_job, observe
from torchctl.controllers.job.observed import Observed, Started
from torchctl.controllers.job.reconciler import (
    GROUPS_BY_QUEUE,
    job_of_workload,
    jobs_in_volcano_queue,
    queue_of_group,
)
from torchctl.controllers.predicates import state_turned
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Change, Informer
from torchctl.runtime.kinds import Key, Kind
from torchctl.runtime.watch.events import Absent, InitDone, Unavailable
from torchctl.runtime.watch.selector import Selector
from torchctl.testing.clock import ManualClock

KEY = Key("team", "demo")
MOMENT = datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC)
SPEC = {"jobQueue": "research", "numNodes": 1, "command": "a"}


class Shelf:
    """Stands for the cache: objects by kind, with the indexes that are asked for."""

    def __init__(self, *objects: tuple[Kind[Any], dict[str, Any]], queues: bool = True) -> None:
        there = Informer(POD, Selector(), clock=ManualClock())
        self.informers: dict[Kind[Any], Informer[Any]] = defaultdict(lambda: there)
        if not queues:
            self.informers[VOLCANO_QUEUE] = heard(VOLCANO_QUEUE, REFUSED)
        self.objects = [(kind, msgspec.convert(body, kind.type, dec_hook=kind.dec_hook)) for kind, body in objects]

    def get(self, kind: Kind[Any], key: Key) -> Any:
        return next((o for k, o in self.objects if k == kind and (o.metadata.namespace, o.metadata.name) == key), None)

    def by_index(self, kind: Kind[Any], index: str, value: str) -> Iterable[Any]:
        functions: dict[str, Callable[[Any], Iterable[str]]] = {
            BY_JOB: by_job,
            BY_WORKER_JOB: by_worker_job,
            JOBS_BY_DEPENDENCY: dependencies_of,
            GROUPS_BY_QUEUE: queue_of_group,
        }
        return tuple(o for k, o in self.objects if k == kind and value in functions[index](o))

    def informer(self, kind: Kind[Any]) -> Any:
        return self.informers[kind]


REFUSED, MISSING, LIST = Unavailable("podgroups is forbidden"), Unavailable("not found", missing=True), InitDone("10")


def heard(kind: Kind[Any], *answers: InitDone | Unavailable | Absent) -> Informer[Any]:
    """The informer of an optional kind, after these answers of the API server."""
    informer: Informer[Any] = Informer(kind, Selector(), clock=ManualClock(), optional=True)
    for answer in answers:
        anyio.run(informer.feed, answer)
    return informer


def meta(name: str, owner: str = "", kind: str = "TorchrunJob", **more: Any) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": kind, "name": "demo", "uid": owner, "controller": True}
    return {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "ownerReferences": [reference] if owner else [],
        **more,
    }


def job(**spec: Any) -> tuple[Kind[Any], dict[str, Any]]:
    return TORCHRUN_JOB, {"metadata": meta("demo"), "spec": SPEC | spec}


def seen(*objects: tuple[Kind[Any], dict[str, Any]], queues: bool = True) -> Observed:
    found = observe(cast(Cache, Shelf(*objects, queues=queues)), KEY)
    assert found is not None
    return found


def test_no_job_is_nothing_to_see() -> None:
    assert observe(cast(Cache, Shelf()), KEY) is None


def test_children_are_those_that_the_job_controls() -> None:
    for owner, there in (("uid-demo", True), ("uid-of-an-earlier-demo", False), ("", False)):
        found = seen(
            job(),
            (PVC, {"metadata": meta("demo-workspace", owner)}),
            (SERVICE, {"metadata": meta("demo", owner)}),
            (JOB, {"metadata": meta("demo", owner)}),
            (KAI_PODGROUP, {"metadata": meta("pg-demo-uid-demo", owner)}),
        )
        assert [child is not None for child in (found.workspace, found.service, found.worker_job, found.podgroup)] == [
            there
        ] * 4


def test_workers_are_the_pods_of_the_jobs_own_job() -> None:
    labels = {"torchrun.ai/job-uid": "uid-demo", "torchrun.ai/role": "worker", "torchrun.ai/attempt": "0"}
    found = seen(
        job(),
        (JOB, {"metadata": meta("demo", "uid-demo") | {"uid": "uid-child"}}),
        (POD, {"metadata": meta("demo-0-x", "uid-child", "Job", labels=labels)}),
        (POD, {"metadata": meta("forged", "", labels=labels)}),
        (POD, {"metadata": meta("of-another-job", "uid-other", "Job", labels=labels)}),
        (POD, {"metadata": meta("abroad", "uid-child", "Job", labels=labels, namespace="elsewhere")}),
        (POD, {"metadata": meta("demo-sync-0", "uid-demo", labels=labels | {"torchrun.ai/role": "sync"})}),
        (POD, {"metadata": meta("demo-sync-1", "", labels=labels | {"torchrun.ai/role": "sync"})}),
    )
    assert [pod.metadata.name for pod in found.pods] == ["demo-0-x"]
    assert [pod.metadata.name for pod in found.sync_pods] == ["demo-sync-0"]


def test_pods_whose_job_is_gone_still_tell_how_they_ended() -> None:
    labels = {"torchrun.ai/job-uid": "uid-demo", "torchrun.ai/role": "worker", "torchrun.ai/attempt": "0"}
    earlier = labels | {"torchrun.ai/attempt": "1"}
    found = seen(
        job(),
        (POD, {"metadata": meta("demo-0-x", "uid-child", "Job", labels=labels)}),
        (POD, {"metadata": meta("demo-0-y", "uid-child", "Job", labels=earlier)}),
    )
    assert [pod.metadata.name for pod in found.pods] == ["demo-0-x"]


@pytest.mark.parametrize(("told_s", "grace_s", "withdrawn"), [(0, 30, True), (1, 30, False), (1, 0, True)])
def test_suspension_and_release_may_share_a_pods_first_second(told_s: int, grace_s: int, withdrawn: bool) -> None:
    """A pod that somebody else's suspension stopped is no worker of the Job that was released in the same second.

    The kubelet's last delete, without grace, moves the deletion time to the end of the pod.
    """
    labels = {"torchrun.ai/job-uid": "uid-demo", "torchrun.ai/role": "worker", "torchrun.ai/attempt": "0"}
    times = {
        "creationTimestamp": MOMENT,
        "deletionTimestamp": MOMENT + timedelta(seconds=told_s + grace_s),
        "deletionGracePeriodSeconds": grace_s,
    }
    released = {"type": "Suspended", "status": "False", "reason": "JobResumed", "lastTransitionTime": MOMENT}
    child = {"metadata": meta("demo", "uid-demo") | {"uid": "uid-child"}, "spec": {"suspend": False}}
    found = seen(
        job(),
        (JOB, child | {"status": {"conditions": [released]}}),
        (POD, {"metadata": meta("demo-0-x", "uid-child", "Job", labels=labels, **times)}),
    )
    assert (found.pods == ()) is withdrawn


def test_earlier_attempts_are_recognised_by_owner_and_label() -> None:
    labels = {"torchrun.ai/job-uid": "uid-demo", "torchrun.ai/role": "worker"}
    first, second = (labels | {"torchrun.ai/attempt": number} for number in ("0", "1"))

    def pod(name: str, owner: str, owner_name: str, labels: dict[str, str]) -> tuple[Kind[Any], dict[str, Any]]:
        metadata = meta(name, owner, "Job", labels=labels)
        metadata["ownerReferences"][0]["name"] = owner_name
        return POD, {"metadata": metadata}

    found = seen(
        (TORCHRUN_JOB, {"metadata": meta("demo"), "spec": SPEC, "status": {"attempt": 2}}),
        (JOB, {"metadata": meta("demo", "uid-demo", labels=first) | {"uid": "uid-first"}}),
        (JOB, {"metadata": meta("demo-r2", "uid-demo", labels=labels | {"torchrun.ai/attempt": "2"})}),
        (JOB, {"metadata": meta("not-ours", "uid-other", labels=first)}),
        (KAI_PODGROUP, {"metadata": meta("pg-demo-uid-demo", "uid-demo", labels=first)}),
        pod("demo-0-x", "uid-first", "demo", first),
        pod("forged", "uid-forged", "demo", first),
        pod("demo-r1-0-x", "uid-gone", "demo-r1", second),
        pod("forged-name", "uid-gone", "elsewhere", second),
    )
    assert [child.metadata.name for child in found.old_jobs] == ["demo"]
    assert [child.metadata.name for child in found.old_pods] == ["demo-0-x", "demo-r1-0-x"]
    assert [child.metadata.name for child in found.old_groups] == ["pg-demo-uid-demo"]
    assert found.worker_job is not None
    assert found.worker_job.metadata.name == "demo-r2"


def revision(name: str, number: int, owner: str = "uid-demo") -> tuple[Kind[Any], dict[str, Any]]:
    labels = {"torchrun.ai/job-uid": "uid-demo"}
    return CONTROLLER_REVISION, {"metadata": meta(name, owner, labels=labels), "revision": number}


def test_older_templates_were_made_before_the_one_in_status() -> None:
    """A newer one may be what the job runs with by now, where the cache has its status late."""
    templates = (
        revision("demo-old", 1),
        revision("demo-named", 2),
        revision("demo-same-attempt", 2),
        revision("demo-new", 3),
        revision("not-ours", 1, "uid-other"),
        revision("nobodys", 1, ""),
    )
    for named, older in (("demo-named", ["demo-old"]), ("demo-old", []), ("demo-gone", []), ("", [])):
        status = {"queueRevision": named}
        found = seen((TORCHRUN_JOB, {"metadata": meta("demo"), "spec": SPEC, "status": status}), *templates)
        assert [one.metadata.name for one in found.old_revisions] == older


def test_a_foreign_checkpoints_claim_is_not_seen() -> None:
    """Ours is seen, and one that an earlier job of this name left."""
    left: dict[str, Any] = {"labels": {"torchrun.ai/job-name": "demo"}}
    for metadata, there in (
        (meta("demo-checkpoints", "uid-demo"), True),
        (meta("demo-checkpoints", **left), True),
        (meta("demo-checkpoints"), False),
        (meta("demo-checkpoints", "uid-other", **left), False),
    ):
        assert (seen(job(), (PVC, {"metadata": metadata})).checkpoints is not None) is there


def test_a_named_claim_that_is_missing_is_reported() -> None:
    asks = job(volumes={"workspace": {"source": "existing", "claimName": "code"}})
    assert seen(asks).claims == {"code": None}
    assert seen(asks, (PVC, {"metadata": meta("code")})).claims["code"] is not None
    assert seen(job()).claims == {}


def test_the_queue_is_of_the_same_namespace() -> None:
    other = meta("research") | {"namespace": "elsewhere"}
    assert seen(job(), (TORCHRUN_QUEUE, {"metadata": other, "spec": {}})).queue is None
    assert seen(job(), (TORCHRUN_QUEUE, {"metadata": meta("research"), "spec": {}})).queue is not None


@pytest.mark.parametrize(
    ("answers", "absent", "refused"),
    [
        ([], False, ""),
        ([LIST], False, ""),
        ([MISSING], True, ""),
        ([LIST, MISSING], False, ""),
        ([LIST, MISSING, Absent()], True, ""),
        ([REFUSED], False, "podgroups is forbidden"),
        ([LIST, REFUSED], False, ""),
    ],
)
def test_passing_refusal_says_nothing_of_a_scheduler(
    answers: list[InitDone | Unavailable | Absent], absent: bool, refused: str
) -> None:
    """A kind that was listed once is there until it is missing for long; one that never was may be kept from us."""
    shelf = Shelf(job())
    shelf.informers[KAI_PODGROUP] = heard(KAI_PODGROUP, *answers)
    found = observe(cast(Cache, shelf), KEY)
    assert found is not None
    assert (KAI_PODGROUP in found.absent, found.refused.get(KAI_PODGROUP, "")) == (absent, refused)


def test_a_job_that_another_waits_for_knows_it() -> None:
    train = TORCHRUN_JOB, {"metadata": meta("train"), "spec": SPEC | {"dependsOn": [{"job": "demo"}]}}
    assert seen(job(), train).awaited
    assert not seen(job()).awaited


def a_volcano_queue(state: str, name: str = "train") -> tuple[Kind[Any], dict[str, Any]]:
    return VOLCANO_QUEUE, {"metadata": {"name": name}, "status": {"state": state}}


def a_volcano_group(**more: Any) -> tuple[Kind[Any], dict[str, Any]]:
    labels = {"torchrun.ai/job-uid": "uid-demo", "torchrun.ai/job-name": "demo", "torchrun.ai/attempt": "0"}
    about = meta("pg-demo-uid-demo", "uid-demo", labels=labels) | more
    return VOLCANO_PODGROUP, {"metadata": about, "spec": {"minMember": 1, "queue": "train"}}


@pytest.mark.parametrize(
    ("queues", "state"),
    [
        ([a_volcano_queue("Open")], "Open"),
        ([a_volcano_queue("Closed"), a_volcano_queue("Open", "other")], "Closed"),
        ([a_volcano_queue("Open", "other")], ""),
        ([a_volcano_queue("")], None),
    ],
)
def test_state_of_the_queue_of_volcanos_pod_group(queues: list[tuple[Kind[Any], dict[str, Any]]], state: str) -> None:
    """Empty is a Queue that does not exist; one that Volcano has not seen yet has no state that anybody knows."""
    assert seen(job(), a_volcano_group(), *queues).queue_state == state


def test_queue_that_cannot_be_read_is_not_missing() -> None:
    assert seen(job(), a_volcano_group(), queues=False).queue_state is None


def test_pod_group_of_kai_has_no_queue_of_volcanos() -> None:
    group = (KAI_PODGROUP, {"metadata": meta("pg-demo-uid-demo", "uid-demo"), "spec": {"queue": "train"}})
    found = seen(job(), group, a_volcano_queue("Closed"))
    assert (found.podgroup is not None, found.queue_state) == (True, None)


def test_pod_groups_of_both_schedulers_are_found() -> None:
    """A queue may have changed its scheduler between two attempts."""
    old = {"torchrun.ai/job-uid": "uid-demo", "torchrun.ai/attempt": "0"}
    second = job()
    second[1]["status"] = {"attempt": 1}
    found = seen(
        second,
        (KAI_PODGROUP, {"metadata": meta("pg-demo-uid-demo", "uid-demo", labels=old)}),
        a_volcano_group(name="pg-demo-r1-uid-demo", labels=old | {"torchrun.ai/attempt": "1"}),
    )
    assert found.podgroup is not None
    assert (found.podgroup.metadata.name, [group.metadata.name for group in found.old_groups]) == (
        "pg-demo-r1-uid-demo",
        ["pg-demo-uid-demo"],
    )


def test_queue_that_opens_wakes_the_jobs_in_it() -> None:
    shelf = cast(Cache, Shelf(a_volcano_group(), a_volcano_queue("Open")))
    bodies = (a_volcano_queue("Open", name)[1] for name in ("train", "other"))
    train, other = (msgspec.convert(body, VOLCANO_QUEUE.type) for body in bodies)
    assert (jobs_in_volcano_queue(shelf, train), jobs_in_volcano_queue(shelf, other)) == ((KEY,), ())


@pytest.mark.parametrize(
    ("old", "new", "passes"),
    [("Open", "Closed", True), ("Open", "Open", False), (None, "Open", True), ("Open", None, True)],
)
def test_only_the_state_of_a_volcano_queue_wakes_jobs(old: str | None, new: str | None, passes: bool) -> None:
    """Its amounts change with every pod of the cluster."""

    def queue(state: str | None) -> Any:
        return msgspec.convert(a_volcano_queue(state)[1], VOLCANO_QUEUE.type) if state is not None else None

    assert state_turned(Change(VOLCANO_QUEUE, "updated", queue(old), queue(new))) is passes


COUNTED = {"completedIndexes": "0"}
EXITED = {"containerStatuses": [{"name": "trainer", "state": {"terminated": {"exitCode": 0}}}]}


@pytest.mark.parametrize(
    ("finalizers", "job_status", "pod_status", "withdrawn"),
    [
        ([], {}, {}, True),
        (["batch.kubernetes.io/job-tracking"], {}, {}, False),
        ([], {}, EXITED, True),
        ([], COUNTED, EXITED, False),
    ],
)
@pytest.mark.parametrize(
    "suspended", [{"spec": {"suspend": True}}, {"conditions": "True"}, {"conditions": "False"}], ids=str
)
def test_pods_that_others_delete_are_no_withdrawn_ones(
    suspended: dict[str, Any],
    finalizers: list[str],
    job_status: dict[str, Any],
    pod_status: dict[str, Any],
    withdrawn: bool,
) -> None:
    """The Job's controller takes its finalizer off the pods that it stops, and counts none of them as a success."""
    labels = {"torchrun.ai/job-uid": "uid-demo", "torchrun.ai/role": "worker", "torchrun.ai/attempt": "0"}
    said = {"type": "Suspended", "status": suspended.get("conditions"), "reason": "x", "lastTransitionTime": MOMENT}
    conditions = [said] if "conditions" in suspended else []
    child = {"metadata": meta("demo", "uid-demo") | {"uid": "uid-child"}, "spec": suspended.get("spec", {})}
    told = {"deletionTimestamp": MOMENT + timedelta(seconds=30), "deletionGracePeriodSeconds": 30}
    found = seen(
        job(),
        (JOB, child | {"status": {"conditions": conditions} | job_status}),
        (
            POD,
            {
                "metadata": meta("demo-0-x", "uid-child", "Job", labels=labels, finalizers=finalizers, **told)
                | {"annotations": {"batch.kubernetes.io/job-completion-index": "0"}},
                "status": pod_status,
            },
        ),
    )
    assert ([*found.withdrawn] != [], [*found.pods] == []) == (withdrawn, withdrawn)


def a_workload(name: str, owner: str = "uid-child", created: str = "2026-01-01T00:00:00Z", done: str = "False") -> Any:
    finished = {"type": "Finished", "status": done, "reason": "x", "message": ""}
    about = meta(name, owner, "Job", creationTimestamp=created)
    return KUEUE_WORKLOAD, {"metadata": about, "status": {"conditions": [finished]}}


def test_workloads_are_those_that_go_on() -> None:
    """One that a larger one has replaced is Finished; that of another Job is none of ours."""
    found = seen(
        job(),
        (JOB, {"metadata": meta("demo", "uid-demo") | {"uid": "uid-child"}}),
        a_workload("first"),
        a_workload("second", created="2026-01-01T00:00:05Z"),
        a_workload("replaced", created="2026-01-01T00:00:09Z", done="True"),
        a_workload("of-another", "uid-other", created="2026-01-01T00:00:09Z"),
    )
    assert [one.metadata.name for one in found.workloads] == ["first", "second"]
    assert seen(job(), a_workload("first")).workloads == ()


def test_workloads_of_earlier_attempts_are_told_apart() -> None:
    labels = {"torchrun.ai/job-uid": "uid-demo", "torchrun.ai/attempt": "0"}
    found = seen(
        (TORCHRUN_JOB, {"metadata": meta("demo"), "spec": SPEC, "status": {"attempt": 1}}),
        (JOB, {"metadata": meta("demo", "uid-demo", labels=labels) | {"uid": "uid-old"}}),
        (JOB, {"metadata": meta("demo-r1", "uid-demo") | {"uid": "uid-child"}}),
        a_workload("now"),
        a_workload("before", "uid-old"),
        a_workload("ended", "uid-old", done="True"),
    )
    assert [one.metadata.name for one in found.workloads] == ["now"]
    assert [one.metadata.name for one in found.old_workloads] == ["before"]


def test_workload_wakes_the_job_of_its_job() -> None:
    labels = {"torchrun.ai/job-name": "demo"}
    shelf = cast(Cache, Shelf((JOB, {"metadata": meta("demo", "uid-demo", labels=labels)})))
    ours, theirs = (msgspec.convert(a_workload("w", owner)[1], KueueWorkload) for owner in ("uid-demo", ""))
    assert job_of_workload(shelf, ours) == (KEY,)
    assert job_of_workload(shelf, theirs) == ()


def service(attempt: int, owner: str = "uid-demo") -> tuple[Kind[Any], dict[str, Any]]:
    return SERVICE, {
        "metadata": meta("demo", owner, creationTimestamp=MOMENT),
        "spec": {"selector": {"torchrun.ai/attempt": str(attempt)}},
    }


def worker_job(name: str, attempt: int, owner: str = "uid-demo") -> tuple[Kind[Any], dict[str, Any]]:
    labels = {"torchrun.ai/job-uid": "uid-demo", "torchrun.ai/attempt": str(attempt)}
    return JOB, {"metadata": meta(name, owner, labels=labels, creationTimestamp=MOMENT + timedelta(minutes=attempt))}


def template(name: str, number: int, owner: str = "uid-demo") -> tuple[Kind[Any], dict[str, Any]]:
    body = {"metadata": meta(name, owner, labels={"torchrun.ai/job-uid": "uid-demo"}), "revision": number}
    return CONTROLLER_REVISION, body


def test_the_service_tells_which_attempt_was_started_last() -> None:
    later = MOMENT + timedelta(minutes=1)
    for there, expected in (
        ((), None),
        ((service(1, "uid-of-an-earlier-demo"),), None),
        ((service(1),), Started(1, "Service demo", False, MOMENT, "")),
        ((service(1), worker_job("demo", 0)), Started(1, "Service demo", False, MOMENT, "")),
        ((service(1), worker_job("demo-r1", 1)), Started(1, "Job demo-r1", True, later, "")),
        ((service(0), worker_job("demo-r1", 1), worker_job("demo", 0)), Started(0, "Job demo", True, MOMENT, "")),
    ):
        assert seen(job(), *there).started == expected


def test_jobs_tell_of_an_attempt_whose_service_is_gone() -> None:
    """A Job counts under the name that its attempt has, and if it is the job's own."""
    later = MOMENT + timedelta(minutes=1)
    mine = (worker_job("demo", 0), worker_job("demo-r1", 1))
    others = (worker_job("demo-r2", 2, "uid-other"), worker_job("another", 3))
    assert seen(job(), *mine, *others).started == Started(1, "Job demo-r1", True, later, "")


def test_jobs_tell_of_an_attempt_that_no_service_names() -> None:
    """Somebody has edited its selector. Without Jobs it still tells that an attempt was started."""
    later, (kind, body) = MOMENT + timedelta(minutes=1), service(0)
    edited = kind, body | {"spec": {"selector": {"app": "other"}}}
    known = seen(job(), edited, worker_job("demo", 0), worker_job("demo-r1", 1)).started
    assert known == Started(1, "Job demo-r1", True, later, "")
    assert seen(job(), edited).started == Started(0, "Service demo", False, MOMENT, "")


@pytest.mark.parametrize("copy", ["a-copy", "z-copy"])
def test_a_copy_of_a_job_hides_no_attempt(copy: str) -> None:
    later = MOMENT + timedelta(minutes=1)
    there = seen(job(), service(1), worker_job(copy, 1), worker_job("demo-r1", 1), worker_job(f"{copy}-2", 1))
    assert there.started == Started(1, "Job demo-r1", True, later, "")


def test_the_newest_template_is_the_started_attempts() -> None:
    templates = (template("demo-b", 2), template("demo-a", 1), template("demo-c", 3, "uid-other"))
    found = seen(job(), service(0), *templates).started
    assert found is not None
    assert found.template == "demo-b"
