"""The settings that the operator gets at its start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["RETRY_CAP_S", "CoordinatorSettings", "OperatorSettings", "PolicyName", "Restarting"]

RETRY_CAP_S = 30.0
"""The longest back-off of our reconcilers: so soon after an outage, however long, every key is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarting:
    """Pace and number of the attempts. Not frozen: running attempts go on by the settings of today.

    Args:
        settle_s: Seconds for which an incident stays open, so that the first of the pods that are lost in it is known,
            whatever the order in which they are reported. No wait if every pod of the attempt has ended.
        backoff_s: Seconds before the attempt after the first incident; doubled by each further one.
        max_backoff_s: The longest of these waits.
        stable_s: Seconds of all workers being ready, after which the next incident counts as the first again.
        stuck_pod_s: Seconds after the end of its grace at which a pod that is still there is deleted by force: its
            node does not answer, and would hold the next attempt, or what takes its place, up for ever.
        below_minimum_s: Seconds for which an elastic job may have fewer ready pods than minNodes.
        max_infrastructure: The most restarts for what the cluster did to a job, since it last ran for long.
        max_preemption: The same for what jobs of higher priority did to it.
    """

    settle_s: float = 5.0
    backoff_s: float = 10.0
    max_backoff_s: float = 300.0
    stable_s: float = 600.0
    stuck_pod_s: float = 30.0
    below_minimum_s: float = 120.0
    max_infrastructure: int = 20
    max_preemption: int = 100


class PolicyName(StrEnum):
    """The orders in which queues may take their turns."""

    SMOOTH_WEIGHTED_ROUND_ROBIN = "SmoothWeightedRoundRobin"
    WEIGHTED_ROUND_ROBIN = "WeightedRoundRobin"
    PRIORITY = "Priority"
    FIFO = "FIFO"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """Settings of the coordinator.

    Args:
        policy: The order of the queues.
        cohort_policies: The order of the queues of single cohorts, which then take their turns as one queue.
        reserve_after_s: Seconds for which the first job of a queue waits before room is kept for it.
        place_within_s: Seconds for which pods of a job that was let in may have no node, before its room is taken back.
        provision_within_s: The same for jobs of queues whose nodes an autoscaler brings. Cluster Autoscaler gives a
            node 15 minutes (--max-node-provision-time).
        pause_s: Seconds for which a job whose room was taken back so is not let in again; doubled by each further time
            in a row, up to an hour.
        period_s: Seconds by which a decision may lag behind a change. Changes within that time are one decision.
        max_starts: Jobs that one decision lets in at most; the next decision follows at once.
        word_period_s: Seconds for which what a job that waits is told stays as it is, unless what is short changes.
    """

    policy: PolicyName = PolicyName.SMOOTH_WEIGHTED_ROUND_ROBIN
    cohort_policies: Mapping[str, PolicyName] = field(default_factory=dict)
    reserve_after_s: float = 600.0
    place_within_s: float = 300.0
    provision_within_s: float = 1200.0
    pause_s: float = 60.0
    period_s: float = 0.2
    max_starts: int = 200
    word_period_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Settings of one operator. Those that a child depends on are frozen into the job's template.

    Args:
        image: Image with `torchctl workspace`, for sync pods and the workers' init container.
        cluster_domain: The domain of the cluster's DNS. Rendezvous endpoints are fully qualified with it; a wrong
            one means that workers never find each other.
        etcd_endpoint: `host:port` for the rendezvous backends etcd and etcd-v2 if neither job nor queue names one.
        gpu_type_label: Node label that nodeResources.gpuType selects; empty: the one of the vendor's labeller.
        max_nodes: Nodes that one job may have. It keeps a typing mistake from making pods by the thousand.
        default_scheduler: The scheduler of queues that name none, neither by itself nor by its queue; `auto` and
            `kubernetes` as in a queue, empty for the cluster's default.
        kai_parent_queues: KAI queues under which a TorchrunQueue may create its own; None: all, and none at all.
        queue_status_period_s: Seconds by which the counts in a queue's status may lag behind its jobs. Changes within
            that time are one write; 0 writes each of them.
        job_status_period_s: The same for the counts of workers in a job's status. Conditions, phase and all that is
            decided are written at once.
        kueue_place_period_s: Seconds by which the place in Kueue's queue may lag that a waiting job is told. Each
            LocalQueue in which jobs wait is read once in that time.
        restarting: Pace and number of the attempts.
        coordinator: Lets jobs in that no gang scheduler places; None: such jobs start at once.
    """

    image: str
    cluster_domain: str = "cluster.local"
    etcd_endpoint: str = "etcd.etcd-system.svc:2379"
    gpu_type_label: str = ""
    max_nodes: int = 1024
    default_scheduler: str = ""
    kai_parent_queues: frozenset[str] | None = None
    queue_status_period_s: float = 1.0
    job_status_period_s: float = 0.5
    kueue_place_period_s: float = 30.0
    restarting: Restarting = Restarting()
    coordinator: CoordinatorSettings | None = None
