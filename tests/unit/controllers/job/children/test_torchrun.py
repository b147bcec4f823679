"""The environment of a worker, for every rendezvous backend."""

from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from world import World

from torchctl.api.common import Distributed
from torchctl.api.job import JobSpec, TorchrunJob
from torchctl.api.queue import QueueSpec, TorchrunQueue
from torchctl.controllers.job.children import torchrun
from torchctl.controllers.job.template.errors import Impossible
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.controllers.job.template.render import render
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.kinds import ObjectMeta

TWO = "{{jobQueue: research, numNodes: 2, command: python train.py, distributed: {distributed}}}"
MASTER = "demo-0.demo.team.svc.cluster.local"


def environment(world: type[World], distributed: str = "{}", queue: str = "image: a:1") -> dict[str, Any]:
    w = world(TWO.format(distributed=distributed), queue)
    w.settle()
    trainer = w.trainer()
    return {variable["name"]: variable.get("value", "(field)") for variable in trainer["env"]}


def test_c10d_meets_at_worker_0_by_its_fully_qualified_name(world: type[World]) -> None:
    found = environment(world)
    assert (found["PET_RDZV_BACKEND"], found["PET_RDZV_ENDPOINT"]) == ("c10d", f"{MASTER}:29500")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == (MASTER, "29500")
    assert "PET_NODE_RANK" not in found, "torchrun warns of a rank that it ignores"


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ("{}", "read_timeout=600"),
        ("{join_timeout: '900'}", "join_timeout=900,read_timeout=900"),
        ("{join_timeout: '900', read_timeout: '60'}", "join_timeout=900,read_timeout=60"),
    ],
)
def test_workers_wait_equally_long_for_worker_0_and_each_other(world: type[World], conf: str, expected: str) -> None:
    assert environment(world, f"{{rdzvConf: {conf}}}")["PET_RDZV_CONF"] == expected


def test_the_store_s_timeout_is_no_setting_of_other_backends(world: type[World]) -> None:
    assert "PET_RDZV_CONF" not in environment(world, "{rdzvBackend: static}")


def test_static_sets_the_rank_by_index_and_names_the_master(world: type[World]) -> None:
    found = environment(world, "{rdzvBackend: static, port: 29400}")
    assert (found["PET_NODE_RANK"], found["NODE_RANK"]) == ("(field)", "(field)")
    assert (found["PET_MASTER_ADDR"], found["PET_MASTER_PORT"]) == (MASTER, "29400")
    assert found["PET_RDZV_ENDPOINT"] == f"{MASTER}:29400"


@pytest.mark.parametrize("backend", ["etcd", "etcd-v2"])
def test_etcd_uses_the_named_endpoint_or_the_operators(world: type[World], backend: str) -> None:
    found = environment(world, f"{{rdzvBackend: {backend}}}")
    assert found["PET_RDZV_ENDPOINT"] == "etcd.etcd-system.svc:2379"
    assert found["MASTER_ADDR"] == MASTER
    named = environment(world, f"{{rdzvBackend: {backend}, rdzvEndpoint: 'etcd.mine:4001'}}")
    assert named["PET_RDZV_ENDPOINT"] == "etcd.mine:4001"


def test_a_store_that_the_user_names_is_used_unchanged(world: type[World]) -> None:
    assert environment(world, "{rdzvEndpoint: store.team}")["PET_RDZV_ENDPOINT"] == "store.team:29500"
    found = environment(world, "{rdzvEndpoint: 'store.team:4000', rdzvConf: {is_host: '0'}}")
    assert found["PET_RDZV_ENDPOINT"] == "store.team:4000"
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("store.team", "4000")
    assert found["PET_RDZV_CONF"] == "is_host=0,read_timeout=600"


def test_the_jobs_settings_win_over_the_queues_by_key(world: type[World]) -> None:
    queue = "{image: a:1, distributed: {backend: mpi, port: 30000, rdzvConf: {a: '1', b: '1'}}}"
    found = environment(world, "{rdzvConf: {b: '2'}}", queue)
    assert found["PET_RDZV_CONF"] == "a=1,b=2,read_timeout=600"
    assert (found["TORCHRUN_BACKEND"], found["MASTER_PORT"]) == ("mpi", "30000")


def test_backend_follows_the_gpus_and_processes_are_never_none(world: type[World]) -> None:
    cpu = environment(world)
    assert (cpu["TORCHRUN_BACKEND"], cpu["PET_NPROC_PER_NODE"]) == ("gloo", "1")
    gpu = environment(world, queue="{image: a:1, nodeResources: {gpus: 4}}")
    assert (gpu["TORCHRUN_BACKEND"], gpu["PET_NPROC_PER_NODE"], gpu["NPROC_PER_NODE"]) == ("nccl", "4", "4")


def test_user_variables_come_last_and_win_over_defaults(world: type[World]) -> None:
    """A user's variable may refer to the variables before it."""
    queue = (
        "{image: a:1, env: [{name: TORCH_DISABLE_SHARE_RDZV_TCP_STORE, value: '0'}, {name: X, value: $(MASTER_ADDR)}]}"
    )
    found = environment(world, queue=queue)
    assert found["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "0"
    assert list(found).index("MASTER_ADDR") < list(found).index("X")


def test_the_users_own_choice_of_user_leaves_home_alone(world: type[World]) -> None:
    assert environment(world)["HOME"] == "/tmp"
    chosen = "{image: a:1, podTemplate: {spec: {securityContext: {runAsUser: 0}}}}"
    assert "HOME" not in environment(world, queue=chosen)


def test_another_cluster_domain_is_another_endpoint(world: type[World]) -> None:
    from torchctl.controllers.settings import OperatorSettings

    settings = OperatorSettings(image="torchctl:test", cluster_domain="example.internal")
    w = world(TWO.format(distributed="{}"), "image: a:1", settings)
    w.settle()
    assert w.status.master_endpoint == "demo-0.demo.team.svc.example.internal:29500"


@pytest.mark.parametrize(
    ("distributed", "endpoint"),
    [
        ("{rdzvBackend: etcd, rdzvEndpoint: etcd.mine}", "etcd.mine:2379"),
        ("{rdzvBackend: etcd-v2, rdzvEndpoint: etcd.mine, port: 30000}", "etcd.mine:2379"),
        ("{rdzvEndpoint: '[fd00::7]'}", "[fd00::7]:29500"),
        ("{rdzvEndpoint: '[fd00::7]:4000'}", "[fd00::7]:4000"),
    ],
)
def test_an_endpoint_without_a_port_gets_its_backends_port(world: type[World], distributed: str, endpoint: str) -> None:
    assert environment(world, distributed)["PET_RDZV_ENDPOINT"] == endpoint


@pytest.mark.parametrize("endpoint", ["tcp://store:4000", "store:port", "store:4000/x", "store:", "-x", "a b"])
def test_an_endpoint_that_is_no_host_and_port_is_refused(endpoint: str) -> None:
    with pytest.raises(ValidationError):
        Distributed.model_validate({"rdzvEndpoint": endpoint})


def test_on_the_hosts_network_workers_tell_each_other_their_address(world: type[World]) -> None:
    """The name that a pod finds for itself there is the node's."""
    host = "{image: a:1, podTemplate: {spec: {hostNetwork: true}}}"
    assert environment(world, queue=host)["PET_LOCAL_ADDR"] == "(field)"
    assert "PET_LOCAL_ADDR" not in environment(world)


def rendered(distributed: str = "{}", job: str = "numNodes: 2", queue: str = "image: a:1") -> FrozenTemplate:
    meta = ObjectMeta(name="demo", namespace="team", uid="0c5f", generation=1)
    spec = f"{{jobQueue: research, {job}, command: python train.py, distributed: {distributed}}}"
    return render(
        TorchrunJob(meta, JobSpec.model_validate(yaml.safe_load(spec))),
        TorchrunQueue(ObjectMeta(name="research", namespace="team"), QueueSpec.model_validate(yaml.safe_load(queue))),
        OperatorSettings(image="torchctl:test"),
    )


def worker(template: FrozenTemplate) -> dict[str, str]:
    variables = torchrun.environment(template, "demo", "team", "0c5f", 0)
    return {variable["name"]: variable.get("value", "(field)") for variable in variables} | torchrun.defaults(template)


ELASTIC = "numNodes: {}, elastic: {{minNodes: 1, maxNodes: 3}}"


@pytest.mark.proves(
    "TorchrunJob.spec.elastic.minNodes",
    "TorchrunJob.spec.elastic.maxNodes",
    "TorchrunJob.spec.runPolicy.maxWorkerRestarts",
)
@pytest.mark.parametrize("backend", ["c10d", "etcd", "etcd-v2"])
def test_an_elastic_job_passes_its_bounds_and_restarts_in_place(backend: str) -> None:
    """torchrun gets the bounds of the job."""
    found = worker(rendered(f"{{rdzvBackend: {backend}}}", ELASTIC.format(2)))
    assert (found["PET_NNODES"], found["NNODES"]) == ("1:3", "1:3")
    assert found["PET_MAX_RESTARTS"] == "100"


def test_scaling_changes_nothing_that_a_running_pod_was_made_from() -> None:
    environments = [torchrun.environment(rendered(job=ELASTIC.format(n)), "demo", "team", "0c5f", 0) for n in (1, 2, 3)]
    assert environments[0] == environments[1] == environments[2]


@pytest.mark.parametrize(
    ("job", "shared"),
    [("numNodes: 1", True), ("numNodes: 2", False), (ELASTIC.format(1), False)],
)
def test_the_store_is_shared_only_where_nobody_can_ever_join(job: str, shared: bool) -> None:
    assert ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in worker(rendered(job=job))) is shared


def test_a_queue_that_is_static_cannot_run_an_elastic_job() -> None:
    queue = "{image: a:1, distributed: {rdzvBackend: static}}"
    with pytest.raises(Impossible, match="static of TorchrunQueue research: set spec"):
        rendered(job=ELASTIC.format(2), queue=queue)
    assert worker(rendered("{rdzvBackend: c10d}", ELASTIC.format(2), queue))["PET_NNODES"] == "1:3"


def test_torchrun_reports_where_the_kubelet_looks() -> None:
    assert worker(rendered())["TORCHELASTIC_ERROR_FILE"] == "/dev/termination-log"
    moved = "{image: a:1, podTemplate: {spec: {containers: [{name: trainer, terminationMessagePath: /tmp/end}]}}}"
    assert worker(rendered(queue=moved))["TORCHELASTIC_ERROR_FILE"] == "/tmp/end"


@pytest.mark.parametrize("backend", ["c10d", "static", "etcd", "etcd-v2"])
@pytest.mark.parametrize("queue", ["image: a:1", "{image: a:1, nodeResources: {gpus: 0}}"])
def test_every_backend_has_every_variable_and_none_is_zero_processes(backend: str, queue: str) -> None:
    found = worker(rendered(f"{{rdzvBackend: {backend}}}", queue=queue))
    common = {
        *(
            "PET_NNODES",
            "PET_NPROC_PER_NODE",
            "PET_RDZV_BACKEND",
            "PET_RDZV_ENDPOINT",
            "PET_RDZV_ID",
            "PET_MAX_RESTARTS",
        ),
        *("NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT", "POD_IP"),
        *("TORCHRUN_JOB_NAME", "TORCHRUN_JOB_ID", "TORCHRUN_ATTEMPT", "TORCHRUN_BACKEND", "TORCHELASTIC_ERROR_FILE"),
        *("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"),
    }
    own = {"static": {"PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}, "c10d": {"PET_RDZV_CONF"}}
    assert set(found) == common | own.get(backend, set())
    assert (found["PET_NPROC_PER_NODE"], found["NPROC_PER_NODE"]) == ("1", "1")
