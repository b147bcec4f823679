from torchctl.runtime.cache.gauges import Gauges
from torchctl.runtime.cache.informer import Informer
from torchctl.runtime.kinds import LEASE, Lease, ObjectMeta
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.watch.events import Applied, Bookmarked, Unavailable
from torchctl.runtime.watch.selector import Selector
from torchctl.testing.clock import ManualClock

VERSION = {"name": "torchctl", "group": "coordination.k8s.io", "version": "v1", "resource": "leases"}


async def test_the_informer_that_is_furthest_behind_counts() -> None:
    """Of two watches of a resource one is alive, the other one has been silent for a minute."""
    clock, metrics = ManualClock(), Metrics(process=False)
    gauges = Gauges(metrics)
    silent: Informer[Lease] = Informer(LEASE, Selector(labels="app=x"), clock=clock)
    alive: Informer[Lease] = Informer(LEASE, Selector(), clock=clock)
    gauges.add(silent)
    gauges.add(alive)
    for informer, version in ((silent, 5), (alive, 6)):
        await informer.feed(Applied(Lease(ObjectMeta(name="a", namespace="ns", resource_version=str(version)))))
    await alive.feed(Bookmarked("90"))
    clock.seconds += 60
    alive.heard()

    sample = metrics.registry.get_sample_value
    assert sample("torchctl_watch_age_seconds", {"resource": LEASE.resource}) == 60
    assert sample("torchctl_cache_objects", {"resource": LEASE.resource}) == 2
    assert sample("torchctl_watch_available", {"resource": LEASE.resource}) == 1
    await alive.feed(Unavailable("forbidden"))
    assert sample("torchctl_watch_available", {"resource": LEASE.resource}) == 0
    assert sample("informer_store_resource_version", VERSION) == 5
