"""Finds settings that are accepted but may not do what the user meant: `Accepted` stays True and names them. Pure."""

from collections.abc import Iterator

from torchctl.api import names
from torchctl.api.conditions import JobReason
from torchctl.controllers.finding import Finding
from torchctl.controllers.job.children.command import runs_as_written
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.template.frozen import FrozenTemplate

__all__ = ["access_modes", "with_caveats"]


def with_caveats(accepted: Finding, observed: Observed, template: FrozenTemplate) -> Finding:
    """The finding that a job is accepted, with every caveat in its message; the first one gives the reason."""
    found = list(_caveats(observed, template)) if accepted.ok else []
    if not found:
        return accepted
    return Finding(True, found[0][0], "; ".join((accepted.message, *(message for _, message in found))))


def access_modes(spec: dict[str, object]) -> tuple[str, ...]:
    """The access modes of a claim that exists."""
    modes = spec.get("accessModes")
    return tuple(str(mode) for mode in modes) if isinstance(modes, list | tuple) else ()


def _caveats(observed: Observed, template: FrozenTemplate) -> Iterator[tuple[JobReason, str]]:
    yield from _checkpoints(observed, template)
    yield from _command(observed)


def _checkpoints(observed: Observed, template: FrozenTemplate) -> Iterator[tuple[JobReason, str]]:
    """Whether the pods land on one node is for the scheduler to say."""
    kept = template.checkpoints
    if kept is None or kept.claim or template.max_nodes == 1:
        return
    claim, many = observed.checkpoints, f"up to {template.max_nodes}" if template.elastic else template.max_nodes
    modes = kept.access_modes if claim is None else access_modes(claim.spec)
    if modes and "ReadWriteMany" not in modes:
        yield (
            JobReason.CHECKPOINTS_ON_ONE_NODE,
            f"PersistentVolumeClaim {names.checkpoints_claim(observed.job.metadata.name)} is {'/'.join(modes)} and the "
            f"job has {many} pods: those on another node than the first one will wait for the volume for "
            "ever; set accessModes [ReadWriteMany] for checkpoints, or keep the pods on one node",
        )


def _command(observed: Observed) -> Iterator[tuple[JobReason, str]]:
    """Whether the command starts torchrun by itself, deep in a script, cannot be seen."""
    spec = observed.job.spec
    if runs_as_written(line=spec.command, args=spec.args or (), launcher=spec.launcher):
        field = "spec.command" if spec.args is None else "spec.args"
        yield (
            JobReason.RUNS_AS_WRITTEN,
            f"{field} runs as it is written, once in each pod, because it is not a plain `python ...` that torchrun "
            "could take over; submit the job with `torchrun ...` in its place, or with launcher none if it is meant so",
        )
