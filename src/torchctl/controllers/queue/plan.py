"""What a TorchrunQueue needs done, decided from one observation. Pure.

What a queue has beyond itself it remembers by finalizers: one while there is a KAI Queue of its own, one while there
are ConfigMaps of its own. They come first, and go last. What is not wanted any more (another kaiQueue, a changed or
removed entry of resources, the queue itself) goes once no unfinished job can need it. A KAI Queue that the queue only
refers to any more is handed over: the claim is taken off, and it stays as it is.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchctl.api.kube import CONFIG_MAP, PVC, ConfigMap, KaiQueue, PersistentVolumeClaim
from torchctl.api.names import QUEUE_FINALIZER, RESOURCES_FINALIZER
from torchctl.api.queue import KaiQueuePolicy
from torchctl.controllers.queue.kai import kai_queue
from torchctl.controllers.queue.observed import Observed
from torchctl.controllers.queue.resources import Extra, extras, growth, storage
from torchctl.controllers.queuespec.validate import manages, problem_of
from torchctl.controllers.refusals import Refusal

__all__ = [
    "KAI_POLL_S",
    "RETRY_S",
    "Growth",
    "Observed",
    "Plan",
    "look_again",
    "parent_problem",
    "plan",
]

RETRY_S = 60.0
"""When to try again what was refused; a change of what was watched comes first."""

KAI_POLL_S = 10.0
"""How often to look for KAI where it is missing. Its arrival brings no object, so no change tells of it."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A claim that should be larger. Only that can be changed of a claim, and only upwards."""

    extra: Extra
    uid: str

    @property
    def storage(self) -> str:
        return storage(self.extra.body["spec"])

    def patch(self) -> dict[str, Any]:
        """Guarded by the uid: a claim that took the name meanwhile is another."""
        return {"metadata": {"uid": self.uid}, "spec": {"resources": {"requests": {"storage": self.storage}}}}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    Attributes:
        problem: Why nothing can be done with this spec: reason and message of Accepted=False.
        finalizers: metadata.finalizers as they must be, before anything else is done; None where they are right.
        apply: The KAI Queue to apply.
        release: KAI Queues to hand over: the claim goes, they stay.
        delete: KAI Queues of ours that must go.
        objects: Objects of spec.resources to apply, those that are never changed (`once`) too.
        grow: Claims to enlarge.
        prune: ConfigMaps of ours that must go.
    """

    problem: tuple[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    apply: Mapping[str, Any] | None = None
    release: tuple[KaiQueue, ...] = ()
    delete: tuple[KaiQueue, ...] = ()
    objects: tuple[Extra, ...] = ()
    grow: tuple[Growth, ...] = ()
    prune: tuple[ConfigMap, ...] = ()


def plan(observed: Observed, now: datetime) -> Plan:
    """Decides the next step of a queue.

    Args:
        now: The time, aware of its zone.
    """
    if observed.queue.metadata.deletion_timestamp is not None:
        return _plan_deletion(observed, now)
    problem = problem_of(observed.queue, observed.allowed_parents)
    if problem is not None:
        return Plan(problem=problem)
    held, needed = observed.queue.metadata.finalizers, _needed(observed)
    missing = tuple(finalizer for finalizer in needed if finalizer not in held)
    if missing:
        return Plan(finalizers=(*held, *missing))
    objects = extras(observed.queue)
    released = _handed_over(observed)
    return Plan(
        finalizers=_without(held, (*needed, QUEUE_FINALIZER) if manages(observed.queue.spec) else needed),
        apply=kai_queue(observed.queue) if _may_apply(observed) else None,
        release=released,
        delete=tuple(found for found in _idle(observed) if found not in released and not _is_wanted(observed, found)),
        objects=objects,
        grow=_growing(observed, objects),
        prune=() if observed.unfinished else _obsolete(observed),
    )


def _plan_deletion(observed: Observed, now: datetime) -> Plan:
    """Handing over waits for nobody, all else for the jobs: KAI Queues go by us, ConfigMaps with their owner.

    What is out of sight keeps nothing here, for nobody will say what became of it: the API server is asked for it
    before the finalizers go.
    """
    released = _handed_over(observed)
    has_something = bool(observed.claimed or observed.config_maps)
    if released or (has_something and observed.holding(now)):
        return Plan(release=released)
    if observed.in_sight:
        return Plan(delete=observed.in_sight)
    return Plan(finalizers=_without(observed.queue.metadata.finalizers, ()))


def _needed(observed: Observed) -> tuple[str, ...]:
    """The finalizers that the queue must hold, one of KAI's only once there can be something to remember."""
    kai = (manages(observed.queue.spec) and observed.kai_available) or bool(observed.claimed)
    config_maps = any(entry.template.kind == CONFIG_MAP.kind for entry in observed.queue.spec.resources)
    return (
        *((QUEUE_FINALIZER,) if kai else ()),
        *((RESOURCES_FINALIZER,) if config_maps or observed.config_maps else ()),
    )


def _without(held: tuple[str, ...], needed: Collection[str]) -> tuple[str, ...] | None:
    """The finalizers without those of ours that are not needed any more; None where none is to go."""
    ours = {QUEUE_FINALIZER, RESOURCES_FINALIZER} - set(needed)
    kept = tuple(finalizer for finalizer in held if finalizer not in ours)
    return kept if kept != held else None


# The KAI Queue.


def _may_apply(observed: Observed) -> bool:
    available = manages(observed.queue.spec) and observed.kai_available
    return available and not observed.is_foreign and parent_problem(observed) == ""


def parent_problem(observed: Observed) -> str:
    """Why KAI would ignore the queue for its parent; empty where it would not, or there is none."""
    name, parent = observed.queue.spec.kai_queue, observed.queue.spec.parent_kai_queue
    if parent is None:
        return ""
    if parent not in observed.kai_queues:
        return f"KAI Queue {parent} does not exist, and KAI ignores queues without their parent"
    ancestors = {parent: None}  # in order, and found at once: whoever makes queues decides how many there are
    above: str | None = parent
    while above is not None and (found := observed.kai_queues.get(above)) is not None:
        above = found.spec.get("parentQueue")
        if above == name:
            circle = " under ".join((str(name), *ancestors, str(name)))
            return f"the KAI Queues would stand in a circle, {circle}, and KAI ignores such queues"
        if not above or above in ancestors:
            return ""
        ancestors[above] = None
    return ""


def _handed_over(observed: Observed) -> tuple[KaiQueue, ...]:
    """The KAI Queue of ours that the spec has come to refer to: jobs run in it, and somebody may count on it."""
    refers = observed.queue.spec.kai_queue_policy is KaiQueuePolicy.REFERENCE
    return tuple(
        found for found in observed.in_sight if refers and found.metadata.name == observed.queue.spec.kai_queue
    )


def _is_wanted(observed: Observed, found: KaiQueue) -> bool:
    return manages(observed.queue.spec) and found.metadata.name == observed.queue.spec.kai_queue


def _idle(observed: Observed) -> tuple[KaiQueue, ...]:
    """The KAI Queues of ours in which nothing can run any more: a job keeps the one that it started in."""
    return () if observed.unfinished else observed.in_sight


# The objects of spec.resources.


def _growing(observed: Observed, wanted: tuple[Extra, ...]) -> tuple[Growth, ...]:
    there = ((extra, observed.objects.get(extra.key)) for extra in wanted if extra.kind == PVC and not extra.once)
    return tuple(
        Growth(extra, live.metadata.uid)
        for extra, live in there
        if isinstance(live, PersistentVolumeClaim)
        and extra.ours(live.metadata)
        and live.metadata.deletion_timestamp is None
        and growth(extra, live) > 0
    )


def _obsolete(observed: Observed) -> tuple[ConfigMap, ...]:
    wanted = {extra.key for extra in extras(observed.queue)}
    return tuple(
        found
        for found in observed.config_maps
        if (CONFIG_MAP.kind, found.metadata.name) not in wanted and found.metadata.deletion_timestamp is None
    )


def look_again(observed: Observed, refusals: Sequence[Refusal], now: datetime) -> float | None:
    """Seconds until the next look that no change brings about, or None."""
    if refusals:
        return RETRY_S
    if observed.queue.metadata.deletion_timestamp is not None:
        return observed.freezing_s(now) or None
    concerned = observed.queue.spec.kai_queue or observed.claimed
    return KAI_POLL_S if concerned and not observed.kai_available else None
