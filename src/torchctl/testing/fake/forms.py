"""The forms in which an object is read, written, stored and compared. Pure."""

from typing import Any

from torchctl.runtime.kinds import Key
from torchctl.testing.fake.fields import null_in
from torchctl.testing.fake.rejection import Rejection
from torchctl.testing.fake.served import Served

__all__ = ["Body", "check_nulls", "empty_in", "key_of", "spec_of", "tidy", "timeless", "written_part"]

Body = dict[str, Any]


def key_of(body: Body) -> Key:
    return Key(body["metadata"].get("namespace", ""), body["metadata"]["name"])


def empty_in(served: Served, body: Body) -> frozenset[str]:
    """Returns the empty metadata fields that are stored."""
    if served.builtin:
        return frozenset()
    return frozenset(name for name, value in body["metadata"].items() if value in ({}, [], None))


def check_nulls(served: Served, body: Body) -> None:
    """Refuses null where the schema of a custom resource wants a value, as an apply leaves it that takes all out."""
    if not served.builtin and (path := null_in(body, served.schema)):
        raise Rejection(422, "Invalid", f"{path}: Invalid value: null: must be of the type in the schema")


def tidy(served: Served, body: Body) -> Body:
    """Returns the object without the empty fields that the API server drops when it reads one."""
    meta = {name: value for name, value in body["metadata"].items() if value not in ({}, [], None, "")}
    if served.builtin:
        body = {name: value for name, value in body.items() if value not in ({}, [], None)}
    return {**body, "metadata": meta}


def written_part(served: Served, old: Body, new: Body, subresource: str) -> Body:
    """Returns what an endpoint writes of a change: the status, or all but the status."""
    if subresource:
        managed = {"managedFields": new["metadata"]["managedFields"]} if "managedFields" in new["metadata"] else {}
        kept = {name: value for name, value in old.items() if name != "status"}
        status = {"status": new["status"]} if "status" in new else {}
        return {**kept, **status, "metadata": {**old["metadata"], **managed}}
    if not served.status:
        return new
    kept = {name: value for name, value in new.items() if name != "status"}
    return {**kept, "status": old["status"]} if "status" in old else kept


def spec_of(body: Body, served: Served) -> Body:
    hidden = ("metadata", "status") if served.status else ("metadata",)
    return {name: value for name, value in body.items() if name not in hidden}


def timeless(body: Body) -> Body:
    """Returns the object without the times in managedFields, which alone are no change."""
    meta = dict(body["metadata"])
    meta["managedFields"] = [entry | {"time": ""} for entry in meta.get("managedFields", ())]
    return {**body, "metadata": meta}
