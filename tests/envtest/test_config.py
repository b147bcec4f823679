"""`kubectl apply -k config/default` installs the operator where nothing else is, with the rights it declares."""

import json
import re
import shlex
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio
import yaml

from torchctl.controllers.rbac import JOB_CONTROLLER, QUEUE_CONTROLLER, RUNTIME, leader_election, policy
from torchctl.runtime.access.reviews import ACCESS_REVIEW
from torchctl.runtime.settings import ServerSettings
from torchctl.testing.controlplane import ControlPlane

CONFIG = Path(__file__).resolve().parents[2] / "config"
NAMESPACE = "torchctl-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:torchctl"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ControlPlane]:
    """A control plane of its own: an operator's Deployment is no company for other tests."""
    components = ("etcd", "kube-apiserver", "kube-controller-manager")
    async with ControlPlane(directory=tmp_path_factory.mktemp("config"), components=components) as control_plane:
        await control_plane.kubectl("apply", "--kustomize", str(CONFIG / "default"), "--warnings-as-errors")
        yield control_plane


async def allowed(
    cluster: ControlPlane, user: str, verb: str, resource: str, *, namespace: str = "", name: str = ""
) -> bool:
    """What the API server's own authorizer says of `verb` on `plural[.group][/subresource]`."""
    qualified, _, subresource = resource.partition("/")
    plural, _, group = qualified.partition(".")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "namespace": namespace,
        "name": name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    async with cluster.client() as admin:
        return (await admin.create(ACCESS_REVIEW, review)).status.allowed


async def test_its_pods_pass_restricted_pod_security(cluster: ControlPlane) -> None:
    await cluster.kubectl(
        "wait",
        "deployment/torchctl",
        "--for=jsonpath={.status.replicas}=2",
        "--namespace",
        NAMESPACE,
        "--timeout=30s",
    )
    pods = json.loads(await cluster.kubectl("get", "pods", "--namespace", NAMESPACE, "--output=json"))["items"]
    assert len(pods) == 2
    namespace = json.loads(await cluster.kubectl("get", "namespace", NAMESPACE, "--output=json"))
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


async def test_sync_pods_run_the_image_of_the_operator(cluster: ControlPlane) -> None:
    deployment = json.loads(
        await cluster.kubectl("get", "deployment/torchctl", "--namespace", NAMESPACE, "--output=json")
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "TORCHCTL_IMAGE", "value": container["image"]} in container["env"]


async def test_network_policy_covers_the_ports_of_the_manager(
    cluster: ControlPlane,
) -> None:
    """Whether it is enforced is the network plugin's business; that it is of these pods and ports is ours."""

    async def found(kind: str, name: str, namespace: str = NAMESPACE) -> Any:
        return json.loads(await cluster.kubectl("get", kind, name, "--namespace", namespace, "--output=json"))["spec"]

    template = (await found("deployment", "torchctl"))["template"]
    policy = await found("networkpolicy", "torchctl")
    assert policy["podSelector"] == {"matchLabels": template["metadata"]["labels"]}
    assert sorted(policy["policyTypes"]) == ["Egress", "Ingress"]

    (manager,) = template["spec"]["containers"]
    ports = {port["name"]: (port["protocol"], port["containerPort"]) for port in manager["ports"]}
    listening = ServerSettings()
    assert ports == {"metrics": ("TCP", listening.metrics_port), "health": ("TCP", listening.health_port)}
    assert not any(argument.startswith(("--metrics-port", "--health-port")) for argument in manager["args"])
    assert all(rule.keys() == {"ports"} for rule in (*policy["ingress"], *policy["egress"]))
    assert _ports(policy["ingress"]) == set(ports.values())
    api_servers = {("TCP", port) for port in (443, 6443, 8443, 16443)}
    assert _ports(policy["egress"]) == {*api_servers, ("TCP", 53), ("UDP", 53)}
    (service,) = (await found("service", "kubernetes", "default"))["ports"]
    assert (service["protocol"], service["port"]) in _ports(policy["egress"])


def _ports(rules: list[dict[str, Any]]) -> set[tuple[str, int]]:
    return {(port["protocol"], port["port"]) for rule in rules for port in rule["ports"]}


async def test_the_service_account_may_do_what_the_code_declares(cluster: ControlPlane) -> None:
    for rule in policy((*RUNTIME, *QUEUE_CONTROLLER, *JOB_CONTROLLER)):
        (group,), (resource,) = rule["apiGroups"], rule["resources"]
        plural, slash, subresource = resource.partition("/")
        target = f"{plural}.{group}{slash}{subresource}" if group else resource
        for verb in rule["verbs"]:
            assert await allowed(cluster, ACCOUNT, verb, target), (verb, target)


async def test_service_account_may_use_only_its_own_lease(cluster: ControlPlane) -> None:
    leases, lease = "leases.coordination.k8s.io", "torchctl"
    for rule in policy(leader_election(lease)):
        for verb in rule["verbs"]:
            assert await allowed(cluster, ACCOUNT, verb, leases, namespace=NAMESPACE, name=lease), verb
            assert not await allowed(cluster, ACCOUNT, verb, leases, namespace="kube-system", name=lease), verb
    assert not await allowed(cluster, ACCOUNT, "patch", leases, namespace=NAMESPACE, name="another")


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("get", "secrets"),
        ("create", "pods/exec"),
        ("update", "torchrunjobs.torchrun.ai"),
        ("create", "torchrunjobs.torchrun.ai"),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
        ("create", "serviceaccounts/token"),
        ("get", "nodes"),
    ],
)
async def test_the_service_account_may_do_no_more(cluster: ControlPlane, verb: str, resource: str) -> None:
    assert not await allowed(cluster, ACCOUNT, verb, resource)


async def test_people_get_their_rights_from_kubernetes_own_roles(cluster: ControlPlane) -> None:
    for role in ("view", "edit", "admin"):
        await cluster.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")
    job, queue = "torchrunjobs.torchrun.ai", "torchrunqueues.torchrun.ai"

    async def may(user: str, verb: str, resource: str) -> bool:
        return await allowed(cluster, user, verb, resource, namespace="default")

    with anyio.fail_after(30):  # roles are aggregated in the background
        while not (
            await may("admin", "create", queue) and await may("edit", "create", job) and await may("view", "get", job)
        ):
            pass
    assert not await may("view", "create", job)
    assert await may("edit", "patch", f"{job}/scale")
    assert not await may("edit", "create", queue)


@pytest.mark.parametrize("sample", sorted((CONFIG / "samples").glob("*-*.yaml")), ids=lambda path: path.stem)
async def test_a_sample_is_taken(cluster: ControlPlane, sample: Path) -> None:
    await cluster.kubectl("apply", "--dry-run=server", "--warnings-as-errors", "--filename", str(sample))


async def test_etcd_passes_restricted_pod_security(cluster: ControlPlane) -> None:
    await cluster.kubectl("apply", "--kustomize", str(CONFIG / "etcd"), "--warnings-as-errors")
    await cluster.kubectl(
        "wait", "deployment/etcd", "--for=jsonpath={.status.replicas}=1", "--namespace=etcd-system", "--timeout=30s"
    )


async def test_what_the_readme_says_of_installing_works(cluster: ControlPlane, tmp_path: Path) -> None:
    """Each command as it stands there, on a copy of config/. Writes are tried and not made: other tests follow."""
    shutil.copytree(CONFIG, tmp_path / "config")
    text = (CONFIG.parent / "README.md").read_text()
    section = text[text.index("## Install it in a cluster") : text.index("## Train")]
    commands = [shlex.split(line) for line in re.findall(r"^ {4}(\S.*)$", section, re.MULTILINE)]
    assert {command[0] for command in commands} == {"sed", "kubectl"}
    for program, *words in commands:
        if program == "sed":
            script = [word.replace("REGISTRY", "registry.test/team").replace("TAG", "1.2.3") for word in words]
            await anyio.run_process(["sed", *script], cwd=tmp_path)
        else:
            tried = [] if words[0] == "get" else ["--dry-run=server"]
            await cluster.kubectl(*(word.replace("config/", f"{tmp_path}/config/") for word in words), *tried)
    rendered = yaml.safe_load_all(await cluster.kubectl("kustomize", f"{tmp_path}/config/default"))
    (deployment,) = [body for body in rendered if body["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.test/team/torchctl:1.2.3"
    assert {"name": "TORCHCTL_IMAGE", "value": container["image"]} in container["env"]


async def test_prometheus_is_opt_in_and_renders(cluster: ControlPlane) -> None:
    rendered = await cluster.kubectl("kustomize", str(CONFIG / "prometheus"))
    kinds = {body["kind"] for body in yaml.safe_load_all(rendered)}
    assert kinds == {"ServiceMonitor", "PrometheusRule"}
    default = await cluster.kubectl("kustomize", str(CONFIG / "default"))
    assert "monitoring.coreos.com" not in default
