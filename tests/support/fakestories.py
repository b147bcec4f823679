"""Random histories of requests, sent alike to the fake API server and to a real one, and what both answered."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from torchctl.runtime.client import requests
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError
from torchctl.runtime.client.exchange import Transport
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.kinds import Kind, PartialObject

__all__ = ["CONFIG_MAP", "CRD", "CRD_KIND", "STORY", "History", "Side", "felled", "is_served", "steps"]

CRD_KIND: Kind[PartialObject] = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", PartialObject, False
)
STORY: Kind[PartialObject] = Kind("histories.test", "v1", "Story", "stories", PartialObject)
CONFIG_MAP: Kind[PartialObject] = Kind("", "v1", "ConfigMap", "configmaps", PartialObject)

TEXT = {"type": "string"}
SPEC = {
    "type": "object",
    "properties": {
        "text": TEXT,
        "labels": {"type": "object", "additionalProperties": TEXT},
        "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        "plain": {"type": "array", "items": TEXT},
        "box": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"a": TEXT, "b": TEXT},
        },
        "deep": {"type": "object", "properties": {"x": {"type": "object", "properties": {"y": TEXT, "z": TEXT}}}},
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": TEXT, "value": TEXT}},
        },
        "shelves": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "left": TEXT,
                    "right": TEXT,
                    "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
                    "plain": {"type": "array", "items": TEXT},
                },
            },
        },
    },
}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "stories.histories.test"},
    "spec": {
        "group": "histories.test",
        "scope": "Namespaced",
        "names": {"kind": "Story", "plural": "stories", "singular": "story", "listKind": "StoryList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": SPEC}}},
            }
        ],
    },
}


async def is_served(client: Client, kind: Kind[Any]) -> bool:
    """Tells if the API server serves a kind yet, whose CRD has just been applied."""
    try:
        await client.list(kind)
    except ApiError:
        return False
    return True


NAMES = ("a", "b", "c")
MANAGERS = ("first", "second")


@dataclass(frozen=True)
class Step:
    """One request, as far as it does not depend on the server's uids and versions."""

    verb: str
    kind: Kind[Any]
    name: str
    body: dict[str, Any] = field(default_factory=dict)
    manager: str = "first"
    subresource: str = ""
    version: str = ""
    """Which version the request names: `current`, `old`, or none."""
    uid: str = ""
    """Which uid it names: `current`, `wrong`, or none."""
    options: tuple[tuple[str, Any], ...] = ()


def steps(seed: int, count: int) -> Iterator[Step]:
    """Draws a history."""
    rng = random.Random(seed)
    verbs = {"create": 5, "apply": 10, "merge": 5, "json": 2, "replace": 6, "delete": 2, "list": 1, "delete_all": 0.3}
    for _ in range(count):
        (verb,) = rng.choices([*verbs], [*verbs.values()])
        kind = STORY if rng.random() < 0.7 else CONFIG_MAP
        subresource = "status" if kind is STORY and verb in ("apply", "merge", "replace") and rng.random() < 0.3 else ""
        options: dict[str, Any] = {"dryRun": True} if rng.random() < 0.08 and verb != "list" else {}
        if verb == "apply":
            options["force"] = rng.random() < 0.4
        if verb == "list":
            options["labels"] = rng.choice(("", "color=red", "color!=red", "color", "color in (red,blue)"))
        if verb == "json":
            options["test"] = rng.random() < 0.5
        yield Step(
            verb,
            kind,
            rng.choice(NAMES),
            _content(rng, kind, subresource),
            rng.choice(MANAGERS),
            subresource,
            rng.choices(("", "current", "old"), (6, 3, 1))[0],
            rng.choices(("", "current", "wrong"), (8, 2, 1))[0],
            (*options.items(),),
        )


def _content(rng: random.Random, kind: Kind[Any], subresource: str) -> dict[str, Any]:
    def some(**choices: Any) -> dict[str, Any]:
        return {name: choice for name, choice in choices.items() if rng.random() < 0.4}

    def word() -> str:
        return rng.choice(("red", "blue", "green"))

    def words() -> list[str]:
        return rng.sample(("red", "blue", "green"), rng.randint(0, 3))

    def mapping() -> dict[str, str]:
        return {name: word() for name in rng.sample(("k", "l", "m"), rng.randint(0, 3))}

    meta: dict[str, Any] = {}
    if rng.random() < 0.4:
        meta["labels"] = {"color": word()} if rng.random() < 0.8 else {}
    if rng.random() < 0.2:
        meta["annotations"] = mapping()
    if rng.random() < 0.25:
        meta["finalizers"] = [f"test.example/{name}" for name in rng.sample(("x", "y"), rng.randint(0, 2))]
    if kind is CONFIG_MAP:
        return {"metadata": meta} | some(data=mapping())
    filled = some(
        text=word(),
        labels=mapping(),
        tags=words(),
        plain=words(),
        box={name: word() for name in rng.sample(("a", "b"), rng.randint(0, 2))},
        deep={"x": {name: word() for name in rng.sample(("y", "z"), rng.randint(0, 2))}},
        items=[{"name": name} | some(value=word()) for name in words()],
        shelves={name: some(left=word(), right=word(), tags=words(), plain=words()) for name in words()},
    )
    both = {"spec": filled} if rng.random() < 0.9 else {}
    return {"metadata": meta} | both | ({"status": filled} if subresource or rng.random() < 0.1 else {})


@dataclass
class Side:
    """One of the two servers in a history. What it calls objects and versions is replaced by common names."""

    transport: Transport
    namespace: str
    versions: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    uids: dict[tuple[str, str], str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    async def do(self, step: Step) -> dict[str, Any]:
        """Sends the request of a step and returns the answer with common names."""
        answer = await self.transport.send(await self._request(step))
        body = json.loads(answer.body)
        self._learn(step.kind, body)
        return {"code": answer.status} | self.common(body)

    def common(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns a body without what two servers need not agree on."""
        if body.get("kind") == "Status":
            return {"reason": body.get("reason", "")}
        if "items" in body:
            return {"items": [self.common(item) for item in body["items"] if item["metadata"]["name"] in NAMES]}
        meta = dict(body["metadata"])
        for name in ("uid", "resourceVersion"):
            if name in meta:
                meta[name] = self.names.setdefault(
                    meta[name],
                    f"{name} {len(self.names)}",
                )
        for name in ("creationTimestamp", "deletionTimestamp"):
            if name in meta:
                meta[name] = "then"
        meta.pop("namespace", None)
        managed = [
            {name: value for name, value in entry.items() if name != "time"} for entry in meta.pop("managedFields", ())
        ]
        meta["managed"] = sorted(json.dumps(entry, sort_keys=True) for entry in managed)
        return {name: value for name, value in body.items() if name not in ("kind", "apiVersion")} | {"metadata": meta}

    def _learn(self, kind: Kind[Any], body: dict[str, Any]) -> None:
        for item in body.get("items", [body]):
            meta = item.get("metadata", {})
            key = (kind.kind, meta.get("name", ""))
            if meta.get("uid") and meta.get("resourceVersion"):
                self.uids[key] = meta["uid"]
                known = self.versions.setdefault(key, [])
                if not known or known[-1] != meta["resourceVersion"]:
                    known.append(meta["resourceVersion"])

    async def _request(self, step: Step) -> HttpRequest:
        kind, name, namespace = step.kind, step.name, self.namespace
        key, options = (kind.kind, name), dict(step.options)
        meta: dict[str, Any] = {"name": name, "namespace": namespace, **step.body.get("metadata", {})}
        guard: dict[str, Any] = {}
        if step.version and (known := self.versions.get(key)):
            guard["resourceVersion"] = known[-1] if step.version == "current" else known[0]
        if step.uid and key in self.uids:
            guard["uid"] = self.uids[key] if step.uid == "current" else "00000000-0000-4000-8000-000000000000"
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **step.body, "metadata": meta}
        given: dict[str, Any] = {"manager": step.manager}
        if step.subresource:
            given["subresource"] = step.subresource
        match step.verb:
            case "create":
                request = requests.create(kind, _json(whole), namespace, manager=step.manager)
            case "apply":
                body = _json(whole | {"metadata": meta | guard})
                request = requests.apply(kind, name, body, namespace, force=options["force"], **given)
            case "merge":
                body = _json(step.body | {"metadata": step.body.get("metadata", {}) | guard})
                request = requests.merge_patch(kind, name, body, namespace, **given)
            case "json":
                wanted = "red" if options["test"] else "missing"
                operations = [{"op": "add", "path": "/metadata/labels", "value": {"color": wanted}}]
                operations += [{"op": "test", "path": "/metadata/labels/color", "value": "red"}]
                request = requests.json_patch(kind, name, _json(operations), namespace, **given)
            case "replace":
                request = requests.replace(kind, name, await self._replacement(step, whole, guard), namespace, **given)
            case "delete":
                conditions = {"uid": guard.get("uid", ""), "resource_version": guard.get("resourceVersion", "")}
                request = requests.delete(kind, name, _json(requests.delete_options(**conditions)), namespace)
            case "delete_all":
                request = requests.delete_collection(
                    kind, _json(requests.delete_options()), namespace, labels="color=red"
                )
            case _:
                request = requests.list_page(kind, namespace=namespace, labels=options["labels"])
        return requests.dry(request) if options.get("dryRun") else request

    async def _replacement(self, step: Step, whole: dict[str, Any], guard: dict[str, Any]) -> bytes:
        """The object as it is now with the step's content in place of its own; its finalizers stay half of the time."""
        answer = await self.transport.send(requests.get(step.kind, step.name, self.namespace))
        current = json.loads(answer.body) if answer.status == 200 else {"metadata": {}}
        kept = {name: value for name, value in current["metadata"].items() if name not in ("uid", "resourceVersion")}
        return _json({**whole, "metadata": kept | whole["metadata"] | guard})

    # Watches.

    async def version(self, kind: Kind[Any]) -> str:
        """Returns the version of an empty list."""
        answer = await self.transport.send(requests.list_page(kind, namespace=self.namespace))
        return str(json.loads(answer.body)["metadata"]["resourceVersion"])

    async def watched(self, kind: Kind[Any], since: str, labels: str) -> list[Any]:
        """Returns the events since a version, up to an object that is made for the purpose."""
        meta = {"name": "end", "labels": {"color": "red"}}
        end = _json({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta})
        await self.transport.send(requests.create(kind, end, self.namespace, manager="first"))
        request = requests.watch(kind, namespace=self.namespace, labels=labels, resource_version=since, timeout_s=60)
        found: list[Any] = []
        async with self.transport.stream(request) as stream:
            while not found or found[-1][1]["metadata"]["name"] != "end":
                line = json.loads(await stream.readline(30))
                if line["type"] != "BOOKMARK":
                    found.append((line["type"], self.common(line["object"])))
        return found

    # Owners and dependents.

    async def plant(self, kind: Kind[Any], rng: random.Random) -> None:
        """Creates a random tree of owners and dependents.

        None has a finalizer of its own. If such an owner is deleted in the foreground, it is chance which of its
        dependents the real garbage collector takes before it lets go of the owner, which then stays.
        """
        for name in TREE:
            owners = [
                {
                    "apiVersion": kind.api_version,
                    "kind": kind.kind,
                    "name": owner,
                    "uid": self.uids[kind.kind, owner],
                    "blockOwnerDeletion": rng.random() < 0.5,
                }
                for owner in rng.sample(TREE[: TREE.index(name)], min(TREE.index(name), rng.randint(0, 2)))
            ]
            meta = {"name": name, "ownerReferences": owners}
            body = _json({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta})
            answer = await self.transport.send(requests.create(kind, body, self.namespace))
            self._learn(kind, json.loads(answer.body))

    async def fell(self, kind: Kind[Any], name: str, policy: requests.Propagation) -> None:
        """Deletes one of the tree."""
        options = _json(requests.delete_options(propagation=policy))
        await self.transport.send(requests.delete(kind, name, options, self.namespace))

    async def standing(self, kind: Kind[Any]) -> dict[str, Any]:
        """Returns what is left of the tree: each one's owners, its finalizers, and whether it is being deleted."""
        answer = await self.transport.send(requests.list_page(kind, namespace=self.namespace))
        metas = [item["metadata"] for item in json.loads(answer.body)["items"]]
        return {
            meta["name"]: (
                sorted(owner["name"] for owner in meta.get("ownerReferences", ())),
                sorted(meta.get("finalizers", ())),
                "deletionTimestamp" in meta,
            )
            for meta in metas
            if meta["name"] in TREE
        }


TREE = ("oak", "bough", "branch", "twig", "leaf", "bud")


def felled(rng: random.Random) -> list[tuple[str, requests.Propagation]]:
    """Draws what is deleted of a tree, and how."""
    policies: tuple[requests.Propagation, ...] = ("Background", "Foreground", "Orphan")
    return [(name, rng.choice(policies)) for name in rng.sample(TREE, 3)]


@dataclass
class History:
    """A history on both servers."""

    real: Side
    fake: Side

    async def run(self, seed: int, count: int) -> list[str]:
        """Returns the differences: each step with both answers."""
        found = []
        for number, step in enumerate(steps(seed, count)):
            real, fake = await self.real.do(step), await self.fake.do(step)
            if real != fake:
                found.append(f"seed {seed} step {number} {step}\n  real {real}\n  fake {fake}")
        return found


def _json(body: Any) -> bytes:
    return msgspec.json.encode(body)
