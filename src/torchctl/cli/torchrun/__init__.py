"""The verbs of `kubectl torchrun`, one module each, imported only if the verb runs.

The module of a verb defines `command`, made with `torchctl.cli.torchrun.common.verb`. At import it needs nothing but
click: what is heavy (torchctl.client, rich) is imported inside its function, so that `--help` is quick.
"""

from torchctl.cli.lazy import Entry, Section

__all__ = ["SECTIONS"]


def _verbs(**summaries: str) -> dict[str, Entry]:
    """Returns the entries of verbs; the module has the verb's name."""
    return {name: Entry(f"{__name__}.{name}", summary) for name, summary in summaries.items()}


TRAIN = Section(
    "Train",
    _verbs(
        submit="Create a job and send it the current directory.",
        sync="Send the current directory to a job that is there.",
        rollback="Take a job back to the code that it had before.",
    ),
)

LOOK = Section(
    "Look",
    _verbs(
        list="List jobs.",
        logs="Show what the workers of a job print.",
        queues="List queues.",
        status="Show what a job does, what it waits for, and its workers.",
        wait="Wait until a job is in a phase or has a condition.",
    ),
)

REACH = Section(
    "Reach into the pods",
    _verbs(
        exec="Run a command, or a shell, where a rank runs.",
        cp="Copy files out of a worker, or into one.",
    ),
)

CHANGE = Section(
    "Change",
    _verbs(
        suspend="Stop the pods of jobs.",
        resume="Start suspended jobs again.",
        restart="End the attempt of jobs and begin the next one.",
        scale="Change how many nodes elastic jobs should have.",
        delete="Delete jobs.",
    ),
)

OTHER = Section(
    "Other",
    _verbs(
        completion="Print a script that makes a shell complete commands.",
        version="Show the versions of this program, the operator and the API server.",
    ),
)

SECTIONS = tuple(section for section in (TRAIN, LOOK, REACH, CHANGE, OTHER) if section.entries)
"""All verbs, in the order of the help."""
