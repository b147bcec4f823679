"""Describes the changes that a reconcile makes in the cluster: objects to apply, and objects to remove."""

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torchctl.api.kube import JOB, POD, PVC
from torchctl.runtime.intent import Ownership
from torchctl.runtime.kinds import Key, Kind

__all__ = ["Actions", "Child", "Halt", "Json", "Pause", "Removal", "earliest"]

Json = dict[str, Any]


ALONE = frozenset({JOB, POD, PVC})
"""Kinds that run or keep data. Each is applied after all children before it, and before all that follow."""


@dataclass(frozen=True, slots=True)
class Child:
    """An object that should exist, in its JSON form.

    Args:
        first: The form in which it is created if others write fields of it afterwards that `body` must not name.
    """

    kind: Kind[Any]
    body: Json
    ours: Ownership
    first: Json | None = None

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name

    @property
    def key(self) -> Key:
        return Key(self.body["metadata"]["namespace"], self.name)


@dataclass(frozen=True, slots=True)
class Removal:
    """An object to delete by uid, so that no other of its name is deleted. By force: its node is not asked.

    With a `version` it is deleted only as it was seen, because a person may have written since that it should stay.
    """

    kind: Kind[Any]
    key: Key
    uid: str
    force: bool = False
    version: str = ""


@dataclass(frozen=True, slots=True)
class Halt:
    """A pod to end but not to delete, because deleting it would delete its log too.

    Args:
        deadline_s: The age at which the pod has to have ended, counted from the start time in its status.
    """

    key: Key
    uid: str
    deadline_s: int


@dataclass(frozen=True, slots=True)
class Pause:
    """A Workload of Kueue to make inactive, or active again: the way to suspend a Job that Kueue admits.

    Args:
        version: Its version as it was seen, because a person may have made it inactive since.
    """

    key: Key
    uid: str
    version: str
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """The changes that one pass makes, in this order, and the time of the next pass.

    Args:
        remove: Deleted by uid, before anything is made.
        halt: Pods that get a deadline.
        children: Applied in order; a refusal stops the later stages, since a later child is of no use without the
            earlier.
        pause: Workloads that are paused before the children are made, or go on once they are.
        look_again_s: Seconds after which something is due that no event will tell.
    """

    remove: tuple[Removal, ...] = ()
    halt: tuple[Halt, ...] = ()
    pause: tuple[Pause, ...] = ()
    children: tuple[Child, ...] = ()
    look_again_s: float | None = None

    @property
    def stages(self) -> tuple[tuple[Child, ...], ...]:
        """The children in groups, each of which is applied at once."""
        numbered = enumerate(self.children, 1)
        grouped = groupby(numbered, lambda one: one[0] if one[1].kind in ALONE else 0)
        return tuple(tuple(child for _, child in stage) for _, stage in grouped)


def earliest(*moments_s: float | None) -> float | None:
    """Returns the shortest of several waits in seconds; None if there is none."""
    return min((moment_s for moment_s in moments_s if moment_s is not None), default=None)
