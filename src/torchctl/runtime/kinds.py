"""Types for any Kubernetes object: its kind, key, metadata and conditions.

Objects are immutable projections: a struct has only the fields that somebody reads, and decoding skips
the rest of the bytes. A consumer declares a further kind by writing such a struct and a `Kind` for it.
"""

import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

__all__ = [
    "EVENT",
    "LEASE",
    "Condition",
    "Event",
    "Key",
    "Kind",
    "Lease",
    "LeaseSpec",
    "ManagedFields",
    "Object",
    "ObjectMeta",
    "ObjectReference",
    "OwnedFields",
    "OwnerReference",
    "PartialObject",
    "Status",
    "StatusDetails",
    "controller_in",
    "controller_of",
    "key_of",
    "kind_of",
    "metadata_of",
]


class Key(NamedTuple):
    """Names one object of a kind. `namespace` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One entry of metadata.ownerReferences."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ManagedFields(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One entry of metadata.managedFields, on its way to `OwnedFields`."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class OwnedFields(msgspec.Struct, frozen=True, gc=False):
    """The fields that one manager owns by server-side apply, as the text of its fieldsV1 tree.

    The uids of owner references are blank, so that children of the same form share one text.
    """

    manager: str
    fields: str


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The metadata that controllers read.

    Of managedFields the codec keeps, in `applied`, the entries of managers that apply; `managed_fields` itself is
    always empty in an object that a client or a cache returns.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: tuple[ManagedFields, ...] = ()
    applied: tuple[OwnedFields, ...] = ()


class Object(Protocol):
    """Anything with Kubernetes metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of object: its API path and the type that it is decoded to.

    `type` is a msgspec struct with a `metadata: ObjectMeta`. Fields of other types (pydantic models) are
    decoded by `dec_hook`, as msgspec defines it. With `metadata_only` the server sends the metadata alone, whatever
    the objects' size; see `metadata_of`.
    """

    group: str
    version: str
    kind: str
    plural: str
    type: type[T]
    namespaced: bool = True
    dec_hook: Callable[[builtins.type, Any], Any] | None = field(default=None, compare=False)
    metadata_only: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The name that RBAC and error messages use, e.g. `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __str__(self) -> str:
        return self.kind


class PartialObject(msgspec.Struct, frozen=True):
    """The metadata of an object of any kind."""

    metadata: ObjectMeta


def metadata_of(kind: Kind[Any]) -> Kind[PartialObject]:
    """Returns a kind whose reads and watches carry only the metadata (PartialObjectMetadata) of its objects."""
    return replace(kind, type=PartialObject, dec_hook=None, metadata_only=True)


class Condition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """metav1.Condition. `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class StatusCause(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.StatusCause: one field, and what is wrong with it."""

    field: str = ""
    message: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of metav1.StatusDetails that are read."""

    name: str = ""
    kind: str = ""
    retry_after_seconds: int = 0
    causes: tuple[StatusCause, ...] = ()


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.Status: the API server's answer if it refuses a request."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """coordination.k8s.io/v1 LeaseSpec. Times are kept as text: only their change counts."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """core/v1 ObjectReference: the object that an Event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""


class Repetition(msgspec.Struct, frozen=True, rename="camel"):
    """core/v1 EventSeries, as far as it is read."""

    last_observed_time: datetime | None = None


class Event(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """core/v1 Event. Who writes events.k8s.io/v1, as kube-scheduler does, sets other times than who writes core/v1."""

    metadata: ObjectMeta
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: Repetition | None = None

    @property
    def last_seen(self) -> datetime | None:
        """The time of the last occurrence; the creation time of the Event if no field has it."""
        repeated = self.series.last_observed_time if self.series is not None else None
        times = [time for time in (self.last_timestamp, self.event_time, repeated) if time is not None]
        return max(times, default=self.metadata.creation_timestamp)


LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", Lease)
EVENT = Kind("", "v1", "Event", "events", Event)


def key_of(obj: Object) -> Key:
    return Key(obj.metadata.namespace, obj.metadata.name)


def controller_of(obj: Object) -> OwnerReference | None:
    """The owner reference with `controller: true`, of which an object has at most one."""
    return controller_in(obj.metadata)


def controller_in(meta: ObjectMeta) -> OwnerReference | None:
    """`controller_of` for an object's metadata."""
    return next((ref for ref in meta.owner_references if ref.controller), None)


def kind_of(body: Mapping[str, Any]) -> tuple[str, str]:
    """`(apiVersion, kind)` of an object in its JSON form."""
    return body["apiVersion"], body["kind"]
