"""The init container that asks etcd, and what is read of its end."""

from typing import Any

import pytest
from world import World

from torchctl.api.causes import Cause
from torchctl.api.conditions import JobReason
from torchctl.controllers.job.failure.preflights import permanent

JOB = "{{jobQueue: research, numNodes: 2, command: python a.py, distributed: {distributed}{more}}}"
TLS = "protocol: https, ca_cert: /tls/ca.crt, ssl_cert: /tls/client.crt, ssl_cert_key: /keys/client.key"
VOLUMES = """, volumes: {
  additionalVolumes: [{name: tls, secret: {secretName: etcd-tls}}, {name: keys, secret: {secretName: etcd-keys}}],
  additionalMounts: [
    {name: tls, mountPath: /tls}, {name: keys, mountPath: /keys, subPath: of-etcd}, {name: tls, mountPath: /t}]}"""


def containers(world: type[World], distributed: str, more: str = "", queue: str = "image: a:1") -> list[dict[str, Any]]:
    """The init containers of a worker."""
    w = world(JOB.format(distributed=distributed, more=more), queue)
    w.settle()
    if w.seen.sync_pods:
        w.sync_succeeds()
        w.sync_serves()
        w.settle()
    found: list[dict[str, Any]] = w.spec("Job", "demo")["template"]["spec"].get("initContainers", [])
    return found


@pytest.mark.parametrize("backend", ["etcd", "etcd-v2"])
def test_workers_that_meet_in_etcd_ask_it_first(world: type[World], backend: str) -> None:
    (container,) = containers(world, f"{{rdzvBackend: {backend}, rdzvEndpoint: etcd.mine}}")
    assert container["name"] == "preflight"
    assert container["image"] == "torchctl:test"
    assert container["command"] == ["torchctl", "preflight"]
    assert container["args"] == ["etcd", "--endpoint=etcd.mine:2379", "--timeout=300"]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "volumeMounts" not in container


def test_the_question_comes_before_the_work(world: type[World]) -> None:
    queue = "{image: a:1, storage: {workspace: {enabled: true}}, podTemplate: {spec: {initContainers: [{name: own}]}}}"
    more = ", volumes: {workspace: {source: git, url: 'https://git.example.com/a.git'}}"
    names = [container["name"] for container in containers(world, "{rdzvBackend: etcd-v2}", more, queue)]
    assert names == ["preflight", "workspace", "own"]


@pytest.mark.parametrize(
    ("distributed", "more"),
    [
        ("{}", ""),
        ("{rdzvBackend: c10d, rdzvEndpoint: 'store:4000'}", ""),
        ("{rdzvBackend: static}", ""),
        ("{rdzvBackend: etcd-v2}", ", launcher: none"),
        ("{rdzvBackend: etcd-v2, rdzvConf: {protocol: carrier-pigeon}}", ""),
    ],
)
def test_nobody_asks_where_etcd_is_not_used(world: type[World], distributed: str, more: str) -> None:
    assert containers(world, distributed, more) == []


def test_it_asks_with_the_certificates_that_torchrun_is_given(world: type[World]) -> None:
    distributed = f"{{rdzvBackend: etcd-v2, rdzvEndpoint: 'etcd:2379', rdzvConf: {{{TLS}}}}}"
    (container,) = containers(world, distributed, VOLUMES)
    assert container["args"] == [
        "etcd",
        "--endpoint=etcd:2379",
        "--protocol=https",
        "--ca=/tls/ca.crt",
        "--certificate=/tls/client.crt",
        "--key=/keys/client.key",
        "--timeout=300",
    ]
    assert container["volumeMounts"] == [
        {"name": "tls", "mountPath": "/tls", "readOnly": True},
        {"name": "keys", "mountPath": "/keys", "subPath": "of-etcd", "readOnly": True},
    ]


def test_the_older_backend_calls_its_certificates_otherwise(world: type[World]) -> None:
    conf = "protocol: HTTPS, cacert: /tls/ca.crt, ca_cert: /elsewhere"
    (container,) = containers(world, f"{{rdzvBackend: etcd, rdzvConf: {{{conf}}}}}", VOLUMES)
    assert container["args"][2:4] == ["--protocol=https", "--ca=/tls/ca.crt"]


@pytest.mark.parametrize("path", ["/etc/ssl/ca.crt", "/tlsx/ca.crt", "/tls"])
def test_no_preflight_uses_a_certificate_of_the_trainers_image(world: type[World], path: str) -> None:
    """Only the trainer can read a certificate that lies in its image."""
    distributed = f"{{rdzvBackend: etcd-v2, rdzvConf: {{protocol: https, ca_cert: {path}}}}}"
    assert containers(world, distributed, VOLUMES) == []


def test_certificates_mean_nothing_without_tls(world: type[World]) -> None:
    (container,) = containers(world, "{rdzvBackend: etcd-v2, rdzvConf: {ca_cert: /etc/ssl/ca.crt}}")
    assert container["args"] == ["etcd", "--endpoint=etcd.etcd-system.svc:2379", "--timeout=300"]


@pytest.mark.parametrize(
    ("cause", "code", "reason"),
    [
        (Cause.RENDEZVOUS_UNREACHABLE, 69, JobReason.ETCD_V2_DISABLED),
        (Cause.RENDEZVOUS_UNREACHABLE, 76, JobReason.PREFLIGHT_FAILED),
        (Cause.RENDEZVOUS_UNREACHABLE, 75, None),
        (Cause.RENDEZVOUS_UNREACHABLE, 137, None),
        (Cause.RENDEZVOUS_UNREACHABLE, None, None),
        (Cause.WORKSPACE_LOST, 69, None),
    ],
)
def test_only_what_another_attempt_would_repeat_is_permanent(
    cause: Cause, code: int | None, reason: JobReason | None
) -> None:
    assert permanent(cause, code) is reason


def test_the_exit_statuses_are_those_of_the_program() -> None:
    from torchctl.controllers.job.failure import preflights
    from torchctl.preflight.core import NotUsable, V2Off

    assert {error.exit_code for error in (NotUsable, V2Off)} == set(preflights._REASONS)
    assert preflights._REASONS[V2Off.exit_code] is JobReason.ETCD_V2_DISABLED
