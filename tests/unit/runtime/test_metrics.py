"""The metrics keep the names, labels and buckets that dashboards for Go operators query."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from torchctl.runtime.metrics import QUEUE_BUCKETS, RECONCILE_BUCKETS, Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(process=False)


def names(metrics: Metrics) -> set[str]:
    return {sample.name for family in metrics.registry.collect() for sample in family.samples}


def test_a_controllers_series_all_exist_at_zero_from_the_start(metrics: Metrics) -> None:
    metrics.for_controller("torchrunjob")
    text = generate_latest(metrics.registry).decode()
    for line in (
        'controller_runtime_reconcile_total{controller="torchrunjob",result="success"} 0.0',
        'controller_runtime_reconcile_total{controller="torchrunjob",result="error"} 0.0',
        'controller_runtime_reconcile_total{controller="torchrunjob",result="requeue"} 0.0',
        'controller_runtime_reconcile_total{controller="torchrunjob",result="requeue_after"} 0.0',
        'controller_runtime_reconcile_errors_total{controller="torchrunjob"} 0.0',
        'controller_runtime_terminal_reconcile_errors_total{controller="torchrunjob"} 0.0',
        'controller_runtime_reconcile_panics_total{controller="torchrunjob"} 0.0',
        'controller_runtime_reconcile_timeouts_total{controller="torchrunjob"} 0.0',
        'controller_runtime_reconcile_time_seconds_count{controller="torchrunjob"} 0.0',
        'controller_runtime_max_concurrent_reconciles{controller="torchrunjob"} 0.0',
        'controller_runtime_active_workers{controller="torchrunjob"} 0.0',
        'workqueue_depth{controller="torchrunjob",name="torchrunjob",priority="0"} 0.0',
        'workqueue_adds_total{controller="torchrunjob",name="torchrunjob"} 0.0',
        'workqueue_retries_total{controller="torchrunjob",name="torchrunjob"} 0.0',
        'workqueue_unfinished_work_seconds{controller="torchrunjob",name="torchrunjob"} 0.0',
        'workqueue_longest_running_processor_seconds{controller="torchrunjob",name="torchrunjob"} 0.0',
        'workqueue_queue_duration_seconds_count{controller="torchrunjob",name="torchrunjob"} 0.0',
        'workqueue_work_duration_seconds_count{controller="torchrunjob",name="torchrunjob"} 0.0',
    ):
        assert line in text.splitlines()


def test_metrics_exist_at_zero_from_the_start(metrics: Metrics) -> None:
    """The metrics of leadership, watches, hosts and dropped events are there before anything happens."""
    metrics.for_lease("operator")
    metrics.for_controller("jobs")
    metrics.for_resource("pods")
    metrics.for_host("10.0.0.1:6443")
    lines = generate_latest(metrics.registry).decode().splitlines()
    assert 'leader_election_master_status{name="operator"} 0.0' in lines
    assert 'torchctl_watch_age_seconds{resource="pods"} 0.0' in lines
    assert 'torchctl_undecodable_objects_total{resource="pods"} 0.0' in lines
    assert 'rest_client_request_duration_seconds_count{host="10.0.0.1:6443",verb="apply"} 0.0' in lines
    assert 'torchctl_events_dropped_total{reason="spam"} 0.0' in lines
    assert 'torchctl_barrier_timeouts_total{controller="jobs"} 0.0' in lines


def test_request_counts_carry_code_method_and_host(metrics: Metrics) -> None:
    metrics.rest_client_requests_total.labels(code="200", method="GET", host="h").inc()
    assert (
        metrics.registry.get_sample_value("rest_client_requests_total", {"code": "200", "method": "GET", "host": "h"})
        == 1
    )


def test_depth_of_a_priority_without_keys_falls_to_zero(metrics: Metrics) -> None:
    queue = metrics.for_controller("c").queue
    queue.set_depth({-100: 7, 0: 1})
    queue.set_depth({0: 2})
    depth = {
        sample.labels["priority"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "workqueue_depth"
    }
    assert depth == {"-100": 0, "0": 2}


def test_buckets_are_those_of_controller_runtime() -> None:
    assert (len(RECONCILE_BUCKETS), RECONCILE_BUCKETS[0], RECONCILE_BUCKETS[-1]) == (40, 0.005, 60)
    assert (len(QUEUE_BUCKETS), QUEUE_BUCKETS[0], QUEUE_BUCKETS[-1]) == (12, 1e-8, 1e3)
    assert sorted(RECONCILE_BUCKETS) == list(RECONCILE_BUCKETS)


def test_creation_timestamps_are_not_exported(metrics: Metrics) -> None:
    metrics.for_controller("c")
    assert not [name for name in names(metrics) if name.endswith("_created")]


def test_process_series_are_included_unless_declined() -> None:
    assert "process_resident_memory_bytes" in names(Metrics(CollectorRegistry()))
    assert "process_resident_memory_bytes" not in names(Metrics(CollectorRegistry(), process=False))


def test_two_registries_live_side_by_side() -> None:
    one, other = Metrics(process=False), Metrics(process=False)
    one.for_controller("c").errors_total.inc()
    other.for_controller("c")
    assert other.registry.get_sample_value("controller_runtime_reconcile_errors_total", {"controller": "c"}) == 0
