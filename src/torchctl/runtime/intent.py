"""Decides, without I/O, what to send to make a live object match an intent.

Server-side apply is an upsert that takes the full intent each time. Three dangers come with that, and each
rule below removes one:

- *An apply that changes nothing still costs a write.* The intent's digest travels with the object as an
  annotation. If the digest is the same and nobody has changed our fields since (`runtime.drift`), nothing is sent. A
  digest that differs is a new intent, which is how a field that is no longer wanted gets removed.
- *An apply may bring a deleted object back, or change one that is not ours.* The first apply carries a
  `metadata.resourceVersion` that no object has, so that it creates or conflicts. An object that exists is applied
  with its `metadata.uid`, which the server checks; an object of another owner is left alone. If an earlier owner
  of the same name left it behind, it is waited for, because it is being deleted.
- *An immutable field that differs, or is no longer named, makes the server refuse the whole intent, for ever.* Such
  fields are applied as they were last, and are not compared.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec

from torchctl.runtime.fieldset import extract
from torchctl.runtime.kinds import ObjectMeta, controller_in, kind_of

__all__ = [
    "INTENT_ANNOTATION",
    "NO_VERSION",
    "Decision",
    "Operation",
    "Ownership",
    "annotation_of",
    "controlled_by",
    "decide",
    "digest_of",
    "holds",
    "immutable_fields",
    "with_immutable",
    "without",
]

INTENT_ANNOTATION = "torchctl.runtime/intent"
"""The annotation with the digest of the intent that was last applied by the default field manager."""

NO_VERSION = "1"
"""A resourceVersion that no object has, because etcd's first write makes revision 2. An apply that carries it creates
the object if there is none; otherwise it is a Conflict, even with force."""

MANAGER = "torchctl"
"""The default field manager."""

_SORTED = msgspec.json.Encoder(order="deterministic")

Ownership = Callable[[ObjectMeta], bool]
"""Tells if an object that has our child's name is our child."""

IMMUTABLE: Mapping[tuple[str, str], tuple[tuple[str, ...], ...]] = {
    ("v1", "PersistentVolumeClaim"): (("spec",),),
    ("v1", "Service"): (("spec", "clusterIP"),),
    ("apps/v1", "ControllerRevision"): (("data",),),
    ("batch/v1", "Job"): (
        ("spec", "completionMode"),
        ("spec", "podFailurePolicy"),
        ("spec", "selector"),
        ("spec", "successPolicy"),
        ("spec", "template"),
    ),
}
"""Immutable fields of the kinds that are applied here, by apiVersion and kind."""

CREATED_ONCE = frozenset({("v1", "Pod")})
"""Kinds that are never updated once they exist. A pod's spec is immutable, and only a part of it is cached."""


class Operation(Enum):
    """The operation that one child needs, or why none is possible."""

    CREATE = "create"
    UPDATE = "update"
    KEEP = "keep"
    FOREIGN = "foreign"
    LEAVING = "leaving"
    TERMINATING = "terminating"


class Decision(msgspec.Struct, frozen=True):
    """The operation for one child, and the body to send if it is CREATE or UPDATE.

    In the body of an update the immutable fields are still the intent's: see `with_immutable`.
    """

    operation: Operation
    body: Mapping[str, Any] | None = None


def controlled_by(uid: str) -> Ownership:
    """Returns an `Ownership` that recognizes children by the uid in their controller reference."""

    def ours(meta: ObjectMeta) -> bool:
        found = controller_in(meta)
        return found is not None and found.uid == uid

    return ours


@lru_cache(maxsize=16)
def annotation_of(manager: str) -> str:
    """Returns the annotation of a manager's digest: each has its own, or two appliers would never agree."""
    return INTENT_ANNOTATION if manager == MANAGER else f"{INTENT_ANNOTATION}-{digest_of(manager)[:8]}"


def digest_of(intent: Mapping[str, Any] | str) -> str:
    """Returns 16 hexadecimal digits that identify a JSON value, whatever the order of its keys."""
    return hashlib.sha256(_SORTED.encode(intent)).hexdigest()[:16]


def decide(
    intent: Mapping[str, Any],
    meta: ObjectMeta | None,
    ours: Ownership,
    *,
    manager: str,
    once: bool = False,
    drifted: Callable[[], bool],
) -> Decision:
    """Compares an intent with the live object of the same name.

    Args:
        intent: The whole object as it should be, in its JSON form.
        meta: The live object's metadata, or None if there is no such object.
        ours: Recognises our own child.
        manager: The field manager that applies.
        once: Keep a child that exists as it is, whatever the intent says.
        drifted: Tells if somebody has changed what the manager applied last. It is called only if that was this intent.
    """
    digest = digest_of(intent)
    mark = {annotation_of(manager): digest}
    if meta is None:
        body = _annotated(intent, mark)
        body["metadata"]["resourceVersion"] = NO_VERSION
        return Decision(Operation.CREATE, body)
    if not ours(meta):
        return Decision(Operation.LEAVING if _is_leaving(intent, meta) else Operation.FOREIGN)
    if meta.deletion_timestamp is not None:
        return Decision(Operation.TERMINATING)
    if once or kind_of(intent) in CREATED_ONCE:
        return Decision(Operation.KEEP)
    if meta.annotations.items() >= mark.items() and not drifted():
        return Decision(Operation.KEEP)
    body = _annotated(intent, mark)
    body["metadata"]["uid"] = meta.uid
    return Decision(Operation.UPDATE, body)


def immutable_fields(intent: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    return IMMUTABLE.get(kind_of(intent), ())


def without(intent: Mapping[str, Any], paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Returns a copy of an intent without the fields at some paths."""
    body = dict(intent)
    for *parents, leaf in paths:
        body = _opened(body, parents)
        at = _descend(body, parents)
        if at is not None:
            at.pop(leaf, None)
    return body


def with_immutable(intent: Mapping[str, Any], live: Mapping[str, Any], manager: str = MANAGER) -> dict[str, Any]:
    """Returns the intent with its immutable fields as the manager applied them last.

    So nothing that it no longer names is removed, which the server would refuse as any other change. A field of which
    the manager owns nothing yet is the intent's, or the live object's if they differ.

    Args:
        live: The object in its JSON form, with its managedFields.
    """
    body = dict(intent)
    entries = live.get("metadata", {}).get("managedFields", ())
    applied = [one for one in entries if (one.get("manager"), one["operation"]) == (manager, "Apply")]
    trees = [one["fieldsV1"] for one in applied if not one.get("subresource")]
    for *parents, leaf in immutable_fields(intent):
        body = _opened(body, parents)
        at, there = _descend(body, parents), _descend(live, parents)
        if at is None or there is None:
            continue
        names = [f"f:{name}" for name in parents]
        owned = [found[f"f:{leaf}"] for tree in trees if (found := _descend(tree, names)) and f"f:{leaf}" in found]
        if owned and leaf in there:
            at[leaf] = extract(owned[0], there[leaf])
        elif leaf in at and not holds(at[leaf], there.get(leaf)):
            if leaf in there:
                at[leaf] = there[leaf]
            else:
                del at[leaf]
    return body


def _is_leaving(intent: Mapping[str, Any], meta: ObjectMeta) -> bool:
    """Tells if an object that is not ours is being deleted, or will be because its owner is gone.

    If its controller has our owner's kind and name but another uid, that is an earlier owner. Two objects of one kind
    cannot have the same name, so the earlier owner is gone and its children are being garbage-collected.
    """
    if meta.deletion_timestamp is not None:
        return True
    owner = next((ref for ref in intent["metadata"].get("ownerReferences", ()) if ref.get("controller")), None)
    theirs = controller_in(meta)
    if owner is None or theirs is None:
        return False
    group = str(owner["apiVersion"]).rpartition("/")[0]
    return (group, owner["kind"], owner["name"]) == (theirs.api_version.rpartition("/")[0], theirs.kind, theirs.name)


def _annotated(intent: Mapping[str, Any], mark: Mapping[str, str]) -> dict[str, Any]:
    body = _opened(intent, ("metadata", "annotations"))
    body["metadata"].setdefault("annotations", {}).update(mark)
    return body


def _opened(body: Mapping[str, Any], parents: Sequence[str]) -> dict[str, Any]:
    """Returns a copy that may be changed along the path; everything else is shared with `body`."""
    copy = dict(body)
    if parents and isinstance(copy.get(parents[0]), dict):
        copy[parents[0]] = _opened(copy[parents[0]], parents[1:])
    return copy


def _descend(body: Any, parents: Sequence[str]) -> Any:
    for parent in parents:
        if not isinstance(body, dict) or parent not in body:
            return None
        body = body[parent]
    return body if isinstance(body, dict) else None


def holds(want: Any, have: Any) -> bool:
    """Tells if every field of `want` has the same value in `have`. Further fields of `have` are ignored.

    An empty map or list equals an absent one: the server drops both. Lists of named things are compared by
    name, since others may add to them; all other lists are compared as a whole.
    """
    if want is None or want == {} or want == []:
        return have is None or have == want or (want == {} and isinstance(have, dict))
    if isinstance(want, Mapping):
        return isinstance(have, Mapping) and all(holds(value, have.get(key)) for key, value in want.items())
    if isinstance(want, Sequence) and not isinstance(want, str):
        return _list_holds(want, have)
    return bool(want == have)


def _list_holds(want: Sequence[Any], have: Any) -> bool:
    if not isinstance(have, Sequence) or isinstance(have, str):
        return False
    wanted, there = _by_name(want), _by_name(have)
    if wanted is not None and there is not None:
        return all(name in there and holds(item, there[name]) for name, item in wanted.items())
    return len(want) == len(have) and all(holds(item, other) for item, other in zip(want, have, strict=True))


def _by_name(items: Sequence[Any]) -> dict[str, Any] | None:
    """Returns items by their merge key `uid` (owner references) or `name`; None if that key is not unique."""
    for key in ("uid", "name"):
        if items and all(isinstance(item, Mapping) and key in item for item in items):
            named = {item[key]: item for item in items}
            return named if len(named) == len(items) else None
    return None
