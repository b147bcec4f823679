"""The objects of a queue's spec.resources: what they are, whose they are, and what becomes of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from managed import applied

from torchctl.api.extras import ExtraResource
from torchctl.api.job import JobSpec, JobStatus, TorchrunJob
from torchctl.api.kube import CONFIG_MAP, PVC
from torchctl.api.labels import owned_key
from torchctl.api.names import RESOURCES_FINALIZER
from torchctl.api.phases import Phase
from torchctl.api.queue import QueueSpec, TorchrunQueue
from torchctl.api.queueconditions import QueueReason
from torchctl.controllers.finding import Refusal
from torchctl.controllers.queue.inventory import inventory
from torchctl.controllers.queue.plan import Observed, Plan, plan
from torchctl.controllers.queue.resources import extras, growth
from torchctl.controllers.queue.status import derive, transitions
from torchctl.controllers.queuespec.resources import object_name, problem_of
from torchctl.runtime.conditions import MAX_MESSAGE, find
from torchctl.runtime.drift import DriftDetector
from torchctl.runtime.intent import Operation, decide, with_immutable
from torchctl.runtime.kinds import Kind, Object, ObjectMeta

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS: dict[str, Kind[Any]] = {"ConfigMap": CONFIG_MAP, "PersistentVolumeClaim": PVC}


def config_map(name: str = "settings", **more: Any) -> dict[str, Any]:
    data = more.pop("data", {"a": "1"})
    return {"name": name, "template": {"apiVersion": "v1", "kind": "ConfigMap", "data": data}, **more}


def claim(name: str = "cache", size: Any = "10Gi", **more: Any) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}} | more.pop("spec", {})
    return {"name": name, "template": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec}, **more}


def running(name: str = "a") -> TorchrunJob:
    spec = JobSpec.model_validate({"jobQueue": "gpu", "numNodes": 1, "command": "true"})
    return TorchrunJob(ObjectMeta(name=name, namespace="team"), spec, JobStatus(Phase.RUNNING, queue_revision="r"))


def drifted(body: Mapping[str, Any], found: Object | None) -> bool:
    return found is not None and DriftDetector("torchctl").drifted(body, found.metadata)


@dataclass
class World:
    """A queue and the namespace's objects; `step` is one reconcile that the API server takes all of."""

    resources: list[dict[str, Any]]
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    jobs: tuple[TorchrunJob, ...] = ()
    deleting: bool = False
    uid: str = "queue-uid"
    finalizers: tuple[str, ...] = ()
    writes: int = 0
    made: int = 0

    @property
    def queue(self) -> TorchrunQueue:
        meta = ObjectMeta(
            name="gpu",
            namespace="team",
            uid=self.uid,
            finalizers=self.finalizers,
            deletion_timestamp=NOW if self.deleting else None,
        )
        return TorchrunQueue(meta, QueueSpec.model_validate({"resources": self.resources}))

    def live(self) -> dict[tuple[str, str], Object]:
        return {key: msgspec.convert(body, KINDS[key[0]].type) for key, body in self.objects.items()}

    def observed(self) -> Observed:
        live, queue = self.live(), self.queue
        asked = {extra.key for extra in extras(queue)}
        owned = [
            found
            for (kind, _), found in live.items()
            if kind == "ConfigMap" and any(ref.uid == self.uid for ref in found.metadata.owner_references)
        ]
        return Observed(
            queue,
            self.jobs,
            True,
            {},
            objects={key: found for key, found in live.items() if key in asked},
            config_maps=tuple(owned),  # type: ignore[arg-type]  # of that kind
        )

    def plan(self) -> Plan:
        return plan(self.observed(), NOW)

    def step(self) -> tuple[Refusal, ...]:
        observed = self.observed()
        todo, refused = plan(observed, NOW), {}
        if todo.finalizers is not None:
            self.finalizers = todo.finalizers
            self.writes += 1
            return self.step()
        for extra in todo.objects:
            found = observed.objects.get(extra.key)
            decision = decide(
                extra.body,
                None if found is None else found.metadata,
                extra.ours,
                manager="torchctl",
                once=extra.once,
                drifted=partial(drifted, extra.body, found),
            )
            if decision.operation is Operation.FOREIGN:
                refused[extra.key] = Refusal(*extra.key, "ForeignObject", "theirs")
            if decision.body is not None:
                self._write(extra.key, decision.body)
        for growing in todo.grow:
            self.objects[growing.extra.key]["spec"]["resources"]["requests"]["storage"] = growing.storage
            self.writes += 1
        for found in todo.prune:
            del self.objects["ConfigMap", found.metadata.name]
            self.writes += 1
        return tuple(refused.values())

    def _write(self, key: tuple[str, str], body: Mapping[str, Any]) -> None:
        body = with_immutable(body, self.objects.get(key, body))
        self.made += key not in self.objects
        uid = self.objects.get(key, {}).get("metadata", {}).get("uid", f"uid-{self.made}")
        fields = msgspec.to_builtins(applied(body))
        self.objects[key] = {**body, "metadata": {**body["metadata"], "uid": uid, "applied": fields}}
        self.writes += 1

    def ready(self) -> tuple[str, str, str]:
        observed = self.observed()
        status = derive(observed, plan(observed, NOW), self.step(), NOW)
        found = find(status.conditions, "ResourcesReady")
        assert found is not None
        return found.status, found.reason, found.message


def test_asked_objects_are_made_once_and_owned() -> None:
    """What a queue asks for is made once, and belongs to it."""
    world = World([config_map(), claim()])
    assert world.plan() == Plan(finalizers=(RESOURCES_FINALIZER,)), "who makes ConfigMaps remembers them first"
    world.step()
    made = world.objects["ConfigMap", "settings"]["metadata"]
    assert [(ref["kind"], ref["uid"], ref["controller"]) for ref in made["ownerReferences"]] == [
        ("TorchrunQueue", "queue-uid", True)
    ]
    assert "ownerReferences" not in world.objects["PersistentVolumeClaim", "cache"]["metadata"], "data outlives a queue"
    writes = world.writes
    assert world.ready() == ("True", "ResourcesReady", "2 objects are as the queue asks")
    assert world.writes == writes, "a second reconcile writes nothing"


def test_claims_alone_need_no_finalizer() -> None:
    """Nothing has to be cleared up after claims: they stay."""
    world = World([claim()])
    world.step()
    assert world.finalizers == ()


def test_only_harmless_labels_and_annotations_of_a_template_are_taken() -> None:
    entry = config_map()
    keys = (
        "app.kubernetes.io/managed-by",
        "torchrun.ai/queue",
        "kai.scheduler/queue",
        "pv.kubernetes.io/x",
        "k8s.io/y",
    )
    entry["template"]["metadata"] = {
        "name": "other",
        "namespace": "kube-system",
        "generateName": "x",
        "finalizers": ["mine/stay"],
        "ownerReferences": [{"uid": "x"}],
        "creationTimestamp": None,
        "labels": {"tier": "gold", **dict.fromkeys(keys, "theirs")},
        "annotations": {"note": "hi", "torchctl.runtime/intent": "x", **dict.fromkeys(keys, "theirs")},
    }
    entry["template"]["status"] = {}
    (extra,) = extras(World([entry]).queue)
    metadata = extra.body["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("settings", "team")
    assert metadata["annotations"] == {"note": "hi"}
    assert metadata["labels"].pop("tier") == "gold"
    assert all(map(owned_key, metadata["labels"]))
    assert "theirs" not in metadata["labels"].values()
    assert set(metadata) == {"name", "namespace", "labels", "annotations", "ownerReferences"}
    assert set(extra.body) == {"apiVersion", "kind", "metadata", "data"}


@given(kind=st.sampled_from([config_map, claim]), labels=st.dictionaries(st.text(max_size=3), st.text(max_size=3)))
def test_a_foreign_object_is_never_touched(kind: Any, labels: dict[str, str]) -> None:
    """The condition says that an object of that name is somebody else's."""
    world = World([kind()])
    key = extras(world.queue)[0].key
    theirs = {"metadata": {"name": key[1], "namespace": "team", "labels": labels, "uid": "theirs"}}
    world.objects[key] = theirs
    assert world.ready()[:2] == ("False", "ForeignObject")
    assert world.objects == {key: theirs}
    world.resources = []
    world.step()
    assert world.objects == {key: theirs}


def test_drift_is_restored_unless_the_entry_is_immutable() -> None:
    for immutable in (False, True):
        world = World([config_map(immutable=immutable)])
        world.step()
        key = ("ConfigMap", "settings")
        world.objects[key]["data"] = {"a": "changed", "b": "added"}
        world.objects[key]["metadata"]["applied"] = []  # the field has another owner now
        world.step()
        assert world.objects[key]["data"]["a"] == ("changed" if immutable else "1")


def test_an_immutable_object_does_not_get_lost_labels_back() -> None:
    world = World([config_map(immutable=True)])
    world.step()
    before = world.objects["ConfigMap", "settings"]
    before["metadata"].pop("labels")
    writes = world.writes
    world.step()
    assert world.writes == writes


def test_an_immutable_object_is_never_changed() -> None:
    """It stays as it was made, and is made again when it is gone."""
    world = World([config_map(immutable=True)])
    world.step()
    world.resources = [config_map(immutable=True, data={"a": "2"})]
    writes = world.writes
    status, _, _ = world.ready()
    assert (status, world.writes) == ("True", writes)
    (item,) = inventory(world.observed(), ())
    assert (item.state.ready, "stays as it is" in item.state.message) == (True, True)
    del world.objects["ConfigMap", "settings"]
    world.step()
    assert world.objects["ConfigMap", "settings"]["data"] == {"a": "2"}


@given(
    first=st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")),
    then=st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")),
)
def test_a_prefixed_name_follows_the_content_alone(first: dict[str, str], then: dict[str, str]) -> None:
    one, other = (ExtraResource.model_validate(config_map(nameMode="prefix", data=data)) for data in (first, then))
    assert (object_name(one) == object_name(other)) == (first == then)
    assert object_name(one).startswith("settings-")
    assert len(object_name(one)) == len("settings-") + 10
    immutable = ExtraResource.model_validate(config_map(nameMode="prefix", data=first, immutable=True))
    assert object_name(immutable) == object_name(one)


def test_two_entries_that_stand_for_one_object_are_refused() -> None:
    """Each would have it its own way, and the other one's way would be what somebody changed: a write without end."""
    prefix = config_map("settings", nameMode="prefix")
    name = object_name(ExtraResource.model_validate(prefix))
    assert World([prefix, config_map(name, data={"a": "2"})]).plan().problem == (
        "InvalidSpec",
        f"spec.resources: settings and {name} would both be ConfigMap {name}: rename one of them",
    )
    assert World([prefix, claim(name)]).plan().problem is None


def test_binary_data_is_compared_as_the_api_server_keeps_it() -> None:
    """A block of YAML ends in a line break, and long base64 has more of them."""
    entry = config_map("blob")
    entry["template"]["binaryData"] = {"a": "QUJD\nREVG\n"}
    world = World([entry])
    world.step()
    (body,) = world.objects.values()
    assert body["binaryData"] == {"a": "QUJDREVG"}


def test_a_changed_prefix_makes_another_object() -> None:
    """The older one goes when no unfinished job is left."""
    world = World([config_map(nameMode="prefix")], jobs=(running(),))
    world.step()
    world.resources = [config_map(nameMode="prefix", data={"a": "2"})]
    world.step()
    assert len(world.objects) == 2
    assert world.ready()[2] == "1 object is as the queue asks; 1 older one goes once no unfinished job can need it"
    world.jobs = ()
    world.step()
    assert [body["data"] for body in world.objects.values()] == [{"a": "2"}]


def test_a_removed_entry_deletes_config_maps_and_keeps_claims() -> None:
    world = World([config_map(), claim()], jobs=(running(),))
    world.step()
    before = dict(world.objects)
    world.resources = []
    world.step()
    assert world.objects == before, "a job may need them"
    world.jobs = ()
    world.step()
    assert set(world.objects) == {("PersistentVolumeClaim", "cache")}
    world.step()
    assert world.finalizers == ()
    writes = world.writes
    world.resources = [claim()]
    world.step()
    assert world.writes == writes, "found again as it is"


def test_only_a_queue_of_that_name_finds_a_claim_again() -> None:
    world = World([claim()])
    world.step()
    world.uid = "the-next-queue"
    assert world.ready()[1] == "ResourcesReady"
    world.objects["PersistentVolumeClaim", "cache"]["metadata"]["labels"]["torchrun.ai/queue"] = "another"
    assert world.ready()[1] == "ForeignObject"


def test_a_deleted_queue_keeps_config_maps_for_running_jobs() -> None:
    world = World([config_map()], jobs=(running("a"),))
    world.step()
    world.deleting = True
    assert world.plan() == Plan()
    status, reason, message = world.ready()
    assert (status, reason) == ("False", "Deleting")
    assert message == "ConfigMaps are kept until 1 unfinished job ends: a; claims stay, with their data"
    world.jobs = ()
    assert world.plan() == Plan(finalizers=())


def test_a_claim_grows_and_never_shrinks() -> None:
    world = World([claim(size="10Gi")])
    world.step()
    world.resources = [claim(size="20Gi")]
    world.step()
    spec = world.objects["PersistentVolumeClaim", "cache"]["spec"]
    assert spec["resources"]["requests"]["storage"] == "20Gi"
    writes = world.writes
    world.step()
    assert world.writes == writes
    world.resources = [claim(size="5Gi")]
    world.step()
    assert spec["resources"]["requests"]["storage"] == "20Gi"
    (item,) = inventory(world.observed(), ())
    assert (item.state.ready, item.state.message) == (True, "has 20Gi, more than is asked for: a claim cannot shrink")


def test_a_claim_says_when_its_template_cannot_be_met() -> None:
    """Of a claim's spec only the size can change, and only upwards."""
    world = World([claim()])
    world.step()
    world.resources = [claim(spec={"storageClassName": "fast"})]
    world.step()
    status, reason, message = world.ready()
    assert (status, reason) == ("False", "ResourceNotReady")
    assert message.startswith("PersistentVolumeClaim cache: exists with another spec")
    world.resources = [claim(spec={"storageClassName": "fast"}, nameMode="prefix")]
    world.step()
    assert world.ready()[0] == "True"
    assert len(world.objects) == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"metadata": {"deletionTimestamp": NOW}}, "is being deleted"),
        ({"status": {"phase": "Lost"}}, "lost its volume"),
    ],
)
def test_a_claim_in_trouble_is_not_ready(change: dict[str, Any], says: str) -> None:
    world = World([claim()])
    world.step()
    body = world.objects["PersistentVolumeClaim", "cache"]
    for part, more in change.items():
        body[part] = {**body.get(part, {}), **more}
    status, reason, message = world.ready()
    assert (status, reason, says in message) == ("False", "ResourceNotReady", True)


def test_the_same_size_in_another_spelling_is_no_change() -> None:
    world = World([claim(size="1024Gi")])
    world.step()
    world.objects["PersistentVolumeClaim", "cache"]["spec"]["resources"]["requests"]["storage"] = "1Ti"
    (extra,) = extras(world.queue)
    assert growth(extra, world.live()[extra.key]) == 0  # type: ignore[arg-type]  # a claim
    assert extra.body["spec"]["resources"]["requests"]["storage"] == "1Ti"


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (config_map(data={"a": 1}), "data must be an object of strings"),
        (config_map(data=["a"]), "data must be an object of strings"),
        (
            {"name": "x", "template": {"apiVersion": "v1", "kind": "ConfigMap", "spec": {}}},
            "spec is no field of a Conf",
        ),
        ({"name": "x", "template": {"apiVersion": "v1", "kind": "ConfigMap", "immutable": "yes"}}, "immutable must be"),
        ({"name": "x", "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": []}}, "metadata must be"),
        (
            {"name": "x", "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"a": 1}}}},
            "metadata.labels must be",
        ),
        ({"name": "x", "template": {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}}, "spec is missing"),
        (claim(size="much"), "spec.resources.requests.storage must be a quantity"),
        (claim(size=0), "spec.resources.requests.storage must be a quantity"),
        (claim(spec={"resources": []}), "spec.resources must be an object"),
        (claim(spec={"resources": {"requests": "all"}}), "spec.resources.requests must be an object"),
        (config_map(), ""),
        (claim(), ""),
    ],
)
def test_a_template_of_another_shape_is_told_by_its_field(entry: dict[str, Any], says: str) -> None:
    found = problem_of(ExtraResource.model_validate(entry))
    assert found.startswith(says) if says else found == ""
    if says:
        seen = Observed(World([entry]).queue, (), True, {})
        problem = plan(seen, NOW).problem
        assert problem is not None
        assert problem[1].startswith(f"spec.resources[0] ({entry['name']}): template.{says}")
        accepted = derive(seen, plan(seen, NOW), (), NOW)
        ready = find(accepted.conditions, "ResourcesReady")
        assert ready is not None
        assert ready.reason == QueueReason.NOT_READY


def test_a_long_refusal_is_cut_to_what_status_takes() -> None:
    world = World([config_map("a")])
    world.step()
    seen = world.observed()
    refused = (Refusal("ConfigMap", "a", "Refused", "Invalid value: " + "a" * 2 * MAX_MESSAGE),)
    (state,) = derive(seen, plan(seen, NOW), refused, NOW).resources
    assert len(state.message) == MAX_MESSAGE


def test_every_entry_has_a_state() -> None:
    """The condition names the first that is wrong."""
    world = World([config_map("a"), config_map("b"), claim("c")])
    world.step()
    refused = (Refusal("ConfigMap", "b", "Refused", "no"), Refusal("PersistentVolumeClaim", "c", "R", "no"))
    seen = world.observed()
    status = derive(seen, plan(seen, NOW), refused, NOW)
    assert [(state.kind, state.name, state.ready, state.message) for state in status.resources] == [
        ("ConfigMap", "a", True, ""),
        ("ConfigMap", "b", False, "no"),
        ("PersistentVolumeClaim", "c", False, "no"),
    ]
    found = find(status.conditions, "ResourcesReady")
    assert found is not None
    assert (found.reason, found.message) == ("Refused", "ConfigMap b: no; 1 more in status.resources")
    assert [event[:2] for event in transitions(seen.queue.status, status)][-1] == ("Warning", "Refused")


HAPPENINGS = st.sampled_from(["step", "edit", "remove", "back", "drift", "gone", "job", "done", "prefix", "immutable"])


@given(happenings=st.lists(HAPPENINGS, max_size=25))
def test_whatever_happens_foreign_objects_stay_and_rest_is_quiet(happenings: list[str]) -> None:
    """In any history an object of somebody else is left alone, and at rest nothing is written."""
    world, theirs = World([config_map(), claim()]), {"metadata": {"name": "theirs", "namespace": "team", "uid": "x"}}
    world.objects["ConfigMap", "theirs"] = theirs
    options: dict[str, Any] = {}
    version = 0
    for what in happenings:
        match what:
            case "step":
                world.step()
            case "edit":
                version += 1
                world.resources = [config_map(data={"a": str(version)}, **options), claim()]
            case "prefix" | "immutable":
                options |= {"nameMode": "prefix"} if what == "prefix" else {"immutable": True}
            case "remove":
                world.resources = []
            case "back":
                world.resources = [config_map(**options), config_map("theirs"), claim()]
            case "drift":
                for key, body in world.objects.items():
                    body.update({"data": {"a": "drift"}} if key[1] != "theirs" and key[0] == "ConfigMap" else {})
            case "gone":
                world.objects.pop(("ConfigMap", "settings"), None)
            case "job" | "done":
                world.jobs = (running(),) if what == "job" else ()
    claims = {key for key in world.objects if key[0] == "PersistentVolumeClaim"}
    world.step()
    world.step()
    writes = world.writes
    world.step()
    assert world.writes == writes
    assert world.objects["ConfigMap", "theirs"] == theirs
    assert claims <= set(world.objects), "no claim is ever deleted"
    asked = {extra.key for extra in extras(world.queue)}
    assert asked <= set(world.objects)
    if not world.jobs:
        owned = {key for key in world.objects if key[0] == "ConfigMap"} - {("ConfigMap", "theirs")}
        assert owned <= asked, "without jobs nothing older is left"


def test_the_example_in_the_guide_is_accepted() -> None:
    """It asks for the objects that the page speaks of."""
    guide = (Path(__file__).parents[4] / "docs" / "queues.md").read_text(encoding="utf-8")
    examples = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL))
    (example,) = [found for found in examples if "resources" in found.get("spec", {})]
    spec = QueueSpec.model_validate(example["spec"])
    subject = msgspec.structs.replace(World([]).queue, spec=spec)
    assert plan(Observed(subject, (), True, {}), NOW).problem is None
    assert [extra.kind.kind for extra in extras(subject)] == ["ConfigMap", "PersistentVolumeClaim"]
    assert re.fullmatch(r"nccl-[0-9a-f]{10}", extras(subject)[0].name)
