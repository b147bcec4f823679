"""The runtime's Prometheus metrics, under the names that controller-runtime and client-go use.

Dashboards and alerts written for Go operators work unchanged. Series of our own begin with `torchctl_`.
A registry is passed in, never global, and every series whose labels are known exists at zero from the start,
so that a rate over its first increment is right.
"""

from collections.abc import Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

__all__ = ["ControllerMetrics", "HostMetrics", "Metrics", "QueueMetrics", "ResourceMetrics", "WebhookMetrics"]

RESULTS = ("success", "error", "requeue", "requeue_after")
EVENT_DROPS = ("queue_full", "spam", "refused", "failed")
HTTP_VERBS = ("get", "list", "watch", "create", "apply", "patch", "update", "delete", "deletecollection")

# controller-runtime pkg/internal/controller/metrics/metrics.go
RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)
# controller-runtime pkg/internal/metrics/workqueue.go
QUEUE_BUCKETS = tuple(float(f"1e{exponent}") for exponent in range(-8, 4))
# component-base metrics/prometheus/restclient/metrics.go
REST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
REST_SIZE_BUCKETS = tuple(2.0**exponent for exponent in (6, 8, 9, 10, 12, 14, 16, 18, 20, 22, 24))
WAIT_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0)


class Metrics:
    """All metric objects of one process (or of one test), registered with `registry`.

    Args:
        registry: Holds the metrics; `/metrics` serves it.
        process: Include the process, platform and garbage collector series.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, process: bool = True) -> None:
        # Creation times would double every series, and Prometheus reads none of them.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in prometheus_client
        self.registry = registry if registry is not None else CollectorRegistry()
        if process:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            GCCollector(registry=self.registry)
        self._reconcile()
        self._queue()
        self._rest_client()
        self._watches()
        self._webhooks()
        self._process()

    def for_webhook(self, path: str) -> "WebhookMetrics":
        """Returns the series of one admission webhook, all of them created at zero."""
        return WebhookMetrics(self, path)

    def for_controller(self, name: str) -> "ControllerMetrics":
        """Returns the series of one controller, all of them created at zero."""
        return ControllerMetrics(self, name)

    def for_resource(self, resource: str) -> "ResourceMetrics":
        """Returns the series of one informer, e.g. of `jobs.batch`, all of them created at zero."""
        return ResourceMetrics(self, resource)

    def for_host(self, host: str) -> "HostMetrics":
        """Returns the series of an API server, created at zero but for the codes of its answers, which nobody knows."""
        return HostMetrics(self, host)

    def for_lease(self, name: str) -> Gauge:
        """Returns the gauge that is 1 while this process leads by the Lease `name`, else 0."""
        self.leader_election_slowpath_total.labels(name)
        return self.leader_election_master_status.labels(name)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, labels, registry=self.registry, buckets=buckets)

    def _reconcile(self) -> None:
        c, name = "controller", "controller_runtime"
        self.reconcile_total = self._counter(f"{name}_reconcile_total", "Reconciles by result.", c, "result")
        self.reconcile_errors_total = self._counter(f"{name}_reconcile_errors_total", "Reconciles that raised.", c)
        self.terminal_reconcile_errors_total = self._counter(
            f"{name}_terminal_reconcile_errors_total", "Reconciles that raised TerminalError: no retry.", c
        )
        self.reconcile_panics_total = self._counter(
            f"{name}_reconcile_panics_total", "Reconciles that raised the unexpected: a fault of the reconciler.", c
        )
        self.reconcile_timeouts_total = self._counter(
            f"{name}_reconcile_timeouts_total", "Reconciles cut off by the reconcile timeout.", c
        )
        self.reconcile_time_seconds = self._histogram(
            f"{name}_reconcile_time_seconds", "Duration of a reconcile.", c, buckets=RECONCILE_BUCKETS
        )
        self.max_concurrent_reconciles = self._gauge(f"{name}_max_concurrent_reconciles", "Workers of a controller.", c)
        self.active_workers = self._gauge(f"{name}_active_workers", "Workers that are reconciling right now.", c)

    def _queue(self) -> None:
        labels = ("name", "controller")
        self.workqueue_depth = self._gauge(
            "workqueue_depth", "Keys that are due and wait for a worker.", *labels, "priority"
        )
        self.workqueue_adds_total = self._counter("workqueue_adds_total", "Times that a key became due.", *labels)
        self.workqueue_retries_total = self._counter(
            "workqueue_retries_total",
            "Keys added with a delay: by a retry, a requeue, or a delayed watch.",
            *labels,
        )
        self.workqueue_unfinished_work_seconds = self._gauge(
            "workqueue_unfinished_work_seconds", "Sum of the ages of the work in progress.", *labels
        )
        self.workqueue_longest_running_processor_seconds = self._gauge(
            "workqueue_longest_running_processor_seconds", "Age of the oldest work in progress.", *labels
        )
        self.workqueue_queue_duration_seconds = self._histogram(
            "workqueue_queue_duration_seconds", "How long a key was due.", *labels, buckets=QUEUE_BUCKETS
        )
        self.workqueue_work_duration_seconds = self._histogram(
            "workqueue_work_duration_seconds", "How long a key was worked on.", *labels, buckets=QUEUE_BUCKETS
        )

    def _rest_client(self) -> None:
        self.rest_client_requests_total = self._counter(
            "rest_client_requests_total",
            "Requests by status code, method and host; code <error> if no answer came.",
            *("code", "method", "host"),
        )
        self.rest_client_request_duration_seconds = self._histogram(
            "rest_client_request_duration_seconds",
            "Duration of a request by Kubernetes verb and host; for a watch, until its first byte.",
            *("verb", "host"),
            buckets=REST_BUCKETS,
        )
        self.rest_client_request_size_bytes = self._histogram(
            "rest_client_request_size_bytes", "Bytes of a request's body.", "verb", "host", buckets=REST_SIZE_BUCKETS
        )
        self.rest_client_response_size_bytes = self._histogram(
            "rest_client_response_size_bytes",
            "Bytes of an answer's body; streams are not counted.",
            *("verb", "host"),
            buckets=REST_SIZE_BUCKETS,
        )

    def _watches(self) -> None:
        self.informer_store_resource_version = self._gauge(
            "informer_store_resource_version",
            "Highest resourceVersion that the cache has seen.",
            *("name", "group", "version", "resource"),
        )
        r, c = "resource", "controller"
        self.watch_age_seconds = self._gauge(
            "torchctl_watch_age_seconds", "Seconds since the API server last gave a good answer on this watch.", r
        )
        self.watch_available = self._gauge(
            "torchctl_watch_available",
            "0 while the API server refuses this watch or does not know the kind, else 1.",
            r,
        )
        self.cache_objects = self._gauge("torchctl_cache_objects", "Objects in the cache.", r)
        self.watch_relists_total = self._counter(
            "torchctl_watch_relists_total", "Full lists, the first one included.", r
        )
        self.undecodable_objects_total = self._counter(
            "torchctl_undecodable_objects_total", "Objects skipped because they do not fit their type.", r
        )
        self.handler_errors_total = self._counter(
            "torchctl_handler_errors_total", "Exceptions raised by handlers, mappers and predicates.", r
        )
        self.barrier_wait_seconds = self._histogram(
            "torchctl_barrier_wait_seconds",
            "How long a reconcile waited for the cache to see its own earlier writes.",
            c,
            buckets=WAIT_BUCKETS,
        )
        self.barrier_timeouts_total = self._counter(
            "torchctl_barrier_timeouts_total", "Waits for the cache that were given up.", c
        )

    def _webhooks(self) -> None:
        w, name = "webhook", "controller_runtime_webhook"
        self.webhook_requests_total = self._counter(
            f"{name}_requests_total", "Admission reviews by HTTP status.", w, "code"
        )
        self.webhook_panics_total = self._counter(f"{name}_panics_total", "Reviews whose handler raised.", w)
        self.webhook_requests_in_flight = self._gauge(f"{name}_requests_in_flight", "Reviews under way.", w)
        self.webhook_latency_seconds = self._histogram(
            f"{name}_latency_seconds", "Duration of a review.", w, buckets=WAIT_BUCKETS
        )

    def _process(self) -> None:
        self.leader_election_master_status = self._gauge(
            "leader_election_master_status", "1 on the process that leads, else 0.", "name"
        )
        self.leader_election_slowpath_total = self._counter(
            "leader_election_slowpath_total", "Renewals that failed and were tried again.", "name"
        )
        self.event_loop_lag_seconds = self._histogram(
            "torchctl_event_loop_lag_seconds", "How late the event loop wakes a timer.", buckets=LAG_BUCKETS
        )
        self.events_written_total = self._counter("torchctl_events_written_total", "Events written.")
        self.events_dropped_total = self._counter(
            "torchctl_events_dropped_total", "Events not written, by reason.", "reason"
        )
        for reason in EVENT_DROPS:
            self.events_dropped_total.labels(reason)


class ControllerMetrics:
    """One controller's series, labels filled in."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.reconcile_total: Mapping[str, Counter] = {
            result: metrics.reconcile_total.labels(name, result) for result in RESULTS
        }
        self.errors_total = metrics.reconcile_errors_total.labels(name)
        self.terminal_errors_total = metrics.terminal_reconcile_errors_total.labels(name)
        self.panics_total = metrics.reconcile_panics_total.labels(name)
        self.timeouts_total = metrics.reconcile_timeouts_total.labels(name)
        self.time_seconds = metrics.reconcile_time_seconds.labels(name)
        self.max_concurrent = metrics.max_concurrent_reconciles.labels(name)
        self.active_workers = metrics.active_workers.labels(name)
        self.barrier_wait_seconds = metrics.barrier_wait_seconds.labels(name)
        self.barrier_timeouts_total = metrics.barrier_timeouts_total.labels(name)
        self.queue = QueueMetrics(metrics, name)


class HostMetrics:
    """The series of requests to one API server, labels filled in."""

    def __init__(self, metrics: Metrics, host: str) -> None:
        self._durations = {verb: metrics.rest_client_request_duration_seconds.labels(verb, host) for verb in HTTP_VERBS}
        self._sent = {verb: metrics.rest_client_request_size_bytes.labels(verb, host) for verb in HTTP_VERBS}
        self._received = {verb: metrics.rest_client_response_size_bytes.labels(verb, host) for verb in HTTP_VERBS}
        self._requests: dict[tuple[int, str], Counter] = {}
        self._total, self._host = metrics.rest_client_requests_total, host

    def note_attempt(self, verb: str, method: str, code: int, seconds: float) -> None:
        """Counts one sending of a request; code 0 if no answer came."""
        counter = self._requests.get((code, method))
        if counter is None:
            counter = self._requests[code, method] = self._total.labels(str(code or "<error>"), method, self._host)
        counter.inc()
        self._durations[verb].observe(seconds)

    def note_sizes(self, verb: str, sent: int, received: int) -> None:
        """Counts the bytes of the bodies of a request and of its answer."""
        self._sent[verb].observe(sent)
        self._received[verb].observe(received)


class WebhookMetrics:
    """One admission webhook's series, labels filled in."""

    def __init__(self, metrics: Metrics, path: str) -> None:
        self.requests = metrics.webhook_requests_total
        self.requests.labels(path, "200")
        self.panics = metrics.webhook_panics_total.labels(path)
        self.in_flight = metrics.webhook_requests_in_flight.labels(path)
        self.latency = metrics.webhook_latency_seconds.labels(path)


class QueueMetrics:
    """One workqueue's series, labels filled in."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        labels = (name, name)
        self.adds_total = metrics.workqueue_adds_total.labels(*labels)
        self.retries_total = metrics.workqueue_retries_total.labels(*labels)
        self.unfinished_work_seconds = metrics.workqueue_unfinished_work_seconds.labels(*labels)
        self.longest_running_processor_seconds = metrics.workqueue_longest_running_processor_seconds.labels(*labels)
        self.queue_duration_seconds = metrics.workqueue_queue_duration_seconds.labels(*labels)
        self.work_duration_seconds = metrics.workqueue_work_duration_seconds.labels(*labels)
        self._labels = labels
        self._depth = metrics.workqueue_depth
        self._depths: dict[int, Gauge] = {}
        self.set_depth({0: 0})

    def set_depth(self, due_by_priority: Mapping[int, int]) -> None:
        """Publishes the number of due keys by priority; a priority that is missing falls to zero."""
        for priority in due_by_priority.keys() - self._depths.keys():
            self._depths[priority] = self._depth.labels(*self._labels, str(priority))
        for priority, depth in self._depths.items():
            depth.set(due_by_priority.get(priority, 0))

    def set_work(self, sum_s: float, longest_s: float) -> None:
        """Publishes the ages of the work in progress: their sum, and that of the oldest."""
        self.unfinished_work_seconds.set(sum_s)
        self.longest_running_processor_seconds.set(longest_s)


class ResourceMetrics:
    """One informer's series, labels filled in."""

    def __init__(self, metrics: Metrics, resource: str) -> None:
        self.watch_age_seconds = metrics.watch_age_seconds.labels(resource)
        self.watch_available = metrics.watch_available.labels(resource)
        self.cache_objects = metrics.cache_objects.labels(resource)
        self.relists_total = metrics.watch_relists_total.labels(resource)
        self.undecodable_total = metrics.undecodable_objects_total.labels(resource)
        self.handler_errors_total = metrics.handler_errors_total.labels(resource)
