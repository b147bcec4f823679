"""The conditions of a TorchrunJob, and the reasons that they give: what a person acts on, and what code branches on.

Each reason says here what it means, what to do about it, and whether an Event tells of it; docs/reference/conditions.md
is made from this.
"""

from torchctl.api.words import ConditionType, EventType, Reason

__all__ = ["JobCondition", "JobReason"]


class JobCondition(ConditionType):
    """Types of status.conditions of a TorchrunJob, in the order in which a job meets them."""

    ACCEPTED = "Accepted", "The operator can run what the spec asks for."
    QUEUE_FOUND = "QueueFound", "The TorchrunQueue that spec.jobQueue names is there."
    DEPENDENCIES_MET = "DependenciesMet", "The jobs of spec.dependsOn are, or were, what this job waits for."
    WORKSPACE_READY = "WorkspaceReady", "The job's code is where the workers find it."
    ADMITTED = "Admitted", "The gang scheduler has let the job in, or there is none to ask."
    WORKERS_READY = "WorkersReady", "All workers run and are ready."
    SUSPENDED = "Suspended", "The job stands still because spec.suspend says so."
    COMPLETE = "Complete", "The job has ended well. It is never run again."
    FAILED = "Failed", "The job has failed. It is never run again."


_CHILDREN = (
    JobCondition.ACCEPTED,
    JobCondition.WORKSPACE_READY,
    JobCondition.ADMITTED,
    JobCondition.WORKERS_READY,
)
"""Conditions of the steps that write children."""
_LATER = (JobCondition.WORKSPACE_READY, JobCondition.ADMITTED, JobCondition.WORKERS_READY)
_END = (JobCondition.COMPLETE, JobCondition.FAILED)
_STARTING = (JobCondition.WORKSPACE_READY, JobCondition.WORKERS_READY)


class JobReason(Reason):
    """Reasons in the conditions of a TorchrunJob. What Kubernetes says of a pod is passed on as it is."""

    ACCEPTED = "Accepted", (JobCondition.ACCEPTED,), "The spec is valid."
    INVALID_SPEC = (
        "InvalidSpec",
        (JobCondition.ACCEPTED,),
        "The spec breaks a rule, or job and queue together lack something, such as an image.",
        "Correct the field that the message names; where it is immutable, submit another job.",
    )
    IMPOSSIBLE_GPU_COUNT = (
        "ImpossibleGPUCount",
        (JobCondition.ACCEPTED,),
        "spec.numGPUs cannot be spread evenly over the queue's nodes.",
        "Submit the job with one of the two totals that the message names, or with numNodes.",
    )
    TOO_MANY_NODES = (
        "TooManyNodes",
        (JobCondition.ACCEPTED,),
        "The job asks for more nodes than the operator runs for one job, or could grow to more.",
        "Submit it with fewer nodes, or have the operator's --max-nodes raised; the job goes on by itself then.",
    )
    IMPOSSIBLE_WORKSPACE = (
        "ImpossibleWorkspace",
        (JobCondition.ACCEPTED,),
        "The workspace's claim cannot be filled, or not be mounted by all nodes of the job.",
        "Change accessModes or distribution in the queue's storage.workspace; the job goes on by itself.",
    )
    CONFLICTING_VOLUMES = (
        "ConflictingVolumes",
        (JobCondition.ACCEPTED,),
        "Two volumes have one path or one name, so that one would hide the other: workspace, checkpoints, datasets, "
        "shared memory, or a volume of the job's or of podTemplate.",
        "Give one of the two that the message names another path or name. Correct the queue, or submit the job again.",
    )
    CHECKPOINTS_ON_ONE_NODE = (
        "CheckpointsOnOneNode",
        (JobCondition.ACCEPTED,),
        "The spec is valid, but only one node can mount its checkpoints claim and the job has several pods: those on "
        "another node wait for the volume for ever.",
        "Set accessModes [ReadWriteMany] for checkpoints, or keep the pods on one node; there it is no trouble.",
    )
    RUNS_AS_WRITTEN = (
        "RunsAsWritten",
        (JobCondition.ACCEPTED,),
        "The spec is valid, but its command is neither handed to torchrun nor names it, so each pod runs it once, as "
        "it is. A pipe, several programs in one line and programs other than python are such commands.",
        "Write `torchrun train.py` where training starts, or set launcher none if it is meant so. A script that starts "
        "torchrun itself is fine.",
        EventType.NORMAL,
    )
    TEMPLATE_STAYS = (
        "TemplateStays",
        (JobCondition.ACCEPTED,),
        "The spec is valid, and with queueUpdatePolicy NextAttempt the next attempt would take the queue as it is now, "
        "but the two do not fit any more: attempts go on with the template of before.",
        "Correct the queue as the message says, and the next attempt takes it. What runs is not disturbed.",
    )
    QUEUE_FOUND = "QueueFound", (JobCondition.QUEUE_FOUND,), "The queue is there."
    QUEUE_NOT_FOUND = (
        "QueueNotFound",
        (JobCondition.QUEUE_FOUND,),
        "There is no TorchrunQueue of that name in the job's namespace.",
        "Create it; the job goes on by itself. A job that has started goes on with its frozen template.",
    )
    QUEUE_NOT_READY = (
        "QueueNotReady",
        (JobCondition.QUEUE_FOUND,),
        "The queue is being deleted, was not accepted, or its scheduler's Queue is somebody else's.",
        "Correct the queue as the message says; the job goes on by itself.",
    )
    WAITING_FOR_QUEUE = (
        "WaitingForQueue",
        (JobCondition.QUEUE_FOUND,),
        "The queue is new or was edited, and whose its scheduler's Queue is has not been looked up yet.",
        "Wait a moment. If it stays, read the operator's log.",
        EventType.NONE,
    )
    NO_DEPENDENCIES = "NoDependencies", (JobCondition.DEPENDENCIES_MET,), "spec.dependsOn is empty."
    DEPENDENCIES_MET = (
        "DependenciesMet",
        (JobCondition.DEPENDENCIES_MET,),
        "Every job of spec.dependsOn was what this job waits for. It stays so, whatever becomes of them.",
        "",
        EventType.NORMAL,
    )
    WAITING_FOR_DEPENDENCY = (
        "WaitingForDependency",
        (JobCondition.DEPENDENCIES_MET,),
        "A job of spec.dependsOn has not succeeded yet, or does not run yet.",
        "Wait; `kubectl describe trj` of the job that the message names says what keeps it.",
        EventType.NONE,
    )
    DEPENDENCY_NOT_FOUND = (
        "DependencyNotFound",
        (JobCondition.DEPENDENCIES_MET,),
        "There is no TorchrunJob of that name in the job's namespace, or it is being deleted.",
        "Create it; this job goes on by itself.",
    )
    DEPENDENCY_CYCLE = (
        "DependencyCycle",
        (JobCondition.DEPENDENCIES_MET,),
        "The jobs on the path in the message wait for each other, so that none of them can start.",
        "Delete one of them and submit it again without the dependency; the others go on by themselves.",
    )
    DEPENDENCY_FAILED = (
        "DependencyFailed",
        (JobCondition.DEPENDENCIES_MET, *_END),
        "A job of spec.dependsOn failed before this job could start, so that it never can.",
        "Correct that job, and submit both again.",
    )
    NO_WORKSPACE = "NoWorkspace", (JobCondition.WORKSPACE_READY,), "The job has no workspace."
    WORKSPACE_READY = "WorkspaceReady", (JobCondition.WORKSPACE_READY,), "The code is there.", "", EventType.NORMAL
    CLAIM_NOT_FOUND = (
        "ClaimNotFound",
        (JobCondition.WORKSPACE_READY,),
        "The PersistentVolumeClaim that the workspace or the queue's cacheClaimName names does not exist.",
        "Create it; the job goes on by itself.",
    )
    CLAIM_LOST = (
        "ClaimLost",
        (JobCondition.WORKSPACE_READY,),
        "The workspace's claim lost its volume, or was deleted after it had been filled.",
        "Submit the job again.",
    )
    RELOADING = (
        "Reloading",
        (JobCondition.WORKSPACE_READY,),
        "A revision was sent to the running job (hotReload), and not every worker runs it yet.",
        "If it stays, see the message and the log of the sync pod's container `serve`: they name the workers, and why.",
        EventType.NORMAL,
    )
    SYNCING = "Syncing", (JobCondition.WORKSPACE_READY,), "The sync pod is bringing the code."
    WAITING_FOR_UPLOAD = (
        "WaitingForUpload",
        (JobCondition.WORKSPACE_READY,),
        "The sync pod waits for somebody to bring the code (source zip without url).",
        "`kubectl torchrun sync <job>` sends a directory, before the time in the message is over (docs/storage.md).",
        EventType.NORMAL,
    )
    SYNC_FAILED = (
        "SyncFailed",
        (JobCondition.WORKSPACE_READY,),
        "A sync pod failed; another follows, unless the source refused what was asked for.",
        "Read the message and `kubectl logs <job>-sync-<n> -c fetch`; correct url, ref or Secret and submit again.",
    )
    WORKSPACE_TIMEOUT = (
        "WorkspaceTimeout",
        (JobCondition.WORKSPACE_READY, *_END),
        "The workspace was not there after sync pods had run for volumes.workspace.timeoutSeconds in all.",
        "Do what the message says of the last try; submit the job again, with a longer timeoutSeconds if it needs one.",
    )
    ADMITTED = "Admitted", (JobCondition.ADMITTED,), "All pods are placed.", "", EventType.NORMAL
    NO_GANG = "NoGang", (JobCondition.ADMITTED,), "No gang: the pods are placed one by one."
    LET_IN = (
        "LetIn",
        (JobCondition.ADMITTED,),
        "The coordinator has let the job in: there is room for all its pods, which the cluster's scheduler places.",
        "",
        EventType.NORMAL,
    )
    COORDINATOR_OFF = (
        "CoordinatorOff",
        (JobCondition.ADMITTED,),
        "The job was frozen while the coordinator was on, and nobody lets it in now.",
        "Run the operator with --coordinator; the job goes on by itself. Or delete it and submit it again.",
    )
    PODS_NOT_PLACED = (
        "PodsNotPlaced",
        (JobCondition.ADMITTED,),
        "The coordinator had let the job in, and some of its pods found no node in time: it waits again, and longer.",
        "If it repeats, read the Events of its pods (`kubectl get events`): they say what keeps them off the nodes.",
    )
    WAITING_FOR_ADMISSION = (
        "WaitingForAdmission",
        (JobCondition.ADMITTED,),
        "The gang scheduler has not placed the pods yet, or the coordinator has not let the job in; "
        "the message has the reasons.",
        "Wait, or free GPUs; raise what KAI's or Volcano's queue may use, or with the coordinator the quota that the "
        "message names. If no node can ever hold a pod, submit a job of another shape.",
        EventType.NONE,
    )
    GANG_TOO_SMALL = (
        "GangTooSmall",
        (JobCondition.ADMITTED,),
        "The pods are not in the PodGroup that was made for them, but in none, or in one that does not place them all "
        "together.",
        "Do what the message says. With KAI: run 0.15 or later, whose podgrouper heeds kai.scheduler/skip-podgrouper.",
    )
    KAI_NOT_INSTALLED = (
        "KaiNotInstalled",
        (JobCondition.ADMITTED,),
        "The queue asks for KAI, and the cluster has no PodGroups of KAI.",
        "Install KAI-Scheduler; the job goes on by itself. Or submit to a queue without kaiQueue.",
    )
    VOLCANO_NOT_INSTALLED = (
        "VolcanoNotInstalled",
        (JobCondition.ADMITTED,),
        "The queue asks for Volcano, and the cluster has no PodGroups of Volcano.",
        "Install Volcano; the job goes on by itself. Or submit to a queue of another scheduler.",
    )
    KUEUE_NOT_INSTALLED = (
        "KueueNotInstalled",
        (JobCondition.ADMITTED,),
        "The queue names a LocalQueue of Kueue, and the cluster does not serve Kueue's Workloads (v1beta2).",
        "Install Kueue; the job goes on by itself. Or submit to a queue without scheduling.kueueQueue.",
    )
    NATIVE_GANGS_OFF = (
        "NativeGangsOff",
        (JobCondition.ADMITTED,),
        "The queue asks for Kubernetes' own gangs, and the API server does not serve them: they are alpha.",
        "Switch them on as the message says; the job goes on by itself. Or submit to a queue of another scheduler.",
    )
    POD_GROUPS_REFUSED = (
        "PodGroupsRefused",
        (JobCondition.ACCEPTED, JobCondition.ADMITTED),
        "The API server does not let the operator read the PodGroups of the gang scheduler, so that nobody knows "
        "whether it is there. A queue with scheduler auto takes none meanwhile, since the choice holds for the job.",
        "Apply config/rbac of the operator's version; the job goes on by itself.",
    )
    SUSPENDED_BY_OTHERS = (
        "SuspendedByOthers",
        (JobCondition.ADMITTED, JobCondition.WORKERS_READY),
        "Somebody else suspended the workers' Job: a queueing system such as Kueue, or a person.",
        "See what the queueing system says of the Job, or set the Job's spec.suspend to false.",
        EventType.NORMAL,
    )
    WORKERS_READY = "WorkersReady", (JobCondition.WORKERS_READY,), "All workers run."
    WORKERS_STARTING = "WorkersStarting", (JobCondition.WORKERS_READY,), "Some workers do not run yet."
    WORKERS_LATE = (
        "WorkersLate",
        (JobCondition.WORKERS_READY,),
        "A worker is not up a minute after its pod was made. The message has the first one, the state that it does not "
        "leave, since when, and the newest Warning Event about it.",
        "If it is not merely a large image that is being pulled, correct what the message names.",
        EventType.NORMAL,
    )
    NOT_STARTED = "NotStarted", _LATER, "An earlier step comes first."
    INCIDENT = (
        "Incident",
        (JobCondition.WORKERS_READY,),
        "A worker was lost; what else goes with it is waited for, a few seconds.",
        "Nothing; the job starts over by itself if its run policy allows it.",
    )
    RESTARTING = (
        "Restarting",
        (JobCondition.WORKERS_READY,),
        "The next attempt waits for its back-off, and for the pods of the earlier ones to be gone.",
        "Nothing; the message says when it begins.",
        EventType.NORMAL,
    )
    BELOW_MINIMUM = (
        "BelowMinimum",
        (JobCondition.WORKERS_READY,),
        "An elastic job has fewer ready workers than elastic.minNodes, and waits for replacements.",
        "Free or add nodes. After a while it counts as an incident.",
    )
    FINISHED = "Finished", (JobCondition.WORKERS_READY,), "The job has ended."
    IMAGE_PULL_BACK_OFF = (
        "ImagePullBackOff",
        _STARTING,
        "An image cannot be pulled; ErrImagePull is told as this too.",
        "Check the image's name and the pull secrets of the queue.",
    )
    CREATE_CONTAINER_CONFIG_ERROR = (
        "CreateContainerConfigError",
        _STARTING,
        "A container cannot be made from its spec.",
        "Check the Secrets and ConfigMaps that it names, and securityContext.",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        _STARTING,
        "The scheduler finds no node for a pod.",
        "Free or add nodes that fit, ask for less, or create the claim that is not found.",
    )
    SCHEDULING_GATED = (
        "SchedulingGated",
        _STARTING,
        "A scheduling gate that the operator did not set keeps a pod from every scheduler, as Kueue's does on a sync "
        "pod in a namespace with a LocalQueue named default.",
        "See what the controller that the message names says of the pod, or configure it to leave the pod alone.",
    )
    PODS_NOT_CREATED = (
        "PodsNotCreated",
        (JobCondition.WORKERS_READY,),
        "Pods are missing and none appeared for 30 seconds: a quota or an admission policy refuses them. An elastic "
        "job that has enough others runs without them, and is ready.",
        "Do what the message says of the refusal; the Job controller tries again by itself.",
    )
    FOREIGN_OBJECT = (
        "ForeignObject",
        _CHILDREN,
        "An object with a name that the job needs exists and is not the job's. It was left as it is.",
        "Delete or rename that object, or submit the job under another name.",
    )
    STILL_DELETING = (
        "StillDeleting",
        _CHILDREN,
        "An object of an earlier job of this name is still being deleted, and this job needs its name.",
        "Wait; all goes on by itself. If it takes long, see who is to remove the finalizers in the message.",
        EventType.NONE,
    )
    REFUSED = (
        "Refused",
        _CHILDREN,
        "The API server, or an admission policy, refused an object of the job.",
        "Correct what the message names; it is tried again every minute. If it is the job's own spec, submit it again.",
    )
    WEBHOOK_FAILED = (
        "WebhookFailed",
        _CHILDREN,
        "The API server cannot ask an admission webhook, or one that converts versions, about an object of the job.",
        "See whether the webhook in the message runs, or remove its configuration; all goes on by itself then.",
    )
    WRITE_TIMED_OUT = (
        "WriteTimedOut",
        _CHILDREN,
        "The API server did not finish a write of the job's in time; a slow admission webhook may be the reason.",
        "See which webhook is slow; the write is tried again by itself.",
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        _CHILDREN,
        "A ResourceQuota of the namespace refused an object of the job.",
        "Raise the quota or free some of it; it is tried again every minute.",
    )
    SUSPENDED = (
        "Suspended",
        (JobCondition.SUSPENDED, JobCondition.WORKERS_READY),
        "The job stands still; its workspace and its checkpoints stay.",
        "Set spec.suspend to false; the next attempt begins then.",
        EventType.NONE,
    )
    NOT_SUSPENDED = "NotSuspended", (JobCondition.SUSPENDED,), "The job is not suspended."
    SUCCEEDED = "Succeeded", _END, "All workers (of an elastic job worker 0) exited 0, and were not told to."
    NOT_ENDED = "NotEnded", _END, "The job has not ended."
    WORKER_FAILED = (
        "WorkerFailed",
        _END,
        "A worker failed; status.failure has the first one, with rank and exit code where they are known.",
        "Read status.failure and the pod's log; correct the program and submit the job again.",
    )
    ETCD_V2_DISABLED = (
        "EtcdV2Disabled",
        _END,
        "The rendezvous backend is etcd or etcd-v2, and the etcd server has its v2 API switched off, or has none.",
        "Start the server with --enable-v2 (etcd 3.4 or 3.5), or use rdzvBackend c10d; submit the job again.",
    )
    PREFLIGHT_FAILED = (
        "PreflightFailed",
        _END,
        "torchrun cannot meet at the endpoint of the rendezvous: what answers is no etcd that it can use.",
        "Correct distributed.rdzvEndpoint or rdzvConf as the message says, and submit the job again.",
    )
    JOB_DISAPPEARED = (
        "JobDisappeared",
        _END,
        "The workers' Job was deleted before it ended. A job is never run twice.",
        "Submit the job again; delete the TorchrunJob and not its Job to stop one.",
    )
    STATUS_LOST = (
        "StatusLost",
        (JobCondition.WORKERS_READY, *_END),
        "Somebody removed the job's status or set it back. The attempt was taken up from the children; if the Job had "
        "been ended, nobody knows any more how the job went on, and it has failed.",
        "Nothing if it runs on; status.restarts does not count what is lost. If it has failed, submit it again.",
    )
    WORKSPACE_SYNC_FAILED = (
        "WorkspaceSyncFailed",
        _END,
        "The source refused what was asked for, or three sync pods failed for another reason.",
        "Read the message and the sync pod's log; correct url, ref or Secret and submit the job again.",
    )
    RESTARTS_EXHAUSTED = (
        "RestartsExhausted",
        _END,
        "A worker was lost, and every restart that its cause may use up is used; status.restarts counts them.",
        "Read status.failure; correct what causes it and submit the job again, or allow more restarts.",
    )
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        _END,
        "The job was active for longer than runPolicy.activeDeadlineSeconds, all attempts taken together.",
        "Submit it again with a longer deadline; it goes on from its checkpoints if it writes any.",
    )
    STARTUP_TIMEOUT = (
        "StartupTimeout",
        _END,
        "The job was admitted, and not all of its workers were ready within runPolicy.startupTimeoutSeconds.",
        "Read the message, which says what they waited for; correct that, or allow more time.",
    )
