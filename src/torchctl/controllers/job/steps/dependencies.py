"""Judges whether the jobs that a job depends on are in the state that it waits for. Pure.

A job waits for another only until that one reaches the state asked for. Once all have, the condition DependenciesMet
records it, and it holds for ever. So a cycle consists of jobs that still wait for each other: if one of them has
succeeded, or has been let through, the others are not held up.
"""

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import Dependency, DependencyCondition, TorchrunJob
from torchctl.api.phases import TERMINAL, Phase
from torchctl.controllers.finding import Finding
from torchctl.runtime.conditions import find, is_true

__all__ = ["Upstream", "assess", "is_met", "leads_into_a_cycle", "waits_for"]

Upstream = Mapping[str, TorchrunJob | None]
"""The jobs that a job depends on, and those that these depend on, by name; None for one that does not exist."""

_SHOWN = 12
"""Jobs of a cycle that a message names; a longer one is cut in its middle."""


def assess(job: TorchrunJob, upstream: Upstream) -> Finding:
    """Judges the dependencies of a job. With reason DependencyFailed the job has failed: it can never start.

    Args:
        upstream: Its direct dependencies, and as many of theirs as are known; a cycle is named if it is in here.
    """
    if not job.spec.depends_on:
        return Finding(True, JobReason.NO_DEPENDENCIES, "the job depends on no other job")
    known = find(job.status.conditions, JobCondition.DEPENDENCIES_MET)
    if known is not None and known.status == "True":
        return Finding(True, known.reason, known.message)
    unmet = [wanted for wanted in job.spec.depends_on if not is_met(wanted, upstream.get(wanted.job))]
    if not unmet:
        return Finding(True, JobReason.DEPENDENCIES_MET, "; ".join(map(_met, job.spec.depends_on)))
    return _failed(unmet, upstream) or _in_cycle(job, upstream) or _not_yet(unmet, upstream)


def waits_for(job: TorchrunJob) -> tuple[Dependency, ...]:
    """Returns the dependencies that can hold the job up; none once it was let through or has ended."""
    through = is_true(job.status.conditions, JobCondition.DEPENDENCIES_MET) or job.status.phase in TERMINAL
    return () if through else job.spec.depends_on


def leads_into_a_cycle(job: TorchrunJob, upstream: Upstream) -> bool:
    """Whether a job is in a cycle, or waits for jobs that are, as far as `upstream` has them."""
    return bool(_cycle(job, {**upstream, job.metadata.name: job}))


def is_met(wanted: Dependency, found: TorchrunJob | None) -> bool:
    """Whether a job is what is asked of it; one that has succeeded has also run."""
    if found is None:
        return False
    runs = found.status.phase == Phase.RUNNING and not _is_leaving(found)
    return found.status.phase == Phase.SUCCEEDED or (runs and wanted.condition is DependencyCondition.RUNNING)


def _is_leaving(found: TorchrunJob) -> bool:
    return found.metadata.deletion_timestamp is not None


def _failed(unmet: Iterable[Dependency], upstream: Upstream) -> Finding | None:
    for wanted in unmet:
        found = upstream.get(wanted.job)
        if found is not None and found.status.phase == Phase.FAILED and not _is_leaving(found):
            name, why = wanted.job, find(found.status.conditions, JobCondition.FAILED)
            said = f" ({why.reason})" if why is not None else ""
            message = f"TorchrunJob {name} has failed{said}: see `kubectl describe trj {name}`, submit both jobs again"
            return Finding(False, JobReason.DEPENDENCY_FAILED, message, warn=True)
    return None


def _in_cycle(job: TorchrunJob, upstream: Upstream) -> Finding | None:
    path = _cycle(job, upstream)
    if not path:
        return None
    shown = path if len(path) <= _SHOWN else [*path[: _SHOWN - 2], "...", path[-1]]
    message = (
        f"TorchrunJobs wait for each other, {' -> '.join(shown)}: none of them can start; delete one and submit it "
        "again without the dependency"
    )
    return Finding(False, JobReason.DEPENDENCY_CYCLE, message, warn=True)


def _cycle(job: TorchrunJob, upstream: Upstream) -> list[str]:
    """A cycle that holds the job up, its first job also last; the job's own before one further up, empty for none."""
    here = job.metadata.name
    edges = {name: _held_up_by(found, upstream) for name, found in upstream.items() if found is not None}
    edges[here] = _held_up_by(job, upstream)
    own = _way_back(here, edges)
    if own:
        return own
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return _from_the_first_name(list(reversed(error.args[1])))
    return []


def _held_up_by(job: TorchrunJob, upstream: Upstream) -> list[str]:
    return [wanted.job for wanted in waits_for(job) if not is_met(wanted, upstream.get(wanted.job))]


def _way_back(here: str, edges: Mapping[str, list[str]]) -> list[str]:
    """The shortest way from a job over those that it waits for back to itself."""
    came_from: dict[str, str] = {}
    reached = [here]
    for name in reached:
        for after in edges.get(name, ()):
            if after == here:
                return [*_way_to(name, here, came_from), here]
            if after not in came_from:
                came_from[after] = name
                reached.append(after)
    return []


def _way_to(name: str, here: str, came_from: Mapping[str, str]) -> list[str]:
    path = [name]
    while path[-1] != here:
        path.append(came_from[path[-1]])
    return path[::-1]


def _from_the_first_name(cycle: list[str]) -> list[str]:
    """The same cycle in the same words, wherever it was found."""
    ring = cycle[:-1]
    first = ring.index(min(ring))
    return [*ring[first:], *ring[:first], ring[first]]


def _not_yet(unmet: Iterable[Dependency], upstream: Upstream) -> Finding:
    missing = [wanted for wanted in unmet if _is_missing(upstream.get(wanted.job))]
    message = "; ".join(_open(wanted, upstream.get(wanted.job)) for wanted in unmet)
    reason = JobReason.DEPENDENCY_NOT_FOUND if missing else JobReason.WAITING_FOR_DEPENDENCY
    return Finding(False, reason, f"{message}; this job goes on by itself then", warn=bool(missing))


def _is_missing(found: TorchrunJob | None) -> bool:
    return found is None or _is_leaving(found)


def _open(wanted: Dependency, found: TorchrunJob | None) -> str:
    if found is None:
        return f"TorchrunJob {wanted.job} does not exist: create it"
    if _is_leaving(found):
        return f"TorchrunJob {wanted.job} is being deleted: create it again"
    what = "run" if wanted.condition is DependencyCondition.RUNNING else "succeed"
    return f"waits for TorchrunJob {wanted.job} to {what}"


def _met(wanted: Dependency) -> str:
    what = "runs or has run" if wanted.condition is DependencyCondition.RUNNING else "has succeeded"
    return f"TorchrunJob {wanted.job} {what}"
