"""The conditions of a TorchrunQueue, and the reasons that they give: what a person acts on, and what code branches on.

Each reason says here what it means, what to do about it, and whether an Event tells of it; docs/reference/conditions.md
is made from this.
"""

from torchctl.api.words import ConditionType, EventType, Reason

__all__ = ["QueueCondition", "QueueReason"]


class QueueCondition(ConditionType):
    """Types of status.conditions of a TorchrunQueue."""

    ACCEPTED = "Accepted", "The operator can do what the spec asks for."
    KAI_QUEUE_READY = "KaiQueueReady", "The KAI Queue is as the spec asks, or none is asked for."
    VOLCANO_QUEUE_READY = (
        "VolcanoQueueReady",
        "The Volcano Queue is as the spec asks. Only of queues that name one, or still have one.",
    )
    RESOURCES_READY = "ResourcesReady", "The objects of spec.resources are there."
    READY = "Ready", "Jobs can run: every other condition is true."


_KAI = (QueueCondition.KAI_QUEUE_READY,)
_VOLCANO = (QueueCondition.VOLCANO_QUEUE_READY,)
_SCHEDULERS = (*_KAI, *_VOLCANO)
_RESOURCES = QueueCondition.RESOURCES_READY


class QueueReason(Reason):
    """Reasons in the conditions of a TorchrunQueue."""

    ACCEPTED = "Accepted", (QueueCondition.ACCEPTED,), "The spec is valid.", "", EventType.NORMAL
    INVALID_SPEC = (
        "InvalidSpec",
        (QueueCondition.ACCEPTED,),
        "The spec breaks a rule, or the podTemplate has another shape than a pod.",
        "Correct the field that the message names.",
    )
    NOT_SUPPORTED_YET = (
        "NotSupportedYet",
        (QueueCondition.ACCEPTED,),
        "The spec asks for something that this operator does not do.",
        "Remove the field that the message names, or have the operator's administrator do what the message says.",
    )
    PARENT_NOT_ALLOWED = (
        "ParentNotAllowed",
        (QueueCondition.ACCEPTED,),
        "The operator may make KAI Queues only under certain parents (--kai-parent-queues), and this is none of them.",
        "Name one of the parents in the message, or have the operator's administrator allow this one.",
    )
    NO_KAI_QUEUE = "NoKaiQueue", _KAI, "The spec asks for no KAI Queue."
    KAI_QUEUE_READY = (
        "KaiQueueReady",
        _KAI,
        "The KAI Queue is as the spec asks, or exists (policy Reference).",
        "",
        EventType.NORMAL,
    )
    KAI_NOT_INSTALLED = (
        "KaiNotInstalled",
        _KAI,
        "The cluster has no Queues of KAI.",
        "Install KAI-Scheduler; the queue goes on by itself.",
    )
    PARENT_NOT_FOUND = (
        "ParentNotFound",
        _KAI,
        "The KAI Queue that parentKaiQueue names does not exist, and KAI ignores queues without their parent.",
        "Create the parent, or name another.",
    )
    PARENT_CYCLE = (
        "ParentCycle",
        _KAI,
        "The KAI Queue would be its own ancestor, and KAI ignores all queues of such a circle.",
        "Name another parent.",
    )
    KAI_QUEUE_NOT_FOUND = (
        "KaiQueueNotFound",
        _KAI,
        "The policy is Reference, and there is no KAI Queue of that name.",
        "Create it, or set kaiQueuePolicy: Manage.",
    )
    NO_VOLCANO_QUEUE = "NoVolcanoQueue", _VOLCANO, "The spec names no Volcano Queue any more; an earlier one goes."
    VOLCANO_QUEUE_READY = (
        "VolcanoQueueReady",
        _VOLCANO,
        "The Volcano Queue is as the spec asks, or exists (policy Reference).",
        "",
        EventType.NORMAL,
    )
    VOLCANO_NOT_INSTALLED = (
        "VolcanoNotInstalled",
        _VOLCANO,
        "The cluster has no Queues of Volcano.",
        "Install Volcano; the queue goes on by itself.",
    )
    VOLCANO_QUEUE_NOT_FOUND = (
        "VolcanoQueueNotFound",
        _VOLCANO,
        "The policy is Reference, and there is no Volcano Queue of that name.",
        "Create it, or set volcanoQueuePolicy: Manage.",
    )
    VOLCANO_QUEUE_CLOSED = (
        "VolcanoQueueClosed",
        _VOLCANO,
        "Somebody has closed the Volcano Queue, so Volcano places no more pods of it.",
        "Open it: vcctl queue operate --action open --name NAME.",
    )
    CONFLICT = (
        "Conflict",
        _SCHEDULERS,
        "The scheduler's Queue of that name belongs to somebody else. It was left as it is, and no job starts in it.",
        "Choose another name, or set the policy Reference to use it as it is.",
    )
    FOREIGN_OBJECT = (
        "ForeignObject",
        (*_SCHEDULERS, _RESOURCES),
        "An object of a name that the queue needs exists and is not the queue's. It was left as it is.",
        "Delete or rename that object, or choose another name.",
    )
    STILL_DELETING = (
        "StillDeleting",
        (*_SCHEDULERS, _RESOURCES),
        "An object of an earlier queue of this name is still being deleted, and this queue needs its name.",
        "Wait; all goes on by itself. If it takes long, see who is to remove the finalizers in the message.",
        EventType.NONE,
    )
    REFUSED = (
        "Refused",
        (*_SCHEDULERS, _RESOURCES),
        "The API server, the scheduler's webhook or an admission policy refused an object of the queue.",
        "Correct what the message names; it is tried again every minute.",
    )
    WEBHOOK_FAILED = (
        "WebhookFailed",
        (*_SCHEDULERS, _RESOURCES),
        "The API server cannot ask an admission webhook, or one that converts versions, about an object of the queue.",
        "See whether the webhook in the message runs, or remove its configuration; all goes on by itself then.",
    )
    WRITE_TIMED_OUT = (
        "WriteTimedOut",
        (*_SCHEDULERS, _RESOURCES),
        "The API server did not finish a write of the queue's in time; a slow admission webhook may be the reason.",
        "See which webhook is slow; the write is tried again by itself.",
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        (_RESOURCES,),
        "A ResourceQuota of the namespace refused an object of spec.resources.",
        "Raise the quota or free some of it; it is tried again every minute.",
    )
    DELETING = (
        "Deleting",
        (*_SCHEDULERS, _RESOURCES),
        "The queue is being deleted; its scheduler's Queue and ConfigMaps stay until jobs that may use them ended.",
        "Wait for the jobs in the message, or delete them.",
    )
    NO_RESOURCES = "NoResources", (_RESOURCES,), "The spec asks for no further objects."
    RESOURCES_READY = (
        "ResourcesReady",
        (_RESOURCES,),
        "The objects of spec.resources are as the queue asks.",
        "",
        EventType.NORMAL,
    )
    RESOURCE_NOT_READY = (
        "ResourceNotReady",
        (_RESOURCES,),
        "An object of spec.resources is there, but not as the queue asks, and the operator cannot make it so.",
        "Do what the message says; status.resources has every object.",
    )
    READY = "Ready", (QueueCondition.READY,), "Jobs can be submitted.", "", EventType.NORMAL
    NOT_READY = (
        "NotReady",
        (QueueCondition.READY, *_SCHEDULERS, _RESOURCES),
        "Another condition is not true.",
        "See that condition; the message names it.",
        EventType.NONE,
    )
