"""The control plane of the simulator without an operator: nodes, schedulers, claims, grace, garbage, namespaces."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import anyio
import pytest

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD, PVC
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Invalid, NotFound
from torchctl.testing import virtualtime
from torchctl.testing.fleet import default_nodes
from torchctl.testing.script import Play, Script
from torchctl.testing.sim import Cluster
from torchctl.testing.sim.days.actions import Fate, Submit
from torchctl.testing.sim.days.jobs import job
from torchctl.testing.sim.kinds import NAMESPACE
from torchctl.testing.sim.scheduling import Place, choose, requests

Json = dict[str, Any]
Story = Callable[[Cluster, Client], Awaitable[None]]


def live(story: Story, play: Play | None = None, nodes: int = 2) -> None:
    async def main() -> None:
        script = Script(fallback=lambda pod: play or Play(run_s=None))
        async with Cluster(1, (), script=script, nodes=default_nodes(nodes)).run(replicas=0) as cluster:
            await story(cluster, cluster.client("tester"))

    virtualtime.run(main)


def a_pod(name: str = "pod", **spec: Any) -> Json:
    container = {"name": "main", "image": "image:1"}
    whole = {"containers": [container], "restartPolicy": "Never", **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


def a_job(**spec: Any) -> Json:
    whole = {"template": {"spec": a_pod()["spec"]}, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": whole}


def a_claim() -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "claim"}, "spec": spec}


async def exists(client: Client, name: str = "pod") -> bool:
    try:
        await client.get(POD, name, "team")
    except NotFound:
        return False
    return True


def test_pod_is_placed_runs_and_ends() -> None:
    async def story(cluster: Cluster, client: Client) -> None:
        await client.create(POD, a_pod(), "team")
        await anyio.sleep(5)
        pod = await client.get(POD, "pod", "team")
        assert (pod.status.phase, pod.spec.node_name[:5]) == ("Running", "node-")
        await anyio.sleep(60)
        assert (await client.get(POD, "pod", "team")).status.phase == "Succeeded"

    live(story, Play(run_s=30))


def test_pod_that_fits_nowhere_says_why_and_waits() -> None:
    async def story(cluster: Cluster, client: Client) -> None:
        limits = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
        for name in ("first", "second"):
            await client.create(POD, a_pod(name, **limits), "team")
            await anyio.sleep(5)
        (told,) = (await client.get(POD, "second", "team")).status.conditions or ()
        assert (told.reason, told.message) == (
            "Unschedulable",
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        )
        await client.delete(POD, "first", namespace="team")
        await anyio.sleep(5)
        assert (await client.get(POD, "second", "team")).spec.node_name == "node-0"

    live(story, nodes=1)


def test_deleted_pod_ends_in_its_grace_as_played() -> None:
    async def story(cluster: Cluster, client: Client) -> None:
        await client.create(POD, a_pod(), "team")
        await anyio.sleep(5)
        await client.delete(POD, "pod", namespace="team")
        await anyio.sleep(9)
        leaving = await client.get(POD, "pod", "team")
        assert leaving.metadata.deletion_grace_period_seconds == 30
        assert leaving.status.phase == "Running"
        await anyio.sleep(3)
        assert not await exists(client)

    live(story, Play(run_s=None, stop_s=10))


def test_pod_of_a_silent_node_stays_until_forced() -> None:
    async def story(cluster: Cluster, client: Client) -> None:
        await client.create(POD, a_pod(), "team")
        await anyio.sleep(5)
        cluster.kubelets.lose("node-0")
        await anyio.sleep(45 + 290)
        assert (await client.get(POD, "pod", "team")).metadata.deletion_timestamp is None
        await anyio.sleep(20)
        pod = await client.get(POD, "pod", "team")
        assert pod.metadata.deletion_timestamp is not None
        reasons = {one.type: one.reason for one in pod.status.conditions or ()}
        assert reasons["DisruptionTarget"] == "DeletionByTaintManager"
        await client.delete(POD, "pod", namespace="team", grace_seconds=0)
        assert not await exists(client)

    live(story, nodes=1)


def test_node_that_speaks_again_tells_what_happened() -> None:
    async def story(cluster: Cluster, client: Client) -> None:
        await client.create(POD, a_pod(), "team")
        await anyio.sleep(5)
        cluster.kubelets.lose("node-0")
        await anyio.sleep(100)
        assert (await client.get(POD, "pod", "team")).status.phase == "Running"
        cluster.kubelets.restore("node-0")
        await anyio.sleep(5)
        assert (await client.get(POD, "pod", "team")).status.phase == "Succeeded"

    live(story, Play(run_s=60), nodes=1)


def test_pod_that_was_bound_to_a_silent_node_begins() -> None:
    async def story(cluster: Cluster, client: Client) -> None:
        cluster.kubelets.lose("node-0")
        await client.create(POD, a_pod(nodeName="node-0"), "team")
        await anyio.sleep(5)
        cluster.kubelets.restore("node-0")
        await anyio.sleep(5)
        assert (await client.get(POD, "pod", "team")).status.phase == "Running"

    live(story, nodes=1)


def test_pod_is_ready_again_when_its_node_answers() -> None:
    """The node lifecycle controller had marked it as not ready."""

    async def ready(client: Client) -> str:
        pod = await client.get(POD, "pod", "team")
        return next(one.status for one in pod.status.conditions or () if one.type == "Ready")

    async def story(cluster: Cluster, client: Client) -> None:
        await client.create(POD, a_pod(), "team")
        await anyio.sleep(5)
        node = (await client.get(POD, "pod", "team")).spec.node_name
        cluster.kubelets.lose(node)
        await anyio.sleep(100)
        assert await ready(client) == "False"
        cluster.kubelets.restore(node)
        await anyio.sleep(10)
        assert await ready(client) == "True"

    live(story)


def test_claim_is_bound_and_stays_while_a_pod_uses_it() -> None:
    async def story(cluster: Cluster, client: Client) -> None:
        await client.create(PVC, a_claim(), "team")
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}]
        await client.create(POD, a_pod(volumes=volumes), "team")
        await anyio.sleep(10)
        assert (await client.get(PVC, "claim", "team")).status.phase == "Bound"
        await client.delete(PVC, "claim", namespace="team")
        await anyio.sleep(10)
        assert (await client.get(PVC, "claim", "team")).metadata.deletion_timestamp is not None
        await client.delete(POD, "pod", namespace="team")
        await anyio.sleep(10)
        with pytest.raises(NotFound):
            await client.get(PVC, "claim", "team")

    live(story)


def test_namespace_takes_everything_with_it() -> None:
    async def story(cluster: Cluster, client: Client) -> None:
        cluster.create_namespace("team")
        await client.create(PVC, a_claim(), "team")
        await client.create(POD, a_pod(), "team")
        await anyio.sleep(10)
        await client.delete(NAMESPACE, "team")
        await anyio.sleep(60)
        assert not await exists(client)
        assert await client.list(NAMESPACE) == []

    live(story)


def test_job_goes_after_its_ttl_with_its_pods() -> None:
    async def story(cluster: Cluster, client: Client) -> None:
        spec = {"template": {"spec": a_pod()["spec"]}, "ttlSecondsAfterFinished": 60}
        await client.create(
            JOB, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}, "team"
        )
        await anyio.sleep(40)
        assert (await client.get(JOB, "job", "team")).status.succeeded == 1
        await anyio.sleep(60)
        assert [*await client.list(JOB, namespace="team"), *await client.list(POD, namespace="team")] == []

    live(story, Play(run_s=10))


def test_what_is_not_simulated_is_refused() -> None:
    async def story(cluster: Cluster, client: Client) -> None:
        with pytest.raises(Invalid, match="is not simulated"):
            await client.create(JOB, a_job(backoffLimitPerIndex=1), "team")

    live(story)


@pytest.mark.parametrize(
    ("kind", "fields", "changes"),
    [
        ("plain", {"suspend": True}, True),
        ("plain", {"numNodes": 3}, False),
        ("elastic", {"numNodes": 3}, True),
        ("elastic", {"jobQueue": "gang"}, False),
    ],
)
def test_jobs_change_as_their_crd_allows(kind: str, fields: Json, changes: bool) -> None:
    async def story(cluster: Cluster, client: Client) -> None:
        made = await client.create(TORCHRUN_JOB, job(Submit(0, "job", kind, 2, Fate(10))), "team")
        refused = nullcontext() if changes else pytest.raises(Invalid, match="may not change")
        with refused:
            await client.merge_patch(TORCHRUN_JOB, made.metadata.name, {"spec": fields}, namespace="team")

    live(story)


def test_scheduler_looks_at_selectors_taints_and_requests() -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    pod = a_pod(nodeSelector={"zone": "a"})
    room = requests(pod)
    places = [Place("other-zone", {}, (), dict(room)), Place("tainted", {"zone": "a"}, (taint,), dict(room))]
    assert choose(pod, places) == (
        None,
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint(s) {gpu: }.",
    )
    pod["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    assert choose(pod, places)[0] is places[1]


def test_init_containers_overlap_and_sidecars_add_up() -> None:
    def needs(cpu: str, **fields: Any) -> Json:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **fields}

    pod = a_pod(containers=[needs("1")], initContainers=[needs("4"), needs("500m", restartPolicy="Always")])
    assert float(requests(pod)["cpu"]) == 4.5


def required(**term: Json) -> Json:
    """A pod with a required node affinity of one term."""
    terms = {"nodeSelectorTerms": [{kind: [requirement] for kind, requirement in term.items()}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("term", "node"),
    [
        ({"matchFields": {"key": "metadata.name", "operator": "In", "values": ["b"]}}, "b"),
        ({"matchFields": {"key": "metadata.name", "operator": "NotIn", "values": ["b"]}}, "a"),
        ({"matchExpressions": {"key": "zone", "operator": "In", "values": ["west"]}}, "b"),
        ({"matchExpressions": {"key": "spot", "operator": "Exists"}}, "b"),
        ({"matchExpressions": {"key": "spot", "operator": "DoesNotExist"}}, "a"),
        ({"matchExpressions": {"key": "zone", "operator": "In", "values": ["north"]}}, None),
    ],
)
def test_scheduler_looks_at_required_node_affinity(term: Json, node: str | None) -> None:
    room = {"pods": Fraction(10)}
    places = [Place("a", {"zone": "east"}, (), dict(room)), Place("b", {"zone": "west", "spot": ""}, (), dict(room))]
    found, _ = choose(a_pod(**required(**term)), places)
    assert (found.name if found is not None else None) == node


def test_pods_are_selected_by_their_fields() -> None:
    async def story(cluster: Cluster, client: Client) -> None:
        await client.create(POD, a_pod("placed"), "team")
        await client.create(POD, a_pod("waits", nodeSelector={"no": "node"}), "team")
        await anyio.sleep(5)
        for fields, names in (
            ("spec.nodeName!=", ["placed"]),
            ("spec.nodeName=", ["waits"]),
            ("spec.nodeName!=,status.phase!=Running", []),
            ("metadata.name==waits,status.phase=Pending", ["waits"]),
        ):
            assert [pod.metadata.name for pod in await client.list(POD, namespace="team", fields=fields)] == names

    live(story)
