"""Ends the attempt of an elastic job that cannot go on, although no pod of it tells of a loss."""

from datetime import datetime, timedelta

from torchctl.api import names
from torchctl.api.causes import Cause
from torchctl.api.conditions import JobCondition
from torchctl.api.counts import counted
from torchctl.api.job import Failure
from torchctl.controllers.job import pods, success
from torchctl.controllers.job.case import Case
from torchctl.controllers.job.failure.verdict import Loss
from torchctl.controllers.job.steps import workers
from torchctl.runtime.conditions import find

__all__ = ["below_minimum", "look_again_s", "replaced_host"]


def below_minimum(case: Case) -> Loss | None:
    """The loss of an elastic job that has run and was below its minimum for too long; None while it may go on."""
    left = look_again_s(case)
    if left is None or left > 0 or case.template is None:
        return None
    job = names.worker_job(case.observed.job.metadata.name, case.status.attempt)
    there = counted(workers.standing(case.observed), "ready worker")
    message = f"Job {job} has {there}, elastic.minNodes is {case.template.min_nodes}: no replacement came"
    return Loss(Cause.BELOW_MINIMUM, Failure(reason=Cause.BELOW_MINIMUM, message=message), case.moment)


def replaced_host(case: Case) -> Loss | None:
    """Returns the loss of the worker 0 that hosted the store, if another replaced it before anybody saw it go."""
    hosts = {pod.metadata.uid: pod for pod in case.observed.pods if pods.index(pod) == 0}
    known = case.status.host_uid
    if not known or not hosts or known in hosts or case.template is None or not case.template.meets_at_worker_0:
        return None
    if success.has_succeeded(case.observed):
        return None
    host = next(iter(hosts.values()))
    message = "it took the place of the worker 0 at which the others had met, and nothing says why that one is gone"
    failure = Failure(pod=host.metadata.name, node=host.spec.node_name, reason=Cause.VANISHED, message=message)
    return Loss(Cause.VANISHED, failure, host.metadata.creation_timestamp)


def look_again_s(case: Case) -> float | None:
    """Returns seconds until a job has been below its minimum for too long; None if it has enough workers.

    A clock that was set back would say more than all of it: then nothing is left.
    """
    since, longest_s = _short_since(case), case.settings.below_minimum_s
    if since is None:
        return None
    left = (since + timedelta(seconds=longest_s) - case.now).total_seconds()
    return left if left <= longest_s + 1 else 0.0


def _short_since(case: Case) -> datetime | None:
    """Returns since when an elastic job that has run has too few ready workers; None if it has enough.

    The condition may be late to say that enough are back. A Job that somebody else suspended starts anew when it is
    released: its start time is set again then.
    """
    ready, job = find(case.status.conditions, JobCondition.WORKERS_READY), case.observed.worker_job
    if case.template is None or not case.is_elastic or case.status.attempt_ready_time is None or case.observed.held:
        return None
    if ready is None or ready.status == "True" or workers.standing(case.observed) >= case.template.min_nodes:
        return None
    moments = (ready.last_transition_time, job.status.start_time if job is not None else None)
    return max((moment for moment in moments if moment is not None), default=None)
