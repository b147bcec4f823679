"""Decides the next step of a TorchrunQueue from one observation. Pure.

A queue has a finalizer while it owns a KAI Queue, one while it owns a Volcano Queue, and one while it owns ConfigMaps.
Each is set before the first such object is made, and removed after the last one is gone. An object that the queue does
not ask for any more is deleted once no unfinished job can need it. If the policy of a queue changes to Reference, the
scheduler's Queue is handed over instead: the claim is taken off, and it stays as it is.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchctl.api.kube import CONFIG_MAP, PVC, ConfigMap, PersistentVolumeClaim
from torchctl.api.names import KAI_FINALIZER, RESOURCES_FINALIZER, VOLCANO_FINALIZER
from torchctl.controllers.finding import Refusal
from torchctl.controllers.queue.claims import SchedulerQueue
from torchctl.controllers.queue.kai import kai_queue
from torchctl.controllers.queue.observed import Observed
from torchctl.controllers.queue.resources import Extra, extras, growth, storage
from torchctl.controllers.queue.volcano import volcano_queue
from torchctl.controllers.queuespec.validate import problem_of

__all__ = [
    "LOOK_S",
    "RETRY_S",
    "Growth",
    "Observed",
    "Plan",
    "look_again",
    "parent_problem",
    "plan",
]

RETRY_S = 60.0
"""Seconds until a refused write is tried again, unless a watched object changes earlier."""

LOOK_S = 10.0
"""Seconds between looks for a scheduler that is missing. Installing it changes no watched object."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A claim that should be larger. Only the size of a claim can change, and it can only grow."""

    extra: Extra
    uid: str

    @property
    def storage(self) -> str:
        return storage(self.extra.body["spec"])

    def patch(self) -> dict[str, Any]:
        """Returns the merge patch. It carries the uid, because another claim may have taken the name meanwhile."""
        return {"metadata": {"uid": self.uid}, "spec": {"resources": {"requests": {"storage": self.storage}}}}


@dataclass(frozen=True, slots=True)
class Plan:
    """The writes that a queue needs.

    Attributes:
        problem: Reason and message of Accepted=False, if nothing can be done with this spec.
        finalizers: metadata.finalizers to write before anything else is done; None if they are right.
        apply: The scheduler's Queue to apply. No spec asks for two.
        release: Schedulers' Queues to hand over: our claim is taken off, and they stay.
        delete: Schedulers' Queues of ours to delete.
        objects: Objects of spec.resources to apply, including those that are never changed (`once`).
        grow: Claims to enlarge.
        prune: ConfigMaps of ours to delete.
    """

    problem: tuple[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    apply: Mapping[str, Any] | None = None
    release: tuple[SchedulerQueue, ...] = ()
    delete: tuple[SchedulerQueue, ...] = ()
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
    problem = problem_of(observed.queue, observed.allowed_parents, coordinated=observed.coordinated)
    if problem is not None:
        return Plan(problem=problem)
    held, needed = observed.queue.metadata.finalizers, _needed(observed)
    missing = tuple(finalizer for finalizer in needed if finalizer not in held)
    if missing:
        return Plan(finalizers=(*held, *missing))
    objects = extras(observed.queue)
    asked = tuple(queues.scheduler.finalizer for queues in observed.queues if queues.managed)
    return Plan(
        finalizers=_without(held, (*needed, *asked)),
        apply=_wanted(observed),
        release=_handed_over(observed),
        delete=() if observed.unfinished else _unwanted(observed),  # a job keeps the Queue that it started in
        objects=objects,
        grow=_growing(observed, objects),
        prune=() if observed.unfinished else _obsolete(observed),
    )


def _plan_deletion(observed: Observed, now: datetime) -> Plan:
    """Decides the next step of a queue that is being deleted.

    Schedulers' Queues that are only referred to are handed over at once. Everything else waits until the jobs have
    ended; then these Queues are deleted, and ConfigMaps go with their owner. Queues that cannot be watched hold
    nothing up here: the reconciler asks the API server for them before it removes the finalizers.
    """
    released = _handed_over(observed)
    has_something = bool(observed.claimed or observed.config_maps)
    if released or (has_something and observed.holding(now)):
        return Plan(release=released)
    if ours := tuple(found for queues in observed.queues for found in queues.in_sight):
        return Plan(delete=ours)
    return Plan(finalizers=_without(observed.queue.metadata.finalizers, ()))


def _needed(observed: Observed) -> tuple[str, ...]:
    """Returns the finalizers that the queue must have: a scheduler's, once a Queue of that scheduler may exist."""
    config_maps = any(entry.template.kind == CONFIG_MAP.kind for entry in observed.queue.spec.resources)
    may_exist = (queues for queues in observed.queues if (queues.managed and queues.available) or queues.claimed)
    return (
        *(queues.scheduler.finalizer for queues in may_exist),
        *((RESOURCES_FINALIZER,) if config_maps or observed.config_maps else ()),
    )


def _without(held: tuple[str, ...], needed: Collection[str]) -> tuple[str, ...] | None:
    """Returns the finalizers without those of ours that are not needed any more; None if nothing changes."""
    ours = {KAI_FINALIZER, VOLCANO_FINALIZER, RESOURCES_FINALIZER} - set(needed)
    kept = tuple(finalizer for finalizer in held if finalizer not in ours)
    return kept if kept != held else None


# The Queues of schedulers.


def _wanted(observed: Observed) -> Mapping[str, Any] | None:
    """Returns the Queue that the operator should make or keep; None if that is another's matter, or cannot be done."""
    kai, volcano = observed.kai, observed.volcano
    if kai.managed and kai.available and not kai.is_foreign and not parent_problem(observed):
        return kai_queue(observed.queue)
    if volcano.managed and volcano.available and not volcano.is_foreign:
        return volcano_queue(observed.queue)
    return None


def parent_problem(observed: Observed) -> str:
    """Returns why KAI would ignore the queue because of its parent; empty if it would not, or if there is no parent."""
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


def _handed_over(observed: Observed) -> tuple[SchedulerQueue, ...]:
    return tuple(found for queues in observed.queues for found in queues.handed_over)


def _unwanted(observed: Observed) -> tuple[SchedulerQueue, ...]:
    return tuple(found for queues in observed.queues for found in queues.unwanted)


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
    """Returns the seconds until the queue has to be reconciled without a change; None if that is not needed."""
    if refusals:
        return RETRY_S
    if observed.queue.metadata.deletion_timestamp is not None:
        return observed.freezing_s(now) or None
    out_of_sight = (queues for queues in observed.queues if not queues.available)
    return LOOK_S if any(queues.name or queues.claimed for queues in out_of_sight) else None
