"""The TorchrunJob reconciler: observes, plans, carries the plan out, reports. Every rule is in the modules beside it."""

from dataclasses import replace
from functools import partial

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import CONTROLLER_REVISION, JOB, KAI_PODGROUP, POD, PVC, SERVICE, Pod
from torchctl.api.labels import APP_MANAGED_BY, JOB_NAME, JOB_UID
from torchctl.api.names import FIELD_MANAGER
from torchctl.api.queue import TORCHRUN_QUEUE, TorchrunQueue
from torchctl.controllers.job.observe import BY_JOB, Observed, by_job, observe
from torchctl.controllers.job.plan import REFUSAL_REQUEUE_S, Child, Plan, Refusal, plan
from torchctl.controllers.job.status import derive, transitions
from torchctl.controllers.refusals import is_refusal, refusal_reason
from torchctl.controllers.report import Reporter
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.apply import ForeignObject
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.errors import ApiError, NotFound
from torchctl.runtime.controller import Controller
from torchctl.runtime.kinds import EVENT, Key
from torchctl.runtime.manager import Manager
from torchctl.runtime.reconcile import Request, Result

__all__ = ["JobReconciler", "setup"]

OURS = f"{APP_MANAGED_BY}={FIELD_MANAGER}"
"""Label selector of the children: objects of others in the cluster are neither watched nor cached."""


def setup(manager: Manager, settings: OperatorSettings) -> None:
    """Adds the controller of TorchrunJobs to a manager."""
    reconciler = JobReconciler(manager, settings)
    manager.cache.register(POD, labels=OURS, indexes={BY_JOB: by_job})
    manager.add(
        Controller(
            "torchrunjob",
            reconciler.reconcile,
            workers=manager.settings.workers,
            timeout_s=manager.settings.reconcile_timeout_s,
            max_retry_s=REFUSAL_REQUEUE_S,
        )
        .for_(TORCHRUN_JOB)
        .owns(CONTROLLER_REVISION, labels=OURS)
        .owns(SERVICE, labels=OURS)
        .owns(JOB, labels=OURS)
        .owns(KAI_PODGROUP, labels=OURS, optional=True)
        .watches(POD, jobs_of_pod, labels=OURS)
        .watches(PVC, partial(jobs_of_claim, manager.cache))
        .watches(TORCHRUN_QUEUE, partial(jobs_of_queue, manager.cache))
    )


def jobs_of_pod(pod: Pod) -> tuple[Request, ...]:
    """The job that the pod's labels name: a worker's controller is the child Job."""
    name = pod.metadata.labels.get(JOB_NAME)
    return (Key(pod.metadata.namespace, name),) if name and JOB_UID in pod.metadata.labels else ()
