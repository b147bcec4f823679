"""Says why there are no lines of a job's logs, and what to do for them. Pure."""

from torchctl.api.phases import TERMINAL
from torchctl.client.logs.roster import Wanted
from torchctl.client.views import JobView

__all__ = ["nothing_text"]


def nothing_text(job: JobView, wanted: Wanted) -> str:
    """Returns the line for a person who asked for logs and got no lines."""
    name, status = job.metadata.name, job.status
    state = f"{name} is {status.phase or 'new'}"
    if wanted.attempt is not None and wanted.attempt > status.attempt:
        return f"There is no attempt {wanted.attempt}: {state}, in attempt {status.attempt}."
    if wanted.attempt is not None and wanted.attempt < status.attempt:
        return f"No lines: the pods of attempt {wanted.attempt} are gone, or wrote none. {_KEPT}"
    is_cut = wanted.since is not None or wanted.tail is not None
    if status.phase in TERMINAL:
        why = (
            "Without --since and --tail there may be some." if is_cut else f"Its pods are gone, or wrote none. {_KEPT}"
        )
        return f"No lines: {state}. {why}"
    when = "in that time" if is_cut else "yet"
    again = f"kubectl torchrun logs {name} -n {job.metadata.namespace} -f"
    return f"No lines {when}: {state}. Wait for them with: {again}"


_KEPT = "runPolicy.podRetention says which pods are kept."
