"""What happens on a day, as values that can be written down, dropped and replayed. Pure."""

import msgspec

__all__ = [
    "Action",
    "AddNode",
    "AdjustQueue",
    "BreakWatches",
    "Compact",
    "Day",
    "Delete",
    "DeleteChild",
    "DeletePod",
    "Evict",
    "Fail",
    "Fate",
    "Intrude",
    "KillLeader",
    "LoseAnswers",
    "LoseNode",
    "LoseStatus",
    "Outage",
    "Part",
    "Prioritise",
    "RemoveNode",
    "Resume",
    "Scale",
    "StopLeader",
    "Submit",
    "Suspend",
    "read_day",
    "write_day",
]


class Fate(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the workers of a job run: `run_s` seconds, the worker `index` of the first attempts less and to a failure."""

    run_s: float
    failing_attempts: int = 0
    index: int = 0
    exit_code: int = 1
    after_s: float = 10.0
    stop_s: float = 0.0


class Submit(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A person submits a job of a kind that `jobs` knows; if one of that name exists, nothing happens."""

    at_s: float
    job: str
    kind: str
    nodes: int
    fate: Fate
    after: str = ""


class Suspend(msgspec.Struct, frozen=True, tag=True):
    at_s: float
    job: str


class Resume(msgspec.Struct, frozen=True, tag=True):
    at_s: float
    job: str


class Scale(msgspec.Struct, frozen=True, tag=True):
    """A person changes numNodes of an elastic job."""

    at_s: float
    job: str
    nodes: int


class Delete(msgspec.Struct, frozen=True, tag=True):
    """A person deletes a TorchrunJob."""

    at_s: float
    job: str


class DeleteChild(msgspec.Struct, frozen=True, tag=True):
    """A person deletes the Job or the Service of a job."""

    at_s: float
    job: str
    kind: str


class DeletePod(msgspec.Struct, frozen=True, tag=True):
    """Somebody deletes a worker; without grace if `by_force`."""

    at_s: float
    job: str
    index: int
    by_force: bool = False


class Fail(msgspec.Struct, frozen=True, tag=True):
    """The program of a worker ends with an exit code."""

    at_s: float
    job: str
    index: int
    exit_code: int
    reason: str = ""


class Evict(msgspec.Struct, frozen=True, tag=True):
    """A node evicts a worker."""

    at_s: float
    job: str
    index: int


class LoseNode(msgspec.Struct, frozen=True, tag=True):
    """A node is silent for a while."""

    at_s: float
    node: str
    for_s: float


class RemoveNode(msgspec.Struct, frozen=True, tag=True):
    """A node goes for good, with all that runs there."""

    at_s: float
    node: str


class AddNode(msgspec.Struct, frozen=True, tag=True):
    """Another node comes."""

    at_s: float
    node: str


class Intrude(msgspec.Struct, frozen=True, tag=True):
    """Pods of others come that take GPUs: as soon as the next job is let in, or at once without a coordinator."""

    at_s: float
    pods: int
    gpus: int
    run_s: float


class Prioritise(msgspec.Struct, frozen=True, tag=True):
    """A person changes the priority of a job."""

    at_s: float
    job: str
    priority: int


class LoseStatus(msgspec.Struct, frozen=True, tag=True):
    """Somebody removes all of a job's status that runs or has ended, as a replacement does.

    If `age_s` seconds are given, that of a running job is set back to what it was, as by a restored backup.
    """

    at_s: float
    job: str
    age_s: float = 0.0


class AdjustQueue(msgspec.Struct, frozen=True, tag=True):
    """An admin changes the weight of a queue, and its quota of GPUs."""

    at_s: float
    queue: str
    weight: int
    gpus: int


class KillLeader(msgspec.Struct, frozen=True, tag=True):
    """The leading replica is killed; another process starts after a while."""

    at_s: float
    back_s: float


class StopLeader(msgspec.Struct, frozen=True, tag=True):
    """The leading replica is stopped gracefully, as by an upgrade; another process has started."""

    at_s: float


class Part(msgspec.Struct, frozen=True, tag=True):
    """The network of the leading replica is silent for a while."""

    at_s: float
    for_s: float


class BreakWatches(msgspec.Struct, frozen=True, tag=True):
    """All watches break."""

    at_s: float


class Compact(msgspec.Struct, frozen=True, tag=True):
    """All watches break, and what they missed is forgotten: they are refused with 410."""

    at_s: float


class Outage(msgspec.Struct, frozen=True, tag=True):
    """The API server does not answer for a while."""

    at_s: float
    for_s: float


class LoseAnswers(msgspec.Struct, frozen=True, tag=True):
    """For a while a share of the answers to the operator is lost, although the requests were carried out."""

    at_s: float
    for_s: float
    share: float


Action = (
    Submit
    | Suspend
    | Resume
    | Scale
    | Delete
    | DeleteChild
    | DeletePod
    | Fail
    | Evict
    | LoseNode
    | LoseStatus
    | RemoveNode
    | AddNode
    | Intrude
    | Prioritise
    | AdjustQueue
    | KillLeader
    | StopLeader
    | Part
    | BreakWatches
    | Compact
    | Outage
    | LoseAnswers
)


class Day(msgspec.Struct, frozen=True):
    """A history: the seed of all delays, its length, and what happens, in the order of time.

    `rests` says that everything has to come to rest in the end: a day that is cut off in its midst does not. With
    `coordinated` the coordinator lets jobs in.
    """

    seed: int
    hours: float
    actions: tuple[Action, ...]
    rests: bool = True
    coordinated: bool = False


def write_day(day: Day) -> str:
    """Returns a day as JSON with one action a line."""
    how = f'"rests":{str(day.rests).lower()},"coordinated":{str(day.coordinated).lower()}'
    head = f'{{"seed":{day.seed},"hours":{day.hours},{how},"actions":[\n'
    return head + ",\n".join(msgspec.json.encode(action).decode() for action in day.actions) + "\n]}\n"


def read_day(text: str) -> Day:
    return msgspec.json.decode(text, type=Day)
