"""Server-side apply and managedFields, as the API server keeps them. Pure.

Known differences: all of a kind is of one version, and more than ten managers that update are not merged into one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torchctl.testing.fake.fields import (
    Path,
    Schema,
    compared,
    decoded,
    encoded,
    fields,
    merged,
    named,
    outside,
    removed,
)

__all__ = ["Actor", "FieldConflict", "applied", "updated"]

Body = dict[str, Any]

STRIPPED: frozenset[Path] = frozenset(
    (("f:apiVersion",), ("f:kind",), ("f:metadata",)),
) | {
    ("f:metadata", f"f:{name}")
    for name in ("name", "namespace", "creationTimestamp", "uid", "generation", "managedFields", "resourceVersion")
}
"""Fields that nobody owns."""

APPLY, UPDATE = "Apply", "Update"


class FieldConflict(Exception):
    """Other managers own fields that an apply without force would change."""

    def __init__(self, conflicts: Mapping["Actor", set[Path]]) -> None:
        count = sum(map(len, conflicts.values()))
        told = "; ".join(
            f"conflict with {actor.manager!r}: {', '.join('.'.join(path) for path in sorted(paths))}"
            for actor, paths in conflicts.items()
        )
        super().__init__(f"Apply failed with {count} conflict{'s' * (count > 1)}: {told}")


@dataclass(frozen=True)
class Actor:
    """Who changes an object: a field manager, how, and through which subresource."""

    manager: str
    operation: str = UPDATE
    subresource: str = ""


Owned = dict[Actor, set[Path]]


def updated(old: Body, new: Body, actor: Actor, schema: Schema, ignored: Iterable[Path], now: str) -> Body:
    """Returns `new` with the managedFields that an update of `old` to it leaves."""
    owned = _read(old)
    if not owned and "uid" in old["metadata"]:
        return _bare(new)  # nobody is recorded until the first apply
    change = compared(_bare(old), _bare(new), schema).without(ignored)
    _take(owned, change.added | change.changed, change.removed, None)
    mine = (change.added | change.changed) - STRIPPED
    if mine:
        owned[actor] = owned.get(actor, set()) | mine
    return _written(new, owned, old, now)


def applied(
    live: Body, config: Body, actor: Actor, schema: Schema, ignored: Iterable[Path], now: str, *, force: bool
) -> Body:
    """Returns the object after an apply.

    Raises:
        FieldConflict: Another manager owns a field that would change, and `force` is not set.
    """
    owned, config = _read(live), _bare(config)
    if not owned and "uid" in live["metadata"]:
        nothing = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": {}}
        owned[Actor("before-first-apply")] = compared(nothing, _bare(live), schema).without(ignored).added - STRIPPED
    last = outside(owned.get(actor, set()), ignored)
    owned[actor] = outside(fields(config, schema), ignored)
    wanted = merged(_bare(live), config, schema)
    if last:
        wanted = _pruned(wanted, last, owned, schema)
    change = compared(_bare(live), wanted, schema).without(ignored)
    conflicts = _take(owned, change.added | change.changed, change.removed, actor)
    if conflicts and not force:
        raise FieldConflict(conflicts)
    return _written(wanted, owned, live, now)


def _pruned(wanted: Body, last: set[Path], owned: Owned, schema: Schema) -> Body:
    """Takes out what the applier applied last time, and neither it nor anybody else owns now."""
    mentioned = named(last, schema)
    everything = named(fields(wanted, schema), schema)
    without = removed(wanted, mentioned, schema) or {}
    kept = named(fields(without, schema), schema)
    held = named(set().union(*owned.values()), schema)
    result = removed(wanted, everything - kept - held, schema) or {}
    dangling = (everything - named(fields(result, schema), schema)) & mentioned
    return removed(wanted, dangling, schema) or {}


def _take(owned: Owned, taken: set[Path], gone: set[Path], actor: Actor | None) -> Owned:
    """Takes changed fields away from everybody else; returns whom they were taken from."""
    conflicts: Owned = {}
    for other in [*owned]:
        if other == actor:
            continue
        if lost := owned[other] & taken:
            conflicts[other] = lost
        owned[other] = owned[other] - taken - gone
    return conflicts


def _read(body: Body) -> Owned:
    return {
        Actor(entry["manager"], entry["operation"], entry.get("subresource", "")): decoded(entry["fieldsV1"])
        for entry in body.get("metadata", {}).get("managedFields", ())
    }


def _bare(body: Body) -> Body:
    """Returns the object without its managedFields."""
    meta = {name: value for name, value in body.get("metadata", {}).items() if name != "managedFields"}
    return {**body, "metadata": meta}


def _written(body: Body, owned: Owned, old: Body, now: str) -> Body:
    """Returns the object with an entry for each manager that owns something; unchanged entries keep their times."""
    before = {
        Actor(entry["manager"], entry["operation"], entry.get("subresource", "")): entry
        for entry in old.get("metadata", {}).get("managedFields", ())
    }
    entries = []
    for actor, paths in owned.items():
        if not (paths := paths - STRIPPED):
            continue
        entry = {
            "manager": actor.manager,
            "operation": actor.operation,
            "apiVersion": body["apiVersion"],
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": encoded(paths),
        }
        if actor.subresource:
            entry["subresource"] = actor.subresource
        known = before.get(actor)
        entries.append(known if known is not None and known["fieldsV1"] == entry["fieldsV1"] else entry)
    entries.sort(key=lambda entry: (entry["operation"], entry["time"], entry["manager"]))
    bare = _bare(body)
    return {**bare, "metadata": {**bare["metadata"], "managedFields": entries}} if entries else bare
