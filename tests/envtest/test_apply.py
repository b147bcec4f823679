"""Apply against the real API server: what is sent, what comes of it, and what somebody else does in between."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec
import pytest
from waiting import until

from torchctl.api.kube import JOB, SERVICE
from torchctl.runtime.apply import Applier, ApplyResult, ForeignObject, Found
from torchctl.runtime.cache.barrier import Barrier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.errors import Conflict, Forbidden, NotFound, Unavailable
from torchctl.runtime.client.writes import record_writes
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.intent import INTENT_ANNOTATION, Operation, Ownership, controlled_by, digest_of
from torchctl.runtime.kinds import Key, Kind, ObjectMeta
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.faults import Exchange, Match, Moment
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


def is_apply(exchange: Exchange) -> bool:
    return exchange.method == "PATCH"


def is_about(name: str) -> Match:
    return lambda exchange: exchange.path.endswith(f"/{name}")


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
        found = Found(await self.somebody.get(kind, "child", self.namespace))
        return (await self.applier.apply(kind, intent, self.ours, found=found)).operation

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


async def test_create_follows_a_live_not_found_without_force(bench: Bench) -> None:
    applied = await bench.apply(bench.service())
    read, write = bench.proxy.exchanges
    assert applied.operation is Operation.CREATE
    assert (read.method, read.status) == ("GET", 404)
    assert (write.method, write.status) == ("PATCH", 201)
    assert write.query.get("force") in (None, "false")
    assert "uid" not in msgspec.json.decode(write.body)["metadata"]


async def test_missing_children_are_read_concurrently(bench: Bench) -> None:
    await bench.apply(bench.service())
    stalls = [bench.proxy.stall(is_about(name)) for name in ("one", "two")]
    wanted = [(SERVICE, Key(bench.namespace, name)) for name in ("one", "child", "two")]
    found: list[Found[Any]] = []
    async with anyio.create_task_group() as tasks:

        async def look() -> None:
            found.extend(await bench.applier.look(wanted))

        tasks.start_soon(look)
        for stall in stalls:
            await stall.reached()
        for stall in stalls:
            stall.release()
    assert [each.live is None for each in found] == [True, False, True]
    assert not any(each.error for each in found)


async def test_failed_read_fails_only_its_own_child(bench: Bench) -> None:
    bench.proxy.answer(403, match=is_about("one"), reason="Forbidden")
    one, two = await bench.applier.look([(SERVICE, Key(bench.namespace, name)) for name in ("one", "two")])
    assert (
        await bench.applier.apply(SERVICE, bench.service("two"), bench.ours, found=two)
    ).operation is Operation.CREATE
    with pytest.raises(Forbidden):
        await bench.applier.apply(SERVICE, bench.service("one"), bench.ours, found=one)


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
    await bench.applier.apply(kind, intent, bench.ours, found=Found())
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
    await bench.applier.apply(kind, intent, bench.ours, found=Found())
    # Somebody adds to what both may own, which is no drift.
    both = {"metadata": {"finalizers": ["torchctl.test/one", "torchctl.test/two"], "labels": {"x": "y"}}}
    await bench.somebody.merge_patch(kind, "child", both, namespace=bench.namespace)
    assert await bench.apply_to_live(kind, intent) is Operation.KEEP
    await bench.somebody.merge_patch(kind, "child", {"metadata": {"finalizers": None}}, namespace=bench.namespace)


async def test_two_appliers_of_one_object_leave_each_other_in_peace(bench: Bench) -> None:
    """Each with a field manager of its own, as two operators have."""
    intents = [bench.of_anything(one(ROLE, rules=[RULE], metadata={"labels": {name: "yes"}})[1]) for name in "ab"]
    await bench.applier.apply(ROLE, intents[0], bench.ours, found=Found())
    other = Applier(bench.somebody, bench.cache)
    found = Found(await bench.somebody.get(ROLE, "child", bench.namespace))
    assert (await other.apply(ROLE, intents[1], bench.ours, found=found)).operation is Operation.UPDATE
    found = Found(await bench.somebody.get(ROLE, "child", bench.namespace))
    assert (await bench.applier.apply(ROLE, intents[0], bench.ours, found=found)).operation is Operation.KEEP
    assert (await other.apply(ROLE, intents[1], bench.ours, found=found)).operation is Operation.KEEP
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


async def test_foreign_object_made_before_our_apply_is_given_back(bench: Bench) -> None:
    """Somebody makes it between our read and our apply: our fields are taken off again."""
    stall = bench.proxy.stall(is_apply)
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


async def test_foreign_object_with_other_fields_is_a_conflict(bench: Bench) -> None:
    """Somebody makes it between our read and our apply."""
    stall = bench.proxy.stall(is_apply)
    async with anyio.create_task_group() as tasks:

        async def apply() -> None:
            with pytest.raises(Conflict):
                await bench.applier.apply(SERVICE, bench.service(), bench.ours)

        tasks.start_soon(apply)
        await stall.reached()
        await bench.create_foreign(selector={"app": "theirs"})
        before = await bench.live()
        stall.release()
    assert await bench.live() == before


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
    """A live read finds it first."""
    bench.proxy.cut(1, Moment.AFTER, match=is_apply)
    with pytest.raises(Unavailable) as lost:
        await bench.applier.apply(SERVICE, bench.service(), bench.ours)
    assert lost.value.outcome_unknown
    uid = (await bench.live())["metadata"]["uid"]
    bench.proxy.heal()
    blind = Cache(bench.client)
    blind.register(SERVICE)  # and never run: it knows nothing of the write
    sent = len(bench.proxy.writes)
    applied = await Applier(bench.client, blind).apply(SERVICE, bench.service(), bench.ours)
    assert (applied.operation, applied.metadata.uid) == (Operation.KEEP, uid)
    assert bench.proxy.exchanges[-1].method == "GET"
    assert len(bench.proxy.writes) == sent


async def test_our_own_late_write_is_no_foreign_object(bench: Bench) -> None:
    stall = bench.proxy.stall(is_apply)
    intent = bench.job("trainer:1")
    async with anyio.create_task_group() as tasks:

        async def apply() -> None:
            applied = await bench.applier.apply(JOB, intent, bench.ours)
            assert applied.operation is Operation.CREATE

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


async def test_kind_with_a_hook_is_applied_again(bench: Bench) -> None:
    """What the hook makes of a field cannot be turned back into JSON."""
    kind = Kind("batch", "v1", "Job", "jobs", Hooked, dec_hook=lambda type_, value: type_(value))
    await bench.applier.apply(kind, bench.job("trainer:3", backoffLimit=3), bench.ours, found=Found())
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
