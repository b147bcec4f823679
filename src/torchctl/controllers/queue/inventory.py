"""The state of each object of spec.resources, and the condition for all of them. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from torchctl.api.counts import agree, counted
from torchctl.api.kube import PVC, PersistentVolumeClaim
from torchctl.api.queue import TORCHRUN_QUEUE, ResourceState
from torchctl.api.queueconditions import QueueReason
from torchctl.controllers.finding import Finding, Refusal
from torchctl.controllers.queue.observed import Observed
from torchctl.controllers.queue.resources import Extra, extras, growth, storage
from torchctl.runtime.conditions import MAX_MESSAGE
from torchctl.runtime.intent import INTENT_ANNOTATION, digest_of, holds
from torchctl.runtime.kinds import Object

__all__ = ["Item", "assess", "inventory"]

LOST = "Lost"
"""Phase of a claim whose volume is gone."""


@dataclass(frozen=True, slots=True)
class Item:
    """The state of one object. An empty `reason` means that it is as the queue asks; `message` may still say more."""

    extra: Extra
    reason: str = ""
    message: str = ""

    @property
    def state(self) -> ResourceState:
        """The entry of status.resources."""
        kind, name = self.extra.key
        # A refusal repeats the value that is refused, and a status that is too long would not be written at all.
        return ResourceState(kind=kind, name=name, ready=not self.reason, message=self.message[:MAX_MESSAGE])


def inventory(observed: Observed, refusals: Sequence[Refusal]) -> tuple[Item, ...]:
    """Returns every entry of spec.resources after a pass that applied what it planned, except for what was refused."""
    asked, refused = extras(observed.queue), {(refusal.kind, refusal.name): refusal for refusal in refusals}
    itself = refused.get((TORCHRUN_QUEUE.kind, observed.queue.metadata.name))
    if itself is not None:  # its finalizers come first
        return tuple(Item(extra, itself.reason, itself.message) for extra in asked)
    return tuple(_item(extra, observed.objects.get(extra.key), refused) for extra in asked)


def assess(items: tuple[Item, ...], older: int, stays: str = "") -> Finding:
    """Judges the condition ResourcesReady.

    Args:
        older: How many ConfigMaps exist that are not asked for any more.
        stays: Why one of these cannot be deleted.
    """
    goes, it = agree(older, "goes", "go"), agree(older, "it", "them")
    kept = f"; {counted(older, 'older one')} {goes} once no unfinished job can need {it}" if older else ""
    kept = f"; {stays}" if stays else kept
    if not items:
        return Finding(True, QueueReason.NO_RESOURCES, f"the queue asks for no further objects{kept}")
    wrong = [item for item in items if item.reason]
    if wrong:
        return Finding(False, wrong[0].reason, f"{wrong[0].extra}: {wrong[0].message}{_more(len(wrong) - 1)}")
    objects = f"{counted(len(items), 'object')} {agree(len(items), 'is', 'are')}"
    return Finding(True, QueueReason.RESOURCES_READY, f"{objects} as the queue asks{kept}")


def _more(number: int) -> str:
    return f"; {number} more in status.resources" if number else ""


def _item(extra: Extra, there: Object | None, refused: Mapping[tuple[str, str], Refusal]) -> Item:
    refusal = refused.get(extra.key)
    if refusal is not None:
        return Item(extra, refusal.reason, refusal.message)
    if there is None or not extra.ours(there.metadata):
        return Item(extra)  # it has just been made
    wrong = next(_troubles(extra, there), "")
    if wrong:
        return Item(extra, QueueReason.RESOURCE_NOT_READY, wrong)
    return Item(extra, message=next(_remarks(extra, there), ""))


def _troubles(extra: Extra, there: Object) -> Iterator[str]:
    if there.metadata.deletion_timestamp is not None:
        yield "is being deleted; it is made again once it is gone"
    if isinstance(there, PersistentVolumeClaim) and not extra.once:
        if there.status.phase == LOST:
            yield "has lost its volume; delete the claim, it is made again then"
        if not holds(_fixed(extra.body["spec"]), there.spec):
            yield (
                "exists with another spec, and of a claim's spec only the size can be changed: restore the template, "
                "give it another name, or set nameMode: prefix"
            )


def _remarks(extra: Extra, there: Object) -> Iterator[str]:
    if extra.once and there.metadata.annotations.get(INTENT_ANNOTATION) != digest_of(extra.body):
        yield "was made from an earlier template and stays as it is: immutable"
    if extra.kind == PVC and isinstance(there, PersistentVolumeClaim) and growth(extra, there) < 0:
        yield f"has {storage(there.spec)}, more than is asked for: a claim cannot shrink"


def _fixed(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns a claim's spec without its size."""
    fixed = deepcopy(spec)
    fixed.get("resources", {}).get("requests", {}).pop("storage", None)
    return fixed
