"""Lists the causes of incidents, and the budget of restarts that pays for each. docs/reference is made from this."""

from torchctl.api.words import Word

__all__ = ["Budget", "Cause", "cause_named"]


class Budget(Word):
    """Restarts of one kind: the faults of a cluster must not use up what a program's own faults may."""

    USER = (
        "User",
        "What the program did itself; spec.runPolicy.maxRestarts of them since the workers last ran for long.",
    )
    INFRASTRUCTURE = (
        "Infrastructure",
        "What the cluster did to it; spec.runPolicy.maxInfrastructureRestarts of them, at most "
        "--max-infrastructure-restarts, since the workers last ran for long.",
    )
    PREEMPTION = (
        "Preemption",
        "What more important jobs did to it; --max-preemption-restarts of them since the workers last ran for long.",
    )


class Cause(Word):
    """The cause of an incident, told by the pod that was lost first. status.restarts.byCause counts them."""

    budget: Budget

    def __init__(self, value: str, budget: Budget, meaning: str) -> None:
        super().__init__(value, meaning)
        self.budget = budget

    ERROR = "Error", Budget.USER, "The program ended with another exit code than 0."
    OOM_KILLED = "OOMKilled", Budget.USER, "A container used more memory than its limit."
    LIMIT_EXCEEDED = (
        "LimitExceeded",
        Budget.USER,
        "The pod wrote more than its own limit allows: an emptyDir's sizeLimit, or limits of ephemeral storage.",
    )
    EVICTED = "Evicted", Budget.INFRASTRUCTURE, "The pod was evicted: a drain, or a node that ran out of something."
    NODE_LOST = "NodeLost", Budget.INFRASTRUCTURE, "The pod's node is gone or not reachable."
    REJECTED = "Rejected", Budget.INFRASTRUCTURE, "The node refused the pod that had been placed on it."
    WORKSPACE_LOST = "WorkspaceLost", Budget.INFRASTRUCTURE, "A worker could not get the workspace."
    PEER_LOST = (
        "PeerLost",
        Budget.INFRASTRUCTURE,
        "A rank lost its connection to another rank or to the rendezvous, and no worker says why that one ended.",
    )
    PEER_LOST_AGAIN = (
        "PeerLostAgain",
        Budget.USER,
        "PeerLost again, and nothing else since the workers last ran for long: what repeats without another cause is "
        "the program's, such as ranks that wait in collectives that do not match.",
    )
    RENDEZVOUS_UNREACHABLE = (
        "RendezvousUnreachable",
        Budget.INFRASTRUCTURE,
        "A worker could not reach the etcd server of the rendezvous within 300 seconds.",
    )
    DELETED = "Deleted", Budget.INFRASTRUCTURE, "Somebody deleted the pod."
    VANISHED = "Vanished", Budget.INFRASTRUCTURE, "The pod is gone, and nothing says why."
    BELOW_MINIMUM = "BelowMinimum", Budget.INFRASTRUCTURE, "An elastic job stayed below elastic.minNodes."
    PREEMPTED = (
        "Preempted",
        Budget.PREEMPTION,
        "The scheduler took the node for pods of higher priority, or the coordinator its room for another job.",
    )


def cause_named(name: str) -> Cause | None:
    """The cause that a status names; None for one that only another version of the operator knows."""
    return next((cause for cause in Cause if cause == name), None)
