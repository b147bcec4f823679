"""What a decision needs that the cache does not have, or may have late: the API server itself is asked."""

from dataclasses import replace

from torchctl.api import names
from torchctl.api.kube import JOB, Job
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.plan import Plan
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import EVENT

__all__ = ["completed"]


async def completed(client: Client, observed: Observed, todo: Plan) -> Observed:
    """What was observed, with what the plan asks for; `observed` itself where it asks for nothing.

    RBAC: list on Events, get on Jobs.
    """
    if todo.asks_why:
        return replace(observed, create_failure=await _why_no_pods(client, observed))
    if todo.misses_job:
        return replace(observed, worker_job=await _worker_job(client, observed))
    return observed


async def _why_no_pods(client: Client, observed: Observed) -> str:
    """What the Job controller says when it cannot create pods. It says so in Events, and nowhere else."""
    job, child = observed.job, observed.worker_job
    uid = child.metadata.uid if child is not None else ""
    fields = f"involvedObject.kind=Job,involvedObject.uid={uid},reason=FailedCreate"
    events = await client.list(EVENT, namespace=job.metadata.namespace, fields=fields)
    newest = max(events, key=lambda event: int(event.metadata.resource_version), default=None)
    return newest.message if newest is not None else ""


async def _worker_job(client: Client, observed: Observed) -> Job | None:
    """The attempt's Job as it is now. Who has just begun to lead may have heard of the job and not yet of its Job."""
    meta = observed.job.metadata
    try:
        found = await client.get(JOB, names.worker_job(meta.name, observed.job.status.attempt), meta.namespace)
    except NotFound:
        return None
    return found if controlled_by(meta.uid)(found.metadata) else None
