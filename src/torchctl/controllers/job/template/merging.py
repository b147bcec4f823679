"""The rules by which podTemplate, the queue's fields and the job become one pod: the table that users read. Pure.

`docs/reference/merging.md` is made from it, a property test proves each row, and another that no field of the two kinds
is missing here. The code of the rules is `podspec.py` for the pod and `torchctl.api.effective` for all else.
"""

from dataclasses import dataclass

from torchctl.api.words import Word

__all__ = ["ONLY_JOB", "ONLY_QUEUE", "RULES", "How", "Rule"]


class How(Word):
    """The ways in which the values of several sources become one; `meaning` explains each to users."""

    LAST = "last", "The last that says something decides, and nothing of the others is left."
    BY_KEY = (
        "by key",
        "All of it together; of what has the same key the last is taken, whole, in the place of the first.",
    )
    BY_FIELD = "by field", "Each field by itself: the last that says something decides."
    ALL = "all", "All of it, in this order, each item once."


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Args:
        name: The thing that is merged.
        template: The field of podTemplate that sets it; `trainer` is the container of that name. Empty: none.
        queue: The fields of the queue that set it.
        job: The fields of the job that set it.
        more: What else there is to know.
    """

    name: str
    template: str
    queue: tuple[str, ...]
    job: tuple[str, ...]
    how: How
    more: str = ""


RULES = (
    Rule(
        "labels",
        "metadata.labels",
        (),
        ("labels",),
        How.BY_KEY,
        "Keys of the operator are refused in a job, and passed over in podTemplate.",
    ),
    Rule(
        "annotations",
        "metadata.annotations",
        (),
        ("annotations",),
        How.BY_KEY,
        "As labels; podTemplate may have keys of KAI (kai.scheduler/*) other than the queue's.",
    ),
    Rule("image", "trainer.image", ("image",), ("image",), How.LAST, "One of them has to say it."),
    Rule(
        "command",
        "trainer.command, trainer.args",
        (),
        ("command", "args", "setupCommand", "launcher"),
        How.LAST,
        "The job always says it.",
    ),
    Rule(
        "workingDir",
        "trainer.workingDir",
        ("storage.workspace.mountPath",),
        ("workingDir",),
        How.LAST,
        "The queue's counts where the job has a workspace.",
    ),
    Rule(
        "env",
        "trainer.env",
        ("env",),
        ("env",),
        How.BY_KEY,
        "By name. Variables of torchrun and the operator are refused in queue and job, and passed over in podTemplate. "
        "HOME and USER have a default where nobody chooses the user.",
    ),
    Rule(
        "envFrom",
        "trainer.envFrom",
        ("envFrom",),
        ("envFrom",),
        How.ALL,
        "Of two sources with the same key Kubernetes takes the later, and env over both.",
    ),
    Rule(
        "resources",
        "trainer.resources",
        (
            "nodeResources.gpus",
            "nodeResources.gpusPerNode",
            "nodeResources.cpus",
            "nodeResources.memory",
            "nodeResources.gpuResourceName",
        ),
        ("numGPUs",),
        How.BY_KEY,
        "By resource, as requests and limits alike. A pod that has a part of a node's GPUs (numGPUs) has that part of "
        "the CPUs, the memory and the extended resources, of these a whole number, rounded up; one without GPUs "
        "(numGPUs 0) has the part that goes with one GPU. GPUs from resource claims (gpusPerNode) are no limits.",
    ),
    Rule(
        "volumes",
        "spec.volumes",
        ("storage.datasets", "storage.shmSizePerGPU"),
        ("volumes.datasets", "volumes.additionalVolumes"),
        How.BY_KEY,
        "By name. A dataset has its name alone, and names that begin with torchrun- are the operator's: what breaks "
        "this is refused (`ConflictingVolumes`).",
    ),
    Rule(
        "mounts",
        "trainer.volumeMounts",
        ("storage.datasets", "storage.shmSizePerGPU"),
        ("volumes.datasets", "volumes.additionalMounts"),
        How.BY_KEY,
        "By mountPath. Workspace, checkpoints and datasets have their paths alone, and no dataset is mounted on "
        "/dev/shm: what breaks this is refused (`ConflictingVolumes`).",
    ),
    Rule(
        "datasets",
        "",
        ("storage.datasets",),
        ("volumes.datasets",),
        How.BY_KEY,
        "By name: a job's dataset takes claim and path of the queue's away.",
    ),
    Rule(
        "nodeSelector",
        "spec.nodeSelector",
        ("scheduling.nodeSelector", "nodeResources.gpuType"),
        ("nodeSelector",),
        How.BY_KEY,
        "gpuType is a label of the GPU vendor's, or --gpu-type-label, for pods with GPUs.",
    ),
    Rule("affinity", "spec.affinity", ("scheduling.affinity",), (), How.LAST),
    Rule("tolerations", "spec.tolerations", ("scheduling.tolerations",), ("tolerations",), How.ALL),
    Rule(
        "priorityClassName",
        "spec.priorityClassName",
        ("scheduling.priorityClassName",),
        ("priorityClassName",),
        How.LAST,
    ),
    Rule("imagePullSecrets", "spec.imagePullSecrets", ("imagePullSecrets",), (), How.ALL),
    Rule(
        "serviceAccountName",
        "spec.serviceAccountName",
        ("serviceAccountName",),
        (),
        How.LAST,
        "Where nobody says it, pods get no token of the API server, unless podTemplate asks for one.",
    ),
    Rule(
        "securityContext",
        "spec.securityContext, securityContext of each container",
        (),
        (),
        How.BY_KEY,
        "Over the defaults of the restricted standard, at every depth. A null takes the default away, in the sync pod "
        "too: `runAsUser: null` lets the cluster choose the user.",
    ),
    Rule(
        "the rest of the pod",
        "everything else",
        (),
        (),
        How.LAST,
        "Kept as it is, init containers too. Containers beside `trainer` become native sidecars, unless the "
        "podTemplate's annotation `torchrun.ai/plain-containers` has their names. restartPolicy, subdomain, hostname, "
        "schedulerName, schedulingGroup and activeDeadlineSeconds are the operator's.",
    ),
    Rule(
        "workspace",
        "",
        ("storage.workspace",),
        ("volumes.workspace",),
        How.BY_FIELD,
        "A job has one where it sets a field of it other than revision, or says nothing and the queue enables it; "
        "`enabled: false` of the job always holds. A size of the job's takes sizePerGPU of the queue's away.",
    ),
    Rule(
        "checkpoints",
        "",
        ("storage.checkpoints",),
        ("volumes.checkpoints",),
        How.BY_FIELD,
        "As for the workspace. Where the claim comes from is one statement: claimName, size or sizePerGPU of the job "
        "take all three of the queue's away.",
    ),
    Rule(
        "distributed",
        "",
        ("distributed",),
        ("distributed",),
        How.BY_FIELD,
        "rdzvEndpoint and rdzvConf of the queue are for the queue's rdzvBackend: they do not count for a job that "
        "says another. A job's port counts for an endpoint that is computed.",
    ),
    Rule("rdzvConf", "", ("distributed.rdzvConf",), ("distributed.rdzvConf",), How.BY_KEY),
    Rule(
        "runPolicy",
        "",
        ("runPolicy",),
        ("runPolicy",),
        How.BY_FIELD,
        "The queue's is frozen with the template; the job's may be changed while it runs, maxWorkerRestarts aside.",
    ),
)
"""Every rule, in the order of the table. `podTemplate` is the first to speak, the job the last."""

ONLY_QUEUE = (
    "kaiQueue",
    "kaiQueuePolicy",
    "parentKaiQueue",
    "kaiResources",
    "kaiPriority",
    "preemptMinRuntime",
    "reclaimMinRuntime",
    "podTemplate",
    "scheduling.scheduler",
    "scheduling.volcanoQueue",
    "scheduling.volcanoQueuePolicy",
    "scheduling.kueueQueue",
    "scheduling.gang",
    "scheduling.topology",
    "resources",
    "weight",
    "maxNodes",
    "quota",
    "cohort",
    "borrowingLimit",
    "preemption",
    "capacity",
)
"""Fields that only a queue has, and that nothing is merged with."""

ONLY_JOB = (
    "jobQueue",
    "numNodes",
    "elastic",
    "hotReload",
    "nprocPerNode",
    "queueUpdatePolicy",
    "dependsOn",
    "suspend",
    "priority",
)
"""Fields that only a job has, and that nothing is merged with."""
