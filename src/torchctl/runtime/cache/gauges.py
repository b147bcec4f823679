"""Publishes the age and size of the cache by resource."""

from collections.abc import Callable
from typing import Any

from torchctl.runtime.cache.informer import Informer
from torchctl.runtime.metrics import Metrics

__all__ = ["Gauges"]


class Gauges:
    """The gauges of all informers, computed when they are read.

    If a resource has several informers, the one that is furthest behind counts, because a dead watch must not hide
    behind a healthy one.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._informers: dict[str, list[Informer[Any]]] = {}

    def add(self, informer: Informer[Any]) -> None:
        kind = informer.kind
        informers = self._informers.setdefault(kind.resource, [])
        informers.append(informer)
        series = self._metrics.for_resource(kind.resource)
        series.watch_age_seconds.set_function(_over(max, informers, lambda one: one.age()))
        series.watch_available.set_function(_over(min, informers, lambda one: float(not one.is_refused)))
        series.cache_objects.set_function(_over(sum, informers, lambda one: float(len(one.reader))))
        version = self._metrics.informer_store_resource_version.labels(
            "torchctl", kind.group, kind.version, kind.plural
        )
        version.set_function(_over(min, informers, lambda one: float(one.resource_version)))


def _over(
    fold: Callable[[list[float]], float], informers: list[Informer[Any]], read: Callable[[Informer[Any]], float]
) -> Callable[[], float]:
    return lambda: fold([read(informer) for informer in informers])
