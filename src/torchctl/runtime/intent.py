"""Apply's decision, pure: given what should be and what is, what is to be sent.

Server-side apply is an upsert that takes the full intent each time. Three dangers come with that, and each
rule below removes one:

- *An apply that changes nothing still costs a write.* The intent's digest travels with the object as an
  annotation. Same digest and every field of the intent still in place: nothing is sent. A field that somebody
  else changed is drift, and a digest that differs is a new intent (which is how a field that is no longer
  wanted gets removed): both are sent.
- *An apply may bring a deleted object back, or change one that is not ours.* An object that exists is applied
  with its `metadata.uid`, which the server checks; an object whose owner is another is left alone. One that an
  earlier owner of the same name has left behind is waited for: it is being deleted.
- *An immutable field that differs makes the server refuse the whole intent, for ever.* Such fields are taken
  from the live object, and are not compared.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torchctl.runtime.kinds import ObjectMeta, controller_in

__all__ = ["INTENT_ANNOTATION", "Decision", "Ownership", "Verdict", "controlled_by", "decide", "digest_of", "holds"]

INTENT_ANNOTATION = "torchctl.runtime/intent"
"""Holds the digest of what was last applied."""

Ownership = Callable[[ObjectMeta], bool]
"""Whether an object that carries our child's name is our child."""

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
"""Fields that the API server never lets change, by apiVersion and kind, of the kinds that are applied here."""

ATOMIC: Mapping[tuple[str, str], tuple[tuple[str, ...], ...]] = {("v1", "Service"): (("spec", "selector"),)}
"""Maps that have one owner as a whole, so that what somebody adds to them is drift too."""

CREATED_ONCE = frozenset({("v1", "Pod")})
"""Kinds of which nothing that we say may change: what exists is kept as it is. Of pods only a part is cached, too."""

IDENTITY = ("apiVersion", "kind")
"""Not compared: a typed object says them by its type."""


class Verdict(Enum):
    """What is to be done about one child."""

    CREATE = "create"
    UPDATE = "update"
    KEEP = "keep"
    FOREIGN = "foreign"
    LEAVING = "leaving"
    TERMINATING = "terminating"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict, and the body to send where the verdict is CREATE or UPDATE."""

    verdict: Verdict
    body: Mapping[str, Any] | None = None


def controlled_by(uid: str) -> Ownership:
    """The ownership of a child by its controller reference."""

    def ours(meta: ObjectMeta) -> bool:
        found = controller_in(meta)
        return found is not None and found.uid == uid

    return ours


def digest_of(intent: Mapping[str, Any]) -> str:
    """16 hexadecimal digits that are the same for the same JSON value, whatever the order of its keys."""
    text = json.dumps(intent, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def decide(
    intent: Mapping[str, Any],
    meta: ObjectMeta | None,
    live: Mapping[str, Any] | None,
    ours: Ownership,
    *,
    once: bool = False,
) -> Decision:
    """Compares an intent with the object of that name.

    Args:
        intent: The whole object as it should be, in its JSON form.
        meta: The live object's metadata, or None where there is no such object.
        live: The live object in its JSON form, with every field that the intent may name outside of the
            immutable ones; None where `meta` is.
        ours: Recognises our own child.
        once: Whether a child that exists is kept as it is, whatever the intent says.
    """
    digest = digest_of(intent)
    if meta is None or live is None:
        return Decision(Verdict.CREATE, _with_digest(intent, digest))
    if not ours(meta):
        return Decision(Verdict.LEAVING if _is_leaving(intent, meta) else Verdict.FOREIGN)
    if meta.deletion_timestamp is not None:
        return Decision(Verdict.TERMINATING)
    kind = (intent["apiVersion"], intent["kind"])
    if once or kind in CREATED_ONCE:
        return Decision(Verdict.KEEP)
    frozen = IMMUTABLE.get(kind, ())
    compared = _without(intent, (*frozen, *((name,) for name in IDENTITY)))
    atoms = ATOMIC.get(kind, ())
    if meta.annotations.get(INTENT_ANNOTATION) == digest and holds(compared, live) and _equal(intent, live, atoms):
        return Decision(Verdict.KEEP)
    body = _with_digest(_with_live(intent, live, frozen), digest)
    body["metadata"]["uid"] = meta.uid
    return Decision(Verdict.UPDATE, body)


def _is_leaving(intent: Mapping[str, Any], meta: ObjectMeta) -> bool:
    """Whether an object that is not ours is on its way out: it is being deleted, or will be, as its owner is gone.

    A controller of our own owner's kind and name, and of another uid, is an earlier one. As two objects of one kind
    cannot have one name, it is gone, and the garbage collector comes for what it left.
    """
    if meta.deletion_timestamp is not None:
        return True
    owner = next((ref for ref in intent["metadata"].get("ownerReferences", ()) if ref.get("controller")), None)
    theirs = controller_in(meta)
    if owner is None or theirs is None:
        return False
    group = str(owner["apiVersion"]).rpartition("/")[0]
    return (group, owner["kind"], owner["name"]) == (theirs.api_version.rpartition("/")[0], theirs.kind, theirs.name)


def _with_digest(intent: Mapping[str, Any], digest: str) -> dict[str, Any]:
    body = _opened(intent, ("metadata", "annotations"))
    body["metadata"].setdefault("annotations", {})[INTENT_ANNOTATION] = digest
    return body


def _without(intent: Mapping[str, Any], paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    body = dict(intent)
    for *parents, leaf in paths:
        body = _opened(body, parents)
        at = _descend(body, parents)
        if at is not None:
            at.pop(leaf, None)
    return body


def _with_live(intent: Mapping[str, Any], live: Mapping[str, Any], paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The intent, in which an immutable field that the live object contradicts is the live object's."""
    body = dict(intent)
    for *parents, leaf in paths:
        body = _opened(body, parents)
        at, there = _descend(body, parents), _descend(live, parents)
        if at is None or there is None or leaf not in at or holds(at[leaf], there.get(leaf)):
            continue
        if leaf in there:
            at[leaf] = there[leaf]
        else:
            del at[leaf]
    return body


def _opened(body: Mapping[str, Any], parents: Sequence[str]) -> dict[str, Any]:
    """A copy that may be written to along the path; what is beside the path is shared."""
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


def _equal(intent: Mapping[str, Any], live: Mapping[str, Any], paths: Sequence[tuple[str, ...]]) -> bool:
    """Whether each of the maps that the intent names has the live object's keys."""
    pairs = [(_descend(intent, path), _descend(live, path)) for path in paths]
    return all(want is None or want.keys() == (have or {}).keys() for want, have in pairs)


def holds(want: Any, have: Any) -> bool:
    """Whether every field of `want` has its value in `have`, which may have more.

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
    """Items by their merge key `uid` (owner references) or `name`, or None where these do not tell them apart."""
    for key in ("uid", "name"):
        if items and all(isinstance(item, Mapping) and key in item for item in items):
            named = {item[key]: item for item in items}
            return named if len(named) == len(items) else None
    return None
