"""Apply against the real API server: what is sent, what comes of it, and what somebody else does in between."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import anyio
import msgspec
import pytest
from fakestories import CRD, CRD_KIND, STORY, is_served
from waiting import until

from torchctl.api.kube import CONTROLLER_REVISION, JOB, POD, PVC, SERVICE
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.apply import Applier, ApplyResult, ForeignObject
from torchctl.runtime.cache.barrier import Barrier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import Conflict, Forbidden, NotFound, Unavailable
from torchctl.runtime.client.writes import record_writes
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.intent import INTENT_ANNOTATION, NO_VERSION, Operation, Ownership, controlled_by, digest_of
from torchctl.runtime.kinds import Key, Kind, ObjectMeta
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.faults import Exchange, Moment
from torchctl.testing.proxy import FaultProxy


class Owner(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


OWNER = Kind("", "v1", "ConfigMap", "configmaps", Owner)
"""Of the children here. It exists: the garbage collector deletes what names an owner that does not."""


class Anything(msgspec.Struct, frozen=True):
    """Only metadata is cached, for the comparison needs no more."""

    metadata: ObjectMeta


class Spec:
    """A type that msgspec does not know."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw


class Hooked(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: Spec


def one(kind: Kind[Any], **body: Any) -> tuple[Kind[Any], dict[str, Any]]:
    return kind, {"apiVersion": kind.api_version, "kind": kind.kind, **body}


def pods(**spec: Any) -> dict[str, Any]:
    """The selector and template of a workload."""
    container = {"name": "c", "image": "i", **spec.pop("container", {})}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], **spec}}
    return {"selector": {"matchLabels": {"a": "b"}}, "template": template}


NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", Anything)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", Anything)
ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles", Anything)
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", Anything)

ACCOUNTS = [{"kind": "ServiceAccount", "name": name, "namespace": "default"} for name in ("ours", "theirs")]
REFERENCE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
PEER = {"podSelector": {"matchLabels": {"a": "b"}}}
RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}

DRIFTS: dict[str, tuple[tuple[Kind[Any], dict[str, Any]], dict[str, Any]]] = {
    "subject": (one(ROLE_BINDING, subjects=ACCOUNTS[:1], roleRef=REFERENCE), {"subjects": ACCOUNTS}),
    "podSelector": (
        one(NETWORK_POLICY, spec={"podSelector": {}}),
        {"spec": {"podSelector": {"matchLabels": {"x": "y"}}}},
    ),
    "namespaceSelector": (
        one(NETWORK_POLICY, spec={"podSelector": {}, "ingress": [{"from": [PEER]}]}),
        {"spec": {"ingress": [{"from": [{**PEER, "namespaceSelector": {}}]}]}},
    ),
    "egress": (one(NETWORK_POLICY, spec={"podSelector": {}, "egress": []}), {"spec": {"egress": [{"to": [PEER]}]}}),
    "resourceNames": (one(ROLE, rules=[RULE]), {"rules": [{**RULE, "resourceNames": ["x"]}]}),
    "nodeSelector": (
        one(DEPLOYMENT, spec=pods(nodeSelector={"a": "b"})),
        {"spec": {"template": {"spec": {"nodeSelector": {"a": "b", "c": "d"}}}}},
    ),
}
"""What is applied, and what somebody makes of it."""

ROUNDED: dict[str, tuple[Kind[Any], dict[str, Any]]] = {
    "quantities": one(DEPLOYMENT, spec=pods(container={"resources": {"limits": {"cpu": "0.5", "memory": 1073741824}}})),
    "zeros": one(DEPLOYMENT, spec={"minReadySeconds": 0, "replicas": 0, **pods(hostNetwork=False)}),
    "empty env": one(DEPLOYMENT, spec=pods(container={"env": [{"name": "E", "value": ""}]})),
    "nothing": one(DEPLOYMENT, spec=pods(volumes=[], tolerations=[], container={"args": [], "ports": None})),
    "finalizers": one(ROLE, metadata={"finalizers": ["torchctl.test/one"], "labels": {}}, rules=[RULE]),
    "default keys": one(DEPLOYMENT, spec=pods(container={"ports": [{"containerPort": 80}, {"containerPort": 81}]})),
}
"""What the API server gives back in another form, or not at all."""

POD_SPEC = pods()["template"]["spec"]
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
KINDS: dict[str, tuple[Kind[Any], dict[str, Any]]] = {
    "ConfigMap": one(OWNER, data={"a": "b"}),
    "ControllerRevision": one(CONTROLLER_REVISION, revision=1, data={"a": "b"}),
    "Deployment": one(DEPLOYMENT, spec=pods()),
    "Job": one(JOB, spec={"suspend": True, "template": {"spec": {"restartPolicy": "Never", **POD_SPEC}}}),
    "PersistentVolumeClaim": one(PVC, spec=CLAIM),
    "Pod": one(POD, spec=POD_SPEC),
    "Service": one(SERVICE, spec={"clusterIP": "None", "selector": {"a": "b"}}),
    "TorchrunQueue": one(TORCHRUN_QUEUE, spec={"image": "trainer:1"}),
}
"""What the operator makes, and kinds with storage rules of their own."""


def is_apply(exchange: Exchange) -> bool:
    return exchange.method == "PATCH"


def names_no_version(exchange: Exchange) -> bool:
    return f'"resourceVersion":"{NO_VERSION}"'.encode() in exchange.body


def our_entry(live: dict[str, Any]) -> dict[str, Any]:
    """What managedFields says of us: when we last wrote, and what. Controllers write meanwhile too."""
    (entry,) = (entry for entry in live["metadata"]["managedFields"] if entry["manager"] == "torchctl")
    assert isinstance(entry, dict)
    return entry


@dataclass
class Bench:
    """An applier as admin by way of a proxy, the cache that it reads, and a client that nothing stands in front of."""

    namespace: str
    owner: str
    client: Client
    somebody: Client
    proxy: FaultProxy
    cache: Cache
    applier: Applier = field(init=False)
    barrier: Barrier = field(init=False)

    def __post_init__(self) -> None:
        self.applier = Applier(self.client, self.cache)
        self.barrier = Barrier(self.cache, clock=SystemClock(), timeout_s=30.0)

    @property
    def key(self) -> Key:
        return Key(self.namespace, "child")

    @property
    def ours(self) -> Ownership:
        return controlled_by(self.owner)

    def service(self, name: str = "child", **spec: Any) -> dict[str, Any]:
        selector = {"selector": {"app": "ours"}, "ports": [{"name": "rdzv", "port": 29500}]}
        return {"apiVersion": "v1", "kind": "Service", "metadata": self._meta(name), "spec": {**selector, **spec}}

    def job(self, image: str, **spec: Any) -> dict[str, Any]:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": image}]}}
        spec = {"suspend": True, "template": template, **spec}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": self._meta("child"), "spec": spec}

    def _meta(self, name: str) -> dict[str, Any]:
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": self.owner, "controller": True}
        # Said or not, false is the same, and must not be put back in each reconcile.
        reference["blockOwnerDeletion"] = False
        return {"name": name, "namespace": self.namespace, "ownerReferences": [reference]}

    async def create_foreign(self, **spec: Any) -> None:
        """Somebody else makes an object of the child's name."""
        body = self.service(**spec)
        body["metadata"] = {"name": "child", "namespace": self.namespace, "labels": {"of": "somebody"}}
        await self.somebody.create(SERVICE, body)

    def of_anything(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "metadata": {**self._meta("child"), **body.get("metadata", {})}}

    async def apply_to_live(self, kind: Kind[Any], intent: dict[str, Any]) -> Operation:
        """Applies to the object as it is now, whatever a cache knows."""
        live = await self.somebody.get(kind, "child", self.namespace)
        return (await self.applier.apply_to(live, kind, intent, self.ours)).operation

    async def apply(self, intent: dict[str, Any], kind: Kind[Any] = SERVICE) -> ApplyResult:
        """Applies, and returns once the cache has seen it."""
        with record_writes() as writes:
            applied = await self.applier.apply(kind, intent, self.ours)
        self.barrier.note(self.key, writes)
        assert await self.barrier.wait(self.key)
        return applied

    async def live(self, kind: Kind[Any] = SERVICE) -> dict[str, Any]:
        return await self.somebody.get_raw(kind, "child", self.namespace)

    async def patch(self, patch: dict[str, Any]) -> None:
        """Somebody else changes the child, and the cache knows."""
        changed = await self.somebody.merge_patch(SERVICE, "child", patch, namespace=self.namespace)
        await self.cache.informer(SERVICE).wait_version(int(changed.metadata.resource_version))


@asynccontextmanager
async def running(cache: Cache) -> AsyncIterator[None]:
    """In a task of its own, for a fixture is left by another task than the one that entered it."""
    task = asyncio.create_task(cache.run())
    try:
        await cache.wait_synced(60)
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
async def bench(control_plane: ControlPlane, admin: Client, namespace: str) -> AsyncIterator[Bench]:
    meta = {"name": "owner", "namespace": namespace}
    owner = await admin.create(OWNER, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    user = control_plane.connection()
    async with (
        FaultProxy(user) as proxy,
        connect(proxy.connection(user)) as client,
        connect(user, field_manager="somebody") as somebody,
    ):
        # The cache watches past the proxy: only what the applier does is delayed, cut and counted there.
        cache = Cache(admin, namespace=namespace)
        cache.register(SERVICE)
        cache.register(JOB)
        async with running(cache):
            yield Bench(namespace, owner.metadata.uid, client, somebody, proxy, cache)


async def test_create_is_one_request_that_cannot_change_anything(bench: Bench) -> None:
    applied = await bench.apply(bench.service())
    (write,) = bench.proxy.exchanges
    assert applied.operation is Operation.CREATE
    assert (write.method, write.status) == ("PATCH", 201)
    assert write.query.get("force") in (None, "false")
    meta = msgspec.json.decode(write.body)["metadata"]
    assert (meta.get("uid"), meta["resourceVersion"]) == (None, NO_VERSION)


@pytest.mark.parametrize("name", KINDS)
async def test_first_apply_creates_or_conflicts_with_force_too(
    operator_account: Connection, bench: Bench, name: str
) -> None:
    """What is not documented, and what every create depends on."""
    kind, body = KINDS[name]
    intent = bench.of_anything(body)
    intent["metadata"]["resourceVersion"] = NO_VERSION
    await bench.client.apply(kind, intent)
    (created,) = bench.proxy.exchanges
    before = our_entry(await bench.live(kind))
    assert (created.status, before["operation"]) == (201, "Apply")
    for force in (False, True):
        with pytest.raises(Conflict):
            await bench.client.apply(kind, intent, force=force)
    assert our_entry(await bench.live(kind)) == before


async def test_of_racing_appliers_one_creates_and_others_keep(bench: Bench) -> None:
    """None of them has a cache that shows anything."""
    operations: list[Operation] = []

    async def apply() -> None:
        applied = await Applier(bench.client, bench.cache).apply_to(None, SERVICE, bench.service(), bench.ours)
        operations.append(applied.operation)

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(apply)
    assert Counter(operations) == {Operation.CREATE: 1, Operation.KEEP: 7}
    assert [write.status for write in bench.proxy.writes].count(201) == 1


async def test_racing_appliers_leave_a_foreign_object_untouched(bench: Bench) -> None:
    await bench.create_foreign()
    before = await bench.live()
    ends: list[BaseException | ApplyResult] = await asyncio.gather(
        *(bench.applier.apply_to(None, SERVICE, bench.service(), bench.ours) for _ in range(8)), return_exceptions=True
    )
    assert {type(end) for end in ends} == {ForeignObject}
    assert await bench.live() == before


async def test_failed_read_of_an_unknown_object_is_raised(bench: Bench) -> None:
    await bench.create_foreign()
    bench.proxy.answer(403, match=lambda exchange: exchange.method == "GET", reason="Forbidden")
    with pytest.raises(Forbidden):
        await bench.applier.apply_to(None, SERVICE, bench.service(), bench.ours)


async def test_the_cache_is_waited_for_after_a_create(bench: Bench) -> None:
    for turn in range(10):
        name = f"child-{turn}"
        with record_writes() as writes:
            await bench.applier.apply(SERVICE, bench.service(name), bench.ours)
        bench.barrier.note(name, writes)
        assert await bench.barrier.wait(name)
        assert bench.cache.get(SERVICE, Key(bench.namespace, name)) is not None


async def test_a_second_apply_sends_nothing(bench: Bench) -> None:
    created = await bench.apply(bench.service())
    sent = len(bench.proxy.exchanges)
    again = await bench.apply(bench.service())
    assert again.operation is Operation.KEEP
    assert again.metadata.uid == created.metadata.uid
    assert len(bench.proxy.exchanges) == sent


async def test_drift_is_restored_and_what_others_added_stays(bench: Bench) -> None:
    await bench.apply(bench.service())
    await bench.patch({"spec": {"selector": {"more": "yes"}}, "metadata": {"labels": {"x": "y"}}})
    assert (await bench.apply(bench.service())).operation is Operation.UPDATE
    live = await bench.live()
    assert live["spec"]["selector"] == {"app": "ours"}
    assert live["metadata"]["labels"] == {"x": "y"}
    assert (await bench.apply(bench.service())).operation is Operation.KEEP


@pytest.mark.parametrize("drift", DRIFTS)
async def test_drift_in_what_has_one_owner_is_restored(bench: Bench, drift: str) -> None:
    """Lists and maps that are atomic, whatever the kind's struct keeps of them."""
    (kind, body), patch = DRIFTS[drift]
    intent = bench.of_anything(body)
    await bench.applier.apply_to(None, kind, intent, bench.ours)
    before = await bench.live(kind)
    assert await bench.apply_to_live(kind, intent) is Operation.KEEP
    await bench.somebody.merge_patch(kind, "child", patch, namespace=bench.namespace)
    assert await bench.apply_to_live(kind, intent) is Operation.UPDATE
    after = await bench.live(kind)
    assert [after.get(field) for field in body] == [before.get(field) for field in body]
    assert await bench.apply_to_live(kind, intent) is Operation.KEEP


@pytest.mark.parametrize("rounded", ROUNDED)
async def test_value_in_another_form_is_not_sent_again(bench: Bench, rounded: str) -> None:
    kind, body = ROUNDED[rounded]
    intent = bench.of_anything(body)
    await bench.applier.apply_to(None, kind, intent, bench.ours)
    # Somebody adds to what both may own, which is no drift.
    both = {"metadata": {"finalizers": ["torchctl.test/one", "torchctl.test/two"], "labels": {"x": "y"}}}
    await bench.somebody.merge_patch(kind, "child", both, namespace=bench.namespace)
    assert await bench.apply_to_live(kind, intent) is Operation.KEEP
    await bench.somebody.merge_patch(kind, "child", {"metadata": {"finalizers": None}}, namespace=bench.namespace)


async def test_map_entry_that_lost_its_fields_is_put_back(bench: Bench, admin: Client) -> None:
    """It then looks as a field does that is owned as a whole, such as the box."""
    await admin.apply(CRD_KIND, CRD, force=True)
    await until(partial(is_served, admin, STORY))
    shelves = {"top": {"left": "red"}, "mid": {"tags": ["red"]}, "low": {"plain": ["red"]}}
    intent = bench.of_anything(one(STORY, spec={"shelves": shelves, "box": {"a": "red"}})[1])
    await bench.applier.apply_to(None, STORY, intent, bench.ours)
    before = await bench.live(STORY)
    drifts: list[Any] = [{"top": {"left": "blue"}}, {"top": {"left": None}}, {"mid": {"tags": []}}, {"low": None}]
    for drift in drifts:
        await bench.somebody.merge_patch(STORY, "child", {"spec": {"shelves": drift}}, namespace=bench.namespace)
        assert await bench.apply_to_live(STORY, intent) is Operation.UPDATE
        assert (await bench.live(STORY))["spec"] == before["spec"]
        assert await bench.apply_to_live(STORY, intent) is Operation.KEEP
    bench.applier = Applier(bench.client, bench.cache)  # knows nothing of the box, as after a start
    assert await bench.apply_to_live(STORY, intent) is Operation.UPDATE
    assert await bench.apply_to_live(STORY, intent) is Operation.KEEP


async def test_kinds_of_kubernetes_have_no_maps_of_structs(control_plane: ControlPlane) -> None:
    """In groups without a dot. So what is owned there without children is owned as a whole."""
    definitions = json.loads(await control_plane.kubectl("get", "--raw", "/openapi/v2"))["definitions"]

    def maps(schema: Any, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """Names the maps whose entries are no plain values, outside of what is atomic."""
        name = schema.get("$ref", "").rpartition("/")[2]
        if name in seen:
            return
        schema, seen = definitions.get(name, {}) | schema, seen | {name} if name else seen
        entries = schema.get("additionalProperties", {})
        entries = definitions.get(entries.get("$ref", "").rpartition("/")[2], entries)
        if schema.get("x-kubernetes-map-type") == "atomic":
            return
        if entries.get("type", "string") in ("object", "array"):
            yield f"{name} {schema['description']}"
        for inner in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
            yield from maps(inner, seen)

    kinds = [
        definition
        for definition in definitions.values()
        for kind in definition.get("x-kubernetes-group-version-kind", ())
        if "." not in kind["group"] and "metadata" in definition["properties"]
    ]
    assert len(kinds) > 30
    assert [*chain.from_iterable(map(maps, kinds))] == []


async def test_two_appliers_of_one_object_leave_each_other_in_peace(bench: Bench) -> None:
    """Each with a field manager of its own, as two operators have."""
    intents = [bench.of_anything(one(ROLE, rules=[RULE], metadata={"labels": {name: "yes"}})[1]) for name in "ab"]
    await bench.applier.apply_to(None, ROLE, intents[0], bench.ours)
    other = Applier(bench.somebody, bench.cache)
    live = await bench.somebody.get(ROLE, "child", bench.namespace)
    assert (await other.apply_to(live, ROLE, intents[1], bench.ours)).operation is Operation.UPDATE
    live = await bench.somebody.get(ROLE, "child", bench.namespace)
    assert (await bench.applier.apply_to(live, ROLE, intents[0], bench.ours)).operation is Operation.KEEP
    assert (await other.apply_to(live, ROLE, intents[1], bench.ours)).operation is Operation.KEEP
    assert (await bench.live(ROLE))["metadata"]["labels"] == {"a": "yes", "b": "yes"}


async def test_a_field_that_is_no_longer_wanted_goes(bench: Bench) -> None:
    await bench.apply(bench.service(publishNotReadyAddresses=True, sessionAffinity="ClientIP"))
    assert (await bench.apply(bench.service())).operation is Operation.UPDATE
    spec = (await bench.live())["spec"]
    assert "publishNotReadyAddresses" not in spec
    assert spec["sessionAffinity"] == "None"  # the server's default
    assert (await bench.apply(bench.service())).operation is Operation.KEEP


async def test_an_object_of_another_owner_is_left_as_it_is(bench: Bench) -> None:
    await bench.create_foreign()
    before = await bench.live()
    with pytest.raises(ForeignObject):
        await bench.apply(bench.service())
    assert await bench.live() == before
    assert bench.proxy.writes == []


@pytest.mark.parametrize("selector", ["ours", "theirs"])
async def test_foreign_object_made_before_our_apply_is_left_alone(bench: Bench, selector: str) -> None:
    """Whether it has the fields that we would set, or others."""
    stall = bench.proxy.stall(is_apply)
    async with anyio.create_task_group() as tasks:

        async def apply() -> None:
            with pytest.raises(ForeignObject):
                await bench.applier.apply(SERVICE, bench.service(), bench.ours)

        tasks.start_soon(apply)
        await stall.reached()
        await bench.create_foreign(selector={"app": selector})
        before = await bench.live()
        stall.release()
    assert await bench.live() == before


async def test_server_that_refuses_the_version_gets_an_apply_without(bench: Bench) -> None:
    bench.proxy.answer(409, match=names_no_version, reason="Conflict")
    applied = await bench.apply(bench.service())
    refused, read, write = bench.proxy.exchanges
    assert applied.operation is Operation.CREATE
    assert [(each.method, each.status) for each in (refused, read, write)] == [
        ("PATCH", None),  # by the proxy
        ("GET", 404),
        ("PATCH", 201),
    ]
    assert write.query.get("force") in (None, "false")
    assert msgspec.json.decode(write.body)["metadata"].keys().isdisjoint({"uid", "resourceVersion"})


async def test_foreign_object_made_before_an_unversioned_apply_is_given_back(bench: Bench) -> None:
    """On a server that refuses the version, somebody makes it between our read and our apply."""
    bench.proxy.answer(409, match=names_no_version, reason="Conflict")
    stall = bench.proxy.stall(lambda exchange: is_apply(exchange) and not names_no_version(exchange))
    async with anyio.create_task_group() as tasks:

        async def apply() -> None:
            with pytest.raises(ForeignObject):
                await bench.applier.apply(SERVICE, bench.service(), bench.ours)

        tasks.start_soon(apply)
        await stall.reached()
        await bench.create_foreign()
        before = await bench.live()
        stall.release()
    live = await bench.live()
    assert live["metadata"]["uid"] == before["metadata"]["uid"]
    assert live["metadata"]["labels"] == {"of": "somebody"}
    assert "ownerReferences" not in live["metadata"]
    assert INTENT_ANNOTATION not in live["metadata"].get("annotations", {})
    assert live["spec"]["selector"] == {"app": "ours"}  # theirs has the same
    assert {entry["manager"] for entry in live["metadata"]["managedFields"]} == {bench.somebody.field_manager}


async def test_a_child_that_was_deleted_meanwhile_does_not_come_back(bench: Bench) -> None:
    await bench.apply(bench.service())
    stall = bench.proxy.stall(is_apply)
    async with anyio.create_task_group() as tasks:

        async def apply() -> None:
            with pytest.raises(Conflict):
                await bench.applier.apply(SERVICE, bench.service(publishNotReadyAddresses=True), bench.ours)

        tasks.start_soon(apply)
        await stall.reached()
        await bench.somebody.delete(SERVICE, "child", namespace=bench.namespace)
        stall.release()
    with pytest.raises(NotFound):
        await bench.live()


async def test_a_child_that_was_made_anew_meanwhile_is_not_written(bench: Bench) -> None:
    await bench.apply(bench.service())
    stall = bench.proxy.stall(is_apply)
    async with anyio.create_task_group() as tasks:

        async def apply() -> None:
            with pytest.raises(Conflict):
                await bench.applier.apply(SERVICE, bench.service(publishNotReadyAddresses=True), bench.ours)

        tasks.start_soon(apply)
        await stall.reached()
        await bench.somebody.delete(SERVICE, "child", namespace=bench.namespace)
        await bench.create_foreign()
        before = await bench.live()
        stall.release()
    assert await bench.live() == before


async def test_object_of_an_unknown_outcome_is_not_made_twice(bench: Bench) -> None:
    """The next attempt is refused, and reads it."""
    bench.proxy.cut(1, Moment.AFTER, match=is_apply)
    with pytest.raises(Unavailable) as lost:
        await bench.applier.apply(SERVICE, bench.service(), bench.ours)
    assert lost.value.outcome_unknown
    uid = (await bench.live())["metadata"]["uid"]
    bench.proxy.heal()
    blind = Cache(bench.client)
    blind.register(SERVICE)  # and never run: it knows nothing of the write
    sent = len(bench.proxy.exchanges)
    applied = await Applier(bench.client, blind).apply(SERVICE, bench.service(), bench.ours)
    assert (applied.operation, applied.metadata.uid) == (Operation.KEEP, uid)
    assert [(each.method, each.status) for each in bench.proxy.exchanges[sent:]] == [("PATCH", 409), ("GET", 200)]


@pytest.mark.parametrize("versioned", [True, False], ids=["", "server refuses the version"])
async def test_our_own_late_write_is_no_foreign_object(bench: Bench, versioned: bool) -> None:
    """Although the Job controller has written its status meanwhile."""
    if not versioned:
        bench.proxy.answer(409, match=names_no_version, reason="Conflict")
    stall = bench.proxy.stall(lambda exchange: is_apply(exchange) and (versioned or not names_no_version(exchange)))
    intent = bench.job("trainer:1")
    async with anyio.create_task_group() as tasks:

        async def apply() -> None:
            applied = await bench.applier.apply(JOB, intent, bench.ours)
            assert applied.operation is (Operation.KEEP if versioned else Operation.CREATE)

        tasks.start_soon(apply)
        await stall.reached()
        # As if an earlier attempt of ours, given up as unanswered, were committed only now.
        meta = {**intent["metadata"], "annotations": {INTENT_ANNOTATION: digest_of(intent)}}
        await bench.somebody.apply(JOB, {**intent, "metadata": meta}, field_manager=bench.client.field_manager)

        async def is_seen_by_the_job_controller() -> bool:
            return bool((await bench.live(JOB))["status"].get("conditions"))

        await until(is_seen_by_the_job_controller)
        stall.release()
    live = await bench.live(JOB)
    assert live["metadata"]["ownerReferences"][0]["uid"] == bench.owner
    assert live["spec"]["suspend"] is True


async def test_immutable_field_is_kept_and_the_rest_applied(bench: Bench) -> None:
    await bench.apply(bench.job("trainer:1", backoffLimit=3), JOB)
    changed = bench.job("trainer:2", backoffLimit=4)
    assert (await bench.apply(changed, JOB)).operation is Operation.UPDATE
    spec = (await bench.live(JOB))["spec"]
    assert spec["backoffLimit"] == 4
    assert spec["template"]["spec"]["containers"][0]["image"] == "trainer:1"
    assert (await bench.apply(changed, JOB)).operation is Operation.KEEP


async def test_immutable_field_that_is_no_longer_named_stays(bench: Bench) -> None:
    first = bench.job("trainer:1", backoffLimit=3)
    env = [{"name": "A", "value": "1"}]
    first["spec"]["template"]["spec"]["containers"][0]["env"] = env
    await bench.apply(first, JOB)
    fewer = bench.job("trainer:1", backoffLimit=4)
    assert (await bench.apply(fewer, JOB)).operation is Operation.UPDATE
    spec = (await bench.live(JOB))["spec"]
    assert (spec["backoffLimit"], spec["template"]["spec"]["containers"][0]["env"]) == (4, env)
    assert (await bench.apply(fewer, JOB)).operation is Operation.KEEP


async def test_kind_with_a_hook_is_applied_again(bench: Bench) -> None:
    """What the hook makes of a field cannot be turned back into JSON."""
    kind = Kind("batch", "v1", "Job", "jobs", Hooked, dec_hook=lambda type_, value: type_(value))
    await bench.applier.apply_to(None, kind, bench.job("trainer:3", backoffLimit=3), bench.ours)
    intent = bench.job("trainer:4", backoffLimit=4)
    assert await bench.apply_to_live(kind, intent) is Operation.UPDATE
    assert await bench.apply_to_live(kind, intent) is Operation.KEEP
    spec = (await bench.live(JOB))["spec"]
    assert spec["backoffLimit"] == 4
    assert spec["template"]["spec"]["containers"][0]["image"] == "trainer:3"


async def test_terminating_child_is_not_written(bench: Bench) -> None:
    intent = bench.service()
    await bench.apply(intent)
    await bench.patch({"metadata": {"finalizers": ["torchctl.test/held"]}})
    await bench.somebody.delete(SERVICE, "child", namespace=bench.namespace)
    deleted = await bench.somebody.get(SERVICE, "child", bench.namespace)
    await bench.cache.informer(SERVICE).wait_version(int(deleted.metadata.resource_version))
    sent = len(bench.proxy.writes)
    assert (await bench.apply(intent)).operation is Operation.TERMINATING
    assert len(bench.proxy.writes) == sent
    await bench.patch({"metadata": {"finalizers": None}})


# Children of which others write fields are created in a form of their own.


def forms(bench: Bench) -> tuple[dict[str, Any], dict[str, Any]]:
    """The steady intent, which names no field of an admitter, and the form in which the Job is created."""
    steady, first = bench.job("a:1", parallelism=2), bench.job("a:1", parallelism=2)
    del steady["spec"]["suspend"]
    first["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    return steady, first


async def apply_first(bench: Bench, live: Any) -> Operation:
    steady, first = forms(bench)
    applied: ApplyResult = await bench.applier.apply_to(live, JOB, steady, bench.ours, first=first)
    return applied.operation


async def test_what_others_write_stays_in_a_child(bench: Bench) -> None:
    """As a queueing system does: it suspends and releases the Job, and adds to its node selector in between."""
    assert await apply_first(bench, None) is Operation.CREATE
    made = await bench.live(JOB)
    assert (made["spec"]["suspend"], made["metadata"]["generation"]) == (True, 1)
    live = await bench.somebody.get(JOB, "child", bench.namespace)
    assert await apply_first(bench, live) is Operation.UPDATE
    selector = {"template": {"spec": {"nodeSelector": {"flavor": "h100"}}}}
    admitted = {"spec": selector | {"suspend": False}}
    live = await bench.somebody.merge_patch(JOB, "child", admitted, namespace=bench.namespace)
    assert await apply_first(bench, live) is Operation.KEEP
    after = (await bench.live(JOB))["spec"]
    assert (after["suspend"], after["template"]["spec"]["nodeSelector"]) == (False, {"disk": "ssd", "flavor": "h100"})


async def test_created_child_that_the_cache_lacks_is_applied_to(bench: Bench) -> None:
    """The answer to our own creation was lost, or is not seen yet."""
    assert await apply_first(bench, None) is Operation.CREATE
    assert await apply_first(bench, None) is Operation.UPDATE
    assert (await bench.live(JOB))["spec"]["suspend"] is True


async def test_creation_in_another_form_leaves_a_foreign_object_alone(bench: Bench) -> None:
    _, first = forms(bench)
    body = first | {"metadata": {"name": "child", "namespace": bench.namespace}}
    before = await bench.somebody.create(JOB, body)
    with pytest.raises(ForeignObject):
        await apply_first(bench, None)
    assert (await bench.live(JOB))["metadata"]["generation"] == before.metadata.generation
