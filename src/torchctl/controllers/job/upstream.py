"""Reads from the cache which jobs a job waits for, and which jobs wait for it."""

from collections.abc import Callable
from typing import Any

from torchctl.api.conditions import JobCondition
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.phases import TERMINAL, Phase
from torchctl.controllers.indexes import JOBS_BY_DEPENDENCY
from torchctl.controllers.job.steps.dependencies import leads_into_a_cycle, waits_for
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Change
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import Key, key_of
from torchctl.runtime.predicate import Predicate
from torchctl.runtime.reconcile import Request

__all__ = ["MOST", "is_awaited", "jobs_that_wait", "jobs_waited_for", "upstream", "upstream_turned"]

MOST = 256
"""Jobs that are read for one job. A cycle that is longer holds its jobs up all the same; it is not named."""


def upstream(cache: Cache, job: TorchrunJob, most: int = MOST) -> dict[str, TorchrunJob | None]:
    """The jobs that a job waits for, and those that these wait for, nearest first, at most `most`.

    The direct ones are always among them (a spec has at most 16). Nothing is read for a job that waits no more.
    """
    namespace = job.metadata.namespace
    return _upstream(job, lambda name: cache.get(TORCHRUN_JOB, Key(namespace, name)), most)


def _upstream(job: TorchrunJob, read: Callable[[str], TorchrunJob | None], most: int) -> dict[str, TorchrunJob | None]:
    found: dict[str, TorchrunJob | None] = {}
    waiting = [job]
    for one in waiting:
        for wanted in waits_for(one):
            if wanted.job in found or len(found) >= most:
                continue
            found[wanted.job] = other = read(wanted.job)
            if other is not None:
                waiting.append(other)
    return found


def jobs_that_wait(cache: Cache, job: TorchrunJob) -> tuple[Request, ...]:
    """Returns the jobs that wait for this one, and in a dependency cycle also those that wait for them.

    Judging a job looks further than one step for cycles alone. So one step more is woken only if a cycle closes or
    opens through this job: if it is in one, waits for one, or has more upstream than is read. Call this for the job
    before and after a change, with all others as they are.

    The kind must be registered with the index `JOBS_BY_DEPENDENCY`.
    """
    found = dict.fromkeys(_waiting(cache, key_of(job)))
    if not found or not _may_lead_into_a_cycle(cache, job):
        return tuple(found)
    reached = list(found)
    for key in reached:
        further = [other for other in _waiting(cache, key) if other not in found]
        found |= dict.fromkeys(further)
        reached += further
    return tuple(found)


def _waiting(cache: Cache, key: Key) -> list[Key]:
    return [key_of(other) for other in cache.by_index(TORCHRUN_JOB, JOBS_BY_DEPENDENCY, str(key)) if waits_for(other)]


def _may_lead_into_a_cycle(cache: Cache, job: TorchrunJob) -> bool:
    known = upstream(cache, job)
    return len(known) >= MOST or leads_into_a_cycle(job, known)


def jobs_waited_for(job: TorchrunJob) -> tuple[Request, ...]:
    """Returns the jobs that this one depends on, because they may be kept until it waits no more."""
    return tuple(Key(job.metadata.namespace, wanted.job) for wanted in job.spec.depends_on)


def is_awaited(cache: Cache, job: TorchrunJob) -> bool:
    """Whether a job waits for this one. The kind must be registered with the index `JOBS_BY_DEPENDENCY`."""
    others = cache.by_index(TORCHRUN_JOB, JOBS_BY_DEPENDENCY, str(key_of(job)))
    return any(waits_for(other) and other.metadata.deletion_timestamp is None for other in others)


def _standing(job: TorchrunJob) -> tuple[object, ...]:
    """The parts of a job that others can wait for."""
    met = find(job.status.conditions, JobCondition.DEPENDENCIES_MET)
    phase = job.status.phase if job.status.phase in (Phase.RUNNING, *TERMINAL) else ""
    return phase, met.status if met is not None else "", job.metadata.deletion_timestamp is not None


def _turned(change: Change[Any]) -> bool:
    if change.initial:
        return False
    if change.old is None or change.new is None:
        return True
    return _standing(change.old) != _standing(change.new)


upstream_turned = Predicate(_turned)
"""Passes a change if the job came or went, began to run, ended, or was let through: jobs that wait look at no more.

The jobs that existed at the start are reconciled anyway, with all of them in the cache.
"""
