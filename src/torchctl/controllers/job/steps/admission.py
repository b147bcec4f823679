"""Step three: finds whether a gang scheduler has admitted the job, and in the scheduler's words why not.

The PodGroup that counts is the one that the pods say they are in, which need not be the one that was made for them:
KAI's podgrouper puts the pods of a Job into one of its own if it does not know kai.scheduler/skip-podgrouper.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from torchctl.api import names
from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.counts import agree, counted, every
from torchctl.api.jobstatus import NEVER_FITS, PODS_NOT_PLACED, Admission, JobStatus
from torchctl.api.kube import Job
from torchctl.api.kueue import KueueWorkload
from torchctl.api.labels import KUEUE_QUEUE
from torchctl.controllers.finding import Finding
from torchctl.controllers.gangs.groups import PodGroup, least_of
from torchctl.controllers.gangs.kueue import is_admitted, may_grow, words_of
from torchctl.controllers.gangs.scheduler import PodGroupScheduler
from torchctl.controllers.job import pods, success
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.children.podgroup import group_name
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import workers
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.conditions import find

__all__ = ["asked", "assess", "granted", "is_taken_back", "may_start", "preempted_for", "waiting"]


def assess(observed: Observed, template: FrozenTemplate, *, coordinator: bool) -> Finding:
    """Judges admission from the PodGroups and the pods; who was admitted stays so until somebody suspends its Job.

    Args:
        coordinator: Whether the coordinator is on.
    """
    scheduler, job = template.gang_scheduler, observed.worker_job
    if scheduler.admits_jobs and not observed.lacks(scheduler):
        return _by_workload(observed, template)
    if job is not None and observed.held:
        return Finding(False, JobReason.SUSPENDED_BY_OTHERS, _held(job))
    if template.coordinated:
        return _coordinated(observed, coordinator)
    known = find(observed.job.status.conditions, JobCondition.ADMITTED)
    if known is not None and known.status == "True" and known.reason == JobReason.ADMITTED:
        return Finding(True, known.reason, known.message)
    found = _judged(observed, template)
    if not template.auto:
        return found
    return replace(found, message=f"{found.message}; scheduler auto took {scheduler.name or 'none'}")


def _by_workload(observed: Observed, template: FrozenTemplate) -> Finding:
    """Kueue's word on the attempt's Job."""
    place = template.gang_scheduler.place
    job = f"Job {names.worker_job(observed.job.metadata.name, observed.job.status.attempt)}"
    going, waits = _going(observed), waiting(observed)
    if going:
        more = f"; it grows once it has more: {pods.shorten(words_of(waits))}" if waits is not None else ""
        found = f"{job} is admitted through {place}: there is quota for all that it asked for first{more}"
        return Finding(True, JobReason.ADMITTED, found)
    if waits is None:
        needs = "Kueue has to run, with its integration batch/job, and to manage this namespace"
        found = f"{job} waits in {place}, which has not taken it up yet: {needs}"
        return Finding(False, JobReason.WAITING_FOR_ADMISSION, found)
    where = ", ".join(filter(None, (place, observed.place)))
    words, told = pods.shorten(words_of(waits)), f"{job} waits in {where}: Workload {waits.metadata.name}"
    if observed.paused and observed.withdrawn:
        words = f"paused until pods of its last run are gone, {observed.withdrawn[0].metadata.name} among them"
    elif not waits.spec.active and not observed.paused:
        words = "; ".join(filter(None, ("it is inactive, set its spec.active to true", words)))
    return Finding(False, JobReason.WAITING_FOR_ADMISSION, f"{told}: {words}" if words else told, warn=bool(words))


def waiting(observed: Observed) -> KueueWorkload | None:
    """The newest Workload of the attempt's Job that Kueue has not admitted; None if there is none."""
    going = _going(observed)
    return next((one for one in reversed(observed.workloads) if one not in going), None)


def _going(observed: Observed) -> tuple[KueueWorkload, ...]:
    return () if observed.stands_still else tuple(filter(is_admitted, observed.workloads))


def asked(observed: Observed, template: FrozenTemplate) -> int:
    """How many pods the attempt's Job should ask for now.

    Kueue gives quota for all that a Job asks for or nothing, so an elastic one asks for its fewest pods first, and for
    the others once these are up. It asks for as many until it is stopped.
    """
    desired, job, least = template.desired(observed.job.spec), observed.worker_job, template.min_nodes
    if template.elastic is None or not template.gang_scheduler.admits_jobs:
        return desired
    if job is None or observed.stands_still:
        return least
    up = workers.standing(observed) >= least
    grows = int(job.spec.get("completions") or least) > least or any(
        is_admitted(one) and may_grow(one, up=up) for one in observed.workloads
    )
    return desired if grows else min(least, desired)


def may_start(observed: Observed, template: FrozenTemplate) -> bool:
    """Whether the coordinator has let the attempt in, or is not asked. Who has started was let in."""
    if not template.coordinated or observed.was_started:
        return True
    status = observed.job.status
    return granted(status) is not None and not is_taken_back(status)


def _coordinated(observed: Observed, coordinator: bool) -> Finding:
    """The coordinator's word."""
    status = observed.job.status
    if observed.was_started or granted(status) is not None:
        return Finding(True, JobReason.LET_IN, "the coordinator has let the job in: there is room for all its pods")
    if not coordinator:
        message = (
            f"TorchrunJob {observed.job.metadata.name} waits to be let in, and the coordinator is off: run the "
            "operator with --coordinator, or delete the job and submit it again, it starts without being let in then"
        )
        return Finding(False, JobReason.COORDINATOR_OFF, message, warn=True)
    told = status.admission
    if told is None or told.attempt != status.attempt or not told.message:
        return Finding(False, JobReason.WAITING_FOR_ADMISSION, "waits for the coordinator's decision")
    place = f"place {told.place} of TorchrunQueue {observed.job.spec.job_queue}: " if told.place else ""
    start = told.estimated_start_time
    estimate = f"; estimated start {start:%Y-%m-%d %H:%M} UTC" if start is not None else ""
    message = f"{place}{told.message}{estimate}"
    if told.reason == PODS_NOT_PLACED:
        return Finding(False, JobReason.PODS_NOT_PLACED, message, warn=True)
    return Finding(False, JobReason.WAITING_FOR_ADMISSION, message, warn=told.reason == NEVER_FITS)


def granted(status: JobStatus) -> Admission | None:
    """Returns the coordinator's record if it has let the current attempt in."""
    told = status.admission
    return told if told is not None and told.attempt == status.attempt and told.let_in_time is not None else None


def is_taken_back(status: JobStatus) -> bool:
    """Whether the coordinator has taken back the room that it had let the current attempt in for."""
    told = granted(status)
    return told is not None and told.taken_back_time is not None


def preempted_for(status: JobStatus) -> str:
    """Returns the job for which the current attempt has to leave, as namespace/name; empty if it has not."""
    told = granted(status)
    return told.preempted_for if told is not None else ""


def _judged(observed: Observed, template: FrozenTemplate) -> Finding:
    """What the gang scheduler makes of an attempt that it has not admitted yet."""
    scheduler = template.gang_scheduler
    refusal = observed.refusal(scheduler)
    if refusal:
        return Finding(False, JobReason.POD_GROUPS_REFUSED, refusal, warn=True)
    if scheduler.needs is not None and observed.lacks(scheduler):
        return Finding(False, scheduler.needs.reason, scheduler.needs.message, warn=True)
    if template.pod_groups is None:
        return Finding(True, JobReason.NO_GANG, "no gang scheduler: the pods are placed one by one")
    return _by_pod_groups(observed, template, template.pod_groups)


def _by_pod_groups(observed: Observed, template: FrozenTemplate, scheduler: PodGroupScheduler) -> Finding:
    """Where the pods are, and the word of the PodGroups that they are in."""
    # A worker that is done was placed, whatever is left of its pod.
    there = success.done(observed) | {pods.index(pod) for pod in observed.pods if pods.is_scheduled(pod)}
    placed = len(there)
    named = _named(observed, scheduler)
    known_groups = {name: group for name, group in observed.groups.items() if name in named} or _own(observed)
    if not scheduler.gang:
        # A Queue that takes in no pods also keeps those that come one by one.
        waits = scheduler.own_group and placed < template.min_nodes
        return _one_by_one(scheduler.place, _whys(known_groups, observed, scheduler) if waits else "")
    if placed >= template.min_nodes and 0 not in there and template.meets_at_worker_0:
        message = f"{_placed(placed, template)}, but not worker 0, at which the others meet"
        return Finding(False, JobReason.WAITING_FOR_ADMISSION, message)
    if placed >= template.min_nodes:
        return Finding(True, JobReason.ADMITTED, _placed(placed, template))
    why = _too_small(observed, template, scheduler, known_groups)
    if why:
        return Finding(False, JobReason.GANG_TOO_SMALL, why, warn=True)
    why = _whys(known_groups, observed, scheduler)
    if why:
        return Finding(False, JobReason.WAITING_FOR_ADMISSION, why, warn=True)
    wanted = counted(template.gpus, "GPU") if template.gpus else counted(template.nodes, "node")
    return Finding(False, JobReason.WAITING_FOR_ADMISSION, f"waits for {wanted} in {scheduler.place}")


def _one_by_one(place: str, why: str) -> Finding:
    if why:
        return Finding(False, JobReason.WAITING_FOR_ADMISSION, why, warn=True)
    return Finding(True, JobReason.NO_GANG, f"no gang: the pods are placed one by one in {place}")


def _held(job: Job) -> str:
    """Names the suspender of the Job, as far as its labels tell, and the place to read on."""
    name, queue = job.metadata.name, job.metadata.labels.get(KUEUE_QUEUE)
    if queue:
        why = f"see `kubectl describe workloads.kueue.x-k8s.io` of Job {name}"
        return f"Kueue has suspended Job {name} and admits it through LocalQueue {queue}: {why}"
    who = f"`kubectl get job {name} -o yaml --show-managed-fields` names who set spec.suspend"
    return f"Job {name} was suspended, and not by its TorchrunJob: {who}; this job goes on when they set it to false"


def _own(observed: Observed) -> Mapping[str, PodGroup]:
    group = observed.podgroup
    return {group.metadata.name: group} if group is not None else {}


def _placed(placed: int, template: FrozenTemplate) -> str:
    if template.elastic is None:
        return f"{every(placed, 'pod')} {agree(placed, 'is', 'are')} placed"
    return f"placed pods: {placed}, of {template.min_nodes} that {agree(template.min_nodes, 'is', 'are')} enough"


def _too_small(
    observed: Observed, template: FrozenTemplate, scheduler: PodGroupScheduler, groups: Mapping[str, PodGroup]
) -> str:
    """Explains what is wrong with the gang that the pods really are in, if some might start without the others."""
    if template.min_nodes == 1:
        return ""
    problem = next(_problems(observed, template, scheduler, groups), "")
    if not problem:
        return ""
    return f"{problem}: some of the {template.min_nodes} pods may start without the others; {scheduler.remedy}"


def _problems(
    observed: Observed, template: FrozenTemplate, scheduler: PodGroupScheduler, groups: Mapping[str, PodGroup]
) -> Iterator[str]:
    """Yields what is wrong with the PodGroups that the pods are in.

    `groups` need not have the PodGroups of others; one that is not in it is not the gang that was asked for.
    """
    there = sorted(_named(observed, scheduler))
    lost = next((pod for pod in observed.pods if not scheduler.has_member(pod)), None)
    if lost is not None:
        yield f"pod {lost.metadata.name} is in no PodGroup, the API server has dropped it"
    if len(there) > 1:
        yield f"the pods are in {len(there)} PodGroups, among them {there[0]} and {there[1]}"
    ours = group_name(Owner.of(observed.job), observed.job.status.attempt)
    for name in there:
        group = groups.get(name)
        if group is not None and least_of(group) < template.min_nodes:
            yield f"the pods are in PodGroup {name}, whose minMember is {least_of(group)} and not {template.min_nodes}"
        elif group is None and name != ours and scheduler.own_group:
            yield f"the pods are in PodGroup {name} and not in {ours}"
        elif group is not None and not scheduler.has_seen(group) and (half := _half(observed)):
            yield f"{half}, and the scheduler says nothing of PodGroup {name}"


def _half(observed: Observed) -> str:
    """Names a pod with a node and one that finds none; empty if there are no two such pods."""
    placed = next((pod.metadata.name for pod in observed.pods if pods.is_scheduled(pod)), "")
    lacking = next((pod.metadata.name for pod in observed.pods if pods.finds_no_node(pod)), "")
    return f"pod {placed} has a node, pod {lacking} finds none" if placed and lacking else ""


def _named(observed: Observed, scheduler: PodGroupScheduler) -> frozenset[str]:
    """Names of the PodGroups in which the job's own scheduler sees the pods."""
    return frozenset(filter(None, map(scheduler.group_of, observed.pods)))


def _whys(groups: Mapping[str, PodGroup], observed: Observed, scheduler: PodGroupScheduler) -> str:
    return "; ".join(filter(None, (_why(group, observed, scheduler) for group in groups.values())))


def _why(group: PodGroup, observed: Observed, scheduler: PodGroupScheduler) -> str:
    """The gang scheduler's words on why a PodGroup waits, with the next steps; empty if it has said nothing."""
    said = scheduler.said(group, observed.queue_state)
    return "; ".join((f"PodGroup {group.metadata.name}: {pods.shorten(said.words)}", *said.steps)) if said.words else ""
